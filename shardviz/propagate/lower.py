"""From a traced program to StableHLO under a plan, without lowering again when the plan changes.

A program is lowered once for each set of mesh axis names. A plan is then an edit of that module: the mesh's axis sizes,
and `sdy.sharding` on the main function's arguments and results. An edit takes about a millisecond, a lowering fifty.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from shardviz import _jax
from shardviz._jax.mlir import ir, sdy
from shardviz.caching import cached_property, collection_paused
from shardviz.errors import TraceError
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.sdy import axis as sdy_axis
from shardviz.notation.spec import DEVICE_MEMORY
from shardviz.records import Frame, PlanRecord
from shardviz.records.report import Constrained
from shardviz.stablehlo.donations import Shard, set_donations
from shardviz.stablehlo.module import (
    CONSTRAINT,
    MESH,
    attributes_of,
    function_type,
    give_lines,
    location,
    main_of,
    set_arguments,
    set_attributes,
    set_mesh,
    sharding,
    valid_mlir,
    verify,
)
from shardviz.tracing.explicit import type_spec
from shardviz.tracing.meshes import abstract_mesh
from shardviz.tracing.trace import Argument, Traced, cannot_lower, first_frame


@dataclass(frozen=True)
class LowerFor:
    """The target of a lowering. JAX lowers some operations differently for another platform (`cpu`, `tpu`, `cuda`), and
    a few for another chip (its name in JAX, and the number of cores that form one device)."""

    platform: str = "cpu"
    device_kind: str = "cpu"
    num_cores: int = 1


CPU = LowerFor()
ELSEWHERE = LowerFor("tpu", "TPU v5p", 2), LowerFor("cuda", "NVIDIA H100 80GB HBM3")
"""Where a program may be lowered for that is for no CPU: what Pallas kernels are written for."""


@dataclass(eq=False)
class Lowered:
    """A lowered program, which plans edit."""

    traced: Traced
    module: Any  # with every argument replicated; never changed
    platform: str = "cpu"  # what it was lowered for, as `LowerFor.platform`
    lock: threading.Lock = field(default_factory=threading.Lock)  # MLIR objects are used by one thread at a time
    locations: dict[Any, Any] = field(default_factory=dict)  # what is known of each, filled as they are met
    rehearsed: bool = False  # Shardy has been run on it outside the kernel
    begun: tuple[PlanRecord, bytes] | None = field(default=None, repr=False)  # propagated under a plan, not more
    process: int = field(default_factory=os.getpid, repr=False)
    placed: tuple[int | None, ...] = ()  # which of the plan's own each constraint inside is; None: the function's
    simplified: Lowered | None = field(default=None, repr=False)  # as XLA would hand it to Shardy; never changed

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Hold the lock and enter the module's context, at no location. A forked process has neither the thread that
        may hold the lock, nor MLIR's thread pool; it gets new ones."""
        if self.process != os.getpid():
            self.process, self.lock = os.getpid(), threading.Lock()
            _jax.renew_threads(self.module.context)
        with self.lock, self.module.context, ir.Location.unknown(), collection_paused():
            yield

    def apart(self) -> Lowered:
        """Return the same program in its own context, which may be entered again, for questions that take long."""
        with self.entered():
            module = _jax.bytecode(self.module.operation)
        copy = _jax.module_from(module)
        own: dict[str, Any] = {"lock": threading.RLock(), "locations": {}, "simplified": None, "begun": None}
        return replace(self, module=copy, process=os.getpid(), **own)

    @cached_property
    def unused(self) -> tuple[bool, ...]:
        """For each argument, whether no result depends on it; `jax.jit` removes such arguments."""
        with self.entered():
            return _unused(main_of(self.module), self.traced)

    @cached_property
    def ragged_as_plain(self) -> tuple[Frame | None, ...]:
        """The source lines of calls of `jax.lax.ragged_dot` that are lowered as plain products, of every group with all
        rows."""
        closed = self.traced.closed
        names = [] if closed is None else list(_jax.equations(closed.jaxpr))
        ragged = [infos for name, infos in names if name.startswith("ragged_dot")]
        if not ragged:
            return ()
        with self.entered():
            return () if "chlo.ragged_dot" in str(self.module) else tuple(map(first_frame, ragged))

    @property
    def kept(self) -> tuple[Argument, ...]:
        """The arguments of the compiled program, in its order."""
        return tuple(a for a, unused in zip(self.traced.arguments, self.unused, strict=True) if not unused)


def _unused(main: ir.Operation, traced: Traced) -> tuple[bool, ...]:
    arguments = main.regions[0].blocks[0].arguments
    keeps = traced.keeps or (False,) * len(arguments)
    return tuple(not keep and not any(True for _ in a.uses) for a, keep in zip(arguments, keeps, strict=True))


def lower(traced: Traced, mesh: DeviceMesh, target: LowerFor = CPU) -> Lowered:
    """Lower a trace on a mesh. Its constraints get this mesh, and `jax.debug` callbacks are removed. Raises TraceError
    if the program calls Python for a value or is too large, or if JAX cannot lower an operation."""
    if traced.module:
        with valid_mlir():
            return Lowered(traced, _jax.module_from(traced.module), target.platform)
    if (count := _jax.written_out(traced.closed.jaxpr)) > _jax.MOST_EQUATIONS:
        raise TraceError(
            f"{traced.name} has {count:,} operations where each jitted function stands in the place of its calls, as "
            f"XLA compiles it; at most {_jax.MOST_EQUATIONS:,} are read. Scan over what repeats, or trace a part of it"
        )
    on = abstract_mesh(mesh)
    try:
        closed = _jax.on_mesh(traced.closed, on)
    except ValueError as error:
        raise TraceError(
            f"{traced.name}: a jitted function or a constraint inside is on a mesh with other axes than {mesh}: "
            f"{error} Give the plan's mesh these axes, or the function inside the names that the mesh has"
        ) from error
    donated = [a.donated for a in traced.arguments]
    for call in traced.callbacks:
        if not call.reports:
            raise TraceError(
                f"{traced.name} calls {call.name}{f' at {call.source.short}' if call.source else ''}, which JAX lowers "
                "only for devices that are there; explore the function without it"
            )
    types = [type_spec(t) for t in traced.types] or None
    device = _jax.StandInDevice(0, target.platform, target.device_kind, target.num_cores)
    try:
        with collection_paused():
            module = _jax.lower(closed, traced.name, donated, on, device, types)
    except Exception as error:  # every operation has its own reasons
        raise cannot_lower(traced, target.platform, error) from error
    placed = _unmarked(module) if traced.placed else ()
    return Lowered(traced, module, target.platform, placed=placed)


def _unmarked(module: Any) -> tuple[int | None, ...]:
    """Remove the marks of a module's sharding constraints, and return each mark's number in the order of a walk."""
    marks: list[int | None] = []
    with module.context:
        for op in _jax.walk(module.operation, CONSTRAINT):
            marked = _jax.marked_text(str(op.location))
            marks.append(None if marked is None else marked[0])
            if marked is not None:
                op.location = location(marked[1])
    return tuple(marks)


def _set_constraints(module: ir.Operation, lowered: Lowered, bound: PlanRecord) -> None:
    """Write the specs of the plan's own constraints at their marks. Dimensions added by `vmap` keep theirs."""
    wanted_at = _wanted(lowered.traced, bound)
    for op, place in zip(_jax.walk(module, CONSTRAINT), lowered.placed, strict=True):
        if place is None:
            continue
        wanted = wanted_at[place]
        cuts, dims = enumerate(wanted.spec.dims), []
        written = sdy.TensorShardingAttr(op.attributes["sharding"])
        for dim in map(sdy.DimensionShardingAttr, written.dimension_shardings):
            mapped = not dim.is_closed or list(dim.axes)
            number, axes = (-1, ()) if mapped else next(cuts)
            opened = "?" if number in wanted.open else ""
            dims.append(str(dim) if mapped else "{" + (", ".join(map(sdy_axis, axes)) or opened) + "}")
        op.attributes["sharding"] = ir.Attribute.parse(f"#sdy.sharding<@{MESH}, [{', '.join(dims)}]>")


def _wanted(traced: Traced, bound: PlanRecord) -> list[Constrained]:
    """Return the plan's constraint for each marked value of a trace."""
    by_value = {(c.name, c.source): c for c in bound.constraints}
    return [by_value[p.target.label, p.target.frame] for p in traced.placed]


def edited(lowered: Lowered, bound: PlanRecord) -> ir.Operation:
    """Return a copy of the module with a plan's mesh and shardings. Call it inside `lowered.entered()`."""
    module = lowered.module.operation.clone()
    body = module.regions[0].blocks[0]
    main = main_of(module)
    set_mesh(module, body, bound.mesh.shape)
    traced = lowered.traced
    if lowered.placed:
        _set_constraints(module, lowered, bound)
    kind = function_type(main)
    ins, outs = list(map(ir.RankedTensorType, kind.inputs)), list(map(ir.RankedTensorType, kind.results))
    in_specs = [bound.in_specs[a.name] for a in traced.arguments]
    out_specs = [bound.out_specs[o.name] for o in traced.outputs]
    _set_shardings(main, "arg_attrs", ins, in_specs)
    _set_shardings(main, "res_attrs", outs, out_specs, traced.out_types)
    inputs = zip(traced.arguments, ins, in_specs, strict=True)
    results = zip(traced.outputs, outs, out_specs, strict=True)
    set_donations(
        main,
        [Shard.of(t, spec, bound.mesh, bound.in_memory.get(a.name, DEVICE_MEMORY)) for a, t, spec in inputs],
        [Shard.of(t, spec, bound.mesh, bound.out_memory.get(o.name, DEVICE_MEMORY)) for o, t, spec in results],
        _unused(main, traced),
        bound.mesh.size == 1,
    )
    verify(module)
    return module


def edited_bytecode(lowered: Lowered, bound: PlanRecord) -> bytes:
    """Return the module under a plan as `jax.jit` compiles it: without unused arguments, with memory kinds and source
    lines."""
    unused = lowered.unused
    with lowered.entered():
        module = edited(lowered, bound)
        main = main_of(module)
        if bound.out_memory or any(a.name in bound.in_memory for a in lowered.kept):
            _place(main, lowered.traced, bound)
        if any(unused):
            _leave_out(main, unused)
        give_lines(module)
        verify(module)
        return _jax.bytecode(module)


def _place(main: ir.Operation, traced: Traced, bound: PlanRecord) -> None:
    """Annotate every argument and result with its memory kind, as JAX does if one of them is not in device memory."""
    block = main.regions[0].blocks[0]
    ends = block.operations[len(block.operations) - 1].operation
    for which, arrays, memory in (
        ("arg_attrs", traced.arguments, bound.in_memory),
        ("res_attrs", traced.outputs, bound.out_memory),
    ):
        entries = attributes_of(main, which, len(arrays))
        for array, attributes in zip(arrays, entries, strict=True):
            attributes["mhlo.memory_kind"] = ir.StringAttr.get(memory.get(array.name, DEVICE_MEMORY))
        set_attributes(main, which, entries)
    with ir.InsertionPoint(ends):
        for place, output in enumerate(traced.outputs):
            kind = bound.out_memory.get(output.name, DEVICE_MEMORY)
            if kind != output.memory_kind or bound.out_specs[output.name] is not None:
                ends.operands[place] = _placed(ends.operands[place], kind)


def _placed(value: Any, kind: str) -> Any:
    """Return the value annotated with its memory kind, with the attributes that XLA looks for in JAX's lowering."""
    attributes = {
        "call_target_name": ir.StringAttr.get("annotate_device_placement"),
        "has_side_effect": ir.BoolAttr.get(True),
        "backend_config": ir.StringAttr.get(""),
        "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1),
        "mhlo.frontend_attributes": ir.DictAttr.get({"_xla_buffer_placement": ir.StringAttr.get(kind)}),
    }
    annotated = ir.Operation.create(
        "stablehlo.custom_call", results=[value.type], operands=[value], attributes=attributes
    )
    return annotated.results[0]


def _leave_out(main: ir.Operation, unused: Sequence[bool]) -> None:
    """Remove unused arguments from the main function."""
    block = main.regions[0].blocks[0]
    entries = attributes_of(main, "arg_attrs", len(unused))
    for place in reversed([i for i, left_out in enumerate(unused) if left_out]):
        block.erase_argument(place)
    set_arguments(main, (entry for entry, left_out in zip(entries, unused, strict=True) if not left_out))


def _set_shardings(
    main: ir.Operation,
    which: str,
    arrays: Sequence[ir.RankedTensorType],
    specs: Sequence[Spec | None],
    types: Sequence[Spec | None] = (),
) -> None:
    """Write specs. For an array with a sharding in its type and no spec, write the type's; its other dimensions stay
    open."""
    if not specs:
        return
    entries = attributes_of(main, which, len(arrays))
    for entry, array, spec, kind in zip(entries, arrays, specs, types or (None,) * len(specs), strict=True):
        entry.pop("sdy.sharding", None)
        entry.pop("mhlo.sharding", None)
        if spec is not None:  # of a PRNG key with one dimension more than JAX shows
            entry["sdy.sharding"] = sharding(spec, array.rank)
        elif kind is not None:
            entry["sdy.sharding"] = sharding(kind, array.rank, "?")
    set_attributes(main, which, entries)
