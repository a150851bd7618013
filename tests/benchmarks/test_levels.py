"""The ladder of truth against the raw calls beneath it, on the Llama-3-70B-shaped train step: ratios within one run."""

import gc
import json
import os
import statistics
import subprocess
import sys

import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import processes
from shardviz.compiler import parse, schedule_of
from tests.benchmarks.timing import pipeline, seconds

NAME = "params['layers']['wq']"


def test_a_changed_spec_costs_little_more_than_shardys_pipeline_as_it_comes(benchmark):
    example = sv.gallery.llama("70b", mesh="data=64,model=64")
    program, plan = example.program, example.plan
    specs = [P(None, "data", "model"), P(None, None, "model")]
    raw = pipeline(program, plan)
    turn = iter(range(10**9))

    def change():
        return program.propagate(plan.with_spec(NAME, specs[next(turn) % 2]))

    gc.collect()
    gc.freeze()  # what other tests left is not gone through again and again
    report = change()
    assert report.mesh.size == 4096 and len(report.intermediates) > 300
    raws: list[float] = []
    walks: list[float] = []

    def besides():
        raws.append(seconds(raw, 1))
        walks.append(seconds(lambda: sv.timeline(change(), "tpu v5p:16x16x16"), 1))

    benchmark.pedantic(change, setup=besides, rounds=9, warmup_rounds=1)
    gc.unfreeze()
    taken, base = benchmark.stats.stats.min, min(raws)  # in turn, and each at its best: the machine is not always ours
    ratio, walked = taken / base, min(walks) / base
    benchmark.extra_info.update(shardy_seconds=base, ratio=ratio, timeline=walked)
    print(
        f"propagated: {taken * 1e3:.1f} ms, {ratio:.2f} x Shardy's {base * 1e3:.1f} ms; with its timeline {walked:.2f}"
    )
    assert ratio <= 1.4  # its schedule is in it
    assert walked <= 1.6


@pytest.mark.parametrize("target", ["tpu v5p:16x16x16", "gpu h100:512x8"])
def test_what_a_step_costs_takes_a_tenth_of_shardys_pipeline_at_most(benchmark, target):
    example = sv.gallery.llama("70b", batch=512, mesh="data=64,model=64")
    program, plan = example.program, example.plan
    specs = [P(None, "data", "model"), P(None, None, "model")]
    reports = [program.propagate(plan.with_spec(NAME, spec)) for spec in specs]
    turn = iter(range(10**9))
    found = sv.cost(reports[0], target)
    assert found.seconds >= found.lower > 0 and found.step.tokens == 512 * 4096
    base = seconds(pipeline(program, plan))
    benchmark.pedantic(lambda: sv.cost(reports[next(turn) % 2], target), rounds=20, warmup_rounds=2)
    ratio = benchmark.stats.stats.median / base
    benchmark.extra_info.update(shardy_seconds=base, ratio=ratio)
    print(f"cost: {benchmark.stats.stats.median * 1e3:.2f} ms, {ratio:.3f} x Shardy's {base * 1e3:.1f} ms")
    assert ratio <= 0.1


@pytest.mark.tpu
def test_a_timeline_is_there_three_tenths_of_a_second_after_the_compilers_text(benchmark):
    example = sv.gallery.llama("70b")
    report = example.program.compile(example.plan, "tpu v5p:4x4x4")
    text = report.stages["optimized"]

    def read_and_walked():
        assert schedule_of(parse(text))
        return sv.timeline(report)

    assert benchmark.pedantic(read_and_walked, rounds=9, warmup_rounds=1).schedule == "the compiler's"
    assert benchmark.stats.stats.min <= 0.3


RAW = """
import json, sys, time
import tests.ask.ground_truth as truth
import jax, numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from shardviz import gallery
example = gallery.llama("70b")
mesh = Mesh(np.array(jax.devices()).reshape(8, 8), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
put = lambda tree: jax.tree.map(lambda s: None if s is None else NamedSharding(mesh, s), tree,
                                is_leaf=lambda s: s is None or isinstance(s, PartitionSpec))
taken = []
for i in range(4):
    jitted = jax.jit(lambda *a: example.fn(*a), in_shardings=put(example.in_specs),
                     out_shardings=put(example.out_specs), donate_argnums=(0, 1))
    start = time.perf_counter()
    with jax.set_mesh(mesh):
        jitted.lower(*example.args).compile()
    taken.append(time.perf_counter() - start)
print(json.dumps(taken[1:]))
"""


def test_a_partition_report_takes_at_most_three_tenths_of_a_raw_compile(benchmark):
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=64",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
    }
    done = subprocess.run([sys.executable, "-c", RAW], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    raw = statistics.median(json.loads(done.stdout.splitlines()[-1]))
    example = sv.gallery.llama("70b")
    program, plans = example.program, [example.plan, example.plan.with_spec(NAME, P(None, None, "model"))]
    program.partition(plans[0])
    turn = iter(range(10**9))
    benchmark.pedantic(lambda: program.partition(plans[next(turn) % 2]), rounds=5, warmup_rounds=1)
    ratio = benchmark.stats.stats.median / raw
    benchmark.extra_info.update(raw_seconds=raw, ratio=ratio)
    print(f"partitioned: {benchmark.stats.stats.median * 1e3:.0f} ms, {ratio:.2f} x a raw compile's {raw * 1e3:.0f} ms")
    processes.shutdown()
    assert ratio <= 0.3


MEMORY = """
import json, os, sys, threading, time
import psutil
import jax, jaxlib
from jax.extend import mlir
def rss(process):
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0
me = psutil.Process()
before = rss(me)
import shardviz as sv
from shardviz import gallery
example = gallery.llama("70b")
peak = {"others": 0}
def watch():
    while True:
        peak["others"] = max(peak["others"], sum(rss(p) for p in me.children(recursive=True)))
        time.sleep(0.002)
threading.Thread(target=watch, daemon=True).start()
for i in range(6):
    other = jax.sharding.PartitionSpec(None, None, "model")
    plan = example.plan if i % 2 else example.plan.with_spec("params['layers']['wq']", other)
    report = example.program.compile(plan)
print(json.dumps({"kernel": rss(me) - before, "others": peak["others"]}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is measured as Linux counts it")
def test_memory_stays_within_bounds():
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    used = json.loads(done.stdout.splitlines()[-1])
    print(
        f"kernel {used['kernel'] / 1e6:.0f} MB more than after importing jax, "
        f"server and child {used['others'] / 1e6:.0f} MB"
    )
    assert used["kernel"] <= 200e6
    assert used["others"] <= 900e6
