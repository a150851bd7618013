"""JAX's own stages: what was traced, lowered or compiled elsewhere says what the function itself says."""

import collections
import json
import os
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import MeshError, ShardvizError, TraceError
from shardviz.notation import Spec

MESH = sv.mesh(data=2, model=4)
F32 = jnp.float32


def array(*shape, dtype=F32):
    return jax.ShapeDtypeStruct(shape, dtype)


def placed(*shape, spec=(), mesh=MESH, dtype=F32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def train(params, x, step):
    def loss(params):
        def layer(h, w):
            return jnp.tanh(h @ w), None

        h = jax.lax.scan(layer, x, params["layers"])[0]
        h = jax.lax.with_sharding_constraint(h, NamedSharding(MESH, P("data", None)))
        return (h @ params["out"]).sum()

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - step * g, params, grads), value


def rotate(x):
    pairs = [(i, (i + 1) % 4) for i in range(4)]
    return jax.shard_map(
        lambda a: jax.lax.ppermute(a, "model", pairs) + jax.lax.psum(a, "data"),
        mesh=MESH,
        in_specs=P("data", "model"),
        out_specs=P(None, "model"),
        check_vma=False,
    )(x)


TRAIN = (
    {"layers": placed(5, 16, 16, spec=(None, None, "model")), "out": placed(16, 8, spec=("model",))},
    placed(8, 16, spec=("data",)),
    placed(),
)
CASES = {
    "train": (jax.jit(train), TRAIN),
    "donated": (jax.jit(train, donate_argnums=0), TRAIN),
    "specified": (
        jax.jit(
            lambda a, b: {"c": a @ b},
            in_shardings=(NamedSharding(MESH, P("data")), NamedSharding(MESH, P(None, "model"))),
            out_shardings={"c": NamedSharding(MESH, P("model"))},
        ),
        (array(8, 16), array(16, 8)),
    ),
    "shard_map": (jax.jit(rotate), (placed(8, 8, spec=("data", "model")),)),
    "unused": (jax.jit(lambda a, b, c: a * c), (placed(8, spec=("data",)), placed(4), placed(8, spec=("data",)))),
    "keys": (
        jax.jit(lambda k, x: x + jax.vmap(jax.random.normal)(k)),
        (jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 8)), placed(8, spec=("data",))),
    ),
}


def lower(jitted, args):
    return jitted.trace(*args).lower(lowering_platforms=("cpu",))


def collectives(report):
    return collections.Counter(
        (c.kind, c.axes, c.dtype, c.operand_bytes, c.count, c.source, c.origin) for c in report.collectives
    )


def values(report, named=True):
    return [(named and v.name, v.shape, v.dtype, v.spec, v.shard_shape) for v in (*report.arguments, *report.outputs)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("stage", ["traced", "lowered"])
def test_a_stage_says_what_the_function_says(case, stage):
    jitted, args = CASES[case]
    function = sv.trace(jitted, *args)
    program = sv.trace(jitted.trace(*args) if stage == "traced" else lower(jitted, args))
    plan = function.plan()
    assert program.plan().mesh == plan.mesh
    for level in ("propagate", "partition"):
        ours, theirs = (getattr(p, level)(plan if p is function else program.plan()) for p in (program, function))
        assert collectives(ours) == collectives(theirs), level
        assert values(ours) == values(theirs), level
    assert [a.donated for a in program.arguments] == [a.donated for a in function.arguments]


@pytest.mark.parametrize("stage", ["traced", "lowered"])
def test_plans_edit_a_stage_as_they_edit_the_function(stage):
    jitted, args = CASES["train"]
    function = sv.trace(jitted, *args)
    program = sv.trace(jitted.trace(*args) if stage == "traced" else lower(jitted, args))
    specs = ({"layers": P(None, "model"), "out": None}, P(("data", "model")), None)
    for mesh in (MESH, "data=4,model=2"):
        plan = sv.Plan(mesh, specs, ({"layers": P(None, "data"), "out": None}, None))
        assert collectives(program.partition(plan)) == collectives(function.partition(plan))
        assert values(program.partition(plan)) == values(function.partition(plan))


def test_a_memory_plan_of_a_lowering_is_the_functions():
    jitted, args = CASES["donated"]
    function, program = sv.trace(jitted, *args), sv.trace(lower(jitted, args))
    ours, theirs = program.compile(program.plan()), function.compile(function.plan())
    alive = [[(a.bytes, a.kind, a.shape, a.source) for a in r.memory.alive_at_peak] for r in (ours, theirs)]
    assert alive[0] == alive[1]  # but for the numbers in the names of instructions
    ours, theirs = (replace(r, memory=replace(r.memory, alive_at_peak=())) for r in (ours, theirs))
    assert ours.memory == theirs.memory and ours.memory.aliased > 0
    assert ours.cost == theirs.cost


def test_explicit_axes_lower_to_what_auto_axes_do():
    explicit = jax.sharding.AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    args = placed(8, 16, spec=("data",), mesh=explicit), placed(16, 8, spec=(None, "model"), mesh=explicit)
    jitted = jax.jit(lambda a, b: a @ b)
    for stage in (jitted.trace(*args), lower(jitted, args)):
        report = sv.analyze(stage)
        assert [v.spec for v in report.outputs] == [Spec.of(("data", "model"))]
        assert not report.collectives


def test_one_device_is_a_mesh_of_one():
    program = sv.trace(jax.jit(lambda x: x * 2).lower(array(8)))
    assert program.plan().mesh.size == 1
    assert program.partition(program.plan("x=4", (P("x"),))).arguments[0].shard_shape == (2,)


def test_several_platforms_settle_on_the_one_at_hand():
    lowered = jax.jit(jnp.sin).trace(array(8)).lower(lowering_platforms=("tpu", "cpu"))
    program = sv.trace(lowered)
    assert [a.shape for a in program.arguments] == [(8,)]
    assert program.partition(program.plan("x=2", (P("x"),))).arguments[0].shard_shape == (4,)


def test_a_stage_is_left_as_it_was():
    jitted, args = CASES["train"]
    lowered = lower(jitted, args)
    before = lowered.as_text(debug_info=True)
    sv.analyze(lowered)
    assert lowered.as_text(debug_info=True) == before


class TestRefused:
    def test_a_lowering_keeps_the_axis_names_inside(self):
        program = sv.trace(lower(*CASES["train"]))
        with pytest.raises(ShardvizError, match="'data'"):
            program.partition(sv.Plan("x=8"))

    def test_a_shard_map_keeps_its_sizes(self):
        program = sv.trace(lower(*CASES["shard_map"]))
        with pytest.raises(MeshError, match="data=2,model=4"):
            program.partition(program.plan("data=4,model=4"))

    def test_a_stage_has_its_arguments(self):
        lowered = jax.jit(lambda x: x * 2).lower(array(8))
        with pytest.raises(TraceError, match="arguments"):
            sv.trace(lowered, array(8))
        with pytest.raises(TraceError, match="donate_argnums"):
            sv.trace(lowered, donate_argnums=0)

    def test_symbolic_dimensions_want_an_export(self):
        (b,) = jax.export.symbolic_shape("b")
        with pytest.raises(TraceError, match=r"symbolic dimensions \(b\)"):
            sv.trace(jax.jit(lambda x: x * 2).trace(array(b)).lower(lowering_platforms=("cpu",)))

    def test_ordered_effects_are_told(self):
        def fn(x):
            jax.debug.print("{}", x.sum(), ordered=True)
            return x

        with pytest.raises(TraceError, match="ordered effects"):
            sv.trace(jax.jit(fn).lower(array(8)))

    def test_a_compiled_program_takes_no_plan(self):
        compiled = jax.jit(lambda x: x * 2).lower(array(8)).compile()
        with pytest.raises(TraceError, match="finished"):
            sv.trace(compiled)
        with pytest.raises(TraceError, match="cannot be changed"):
            sv.analyze(compiled, mesh="x=2")


CHILD = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
S = lambda *spec: NamedSharding(mesh, P(*spec))
F = jnp.float32
array = lambda *shape: jax.ShapeDtypeStruct(shape, F)

def step(params, x, unused):
    def loss(params):
        h = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, params["layers"])[0]
        return (h @ params["out"]).sum()
    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - g, params, grads), value

def rotate(x):
    pairs = [(i, (i + 1) % 4) for i in range(4)]
    f = lambda a: jax.lax.ppermute(a, "model", pairs) + jax.lax.psum(a, "data")
    return jax.shard_map(f, mesh=mesh, in_specs=P("data", "model"), out_specs=P(None, "model"), check_vma=False)(x)

specs = ({"layers": S(None, None, "model"), "out": S("model")}, S("data"), S())
cases = {
    "step": (jax.jit(step, in_shardings=specs, donate_argnums=0),
             ({"layers": array(5, 16, 16), "out": array(16, 8)}, array(8, 16), array(3))),
    "shard_map": (jax.jit(rotate, in_shardings=S("data", "model")), (array(8, 8),)),
    "alone": (jax.jit(lambda x: x @ x.T), (array(8, 4),)),
    "gspmd": (jax.jit(lambda x: x @ x.T, in_shardings=S("data"), out_shardings=S(None, "model")), (array(8, 4),)),
}
raw, ours = {}, {}
import shardviz as sv

if __name__ == "__main__":
    for name, (jitted, args) in cases.items():
        jax.config.update("jax_use_shardy_partitioner", name != "gspmd")
        lowered = jitted.lower(*args)
        compiled = lowered.compile()
        memory = compiled.memory_analysis()
        count = lambda text: sum(f" {kind}(" in line or f" {kind}-start(" in line for line in text.splitlines()
            for kind in ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter"))
        raw[name] = {
            "memory": {n: getattr(memory, n) for n in dir(memory) if isinstance(getattr(memory, n), int)},
            "cost": [compiled.cost_analysis().get(key) for key in ("flops", "bytes accessed")],
            "outs": [list(s.shard_shape(i.shape)) for s, i in zip(
                jax.tree.leaves(compiled.output_shardings), jax.tree.leaves(lowered.out_info), strict=True)],
            "ins": [None if s is None else list(s.shard_shape(i.shape)) for s, i in zip(
                jax.tree.leaves(compiled.input_shardings, is_leaf=lambda s: s is None),
                jax.tree.leaves(lowered.args_info), strict=True)],
            "collectives": count(compiled.as_text()),
        }
        report = lambda r: json.loads(r.to_json(stages=False))
        program = sv.trace(jitted, *args)
        plan = program.plan() if name in ("step", "shard_map") else program.plan("device=1")
        ours[name] = {"compiled": report(sv.analyze(compiled))}
        if name != "gspmd":
            ours[name]["function"] = report(program.compile(plan))
            ours[name]["lowered"] = report(sv.analyze(lowered, target="cpu"))
            traced = jitted.trace(*args)
            over = "device=1" if name == "alone" else None
            ours[name]["traced"] = report(sv.analyze(traced, mesh=over, target="cpu"))
    print("RESULT" + json.dumps([raw, ours]))
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """(what raw JAX says, what shardviz says) in a process with 8 simulated devices."""
    script = tmp_path_factory.mktemp("stages") / "child.py"
    script.write_text(CHILD)
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=400, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.split("RESULT", 1)[1])


def moved(report):
    """Bytes by kind, axes, element type and origin: the optimised program may have put several collectives into one."""
    total = collections.Counter()
    for c in report["collectives"]:
        total[c["kind"], json.dumps(c["axes"]), c["dtype"], c["origin"]] += c["operand_bytes"] * c["count"]
    return total


STATED = ("argument", "output", "alias", "temp")
COMPILED = ["step", "shard_map", "alone", "gspmd"]


class TestCompiled:
    @pytest.mark.parametrize("case", COMPILED)
    def test_memory_is_the_executables(self, elsewhere, case):
        raw, ours = (side[case] for side in elsewhere)
        memory = ours["compiled"]["memory"]
        keys = ("arguments", "outputs", "aliased", "temporaries")
        assert [memory[k] for k in keys] == [raw["memory"][f"{k}_size_in_bytes"] for k in STATED]
        assert memory["stated"] == raw["memory"] and memory["code"] is None  # a CPU's executable does not say
        assert memory["peak"] == memory["arguments"] + memory["outputs"] - memory["aliased"] + memory["temporaries"]
        stated = ours["compiled"]["cost"]["stated"]
        assert (stated["flops"], stated["bytes_accessed"]) == tuple(raw["cost"])

    @pytest.mark.parametrize("case", COMPILED)
    def test_shards_are_jaxs(self, elsewhere, case):
        raw, ours = (side[case] for side in elsewhere)
        report = ours["compiled"]
        assert [v["shard_shape"] for v in report["outputs"]] == raw["outs"]
        for value, shard in zip(report["arguments"], raw["ins"], strict=True):
            assert shard is None or value["shard_shape"] == shard

    @pytest.mark.parametrize("case", COMPILED)
    def test_no_collective_is_lost(self, elsewhere, case):
        raw, ours = (side[case] for side in elsewhere)
        assert len(ours["compiled"]["collectives"]) == raw["collectives"]
        assert ours["compiled"]["level"] == "compiled" and not ours["compiled"]["intermediates"]
        assert [d["id"] for d in ours["compiled"]["diagnostics"]] == ["as-compiled"]

    @pytest.mark.parametrize("case", ["step", "shard_map", "alone"])
    @pytest.mark.parametrize("stage", ["compiled", "lowered", "traced"])
    def test_a_stage_with_devices_says_what_the_function_says(self, elsewhere, case, stage):
        _, ours = (side[case] for side in elsewhere)
        function, report = ours["function"], ours[stage]
        assert moved(report) == moved(function)
        specs = lambda r: [  # noqa: E731
            (v["shape"], v["dtype"], v["spec"], v["shard_shape"]) for v in (*r["arguments"], *r["outputs"])
        ]
        assert specs(report) == specs(function)
        if stage == "compiled":  # what is no product is counted in the optimised program
            same = ("dot_flops", "unknown_loops", "hbm_bytes", "once_hbm_bytes")
            assert [report["cost"][key] for key in same] == [function["cost"][key] for key in same]
        else:
            assert report["cost"] | {"stated": None} == function["cost"]
