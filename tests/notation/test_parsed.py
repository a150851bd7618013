"""Specs that transforms have changed: pjit's SpecSync, derived again from its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardviz as sv
from shardviz.notation.parsed import ParsedSpec, Sync


def test_once_out_of_sync_always_out_of_sync():
    spec = ParsedSpec.of(("x", None)).insert(1, ("y",))
    assert spec.sync is Sync.OUT_OF_SYNC and str(spec) == "P('x', 'y', None) (made from P('x', None))"
    assert spec.insert(0).sync is Sync.OUT_OF_SYNC and spec.permute((2, 1, 0)).sync is Sync.OUT_OF_SYNC
    assert str(ParsedSpec.of(("x",)).insert(3)) == "P('x', None, None, None) (moved from P('x'))"


@given(st.permutations(range(4)))
def test_permuting_is_transposing(order):
    """The tiles of a transposed array are the transposed tiles."""
    spec = ParsedSpec.of(("x", ("y", "z"), None))
    mesh = {"x": 2, "y": 3, "z": 2}
    before = sv.sharding(spec.spec, mesh, 4).places()
    after = sv.sharding(spec.permute(order).spec, mesh, 4).places()
    assert np.array_equal(after, before[:, list(order)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.insert(0, ("x",)), "'x' cuts it already"),
        (lambda s: s.insert(-1), "0 or more"),
        (lambda s: s.permute((0,)), "no order of its 2 dimensions"),
        (lambda s: s.permute((1, 1)), "no order"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(sv.SpecError, match=message):
        change(ParsedSpec.of(("x", None)))
