"""How long what is measured takes, and what it is measured against: Shardy's own pipeline as it comes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from jax.extend.mlir.passmanager import PassManager

import shardviz as sv
from shardviz.propagate.lower import CPU, LowerFor
from shardviz.propagate.propagate import PIPELINE, prepared


def seconds(run: Callable[[], object], rounds: int = 5, clock: Callable[[], float] = time.perf_counter) -> float:
    """The median of so many runs; of the CPU alone with `time.process_time`."""
    taken = []
    for _ in range(rounds):
        start = clock()
        run()
        taken.append(clock() - start)
    return statistics.median(taken)


def pipeline(program: sv.Program, plan: sv.Plan, lowered_for: LowerFor = CPU) -> Callable[[], None]:
    """Run Shardy's pipeline, with MLIR's verifier, on the module that XLA would hand to it. A rehearsal, which a
    process does once for a program, is left out."""
    lowered = program._lowerings.lower(plan, lowered_for)
    lowered.rehearsed = True

    def run() -> None:
        with lowered.entered():
            PassManager.parse(PIPELINE).run(prepared(lowered, program.bind(plan)))

    return run
