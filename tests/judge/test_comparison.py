"""Comparisons: by meaning, symmetric, empty for equals, and the changes add up to the difference of the totals."""

from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import ShardvizError, TargetError
from shardviz.judge.changes import match_collectives
from shardviz.judge.report import Report
from shardviz.records import KINDS, Collective, Frame
from tests.view.sample import report

MIRROR = {"appeared": "vanished", "vanished": "appeared", "grew": "shrank", "shrank": "grew"}
LINES = {"model.py": {n: f"y{n % 3} = f(x)" for n in range(1, 7)}}  # two lines of the same text each

collectives = st.builds(
    lambda kind, axes, dtype, nbytes, count, line, phase: Collective(
        kind=kind,
        axes=axes,
        dtype=dtype,
        shape=(),
        operand_bytes=float(nbytes),
        result_bytes=float(nbytes),
        count=count,
        source=Frame("model.py", line) if line else None,
        phase=phase,
    ),
    st.sampled_from(KINDS[:3]),
    st.sampled_from([("data",), ("model",), ("data", "model"), ("model", "data"), None]),
    st.sampled_from(["bfloat16", "float32"]),
    st.sampled_from([4, 16, 64]),
    st.sampled_from([1, 2, 80, None]),
    st.integers(0, 8),
    st.sampled_from(["forward", "backward"]),
)


def sums(found):
    return (
        sum(c.count or 0 for c in found),
        sum(c.total_bytes or 0 for c in found),
        sum(c.count is None for c in found),
    )


@given(st.lists(collectives, max_size=12), st.lists(collectives, max_size=12))
def test_changes_add_up_and_mirror(before, after):
    changes = match_collectives(before, after, LINES, LINES)
    assert sum(c.bytes for c in changes) == sums(after)[1] - sums(before)[1]
    assert sum(c.runs for c in changes) == sums(after)[0] - sums(before)[0]
    unknown = sum((c.after.unknown if c.after else 0) - (c.before.unknown if c.before else 0) for c in changes)
    assert unknown == sums(after)[2] - sums(before)[2]
    back = match_collectives(after, before, LINES, LINES)
    sides = lambda c: tuple(t and frozenset(map(id, t.collectives)) for t in (c.before, c.after))
    assert {(c.what, *sides(c)) for c in changes} == {(MIRROR[c.what], *reversed(sides(c))) for c in back}


@given(st.lists(collectives, max_size=12), st.randoms())
def test_order_and_names_mean_nothing(before, chance):
    after = [dataclasses.replace(c, name=f"renamed.{n}", groups="[2]<=[2]") for n, c in enumerate(before)]
    chance.shuffle(after)
    assert match_collectives(before, after, LINES, LINES) == ()


def moved(line=3, **more):
    given = {"kind": "all-gather", "axes": ("data",), "dtype": "float32", "count": 2, "source": Frame("m.py", line)}
    return Collective(shape=(), operand_bytes=8, result_bytes=16, **(given | more))


@pytest.mark.parametrize(("what", "other"), [("grew", moved(count=3)), ("shrank", moved(count=1))])
def test_what_changed_is_said(what, other):
    (change,) = match_collectives([moved()], [other])
    assert change.what == what and change.before.collectives == (moved(),) and change.after.collectives == (other,)


@pytest.mark.parametrize("other", [{"line": 4}, {"kind": "all-reduce"}, {"axes": ("model",)}, {"dtype": "bfloat16"}])
def test_what_means_something_else_appeared_and_the_other_vanished(other):
    changes = match_collectives([moved()], [moved(**other)])
    assert {c.what: c.bytes for c in changes} == {"vanished": -16, "appeared": 16}


def test_a_line_is_the_same_one_after_an_edit_above_it():
    before, after = ({"m.py": {line: "x = w @ x"}} for line in (3, 9))
    assert match_collectives([moved(3)], [moved(9)], before, after) == ()


def mlp(w1, w2, x):
    h = jax.nn.relu(x @ w1)
    return jnp.sum(h @ w2)


ARGS = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((64, 256), (256, 64), (32, 64))]


def test_plans_of_a_program():
    program = sv.trace(jax.grad(mlp, argnums=(0, 1)), *ARGS)
    mesh = {"data": 2, "model": 4}
    one = sv.Plan(mesh, (P(), P(), P("data")))
    other = sv.Plan(mesh, (P(None, "model"), P("model"), P("data")))
    before, after = program.propagate(one), program.propagate(other)
    found = sv.compare(before, after)
    assert [(v.name, str(v.before.spec), str(v.after.spec)) for v in found.specs if v.role == "argument"] == [
        ("w1", "P(None, None)", "P(None, 'model')"),
        ("w2", "P(None, None)", "P('model', None)"),
    ]
    total = lambda r: sum(c.total_bytes for c in r.collectives)
    assert sum(c.bytes for c in found.collectives) == total(after) - total(before) != 0
    assert found.amount("operand bytes").difference == total(after) - total(before)
    assert found.amount("FLOPs").after == after.cost.dot_flops
    assert found.amount("arguments").difference == sum(
        v.after.bytes_per_device - v.before.bytes_per_device for v in found.values if v.role == "argument"
    )
    assert not found.same and "with a different spec" in found.text()


def test_a_report_equals_itself_read_again():
    again = Report.from_json(report().to_json())
    found = sv.compare(report(), again)
    assert found.same and "Nothing differs" in found.text()
    assert found.specs == found.collectives == found.memory == found.step == found.flops == ()


def test_targets_differ_in_the_step_alone():
    on = {name: dataclasses.replace(report(), target=name) for name in ("tpu v5p:4x4x4", "gpu h100:8x8")}
    found = sv.compare(on)
    assert not found.collectives and not found.specs and found.step
    for name, cost in ((n, sv.cost(r, n)) for n, r in on.items()):
        amount = found.amount("step")
        assert (amount.before if name.startswith("tpu") else amount.after) == cost.seconds


def test_more_than_two_are_compared_with_the_first():
    base = report()
    less = dataclasses.replace(base, collectives=base.collectives[1:])
    found = sv.compare(("base", base), ("less", less), ("same", base))
    assert {c.of for c in found.collectives} == {"less"}
    assert {a.of for a in found.amounts} == {"less", "same"}
    assert [c.what for c in found.collectives] == ["vanished"]


def test_json_says_what_the_record_says():
    base = report()
    found = sv.compare(base, dataclasses.replace(base, collectives=base.collectives[1:]))
    data = json.loads(found.to_json())
    assert [c["what"] for c in data["collectives"]] == ["vanished"]
    assert data["collectives"][0]["before"]["operand_bytes"] == base.collectives[0].total_bytes
    assert data["collectives"][0]["before"]["text"] == "q = x @ wq" and data["collectives"][0]["after"] is None
    differences = {a["name"]: a["difference"] for a in data["amounts"] if a["difference"]}
    assert differences["operand bytes"] == -base.collectives[0].total_bytes


def test_what_cannot_be_compared_is_refused():
    base = report()
    with pytest.raises(ShardvizError, match="levels differ"):
        sv.compare(base, dataclasses.replace(base, level="propagated"))
    with pytest.raises(ShardvizError, match="two or more"):
        sv.compare(base)
    with pytest.raises(ShardvizError, match=r"not Plan; of a plan give program\.propagate"):
        sv.compare(sv.Plan({"data": 8}), base)
    with pytest.raises(ShardvizError, match="two reports are called 'x'"):
        sv.compare(("x", base), ("x", base))
    with pytest.raises(TargetError):
        sv.compare(base, base, target="tpu v9:4x4x4")


def test_what_a_donation_saves_shows_before_a_compiler_has_planned_the_memory():
    weights = jax.ShapeDtypeStruct((16384, 16384), "float32")
    program = sv.trace(lambda w, x: w - 0.1 * (x.T @ x), weights, weights)
    plan = sv.Plan("data=4", (P(None, "data"), P("data")), P(None, "data"))
    was, donated = (program.propagate(each) for each in (plan, plan.with_variant(donated="w")))
    memory = sv.compare(("was", was), ("donated", donated), target="tpu v5e:2x2").amount("results and temporaries")
    assert memory.difference == pytest.approx(-(16384**2) * 4 / 4, rel=0.01)
