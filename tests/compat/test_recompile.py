"""What is said of two calls is what JAX does: traces counted by the function, compiles by JAX's own events."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import shardviz as sv
from shardviz.compat.recompile import why_recompiled
from shardviz.errors import ShardvizError, TraceError
from tests.truth import answers_of

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cases():
    """Pairs of calls, made in a process with two devices."""
    return json.loads(answers_of(Path(__file__).with_name("recompilation_truth.py"), devices=2).splitlines()[-1])


def test_what_is_said_is_what_happened(cases):
    """(traced again, compiled again) of every pair."""
    assert len(cases) > 50
    wrong = {name: case for name, case in cases.items() if case["said"] != case["happened"]}
    assert not wrong, json.dumps(wrong, indent=1)
    happened = {tuple(case["happened"]) for case in cases.values()}
    assert happened == {(True, True), (False, True), (False, False)}, "the pairs try every verdict"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("the same", "fn: the same: no recompilation"),
        ("shape", "at args[0], now f32[2,4] and before f32[4,4]"),
        ("weak to numpy", "and before"),
        ("dict keys", "different input pytree"),
        ("static, another", "static value k: 1 (int) → 2 (int)"),
        ("committed", "fn: compiled again, from the same trace"),
        ("another spec", "args[0]: NamedSharding"),
        ("x64", "jax_enable_x64 differs: now True and before False"),
        ("donated", "donated: nothing → {'donate_argnums': (0,)}"),
        ("numpy to jax", "fn: the same: no recompilation"),
    ],
)
def test_it_says_so_in_words(cases, name, text):
    assert text in cases[name]["text"]


def test_calls_are_recorded_and_nothing_runs():
    ran = []

    def fn(params, x, mode):
        ran.append(mode)
        return x @ params["<w>"]

    program = sv.trace(
        fn, {"<w>": jax.ShapeDtypeStruct((4, 4), np.float32)}, np.ones((2, 4)), "train", static_argnums=2
    )
    assert ran == ["train"]
    second = program.call({"<w>": np.ones((4, 4), np.float32)}, np.ones((3, 4)), "train")
    assert ran == ["train"]
    assert program.calls == (program.calls[0], second)
    why = why_recompiled(*program.calls)
    assert why and why.traced
    assert "now f32[3,4] and before f32[2,4]" in repr(why)
    assert ran == ["train"]
    assert not why_recompiled(second, second)
    assert repr(second).splitlines()[0] == "call of fn"


def test_bad_input_is_told_why():
    program = sv.trace(lambda x, n=1: x, np.ones(3), static_argnames="n")
    with pytest.raises(TraceError, match=r"x\['a'\] is a str, 'b': expected an array"):
        program.call({"a": "b"})
    with pytest.raises(TraceError, match=r"the static argument n is a list, .* give a tuple in place of a list"):
        program.call(np.ones(3), [1])
    with pytest.raises(ShardvizError, match=r"expected two of program\.calls"):
        why_recompiled(program.calls[0], 3)


def test_a_function_made_anew_is_another_one():
    def made():
        return lambda x: x

    first, second = sv.trace(made(), np.ones(3)).calls[0], sv.trace(made(), np.ones(3)).calls[0]
    why = why_recompiled(first, second)
    assert why.traced and "once and not on every call" in why.reasons[0]
