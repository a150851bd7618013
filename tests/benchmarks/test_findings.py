"""The findings of a Llama-3-70B-shaped train step, in terms of one propagation of it, within one run."""

import time

import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import diagnose

BOUND = 0.5


@pytest.mark.parametrize("on", [None, "tpu v5p:4x4x4"])
def test_all_findings_take_half_a_propagation_at_most(benchmark, on):
    example = sv.gallery.llama("70b")
    program = example.program
    plans = [example.plan, example.plan.with_spec("tokens", P("model"))]
    turn = iter(range(10**9))

    def propagate():
        return program.propagate(plans[next(turn) % 2])

    report = propagate()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        propagate()
        times.append(time.perf_counter() - start)
    base = sorted(times)[3]
    benchmark.pedantic(lambda: diagnose.findings(report, on), rounds=9, warmup_rounds=1)
    ratio = benchmark.stats.stats.median / base
    benchmark.extra_info.update(propagation_seconds=base, ratio=ratio)
    print(f"findings: {benchmark.stats.stats.median * 1e3:.1f} ms, {ratio:.3f} x one propagation, {base * 1e3:.0f} ms")
    assert ratio <= BOUND
