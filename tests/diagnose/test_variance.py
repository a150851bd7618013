"""Results of shard_maps with `check_vma=False` that are said to be the same on all devices, and are not.

The truth is told by raw JAX on 8 simulated devices, which runs each body and looks at what every device holds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import shardviz as sv
from tests.diagnose import variance_programs as bodies
from tests.diagnose.variance_programs import CUT

MESH = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
X, W = jax.ShapeDtypeStruct((8, 16), jnp.float32), jax.ShapeDtypeStruct((16, 4), jnp.float32)


def mapped(body, in_specs, out_specs):
    return partial(jax.shard_map, mesh=MESH, in_specs=in_specs, out_specs=out_specs, check_vma=False)(body)


CASES = [  # body, out_specs, the rule, the axes
    (bodies.unsummed, P("data"), "unreduced-sum", ("model",)),
    (bodies.unsummed, P("data", "model"), None, ()),
    (bodies.summed, P("data"), None, ()),
    (bodies.summed, P(), "not-the-same", ("data",)),
    (bodies.scattered, P("data"), None, ()),
    (bodies.of_index, P(), "not-the-same", ("model",)),
    (bodies.reduced_locally, P("data"), "unreduced-sum", ("model",)),
    (bodies.reduced_everywhere, P("data"), None, ()),
    (bodies.largest, P(), None, ()),
    (bodies.looped, P(), "unreduced-sum", ("data", "model")),
    (bodies.looped_and_summed, P(), None, ()),
    (bodies.branched, P(), "not-the-same", ("model",)),
    (bodies.in_function, P("data"), "unreduced-sum", ("model",)),
]
RULES = ("unreduced-sum", "not-the-same")


@pytest.mark.parametrize(("body", "out", "rule", "axes"), CASES, ids=[f"{c[0].__name__}-{c[1]}" for c in CASES])
def test_a_result_that_is_not_the_same_is_named(body, out, rule, axes):
    report = sv.trace(mapped(body, CUT, out), X, W).propagate(sv.Plan("data=2,model=4", CUT))
    found = [f for f in report.findings if f.rule in RULES]
    assert [f.rule for f in found] == ([rule] if rule else []), [f.text for f in found]
    for finding in found:
        assert finding.axes == axes and finding.severity == "warning" and finding.source.file == bodies.__file__
        assert finding.numbers["size"] == {("data",): 2, ("model",): 4}.get(axes, 8)


def test_the_line_is_that_of_the_sum():
    report = sv.trace(mapped(bodies.unsummed, CUT, P("data")), X, W).propagate(sv.Plan("data=2,model=4", CUT))
    (found,) = [f for f in report.findings if f.rule in RULES]
    assert found.source.line == bodies.unsummed.__code__.co_firstlineno + 1


def test_what_goes_round_a_ring_is_no_more_than_a_note():
    report = sv.trace(mapped(bodies.ring, CUT, P("data")), X, W).propagate(sv.Plan("data=2,model=4", CUT))
    (found,) = [f for f in report.findings if f.rule in RULES]
    assert found.severity == "note" and "passed around" in found.why


def test_what_jax_checks_itself_is_left_to_it():
    fn = partial(jax.shard_map, mesh=MESH, in_specs=CUT, out_specs=P("data"))(bodies.summed)
    report = sv.trace(fn, X, W).propagate(sv.Plan("data=2,model=4", CUT))
    assert not [f for f in report.findings if f.rule in RULES]


def test_an_axis_of_one_device_differs_from_nothing():
    mesh = AbstractMesh((8, 1), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    fn = partial(jax.shard_map, mesh=mesh, in_specs=CUT, out_specs=P("data"), check_vma=False)(bodies.unsummed)
    report = sv.trace(fn, X, W).propagate(sv.Plan("data=8,model=1", CUT))
    assert not [f for f in report.findings if f.rule in RULES]


@pytest.fixture(scope="module")
def differing() -> dict[str, list[str]]:
    """Body → the axes along which devices hold different results."""
    done = subprocess.run([sys.executable, bodies.__file__], capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", bodies.BODIES)
@pytest.mark.parametrize("out", [P(), P("data"), P(None, "model"), P("data", "model")], ids=str)
def test_it_is_named_where_devices_hold_something_else_and_nowhere_else(name, out, differing):
    body = bodies.BODIES[name]
    if len(out) > len(RANKS.get(name, (4, 4))):
        pytest.skip("the result has fewer dimensions")
    report = sv.trace(mapped(body, CUT, out), X, W).propagate(sv.Plan("data=2,model=4", CUT))
    found = [f for f in report.findings if f.rule in RULES]
    wrong = [axis for axis in differing[name] if axis not in [a for a in out if a]]
    named = [a for f in found if f.severity == "warning" for a in f.axes]
    assert named == wrong
    assert {a for f in found if f.severity == "note" for a in f.axes} <= ({"model"} if name == "ring" else set())


RANKS = {"of_index": (4,), "reduced_locally": (8,), "reduced_everywhere": (8,), "largest": (), "looped": ()}
RANKS |= {"looped_and_summed": (), "branched": (2,), "until": (), "as_often_as_its_index": (), "stacked": (4,)}
