"""Shardy's own propagation, in the kernel, without devices: how every value is sharded, and what moves.

The passes that `jax.jit` would run inside the compiler run here on an edited copy of the lowered module; then Shardy's
pass that makes every resharding explicit writes the collectives down. MLIR's verifier between passes is left out: it
would take two thirds of the time. The tests run it once at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from shardviz import _jax, processes
from shardviz._jax.mlir import ir
from shardviz.foresee.disagreeing import gather_disagreeing
from shardviz.foresee.simplified import read_inside, rule_again, simplified
from shardviz.notation import Spec
from shardviz.propagate.lower import Lowered, edited
from shardviz.propagate.propagated import PropagatedReading, output_specs
from shardviz.records import PlanRecord
from shardviz.stablehlo.graph import CONSTRAINED, PROPAGATED, MlirGraph, spec_of_value
from shardviz.stablehlo.module import SHARDING, main_of, mesh_in
from shardviz.tracing.explicit import mark_types

_PROPAGATION = "sdy-propagation-pipeline,sdy-close-shardings"
PROPAGATION = f"builtin.module({_PROPAGATION})"
"""Shards every value; how operations compute, and what moves, stays open."""

RESHARDS = "sdy-insert-explicit-reshards{enable-full-version=true}"
"""Settles how each operation computes, which may be otherwise where its operands disagree."""

COLLECTIVES = f"func.func({RESHARDS},sdy-reshard-to-collectives)"
"""The same, and which collectives bring each value to where it is needed."""

RESHARDED = f"builtin.module({COLLECTIVES})"
PIPELINE = f"builtin.module({_PROPAGATION},{COLLECTIVES})"
_REHEARSAL = 120.0


@dataclass(frozen=True)
class Propagated:
    """The result of Shardy: the propagated module, what was read from it, a spec for every output, the specs of slices
    that devices take of arguments first, the specs in which results are computed before they are resharded, and the
    seconds of each step. At the end of a `with` statement the module and its reading are freed."""

    module: Any
    reading: PropagatedReading
    outputs: tuple[Spec, ...]
    read: Mapping[str, Spec]
    computed: Mapping[str, Spec]
    seconds: dict[str, float]

    @property
    def graph(self) -> MlirGraph:
        """The module's operations."""
        return self.reading.graph

    def __enter__(self) -> Propagated:
        return self

    def __exit__(self, *_: object) -> None:
        self.reading.free()


def rehearse(lowered: Lowered, bound: PlanRecord) -> None:
    """Run Shardy on a program in another process, so that it can then run here. Raises as `passed_elsewhere`."""
    with lowered.entered():
        _propagated(lowered, bound)


def result_specs(lowered: Lowered, bound: PlanRecord) -> tuple[Spec, ...]:
    """Return how a program's results are sharded, by propagation alone, which a later `propagate` need not repeat.
    Raises as `passed_elsewhere`."""
    with lowered.entered():
        module = prepared(lowered, bound)
        data = None if lowered.rehearsed else passed_elsewhere(_jax.bytecode(module), PROPAGATION)
        if data is None:
            _jax.run_passes(module, PROPAGATION)
        else:
            lowered.begun, module = (bound, data), ir.Module.parse(data).operation
        return output_specs(main_of(module), lowered.traced)


def passed_elsewhere(module: bytes, *pipelines: str) -> bytes | None:
    """Run Shardy on a module in a separate process, because a failed check of Shardy ends its process.

    Args:
        module: as bytecode.
        pipelines: the passes.

    Returns:
        The module after the first pipeline; None if no process can be had.

    Raises:
        CompileError: if the process died, or Shardy refused the program.
    """
    trial = processes.Trial("shardviz._jax:passed", module, {"pipelines": pipelines})
    job = processes.tried(trial, timeout=_REHEARSAL)
    if (error := job.exception()) is not None and job.begun:
        raise error
    return job.answer


def _propagated(lowered: Lowered, bound: PlanRecord) -> ir.Operation:
    """Return the module under a plan after propagation, which first runs in a separate process. Call it inside
    `lowered.entered()`. Raises as `passed_elsewhere`."""
    begun = lowered.begun
    if not lowered.rehearsed and begun is not None and begun[0] == bound:
        passed_elsewhere(begun[1], RESHARDED)
        module = ir.Module.parse(begun[1]).operation
    else:
        module, data = prepared(lowered, bound), None
        if not lowered.rehearsed:
            data = passed_elsewhere(_jax.bytecode(module), PROPAGATION, RESHARDED)
        if data is None:
            _jax.run_passes(module, PROPAGATION)
        else:
            module = ir.Module.parse(data).operation
    lowered.rehearsed, lowered.begun = True, None
    return module


def propagate(
    lowered: Lowered,
    bound: PlanRecord,
    flops: Mapping[str, float] | None = None,
    make: Callable[[], ir.Operation] | None = None,
    *,
    brief: bool = False,
) -> Propagated:
    """Run Shardy on a program under a plan, or on the module that `make` returns; `make` is called with the lock held.
    `flops`: kernel name or call target → FLOPs of one run on one device, as the user states them. `brief`: read only
    what costs need."""
    with lowered.entered():
        start = time.perf_counter()
        if make is None:
            module = _propagated(lowered, bound)
        else:
            _jax.run_passes(module := make(), PROPAGATION)
        _reshard(module, COLLECTIVES)
        ran = time.perf_counter()
        reading = PropagatedReading(MlirGraph(module), lowered, bound.mesh, flops or {}, brief=brief)
        return Propagated(
            module,
            reading,
            reading.outputs(),
            {} if brief else reading.read_as(),
            {} if brief else reading.computed_as(),
            {"shardy": ran - start, "read": time.perf_counter() - ran},
        )


def run(module: ir.Operation, then: str | None = COLLECTIVES) -> None:
    """Propagate a module in place, and run the passes `then`. Its context must be entered."""
    _jax.run_passes(module, PROPAGATION)
    if then is not None:
        _reshard(module, then)


def _reshard(module: ir.Operation, then: str) -> None:
    """Run the passes `then` on a propagated module. Each operation keeps the propagated sharding of its results as the
    attribute `PROPAGATED`; it may compute them in another one. An operation whose result has a constraint that changes
    nothing keeps the location of that constraint, as `CONSTRAINED`."""
    for loop in _jax.walk(module, "stablehlo.while"):
        read_inside(loop)
    operations = list(_jax.walk(module))
    for op in operations:
        attributes = op.attributes
        if SHARDING in attributes:
            attributes[PROPAGATED] = attributes[SHARDING]
        rule_again(attributes)
        if op.name == "sdy.reshard":
            _note_constraint(op)
    if (mesh := mesh_in(module)) is not None:
        gather_disagreeing(operations, mesh)
    _jax.run_passes(module, f"builtin.module({then})")


def _note_constraint(reshard: ir.Operation) -> None:
    """Write the location of a constraint that changes nothing on the operation before it, since the next passes remove
    the constraint."""
    value, maker = reshard.operands[0], reshard.operands[0].owner
    if isinstance(maker, ir.Block) or maker.location.attr == reshard.location.attr:  # which is that of a type
        return
    if spec_of_value(value) == spec_of_value(reshard.results[0]):
        maker.attributes[CONSTRAINED] = ir.StringAttr.get(str(reshard.location))


def prepared(lowered: Lowered, bound: PlanRecord) -> ir.Operation:
    """Return the module under a plan as XLA passes it to Shardy. Call it inside `lowered.entered()`."""
    if lowered.simplified is None:
        simpler, order = simplified(lowered.module.operation, lowered.platform)
        placed = tuple(None if number is None else lowered.placed[number] for number in order) if lowered.placed else ()
        lowered.simplified = replace(lowered, module=simpler, placed=placed)
    module = edited(lowered.simplified, bound)
    if lowered.traced.types:
        mark_types(module)
    return module
