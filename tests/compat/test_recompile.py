"""What is said of two calls is what JAX does: traces counted by the function, compiles by JAX's own events."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import shardviz as sv
from shardviz.compat.recompile import why_recompiled
from shardviz.errors import ShardvizError, TraceError

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("recompilation_truth.py")


@pytest.fixture(scope="module")
def cases():
    """Pairs of calls, made in a process with two devices."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_what_is_said_is_what_happened(cases):
    """(traced again, compiled again, looked up anew) of every pair; of pmap and of two wrappings the first two."""
    assert len(cases) > 50
    wrong = {name: case for name, case in cases.items() if case["said"] != case["happened"]}
    assert not wrong, json.dumps(wrong, indent=1)
    happened = {tuple(case["happened"][:2]) for case in cases.values()}
    assert happened == {(True, True), (False, True), (False, False)}, "the pairs try every verdict"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("the same", []),
        ("numbers of one type", []),
        ("order of keys", []),
        ("static, equal", []),
        ("shape", ["shape"]),
        ("dtype", ["dtype"]),
        ("float to int", ["dtype"]),
        ("weak to numpy", ["weak type"]),
        ("numpy to jax", ["kind of array"]),
        ("dict keys", ["tree"]),
        ("list to tuple", ["tree"]),
        ("static, another", ["static value"]),
        ("static, of another type", ["static value"]),
        ("static, without equality", ["static value"]),
        ("static by keyword", ["static value"]),
        ("committed", ["committed"]),
        ("another spec", ["sharding"]),
        ("another device", ["sharding"]),
        ("devices in another order", ["sharding"]),
        ("onto a mesh", ["mesh"]),
        ("explicit, another spec", ["mesh"]),
        ("set_mesh", ["mesh"]),
        ("x64", ["setting"]),
        ("precision", ["setting"]),
        ("donated", ["donated"]),
        ("pmap, shape", ["shape"]),
        ("pmap, static", ["static value"]),
    ],
)
def test_what_differed_is_named(cases, name, what):
    assert cases[name]["what"] == what, cases[name]["text"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("the same", "fn: the same: no recompilation"),
        ("shape", "shape [4, 4] → [2, 4]"),
        ("dict keys", "tree with args[0]['a'] and without args[0]['b'] → with args[0]['b'] and without args[0]['a']"),
        ("a key more", "tree without args[0]['b'] → with args[0]['b']"),
        ("static, of another type", "k: static value 1 (int) → 1.0 (float)"),
        ("static, without equality", "their hashes differ: give Plain an __eq__ and a __hash__"),
        ("committed", "fn: compiled again, from the same trace"),
        ("another spec", "args[0]: sharding P('x') over x=2 → P() over x=2"),
        ("another axis name", "mesh x=2 Auto → y=2 Auto"),
        ("x64", "jax_enable_x64: setting False → True"),
        ("donated", "donated nothing → args[0]"),
        ("numpy to jax", "fn: no recompilation: the same trace and executable"),
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
    second = program.call({"<w>": np.ones((4, 4), np.float32)}, np.ones((3, 4)), "<eval>")
    assert ran == ["train"]
    assert program.calls == (program.calls[0], second)
    why = why_recompiled(*program.calls)
    assert why
    assert [(d.what, d.where, d.before, d.after) for d in why.differences] == [
        ("shape", "x", "[2, 4]", "[3, 4]"),
        ("static value", "mode", "'train'", "'<eval>'"),
    ]
    html = why.html()
    assert "&lt;eval&gt;" in html
    assert "<eval>" not in html
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
    (difference,) = why_recompiled(first, second).differences
    assert (difference.what, difference.effect) == ("function", "traced")
    assert "once and not on every call" in difference.advice
