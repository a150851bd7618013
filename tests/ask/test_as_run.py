"""The collectives as a TPU's and a GPU's own compilers run them: each once, and each with its partner."""

import re
from collections import Counter

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.notation import DeviceMesh

# collectives in chains, which the compiler for v5e writes into each fusion that they run beside


def in_all(report):
    """Kind → runs and operand bytes, as the target runs them."""
    totals = {}
    for run in report.target_collectives:
        runs, nbytes = totals.get(run.collective.kind, (0, 0))
        totals[run.collective.kind] = runs + run.collective.count, nbytes + run.collective.total_bytes
    return totals


@pytest.mark.tpu
def test_a_gather_that_runs_beside_several_fusions_runs_once():
    arrays = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((16384, 4096), (4096, 16384), (16384, 4096))]
    specs = P("data"), P("data", "model"), P("model", "data")
    report = sv.analyze(
        lambda x, a, b: jnp.tanh(x @ a) @ b,
        *arrays,
        mesh="data=4,model=4",
        in_specs=specs,
        out_specs=P("data"),
        target="tpu v5e:4x4",
    )
    [made] = [c for c in report.collectives if c.kind == "all-gather"]
    [run] = [r for r in report.target_collectives if r.collective.kind == "all-gather"]
    assert (run.stands_for, run.collective.operand_bytes) == ((made.name,), made.operand_bytes)
    assert set(run.how) == {"asynchronous", "fused"}
    links = re.findall(r"all-gather\(.*?, channel_id=(\d+).*?chain_id=", report.stages["optimized"])
    assert len(links) > 1 and len(set(links)) == 1
    cost = sv.cost(report, "tpu v5e:4x4")
    assert cost.as_run
    assert cost.total.seconds < 1.01 * (cost.partitioned_seconds or 0.0)


@pytest.mark.tpu
def test_two_chips_run_the_same_collectives_whichever_way_they_are_written():
    """Both compilers get the same partitioned program; only v5e's writes its gathers as chains."""
    example = sv.gallery.llama("8b", mesh={"data": 16, "model": 4})
    reports = {chip: example.program.compile(example.plan, target=f"tpu {chip}:8x8") for chip in ("v5e", "v6e")}
    found = {chip: in_all(report) for chip, report in reports.items()}
    assert found["v5e"] == found["v6e"]
    for report in reports.values():
        gathers = [c for c in report.collectives if c.kind == "all-gather"]
        runs = [run for run in report.target_collectives if run.collective.kind == "all-gather"]
        assert Counter(name for run in runs for name in run.stands_for) == Counter(c.name for c in gathers)
        assert sum(r.collective.total_bytes for r in runs) < sum(c.total_bytes for c in gathers)
    assert ["chain_id=" in r.stages["optimized"] for r in reports.values()] == [True, False]


# partners: what of the partitioner's each collective carries out

GALLERY = {
    "mlp": lambda: sv.gallery.mlp(),
    "llama": lambda: sv.gallery.llama("8b", layers=2, unroll=True),
    "pipeline": lambda: sv.gallery.pipeline(),
    "ring": lambda: sv.gallery.ring(length=4096),
    "moe": lambda: sv.gallery.moe(),
}


@pytest.mark.cuda
@pytest.mark.parametrize("name", GALLERY)
def test_every_collective_finds_its_partner(name):
    """Small ones are laid together in one array; inside a `shard_map` all have the same channel."""
    example = GALLERY[name]()
    hosts = DeviceMesh.of(example.mesh).size // 8
    report = example.program.compile(example.plan, target=f"gpu h100:{hosts}x8")
    made = {c.name: c for c in report.collectives}
    partners = [name for run in report.target_collectives for name in run.stands_for]
    assert made.keys() == set(partners)
    for run in report.target_collectives:
        assert run.stands_for
        assert "added" not in run.how
        parts = [made[name] for name in run.stands_for]
        assert {axis for part in parts for axis in part.axes or ()} == set(run.collective.axes or ())
        if run.collective.kind == "all-reduce" and not {"split", "moved", "turned", "converted"} & set(run.how):
            whole, sizes = run.collective.operand_bytes, [part.operand_bytes for part in parts]
            added_up = set(sizes) == {whole}  # the sum of two is the all-reduce of a sum
            assert added_up or sum(sizes) == whole
