"""How long an answer takes, in propagations of the same program in the same run: the 70B-shaped train step, 8 x 8."""

import statistics
import time

import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv

NAME = "params['ln']"


@pytest.mark.parametrize(("value", "axis"), [("g", "model"), ("params['layers']['w1']", "data")])
def test_why_of_a_value_and_axis_takes_at_most_12_propagations(benchmark, value, axis):
    """With nothing kept from another question: the plan is propagated for it too."""
    example = sv.gallery.llama("70b")
    program = example.program
    plans = [example.plan.with_spec(NAME, spec) for spec in (P(), P("data"))]
    turn = iter(range(10**9))

    def seconds(run):
        start = time.perf_counter()
        run(plans[next(turn) % 2])
        return time.perf_counter() - start

    ratios = []

    def ask():
        """A why between two propagations: what else the machine does then slows all three."""
        before = seconds(program.propagate)
        asked = seconds(lambda plan: program.why(plan, value, axis=axis))
        ratios.append(asked / statistics.mean((before, seconds(program.propagate))))

    benchmark.pedantic(ask, rounds=3, warmup_rounds=1)
    ratio = statistics.median(ratios[1:])
    benchmark.extra_info.update(ratio=ratio)
    print(f"why {value}, {axis}: {ratio:.1f} propagations")
    assert ratio <= 12
