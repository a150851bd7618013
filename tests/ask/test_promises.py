"""What a preset's sentence says holds of its plan, read off the report another way; or it is not offered."""

import functools
import math

import jax
import jax.numpy as jnp
import pytest

import shardviz as sv
from shardviz.notation import DeviceMesh
from shardviz.notation.spec import axis_name
from tests.programs import abstract, adapted, decode, experts, graph, sampler, scanned, translator, unet, vit

pytestmark = pytest.mark.long

ONE, TWO = MESHES = ("data=8", "data=4,model=2")
OWN = {"moe": ("data=4,expert=2",), "resnet": ("batch=8",), "ring": ("data=4,seq=2",)}
"""Program → its meshes, where it names other axes, or takes long."""


PROGRAMS = {
    "decode": decode, "unet": unet, "vit": vit, "translator": translator, "experts": experts,
    "adapted": adapted, "scanned": scanned, "graph": graph, "sampler": sampler,
    "mlp": lambda: sv.gallery.mlp().program, "llama": lambda: sv.gallery.llama().program,
    "resnet": lambda: sv.gallery.resnet(14).program, "moe": lambda: sv.gallery.moe().program,
    "ring": lambda: sv.gallery.ring().program,
}  # fmt: skip


@pytest.fixture(scope="module")
def presets():
    """The presets of a program on a mesh."""
    return functools.cache(lambda name, mesh=TWO: of(name).presets(mesh))


@functools.cache
def of(name):
    return PROGRAMS[name]()


def held(values, chosen):
    """Of some arrays the share of their bytes that each device holds."""
    some = [v for v in values if chosen(v)]
    whole = sum(math.prod(v.shape) * jnp.dtype(v.dtype).itemsize for v in some)
    return sum(v.bytes_per_device for v in some) / whole if whole else None


def axes(value):
    return {a if isinstance(a, str) else a[0] for a in value.spec.axes}


def keeps(program, row, mesh):
    """Whether a preset's sentence holds: what each device holds of the parameters, and which axes shard the data."""
    data = {m.path for d in program.dimensions if d.of == "batch" for m in d.arguments}
    devices, last = math.prod(mesh.values()), list(mesh)[-1]
    used = {a for v in row.report.arguments if v.name in data for a in axes(v)}
    share = held(row.report.arguments, lambda v: v.name not in data)
    if row.name == "data parallel":
        return share == 1 and used
    if row.name in ("zero-1", "zero-2"):
        return 1 / devices < share < 1 and used
    if row.name == "fsdp":
        return share < 2 / devices and used
    if row.name == "tensor parallel":
        return share < 1 and not any(
            v.spec.dims[0] for v in row.report.arguments if v.name in data and "int" in v.dtype
        )
    if row.name == "fsdp + tensor parallel":
        return share < 2.5 / devices and used >= {"data"}
    if row.name == "data + tensor parallel":
        return (
            share < 1
            and used >= {"data"}
            and all(a == last for v in row.report.arguments if v.name not in data for a in axes(v))
        )
    if "sequence" in row.name:
        return last in used and "data" in used | set(mesh) - {"data"}
    if row.name == "expert parallel":
        return any(last in axes(v) for v in row.report.arguments)
    return True


def communicates(row, mesh):
    """Whether what a preset's sentence says of communication holds."""
    last, differentiated = list(mesh)[-1], "gradients are all-reduced" in row.text
    moves = {(c.kind, frozenset(map(axis_name, c.axes)), c.phase) for c in row.report.collectives}
    along_last = {kind for kind, over, phase in moves if over == {last}}
    if row.name == "data parallel":
        return not differentiated or any(kind == "all-reduce" and phase == "backward" for kind, _, phase in moves)
    if row.name in ("zero-1", "zero-2"):
        return any(kind == "all-gather" and phase == "update" for kind, _, phase in moves)
    if row.name in ("tensor parallel", "KV sequence parallel"):
        return "all-reduce" in along_last
    if row.name == "expert parallel":
        return ("all-to-all" if "all-to-all" in row.text else "all-reduce") in along_last
    return True


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_sentence_holds_of_its_plan(presets, name):
    program = of(name)
    stepped = {(m.path, m.dimension) for d in program.dimensions if d.stacked for m in d.arguments}
    for text in OWN.get(name, MESHES):
        found, mesh = presets(name, text), DeviceMesh.of(text).shape
        offered = [row for row in found.rows if row.report is not None]
        for row in offered:
            assert keeps(program, row, mesh), (mesh, row.name, row.text)
            assert communicates(row, mesh), (mesh, row.name, row.text, row.report.collectives.text())
            cut = {(v.name, d) for v in row.report.arguments for d, by in enumerate(v.spec.dims) if by}
            assert not cut & stepped, (mesh, row.name)
        assert all(row.trouble for row in found.rows if row.report is None)
        assert len({(row.report.plan.in_specs.values().__repr__()) for row in offered}) == len(offered)


def test_what_is_not_kept_is_not_offered_and_says_why():
    lone = sv.trace(
        lambda w, x: jnp.tanh(x @ w["a"]) @ w["b"], {"a": abstract(64, 64), "b": abstract(64, 64)}, abstract(7, 64)
    )
    found = lone.presets({"data": 8})
    (row,) = [row for row in found.rows if row.name == "data parallel"]
    assert "data parallel" not in found and row.trouble == "not offered: no batch of 7 divides by data"
    assert row.trouble in found.text()


def test_where_the_function_gathers_its_matrices_none_is_said_to_stay(presets):
    """The 8B's constraints shard its activations' batch, so 2-D tensor parallel is `fsdp + tensor parallel` there."""
    (row,) = [r for r in presets("llama").rows if r.name == "2-D tensor parallel"]
    assert "is gathered at llama.py:" in row.trouble and row.report is None
    assert "2-D tensor parallel" in presets("decode")


def test_where_the_function_shards_the_batch_along_the_only_axis_nothing_is_said_to_be_tensor_parallel(presets):
    """The 8B's constraint has the batch along `data`, so that each matrix is gathered: that is fsdp by another name."""
    found = presets("llama", ONE)
    (row,) = [row for row in found.rows if row.name == "tensor parallel"]
    assert row.report is None and "is gathered at llama.py:" in row.trouble and "fsdp" in found
    assert "tensor parallel" in presets("llama")


def test_a_decode_steps_presets_are_those_of_serving(presets):
    found = presets("decode")
    names = {"data parallel", "tensor parallel", "data + tensor parallel", "KV sequence parallel", "fsdp"}
    assert names <= set(found)
    specs = {
        row.name: {v.name: str(v.spec.canonical()) for v in row.report.arguments} for row in found.rows if row.report
    }
    assert specs["data + tensor parallel"]["cache[0]"] == "P(None, 'data', None, 'model')"
    assert specs["KV sequence parallel"]["cache[0]"] == "P(None, 'data', 'model')"


def test_a_caches_sequence_is_told_from_heads_that_are_split_from_a_projection():
    """With `wk: [d, heads * hd]` the cache's last dimension is in no parameter either."""
    layers, batch, length, heads, of, d = 2, 16, 64, 4, 8, 64

    def step(params, cache, x):
        def layer(x, each):
            p, k, v = each
            q, *new = (jnp.reshape(x @ p[w], (batch, heads, of)) for w in ("wq", "wk", "wv"))
            k, v = (jax.lax.dynamic_update_slice(c, n[:, None], (0, 3, 0, 0)) for c, n in zip((k, v), new, strict=True))
            scores = jax.nn.softmax(jnp.einsum("bgk,btgk->bgt", q, k), -1)
            return x + jnp.einsum("bgt,btgk->bgk", scores, v).reshape(batch, -1) @ p["wo"], (k, v)

        return jax.lax.scan(layer, x, (params, *cache))

    params = {name: abstract(layers, d, heads * of) for name in ("wq", "wk", "wv")}
    params["wo"] = abstract(layers, heads * of, d)
    cache = (abstract(layers, batch, length, heads, of),) * 2
    found = sv.trace(step, params, cache, abstract(batch, d)).presets(TWO)
    (row,) = [row for row in found.rows if row.name == "KV sequence parallel"]
    assert row.report is not None, row.trouble
    assert str(row.report.value("cache[0]").spec.canonical()) == "P(None, 'data', 'model')"


def test_a_sentence_says_nothing_of_gathers_that_are_not_there(presets):
    """A decode step's few rows are summed in part, and no matrix is gathered for them; a loop along a sequence
    gathers no keys."""
    (row,) = [row for row in presets("decode").rows if row.name == "fsdp"]
    assert "gather" not in row.text and "ZeRO-3" not in row.text
    (row,) = [row for row in presets("scanned").rows if row.name == "sequence parallel"]
    assert "keys" not in row.text
    (row,) = [row for row in presets("moe", *OWN["moe"]).rows if row.name == "tensor parallel"]
    assert row.report is None and "no partial sums go through an all-reduce along expert" in row.trouble


def test_a_70b_decode_steps_best_preset_is_near_what_a_search_finds():
    sizes = {"layers": 80, "d": 8192, "ff": 28672, "heads": 64, "kv": 8, "hd": 128}
    program = decode(**sizes, vocabulary=128256, batch=64, length=4096)
    found = program.presets({"data": 8, "model": 8}, target="tpu v5p:4x4x4")
    best = sv.search(program, "tpu v5p:4x4x4", level="propagated", most=12, seconds=20).best
    assert found.rows[0].cost.step.seconds < 3 * best.cost.step.seconds
    assert found.rows[0].cost.needs.fits is not False


def test_a_u_nets_batch_is_first():
    found = unet(512, 256).presets({"data": 8}, target="tpu v5e:2x4")
    first = next(row for row in found.rows if row.report)
    batches = [v for v in first.report.arguments if v.name.startswith("data")]
    assert batches and all(v.spec.dims[0] == ("data",) for v in batches), f"{first.name} shards the batch"
    assert "predicted" in found.text()


def test_what_is_first_is_confirmed_and_moves_when_it_is_refuted(monkeypatch):
    program = unet(512, 256)
    predicted = program.presets({"data": 8}, target="tpu v5e:2x4")
    first, second = (row.name for row in predicted.rows[:2])
    asked = []

    def slower(plan, target="cpu"):
        asked.append(plan)
        if len(asked) > 1:
            return program.propagate(plan)
        return program.propagate(sv.Plan(plan.mesh))  # as if all were computed everywhere

    monkeypatch.setattr(program, "partition", slower)
    found = program.presets({"data": 8}, target="tpu v5e:2x4", level="partitioned")
    assert found.rows[0].name == second and len(asked) == 2
    moved = next(row for row in found.rows if row.name == first)
    assert moved.predicted is not None and moved.cost.step.upper > moved.predicted.step.upper
    assert "predicted" in found.text()


@pytest.mark.parametrize("name", ["vit", "unet"])
def test_a_kernels_height_and_width_are_never_sharded(presets, name):
    """XLA computes wrong gradients of a kernel that is: 41 % off for the patches of a vision transformer."""
    kernels = {v.name for v in of(name).arguments if len(v.shape) == 4 and v.name.startswith("params")}
    offered = [row for mesh in MESHES for row in presets(name, mesh).rows if row.report is not None]
    specs = [v.spec for row in offered for v in row.report.arguments if v.name in kernels]
    assert specs and not [spec for spec in specs if any(spec.dims[:2])]
