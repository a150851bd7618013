"""Texts of Shardy's shardings against Shardy itself: what it takes is read, and what it refuses is refused.

Only where it asks for one of several spellings of the same, others are read too.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.mlir import ir

import shardviz as sv
from shardviz import _jax
from shardviz.errors import ShardvizError

MESH = "a=2,b=4,d=6"
_MODULE = """
sdy.mesh @mesh = <["a"=2, "b"=4, "d"=6]>
func.func @main(%0: tensor<48x48xf32> {{sdy.sharding = #sdy.sharding<@mesh, {text}>}}) {{ return }}
"""
SPELLINGS = (
    "sub-axis size is equal to the full axis size",
    "two consecutive sub-axes can be merged",
    "axes are not ordered w.r.t. mesh",
    "expected string",  # an empty list, `unreduced={}`
)


def refusal(text: str) -> str:
    """Why Shardy refuses a sharding; empty where it takes it."""
    with _jax.mlir_context():
        try:
            ir.Module.parse(_MODULE.format(text=text))
        except ir.MLIRError as error:
            return str(error)
    return ""


def reads(text: str) -> bool:
    try:
        sv.sharding(text, MESH, 2)
    except ShardvizError:
        return False
    return True


AXES = ('"a"', '"b"', '"d"', '"a":(1)2', '"b":(1)2', '"b":(2)2', '"b":(1)4', '"b":(3)2', '"d":(1)2', '"d":(2)3', '"c"')


@st.composite
def texts(draw):
    def listed(most: int, least: int = 0) -> list[str]:
        return draw(st.lists(st.sampled_from(AXES), min_size=least, max_size=most))

    def dimension() -> str:
        inside = ", ".join([*listed(2), *draw(st.sampled_from([[], [], ["?"]]))])
        return "{" + inside + "}" + draw(st.sampled_from(["", "", "p0", "p3"]))

    lists = [
        f", {k}={{{', '.join(listed(2, 1))}}}" for k in ("replicated", "unreduced") if draw(st.integers(0, 3)) == 0
    ]
    return f"[{dimension()}, {dimension()}]{''.join(lists)}"


@settings(max_examples=300)
@given(texts())
def test_what_shardy_takes_is_read_and_what_it_refuses_is_refused(text):
    why = refusal(text)
    assert reads(text) == (not why) or any(spelling in why for spelling in SPELLINGS), why


@pytest.mark.parametrize(
    "text",
    ['[{"a"}, {}p3]', '[{"a"}p1, {?}p3]', "[{}p0, {}]", '[{"a"}p0, {"b", ?}p1]', '[{?}p0, {}], replicated={"a"}'],
)
def test_a_closed_dimension_without_axes_has_no_priority(text):
    assert reads(text) == (not refusal(text)) == ("{}p" not in text)
