"""How long what is measured takes, and what it is measured against: Shardy's own pipeline as it comes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from jax.extend.mlir import ir
from jax.extend.mlir.passmanager import PassManager

import shardviz as sv
from shardviz.program.lower import CPU, LowerFor, edited
from shardviz.program.propagate import PIPELINE


def seconds(run: Callable[[], object], rounds: int = 5, clock: Callable[[], float] = time.perf_counter) -> float:
    """The median of so many runs; of the CPU alone with `time.process_time`."""
    taken = []
    for _ in range(rounds):
        start = clock()
        run()
        taken.append(clock() - start)
    return statistics.median(taken)


def pipeline(program: sv.Program, plan: sv.Plan, lowered_for: LowerFor = CPU) -> Callable[[], None]:
    """Runs Shardy's pipeline on a plan's program. A rehearsal, which a process does once for a program, is left out."""
    lowered = program._lowerings.lower(plan, lowered_for)
    lowered.rehearsed = True

    def run() -> None:
        with lowered.module.context, ir.Location.unknown():
            PassManager.parse(PIPELINE).run(edited(lowered, program.bind(plan)))

    return run
