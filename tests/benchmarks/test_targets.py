"""Reports from a target's own compiler against JAX's raw `lower().compile()` for the same target, as ratios."""

import json
import subprocess
import sys

import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import compiler, processes
from shardviz.compiler.targets import gpu_config
from tests.watched import memory_of_children

NAME = "params['layers']['wq']"

RAW = """
import json, os, sys, time
from shardviz.processes.job import TPU_ENVIRONMENT
platform, topology, sizes, config = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
os.environ.update(TPU_ENVIRONMENT if platform == "tpu" else {}, JAX_PLATFORMS="cpu")
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
import jax, numpy as np
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from shardviz import gallery
names = {"topology_name": topology} if platform == "tpu" else {"topology": topology, "target_config": config}
devices = topologies.get_topology_desc(platform=platform, **names).devices
mesh = Mesh(np.array(devices).reshape(list(sizes.values())), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))
put = lambda tree: jax.tree.map(lambda s: None if s is None else NamedSharding(mesh, s), tree,
                                is_leaf=lambda s: s is None or isinstance(s, PartitionSpec))
example = gallery.llama("70b", mesh=sizes)
small = jax.jit(lambda x: x + 1, in_shardings=NamedSharding(mesh, PartitionSpec()))
small.lower(jax.ShapeDtypeStruct((8, 128), "float32")).compile()
jitted = jax.jit(lambda *a: example.fn(*a), in_shardings=put(example.in_specs), out_shardings=put(example.out_specs),
                 donate_argnums=(0, 1))
start = time.perf_counter()
with jax.set_mesh(mesh):
    jitted.lower(*example.args).compile()
print(json.dumps(time.perf_counter() - start))
"""


def raw_seconds(platform, topology, sizes, config=""):
    command = [sys.executable, "-c", RAW, platform, topology, json.dumps(sizes), config]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("target", "platform", "topology", "sizes", "bound"),
    [
        pytest.param("tpu v5p:8x8x8", "tpu", "v5p:8x8x8", {"data": 64, "model": 8}, 0.15, marks=pytest.mark.tpu),
        pytest.param("tpu v5p:4x4x4", "tpu", "v5p:4x4x4", {"data": 8, "model": 8}, 0.25, marks=pytest.mark.tpu),
        pytest.param("gpu h100:8x8", "cuda", "8x1x8", {"data": 8, "model": 8}, 1.0, marks=pytest.mark.cuda),
    ],
)
def test_a_compiled_report_against_a_raw_compile(benchmark, target, platform, topology, sizes, bound):
    raw = raw_seconds(platform, topology, sizes, gpu_config("h100") if platform == "cuda" else "")
    example = sv.gallery.llama("70b", mesh=sizes)
    program, plans = example.program, [example.plan, example.plan.with_spec(NAME, P(None, None, "model"))]
    program.partition(plans[0])
    turn = iter(range(10**9))
    with memory_of_children() as peak:
        benchmark.pedantic(lambda: program.compile(plans[next(turn) % 2], target=target), rounds=3, warmup_rounds=1)
    report = program.compile(plans[0], target=target)
    processes.shutdown()
    assert report.memory.fits and report.target_collectives
    ratio = benchmark.stats.stats.median / raw
    benchmark.extra_info.update(raw_seconds=raw, ratio=ratio, memory=max(peak))
    print(
        f"{target}: {benchmark.stats.stats.median:.2f} s, {ratio:.3f} x a raw compile's {raw:.1f} s, "
        f"server and child {max(peak) / 1e9:.2f} GB"
    )
    assert ratio <= bound
    assert max(peak) <= 3e9


@pytest.mark.tpu
def test_from_a_megabyte_of_hlo_to_the_reports_part(benchmark, yardstick):
    """Memory, collectives and their matching, from texts that are there."""
    example = sv.gallery.llama("70b", mesh="data=8,model=8")
    reached = {}
    future = example.program.submit(example.plan, "compiled", target="tpu v5p:4x4x4")
    future.result()
    reached = future.texts["compiled"]
    first = future.reports["partitioned"]
    reading = example.program._reading(example.plan, "compiled", "tpu v5p:4x4x4")
    reading.reached["partitioned"] = first

    def read():
        reading.modules = tuple(compiler.parse(first.stages[stage]) for stage in ("before", "partitioned"))
        return reading.report("compiled", reached, future)

    found = benchmark.pedantic(read, rounds=5, warmup_rounds=1)
    processes.shutdown()
    size = len(reached["optimized"])
    assert size >= 1e6 and found.target_collectives
    seconds = benchmark.stats.stats.median * 1e6 / size
    print(f"HLO to report: {benchmark.stats.stats.median * 1e3:.0f} ms for {size / 1e6:.2f} MB")
    assert seconds <= 12 * yardstick()
