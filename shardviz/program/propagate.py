"""Shardy's own propagation, in the kernel, without devices: how every value is sharded, and what moves.

The passes that `jax.jit` would run inside the compiler run here on an edited copy of the lowered module; then Shardy's
pass that makes every resharding explicit writes the collectives down. MLIR's verifier between passes is left out: it
would take two thirds of the time. The tests run it once at the end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy
from jax.extend.mlir.passmanager import PassManager

from shardviz import _jax, processes
from shardviz.notation import Spec
from shardviz.program.disagreeing import gather_disagreeing
from shardviz.program.explicit import mark_types
from shardviz.program.footprint import Footprint, footprint
from shardviz.program.graph import PROPAGATED, MlirGraph
from shardviz.program.lower import Lowered, edited
from shardviz.program.module import items, mesh_in
from shardviz.program.propagated import PropagatedReading
from shardviz.records import PlanRecord

_PROPAGATION = "sdy-propagation-pipeline,sdy-close-shardings"
RESHARDS = "sdy-insert-explicit-reshards{enable-full-version=true}"
"""Settles how each operation computes, which may be otherwise where its operands disagree."""

COLLECTIVES = f"func.func({RESHARDS},sdy-reshard-to-collectives)"
"""The same, and which collectives bring each value to where it is needed."""

PIPELINE = f"builtin.module({_PROPAGATION},{COLLECTIVES})"
_REHEARSAL = 120.0


@dataclass(frozen=True)
class Propagated:
    """What Shardy found: the module after propagation, what stands in it, a spec for every output, how the program
    reads arguments of which each device takes a slice, and computes results that are resharded; and what each step
    took."""

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


def rehearse(lowered: Lowered, bound: PlanRecord) -> None:
    """Runs Shardy, which ends its process where one of its checks fails, on a program in another process first, if one
    can be had. Raises CompileError if that died or Shardy refused the program."""
    with lowered.entered():
        module = _jax.bytecode(prepared(lowered, bound))
    rehearse_module(module, PIPELINE)


def rehearse_module(module: bytes, pipeline: str) -> None:
    """Runs passes on a module given as bytecode in a process of its own; errors as `rehearse`."""
    trial = processes.Trial("shardviz._jax:run_passes", module, {"passes": pipeline})
    job = processes.submit(trial, timeout=_REHEARSAL)
    try:
        error = job.exception()
    finally:
        job.stop()  # where the waiting was interrupted
    if error is not None and job.begun:
        raise error


def propagate(
    lowered: Lowered,
    bound: PlanRecord,
    flops: Mapping[str, float] | None = None,
    make: Callable[[], ir.Operation] | None = None,
) -> Propagated:
    """Runs Shardy on a program under a plan, here, or on the module that `make` makes with the lock held. `flops`:
    kernel name or call target → FLOPs of one run on one device, as a person says."""
    with lowered.entered():
        return _propagated(lowered, bound, flops or {}, make)


def sketch(
    lowered: Lowered,
    bound: PlanRecord,
    flops: Mapping[str, float] | None = None,
    room: float = 0.0,
) -> tuple[Propagated, Footprint]:
    """As `propagate`, of which only what costs is read (no intermediates), and about how much memory it takes beside
    `room` bytes of its own memory that a chip's compiler fills with values."""
    _ = lowered.unused  # which takes the lock
    with lowered.entered():
        propagated = _propagated(lowered, bound, flops or {}, brief=True)
        return propagated, footprint(propagated.graph, lowered, bound, room)


def _propagated(
    lowered: Lowered,
    bound: PlanRecord,
    flops: Mapping[str, float],
    make: Callable[[], ir.Operation] | None = None,
    *,
    brief: bool = False,
) -> Propagated:
    start = time.perf_counter()
    module = prepared(lowered, bound) if make is None else make()
    edited = time.perf_counter()
    run(module)
    ran = time.perf_counter()
    reading = PropagatedReading(MlirGraph(module), lowered, bound.mesh, flops, brief=brief)
    return Propagated(
        module,
        reading,
        reading.outputs(),
        {} if brief else reading.read_as(),
        {} if brief else reading.computed_as(),
        {"edit": edited - start, "shardy": ran - edited, "read": time.perf_counter() - ran},
    )


def run(module: ir.Operation, then: str | None = COLLECTIVES) -> None:
    """Propagates a module, in place, its context entered, and runs the passes `then`. An operation that is to compute
    its results otherwise than propagation has them cut keeps the latter as its attribute `PROPAGATED`."""
    run_passes(module, f"builtin.module({_PROPAGATION})")
    if then is None:
        return
    operations = list(_jax.walk(module))
    if (mesh := mesh_in(module)) is not None:
        gather_disagreeing(operations, mesh)
    for op in operations:
        if _SHARDING in op.attributes:
            op.attributes[PROPAGATED] = op.attributes[_SHARDING]
    run_passes(module, f"builtin.module({then})")
    for op in _jax.walk(module):
        if PROPAGATED in op.attributes and op.attributes[PROPAGATED] == op.attributes[_SHARDING]:
            del op.attributes[PROPAGATED]


_SHARDING = "sdy.sharding"


def run_passes(module: ir.Operation, pipeline: str) -> None:
    """Runs passes on a module, in place, without MLIR's verifier between them."""
    manager = PassManager.parse(pipeline)
    manager.enable_verifier(False)
    manager.run(module)


def prepared(lowered: Lowered, bound: PlanRecord) -> ir.Operation:
    """The module under a plan as XLA's simplifier would hand it to Shardy; inside of `lowered.entered()`."""
    if lowered.simplified is None:
        lowered.simplified = _simplified(lowered)
    module = edited(lowered, bound, lowered.simplified)
    if lowered.traced.types:
        mark_types(module)
    return module


def _simplified(lowered: Lowered) -> ir.Operation:
    """The lowered module with what no plan changes: rules for CHLO, sums of sums as one, broadcasts as reshapes."""
    module = lowered.module.operation.clone()
    merges = lowered.platform != "cpu"  # XLA's CPU compiler leaves a reduction of a reduction as it is
    reductions: list[ir.Operation] = []
    broadcasts: list[ir.Operation] = []
    for op in _jax.walk(module):
        if op.name.startswith("chlo.") and _RULE not in op.attributes and (rule := chlo_rule(op)) is not None:
            op.attributes[_RULE] = rule
        elif op.name == "stablehlo.broadcast_in_dim":
            broadcasts.append(op)
        elif merges and op.name == "stablehlo.reduce":
            reductions.append(op)
    for op in reductions:
        _merge(op)
    for op in filter(_repeats_nothing, broadcasts):
        _reshape(op)
    return module


def _repeats_nothing(broadcast: ir.Operation) -> bool:
    """Whether a broadcast is a reshape: as of `[b, s]` to `[b, s, 1]`."""
    (operand,), (result,) = broadcast.operands, broadcast.results
    before, after = ir.RankedTensorType(operand.type), ir.RankedTensorType(result.type)
    order = list(ir.DenseI64ArrayAttr(broadcast.attributes["broadcast_dimensions"]))
    return bool(before.rank) and math.prod(before.shape) == math.prod(after.shape) and order == sorted(order)


def _reshape(broadcast: ir.Operation) -> None:
    """Makes a broadcast that repeats nothing a reshape, as XLA's simplifier does: Shardy hands cuts on through reshapes
    first, so that which cut wins may depend on it."""
    (result,) = broadcast.results
    attributes = {name: what for name, what in items(broadcast) if name != "broadcast_dimensions"}
    at = {"loc": broadcast.location, "ip": ir.InsertionPoint(broadcast)}
    operands = list(broadcast.operands)
    new = ir.Operation.create(
        "stablehlo.reshape", results=[result.type], operands=operands, attributes=attributes, **at
    )
    result.replace_all_uses_with(new.results[0])
    broadcast.erase()


def _merge(outer: ir.Operation) -> None:
    """Makes a reduction of a reduction's result, `sum(sum(x, 1), 0)`, one over both dimensions: one all-reduce."""
    inner = outer.operands[0].owner
    if isinstance(inner, ir.Block) or inner.name != "stablehlo.reduce" or len(outer.operands) != 2:
        return
    inner = inner.operation
    if len(inner.operands) != 2 or (how := _reducer(inner)) is None or how != _reducer(outer):
        return
    gone = list(ir.DenseI64ArrayAttr(inner.attributes["dimensions"]))
    left = [d for d in range(ir.RankedTensorType(inner.operands[0].type).rank) if d not in gone]
    gone += [left[d] for d in ir.DenseI64ArrayAttr(outer.attributes["dimensions"])]
    outer.operands[0] = inner.operands[0]
    outer.attributes["dimensions"] = ir.DenseI64ArrayAttr.get(sorted(gone))
    if not any(True for _ in inner.results[0].uses):
        inner.erase()


def _reducer(reduction: ir.Operation) -> tuple[str, str] | None:
    """The one operation that a reduction applies to two elements, and what it starts from; None for a larger one."""
    body = [op.operation.name for op in reduction.regions[0].blocks[0].operations]
    start = reduction.operands[1]
    maker = start.owner
    if not isinstance(maker, ir.Block) and maker.name == "stablehlo.constant":
        start = maker.attributes["value"]
    return (body[0], str(start)) if len(body) == 2 else None


_RULE = "sdy.sharding_rule"
_OPAQUE = () if jax.__version_info__ >= (0, 12) else ("chlo.erf",)
"""What XLA keeps as an operation of its own, which its Shardy does not look through either."""


def chlo_rule(op: ir.Operation) -> ir.Attribute | None:
    """How an operation of CHLO, which Shardy has no rule for and XLA rewrites before its own Shardy runs, hands
    shardings on: `square` or `erf` elementwise, and `top_k` but for its last dimension; None for any other."""
    try:
        ins, outs = ([ir.RankedTensorType(v.type).shape for v in values] for values in (op.operands, op.results))
    except ValueError:
        return None
    if op.name in _OPAQUE or not ins:
        return None
    whole = ins[0]
    alone = 1 if op.name == "chlo.top_k" else 0  # dimensions that are taken as wholes
    kept = len(whole) - alone
    if any(len(shape) != len(whole) or shape[:kept] != whole[:kept] for shape in (*ins, *outs)):
        return None

    def mapped(shapes: list[list[int]], own: int) -> list[ir.Attribute]:
        dims = [sdy.DimMappingAttr.get([factor]) for factor in (*range(kept), own)[: len(whole)]]
        return [sdy.TensorMappingAttr.get(dims) for _ in shapes]

    sizes = [*whole, *outs[0][kept:]]
    own = list(range(kept, kept + 2 * alone))
    return sdy.OpShardingRuleAttr.get(
        sizes, mapped(ins, kept), mapped(outs, kept + alone), need_replication_factors=own
    )
