"""Shardy's own propagation, in the kernel, without devices: how every value is cut, and what moves.

The passes that `jax.jit` would run inside the compiler run here on an edited copy of the lowered module; then Shardy's
pass that makes every resharding explicit writes the collectives down. MLIR's verifier between passes is left out: it
would take two thirds of the time. The tests run it once at the end.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.passmanager import PassManager

from shardviz.compiler import server
from shardviz.notation import Spec
from shardviz.program.explicit import mark_types
from shardviz.program.lower import Lowered, edited, edited_bytecode
from shardviz.program.propagated import Reading
from shardviz.records import Collective, PlanRecord, Value, Work

PIPELINE = (
    "builtin.module(sdy-propagation-pipeline,sdy-close-shardings,"
    "func.func(sdy-insert-explicit-reshards{enable-full-version=true},sdy-reshard-to-collectives))"
)
_REHEARSAL = 120.0


@dataclass(frozen=True)
class Propagated:
    """What Shardy found.

    Attributes:
        outputs: a spec for every output.
        intermediates: every value inside that has a sharding.
        collectives: what Shardy would put in, per-device bytes.
        work: FLOPs of matrix products and convolutions on one device, by where they stand.
        unknown_loops: loops whose trip count could not be found; what runs inside has no count, and FLOPs inside are
            counted once; of branches, those of the one that has most.
        reshards_left: reshardings that Shardy did not turn into collectives.
        seconds: what each step took.
        module: the module after propagation, for its text.
    """

    outputs: tuple[Spec, ...]
    intermediates: tuple[Value, ...]
    collectives: tuple[Collective, ...]
    work: tuple[Work, ...]
    unknown_loops: int
    reshards_left: int
    seconds: dict[str, float]
    module: Any


def rehearse(lowered: Lowered, bound: PlanRecord) -> None:
    """Runs Shardy on a program in a process of its own first, which may die of it where the kernel must not.

    Shardy ends its process where one of its checks fails. Where no process can be had, nothing is rehearsed.

    Raises:
        CompileError: if the process died or Shardy refused the program.
    """
    trial = server.Trial("shardviz._jax:run_passes", edited_bytecode(lowered, bound), {"passes": PIPELINE})
    job = server.submit(trial, timeout=_REHEARSAL)
    error = job.exception()
    if error is not None and job.begun:
        raise error


def propagate(lowered: Lowered, bound: PlanRecord) -> Propagated:
    """Runs Shardy on a program under a plan, here."""
    with lowered.lock, lowered.module.context, ir.Location.unknown():
        start = time.perf_counter()
        module = edited(lowered, bound)
        if lowered.traced.types:
            mark_types(module)
        edit = time.perf_counter()
        passes = PassManager.parse(PIPELINE)
        passes.enable_verifier(False)
        passes.run(module)
        done = time.perf_counter()
        reading = Reading(module, lowered, bound.mesh)
        outputs = reading.outputs()
        seconds = {"edit": edit - start, "shardy": done - edit, "read": time.perf_counter() - done}
        found = tuple(reading.values), tuple(reading.collectives), reading.tally.rows
        return Propagated(outputs, *found, reading.unknown_loops, reading.reshards_left, seconds, module)


def text_of(propagated: Propagated, lowered: Lowered) -> str:
    """The propagated module as text, without source locations."""
    with lowered.lock, lowered.module.context:
        return propagated.module.get_asm(enable_debug_info=False)


def stablehlo_text(lowered: Lowered, bound: PlanRecord) -> str:
    """The lowered module under a plan as text, before propagation, without source locations."""
    with lowered.lock, lowered.module.context, ir.Location.unknown():
        text = edited(lowered, bound).get_asm(enable_debug_info=False)
        assert isinstance(text, str)  # it is bytes only if asked for with binary=True
        return text
