"""What loops do to advice: a dimension that a loop steps along is not sharded, a windowed product's permutes are no
fault."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.diagnose.specs import further, moved_off
from shardviz.notation import DeviceMesh, Spec
from tests.diagnose.programs import s
from tests.programs import without_constraints

constrained = jax.lax.with_sharding_constraint


def layers(ws, x):
    def layer(x, w):
        return jax.nn.gelu(x @ w["a"]) @ w["b"], None

    return jax.lax.scan(layer, x, ws)[0]


def unrolled(ws, x):
    for i in range(8):
        x = jnp.tanh(x @ ws["a"][i]) @ ws["b"][i]
    return x


def in_functions(ws, x):
    return jax.jit(jax.checkpoint(layers))(ws, x)


def differentiated(ws, x):
    return jax.grad(lambda ws: jnp.sum(layers(ws, x)))(ws)


STACKS = {"a": s(8, 16, 64), "b": s(8, 64, 16)}


@pytest.mark.parametrize(
    ("fn", "scanned"),
    [(layers, {"a", "b"}), (in_functions, {"a", "b"}), (differentiated, {"a", "b"}), (unrolled, set())],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_a_loop_takes_slice_by_slice_is_scanned(fn, scanned):
    program = sv.trace(fn, STACKS, s(32, 16))
    report = program.propagate(sv.Plan("data=8", (P(), P("data"))))
    assert {v.name for v in report.arguments if v.scanned} == {f"ws['{name}']" for name in scanned}


def test_no_finding_shards_the_dimension_that_a_loop_steps_along():
    """Eight layers, and eight devices: of 8, 16 and 64 each would do."""
    program = sv.trace(layers, STACKS, s(32, 16))
    report = program.propagate(sv.Plan("data=8,model=8", (P(), P("data"))))
    specs = [(m.target, m.spec) for f in report.findings for m in f.suggestions if m.kind == "argument"]
    specs += [pair for f in report.findings for m in f.suggestions for pair in m.specs]
    stacked = [spec for target, spec in specs if target.startswith("ws")]
    assert stacked and all(not spec.dims[0] for spec in stacked)


def test_a_spec_that_is_cut_further_leaves_the_steps_out():
    mesh = DeviceMesh.of("data=8")
    report = sv.trace(layers, STACKS, s(32, 16)).propagate(sv.Plan("data=8", ({"a": P(None, "data"), "b": P()}, P())))
    a, b = (report.value(f"ws['{name}']") for name in "ab")
    assert further(b, "data", mesh) == Spec(((), ("data",), ()))
    assert moved_off(a, ["data"], mesh) == Spec(((), (), ("data",)))


@pytest.mark.tpu
@pytest.mark.parametrize(("machine", "ids"), [("tpu v5p:2x2x2", (0, 1, 3, 2, 6, 7, 5, 4)), ("tpu v5e:2x4", ())])
def test_the_permutes_of_a_windowed_product_are_no_fault(machine, ids):
    """FSDP and tensor parallelism over one layer, the most usual plan: libtpu multiplies in windows where the devices
    lie in a ring, as newer versions of JAX lay these cubes."""
    args = {"a": s(4, 2048, 8192, dtype=jnp.bfloat16), "b": s(4, 8192, 2048, dtype=jnp.bfloat16)}
    program = sv.trace(layers, args, s(8192, 2048, dtype=jnp.bfloat16))
    specs = {"a": P(None, "data", "model"), "b": P(None, "model", "data")}
    mesh = DeviceMesh(("data", "model"), (4, 2), device_ids=ids)
    report = program.partition(sv.Plan(mesh, (specs, P("data"))), machine)
    text = report.stages["partitioned"]
    permutes = [c for c in report.collectives if c.kind == "collective-permute"]
    loops = re.findall(r"%(windowed_dot_general_body\S*) \(", text)
    assert loops and permutes and all("windowed" in c.facts for c in permutes)
    assert len(permutes) == text.count(" collective-permute(")
    assert not [f.text for f in report.findings_on(machine) if f.severity != "note" and f.rule != "slow-order"]


def test_what_a_resharding_communicates_is_what_leaving_it_out_saves():
    """There and back in each run of a loop: both ways count, and the sharding between is named."""

    def step(x):
        def body(x, _):
            there = constrained(jnp.tanh(x), P(None, "data"))
            return constrained(there, P("data")), None

        return jax.lax.scan(body, x, length=8)[0]

    program, plan = sv.trace(step, s(1024, 1024)), sv.Plan("data=4,model=2", (P("data"),))
    report = program.propagate(plan)
    (finding,) = report.findings.of("there-and-back")
    here, there = re.search(r"\((P.*) to (P.*) and back\)", finding.text).groups()
    assert here != there
    left_out = program.propagate(plan.with_variant(constraints=without_constraints(program)))
    saved = sum(c.assumed_bytes for c in report.collectives) - sum(c.assumed_bytes for c in left_out.collectives)
    legs = [c for c in report.collectives if c.count == 8]
    assert finding.numbers["bytes"] == sum(c.assumed_bytes for c in legs) <= saved


@pytest.mark.parametrize("level", ["propagate", "partition"])
@pytest.mark.parametrize(
    ("collective", "fires"),
    [(jax.lax.psum, True), (jax.lax.pmean, True), (jax.lax.pmax, False)],
    ids=["psum", "pmean", "pmax"],
)
def test_a_psum_of_a_shard_map_in_a_loop_that_only_adds_it_up_belongs_behind_the_loop(collective, fires, level):
    def step(w, xs):
        def add(total, x):
            return total + collective(jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w), "data"), None

        return jax.lax.scan(add, jnp.zeros_like(w), xs)[0]

    def summed(w, xs):
        specs = {"in_specs": (P(), P(None, "data")), "out_specs": P(), "check_vma": False}
        return jax.shard_map(step, mesh=jax.sharding.AbstractMesh((8,), ("data",)), **specs)(w, xs)

    program = sv.trace(summed, s(256, 256), s(4, 64, 256))
    report = getattr(program, level)(sv.Plan("data=8", (P(), P(None, "data"))))
    found = report.findings.of("summed-each-run")
    assert bool(found) is fires
    for finding in found:
        words = "add up what each device has at test_loops.py:"
        assert finding.severity == "warning" and finding.suggestions[0].words.startswith(words)
        assert finding.numbers["extra_bytes"] == 3 * 4 * 256 * 256


def test_a_constraint_that_is_suggested_fits_the_rank_of_its_value():
    """A row of one dimension is made at the line of what is kept, which has two."""

    def loss(ws, x):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0].sum()

    program = sv.trace(jax.grad(loss), s(6, 64, 64), s(8192, 64))
    report = program.propagate(sv.Plan("data=2,model=4", (P(), P("data"))))
    kept = next(v for v in report.intermediates if v.shape == (8192, 64))
    row = replace(kept, name="row.0", label="", shape=(64,), spec=Spec(((),)), shard_shape=(64,))
    report = replace(report, intermediates=(*report.intermediates, row))
    (finding,) = report.findings.of("kept-whole")
    (fix,) = finding.suggestions
    assert len(fix.spec.dims) == len(report.value(fix.target).shape) == 2
