"""A propagated module, read once: every value with its sharding, every collective, every product's FLOPs.

The sharding of a value stands on the operation that makes it, or around that. Outside a `shard_map` the collectives are
Shardy's own (`sdy.all_gather`), with named axes and global shapes. Inside one (`sdy.manual_computation`) shapes are
single devices' already, and the collectives are those that the program says; which mesh axes those span follows from
their replica groups, of devices or of axes, or their pairs.

After the pass that makes every resharding explicit, the operands of a product are sharded as the product uses them. If
a dimension that it sums over is sharded in both operands, each device sums over its part, and an all-reduce follows. So
one device's FLOPs follow from one device's shapes. Dimensions that do not divide are padded, as XLA pads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from shardviz._jax.mlir import ir, sdy
from shardviz.caching import cached_property
from shardviz.foresee.listed import ScheduleBuilder
from shardviz.foresee.tiles import ragged_as_dense
from shardviz.foresee.unforeseen import Unforeseen, dims_crossed, partial_cut
from shardviz.graph import At, Block, Flow, GraphValue, Origins
from shardviz.graph.collectives import span
from shardviz.graph.flops import (
    PRODUCTS,
    call_of,
    fourier_on_tpu,
    multiplied_in,
    product_dtype,
    product_flops,
    product_sizes,
    shortest_side,
)
from shardviz.graph.uses import SAME_EACH_RUN, root
from shardviz.layouts import itemsize
from shardviz.layouts.uneven import shard_shape
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.record import Sharding
from shardviz.notation.spec import axes_size, axis_name, axis_size
from shardviz.propagate.lower import Lowered
from shardviz.records import Collective, Factor, Product, Value, WorkTally
from shardviz.records.kernels import Array, KernelFacts
from shardviz.records.phases import phase
from shardviz.records.schedule import Schedule, Scheduled, begun_and_ended, heaviest
from shardviz.records.source import module_of
from shardviz.stablehlo.graph import COLLECTIVES, PROPAGATED, MlirGraph, MlirOperation, is_moved
from shardviz.stablehlo.module import Place, attributes_of, group_axes, spec_of
from shardviz.stablehlo.uses import constraint_behind, is_reshard, is_slice, moved_axes, surroundings
from shardviz.stablehlo.walker import Walker, flow_of
from shardviz.tracing.explicit import type_of
from shardviz.tracing.trace import Traced

SKIPPED = frozenset(
    (
        *("sdy.constant", "stablehlo.constant", "stablehlo.while", "stablehlo.case", "func.call"),
        *("sdy.manual_computation", "sdy.all_slice", "stablehlo.optimization_barrier"),
    )
)
"""Operations that make no value of their own: constants, loops and branches, whose insides are read, and ends."""

TRIVIAL = frozenset(
    (
        *("stablehlo.convert", "stablehlo.reshape", "stablehlo.transpose", "stablehlo.broadcast_in_dim"),
        *("stablehlo.slice", "stablehlo.dynamic_slice", "sdy.all_slice", "sdy.sharding_constraint", "sdy.reshard"),
        *("sdy.all_gather", "sdy.all_to_all", "sdy.collective_permute"),
    )
)
"""Operations whose result is their operand, moved or a part of it."""
_FOURIER_ROOM = 1.6
"""What a Fourier transform takes and gives, so often, is the room in which a TPU keeps all that it moves between: of
67 MB v5e does, which has 117 MB, and of 34 MB v5p does not, which has 50 MB."""
_MOVED = frozenset(name.partition(".")[2].replace("_", "-") for name in TRIVIAL)


def _span(op: MlirOperation, kind: str, mesh: DeviceMesh) -> tuple[tuple[Axis, ...] | None, int | None]:
    """Return the mesh axes and the number of devices in a group of a collective; None for the axes if the groups are no
    product of axes."""
    name = "source_target_pairs" if kind == "collective-permute" else "replica_groups"
    attributes = op.attributes
    if name not in attributes:  # of a custom call
        attributes = ir.DictAttr(attributes["backend_config"])
    attribute = attributes[name]
    if (named := group_axes(attribute)) is not None:
        axes = tuple(a for a in named if axis_size(a, mesh) > 1)
        return axes, axes_size(axes, mesh)
    table = np.array(ir.DenseIntElementsAttr(attribute)).reshape(tuple(ir.RankedTensorType(attribute.type).shape))
    return span(kind, table, mesh)


def _reduces_several(op: MlirOperation | None) -> bool:
    """Return whether an operation reduces several arrays at once."""
    return op is not None and op.name == "stablehlo.reduce" and len(op.results) > 1


def output_specs(main: ir.Operation, traced: Traced) -> tuple[Spec, ...]:
    """Return how the main function of a propagated module shards its results."""
    outputs, specs = traced.outputs, []
    for output, entry in zip(outputs, attributes_of(main, "res_attrs", len(outputs)), strict=True):
        rank, sharding = len(output.shape), entry.get("sdy.sharding")
        spec = Spec.of(None if sharding is None else spec_of(sharding), rank)
        specs.append(spec.with_dims(spec.dims[:rank]))  # a PRNG key has a hidden dimension
    return tuple(specs)


class PropagatedReading(Walker):
    """What is read from a propagated module: every value that has a sharding, every collective, every product's
    FLOPs."""

    def __init__(
        self, graph: MlirGraph, lowered: Lowered, mesh: DeviceMesh, flops: Mapping[str, float], *, brief: bool = False
    ):
        """Read the module. `brief`: only what costs; no values, no names of moved arrays, and passes from name stacks
        only."""
        super().__init__(graph, lowered.locations)
        self.brief = brief
        self.kernels = KernelFacts(flops, lowered.traced.estimates)
        self.mesh, self.traced = mesh, lowered.traced
        self.on_tpu = lowered.platform == "tpu"
        self.made: dict[Any, Any] = {}  # a collective of the block that is read → its result
        self.again: dict[Any, Any] = {}  # the result of the same collective, made again → the first one's
        self.values: list[Value] = []  # all that the program makes
        self.made_at: list[At] = []  # for each of them, and for what each collective moves, where it is in the graph
        self.moved_at: list[At] = []
        self.shown: list[int] = []  # which of them have a sharding, or lie in a shard_map
        self.collectives: list[Collective] = []  # what Shardy would put in, per-device bytes
        self.products: list[Product] = []
        self.reshards_left = 0  # that Shardy did not turn into collectives
        self.unforeseen: list[Unforeseen] = []  # what Shardy leaves to XLA's partitioner
        self._fields, self._size = cache(self._fields_of), cache(self._size_of)  # most values are sharded as others are
        self.numbers: dict[str, int] = {}
        self.tally = WorkTally()  # FLOPs on one device; in loops of unknown trip count those of one trip
        self.listing = ScheduleBuilder(self._shard_of, self._bytes_of, self._computed)
        self.locations = lowered.locations
        self._moved, self._same = Origins(_MOVED, first=True), Origins(SAME_EACH_RUN)
        self.schedule = self._block(self.main)

    def read(self, block: Block) -> tuple[GraphValue, ...]:
        around, self.made = self.made, {}
        try:
            return super().read(block)
        finally:
            self.made = around

    def _block(self, block: Block, initial: Sequence[GraphValue] = ()) -> Schedule:
        """Read a block that has its own schedule."""
        self.listing.open(block, initial)
        returned = self.read(block)
        arguments = zip(self.traced.arguments, self.main.arguments, strict=True) if block is self.main else ()
        donated = [self._bytes_of(value) for argument, value in arguments if argument.donated]
        return self.listing.close(returned, donated)

    def visit(self, op: MlirOperation) -> None:
        name, before, entries = op.name, len(self.collectives), Schedule()
        if kind := op.collective:
            self._user_collective(op, kind)
        if _reduces_several(op):
            self._gather_parts(op)
        if name in COLLECTIVES:
            if not (name == "sdy.all_reduce" and _reduces_several(op.operands[0].maker)):
                self._collective(op)
        elif name == "sdy.reshard":
            self.reshards_left += 1
        elif not self.brief and name not in SKIPPED:
            self._value(op)
            self._unforeseen(op)
        if op.kind in PRODUCTS:
            place = self.place(op)
            flops, stands_in = product_flops(op, self._shard_of), self._phase(op, place)
            module = module_of(place.name_stack, place.frame)
            self.tally.add(stands_in, place.frame, module, product_dtype(op), self.around.times * flops)
            groups, side = ragged_as_dense(op, self._shard_of)
            dtype, side = multiplied_in(op, product_dtype(op)), side or shortest_side(op, self._shard_of)
            kernel = "convolution" if op.kind == "convolution" else ""
            stands = {"source": place.frame, "phase": stands_in, "side": side, "kernel": kernel}
            entries = (Scheduled(kind="work", name=op.kind, flops={dtype: groups * flops}, **stands),)
            if op.kind == "dot" and not self.brief:
                self._product(op, place, stands_in, flops)
        elif op.kind == "custom-call" and not kind:
            entries = self._call(op)
        elif op.kind == "fft" and self.on_tpu:
            entries = self._fourier(op)
        if len(self.collectives) > before:
            entries = begun_and_ended(self.collectives[before:])
        if op.kind == "while":
            with self.inside(op) as (condition, body):
                self.read(condition)
                entries = (
                    Scheduled(kind="loop", name=op.kind, trips=self.around.trips, body=self._block(body, op.operands)),
                )
        elif op.kind == "conditional":
            with self.inside(op) as blocks:
                entries = self._branches(blocks)
        elif op.blocks:
            with self.inside(op) as (block,):
                self.listing.same(block.arguments, op.operands)
                self.listing.same(op.results, self.read(block))
            return
        if op.results and op.results[0] in self.again:
            self.listing.same(op.results, (self.again[op.results[0]],))
        else:
            attribute = COLLECTIVES.get(name)
            over = attribute and (name, op.attributes[attribute], op.attributes["out_sharding"])
            self.listing.add(op, entries, over or None, self._partial(op) if op.kind == "dot" else 0.0)

    def _partial(self, product: MlirOperation) -> float:
        """Return the bytes of a matrix product's partial sums, if these are larger than its result."""
        spec, value = partial_cut(self.graph, product, self.around.manual), product.result
        shard = shard_shape(value.shape, spec, self.mesh) if spec is not None else (0,)
        return float(math.prod(shard) * itemsize(value.dtype))

    def _computed(self, op: MlirOperation) -> Scheduled:
        """Return the work of an operation that computes element by element."""
        place = op.place or self.place(op)
        return Scheduled(kind="work", name=op.kind, source=place.frame, phase=self._phase(op, place))

    def _bytes_of(self, value: GraphValue) -> float:
        if value.is_token:
            return 0.0
        return self._size(value.shape, value.dtype, self.graph.spec_of(value, self.around.manual))

    def _size_of(self, shape: tuple[int, ...], dtype: str, spec: Spec | None) -> float:
        return float(math.prod(shard_shape(shape, spec or Spec(), self.mesh)) * itemsize(dtype))

    def _call(self, op: MlirOperation) -> Schedule:
        """Return the work of a call of a kernel or library; it names the call if its FLOPs are unknown."""
        place = self.place(op)
        callers = (self.place(call).frame for call in reversed(self.around.calls))
        frame = place.frame or next(filter(None, callers), None)  # all of a library's kernel is the library's
        call = call_of(op, place.name_stack, frame, self.kernels, self._given)
        if call is None:
            return ()
        stands_in, flops = self._phase(op, place), call.flops or 0.0
        opaque = (call.name,) if call.flops is None else ()
        module = module_of(place.name_stack, frame)
        self.tally.add(stands_in, frame, module, call.dtype, self.around.times * flops, opaque=opaque)
        facts = {"side": call.side, "opaque": opaque, "kernel": call.kernel}
        work = Scheduled(kind="work", name=op.kind, flops={call.dtype: flops}, source=frame, phase=stands_in, **facts)
        return (work,)

    def _fourier(self, op: MlirOperation) -> Schedule:
        """Return the work of a Fourier transform, which a TPU's compiler replaces by matrix products before it
        partitions the program."""
        name, place = str(op.attributes["fft_type"]).strip(">").split()[-1], self.place(op)
        points = max(math.prod(map(float, self._shard_of(value))) for value in (op.operands[0], op.result))
        flops, moved = fourier_on_tpu(name, op.integers("fft_length", ()), points)
        stands_in, module = self._phase(op, place), module_of(place.name_stack, place.frame)
        self.tally.add(stands_in, place.frame, module, "float32", self.around.times * flops)
        around = self._bytes_of(op.operands[0]) + self._bytes_of(op.result)
        more = max(0.0, moved - around)  # which a chip keeps in its own memory where that has room
        work = {
            "flops": {"float32 highest": flops},
            "hbm_bytes": more,
            "on_chip": {round(_FOURIER_ROOM * around): more},
        }
        return (Scheduled(kind="work", name=op.kind, source=place.frame, phase=stands_in, **work),)

    def _product(self, op: MlirOperation, place: Place, stands_in: str, flops: float) -> None:
        manual, last = self.around.manual, self.values[self.shown[-1]] if self.shown else None
        cuts = [self.graph.spec_of(value, manual) for value in (*op.operands, op.results[0])]
        used = {axis_name(a) for cut in cuts if cut is not None for a in cut.axes}
        used |= set(map(axis_name, manual)) - set(map(axis_name, self.around.alike))
        named = last is not None and last.source == place.frame and last.name.startswith("dot_general.")
        left, right = (self._summed_axes(op, number) for number in (0, 1))
        self.products.append(
            Product(
                value=last.name if named and last is not None else "",
                source=place.frame,
                phase=stands_in,
                dtype=product_dtype(op),
                count=self.around.count,
                whole=product_sizes(op),
                shard=product_sizes(op, self._shard_of),
                flops=flops,
                repeated=tuple(a for a, n in self.mesh.shape.items() if n > 1 and a not in used),
                left_axes=left,
                right_axes=right,
                factors=self._factors(op, alone=bool(left or right)),
            )
        )

    def _summed_axes(self, op: MlirOperation, number: int) -> tuple[Axis, ...]:
        """Return the axes that shard a product's summed dimensions in one factor and nothing of the other. An axis that
        also shards the other factor is in use there, so the first factor is gathered, as a weight that FSDP shards over
        the batch's axis."""
        factors = (root(op.operands[n], is_reshard) for n in (number, 1 - number))
        cut, other = (self.graph.spec_of(factor, self.around.manual) or Spec() for factor in factors)
        busy = {axis_name(a) for a in other.axes}
        summed = (d for d in op.contraction.summed[number] if d < len(cut.dims))
        return tuple(a for d in summed for a in cut.dims[d] if axis_name(a) not in busy)

    def _factors(self, op: MlirOperation, *, alone: bool) -> tuple[Factor, ...]:
        """Return the two factors of a product with the axes that do not match; empty if all match. `alone`: an axis
        shards a summed dimension in one factor only."""
        manual, (summed, batched) = self.around.manual, op.contraction
        roots = [root(value, is_reshard) for value in op.operands]
        cuts = [Spec.of(self.graph.spec_of(value, manual), len(value.shape)).dims for value in roots]
        apart_and_crossed = []
        for one, other in ((0, 1), (1, 0)):
            free = (d for d in range(len(cuts[other])) if d not in (*summed[other], *batched[other]))
            theirs = {axis for d in free for axis in cuts[other][d]}
            both = ((cuts[one][i], cuts[other][j]) for i, j in zip(batched[one], batched[other], strict=True))
            apart = (ours for ours, others in both if others and not set(ours) & set(others))
            crossed = tuple(axis for d in summed[one] for axis in cuts[one][d] if axis in theirs)
            apart_and_crossed.append((tuple(chain.from_iterable(apart)), crossed))
        if not alone and not any(batch or crossed for batch, crossed in apart_and_crossed):
            return ()
        factors = tuple(
            Factor(argument=self._operand(value), batch=batch, crossed=crossed)
            for value, (batch, crossed) in zip(op.operands, apart_and_crossed, strict=True)
        )
        return factors if alone or any(f.batch or (f.crossed and not f.argument) for f in factors) else ()

    def _given(self, value: GraphValue) -> Array:
        """Return an array that a call takes or returns: its batch dimensions sharded, its matrices whole."""
        shard = self._shard_of(value)
        return Array(shard if self.around.manual else (*shard[:-2], *value.shape[-2:]), value.dtype)

    def _branches(self, blocks: Sequence[Block]) -> Schedule:
        """Read all branches, and return the schedule of the branch with the most FLOPs, which are counted."""
        around, tallies, schedules = self.tally, [], []
        for block in blocks:
            self.tally = WorkTally()
            schedules.append(self._block(block))
            tallies.append(self.tally)
        self.tally = around
        self.tally.join(max(tallies, key=lambda tally: tally.flops).rows)
        return heaviest(schedules)

    def _phase(self, op: MlirOperation, place: Place) -> str:
        stands_in = phase(place.name_stack, self.traced.differentiated)
        return stands_in if stands_in != "update" or self.brief else self._flow.phase_of(op.results, self.around.calls)

    @cached_property
    def _flow(self) -> Flow:
        return flow_of(self.graph, self.locations)

    def _value(self, op: MlirOperation) -> None:
        attributes = op.attributes
        if not op.results:
            return
        cut = "sdy.sharding" in attributes
        filled = op.kind == "iota" or (op.kind == "broadcast-in-dim" and not op.operands[0].shape)
        shown = (cut or bool(self.around.manual)) and not filled
        result = next((each for each in op.results if each.uses), op.results[0])  # `argsort` makes the second of a sort
        shape, dtype = result.shape, result.dtype
        moved = is_moved(attributes)
        sharding = attributes[PROPAGATED if moved else "sdy.sharding"] if cut else None
        place = self.place(op)
        name = short = op.name.split(".", 1)[1]
        if shown:
            number = self.numbers[short] = self.numbers.get(short, -1) + 1
            name = f"{short}.{number}"
            self.shown.append(len(self.values))
        self.made_at.append(At(result, self.around.calls))
        self.values.append(
            Value(
                name=name,
                shape=shape,
                dtype=dtype,
                source=place.frame,
                op=place.op or short,
                name_stack=place.name_stack,
                count=self.around.count,
                computed=self.graph.spec_of(result) if moved else None,
                fixed=type_of(op.native),
                **self._fields(shape, dtype, sharding, self.around.manual, result.index),
            )
        )

    def _unforeseen(self, op: MlirOperation) -> None:
        for d in dims_crossed(op):
            cut = self.graph.spec_of(op.operands[0], self.around.manual)
            if cut is not None and d < len(cut.dims) and cut.dims[d]:
                self.unforeseen.append(Unforeseen(op.kind, cut.dims[d], self.place(op).frame))

    def _fields_of(
        self, shape: tuple[int, ...], dtype: str, attribute: Any, manual: tuple[Axis, ...], place: int
    ) -> dict[str, Any]:
        """Return the fields of `Value` that values of equal shape, type and sharding have in common."""
        spec, text = Spec(((),) * len(shape)), ""
        if attribute is not None:
            sharding = sdy.TensorShardingPerValueAttr(attribute).shardings[place]
            spec, text = spec_of(sharding), str(sharding)
        notations = {"sdy": text}
        if manual:
            notations = {"hlo": Sharding.from_spec(spec, self.mesh, len(shape), manual=manual).to("hlo-v3")}
        shard = shard_shape(shape, spec, self.mesh)
        left = any(size > 1 and name not in self.around.manual for name, size in self.mesh.shape.items())
        return {
            "spec": spec if not manual or left else None,
            "shard_shape": shard,
            "bytes_per_device": math.prod(shard) * itemsize(dtype),
            "sharding": notations,
            "manual": tuple(a for a in manual if axis_size(a, self.mesh) > 1),
        }

    def _user_collective(self, op: MlirOperation, kind: str) -> None:
        """Read a collective of the program itself, with shapes of single devices."""
        main = max(op.results, key=self._bytes_of)
        axes, members = _span(op, kind, self.mesh)
        place, stands = self.place(op), {}
        if not self.brief and len(op.results) == 1:
            stands = surroundings(self.graph, op, self.around.calls, self.around.manual, self._same)
        self._add(
            kind,
            op.operands[0],
            place,
            self._phase(op, place),
            axes=axes,
            dtype=main.dtype,
            shape=self._shard_of(main),
            operand_bytes=sum(map(self._bytes_of, op.operands)),
            result_bytes=sum(map(self._bytes_of, op.results)),
            origin="user",
            operand="" if self.brief else self._operand(op.operands[0]),
            group_size=members,
            **stands,
        )

    def _add(self, kind: str, moved: GraphValue, place: Place, phase: str, **facts: Any) -> None:
        self.moved_at.append(At(moved, self.around.calls))
        self.collectives.append(
            Collective(
                kind=kind,
                name=f"{kind.replace('-', '_')}.{len(self.collectives)}",
                count=self.around.count,
                conditional=self.around.conditional,
                source=place.frame,
                name_stack=place.name_stack,
                phase=phase,
                **facts,
            )
        )

    def _collective(self, op: MlirOperation) -> None:
        """Read a collective that Shardy inserted. If a block has the same collective twice, the partitioner makes it
        once; a TPU's partitioner makes both, and later passes merge them."""
        kind, attribute = op.kind, COLLECTIVES[op.name]
        source, result = op.operands[0], op.result
        over = attribute and op.attributes[attribute]
        key = op.name, self.again.get(source, source), op.attributes["out_sharding"], over
        first = self.made.setdefault(key, result)
        if first is not result and not self.on_tpu:
            self.again[result] = first
            return
        after = spec_of(op.attributes["out_sharding"])
        before = Spec.of(self.graph.spec_of(source, self.around.manual), len(source.shape))
        if attribute:
            spans = self._sums(op, moved_axes(op, attribute))
        else:
            axes = (a for a in (*before.axes, *after.axes) if isinstance(a, str))
            spans = [tuple(dict.fromkeys(axes))]
        operand = "" if self.brief else self._operand(source)
        place = self._used_at(op) if operand else self.place(op)
        stands_in = self._phase(op, place)
        details = {}
        if not self.brief:
            details = {"before": before, "after": after, "array": result.shape}
            details |= self._stands(op)
            if details["constraint"] == place.frame:
                details["constraint"] = None
        for axes in spans:
            self._add(
                kind,
                source,
                place,
                stands_in,
                axes=axes,
                dtype=result.dtype,
                shape=self._shard_of(result),
                operand_bytes=self._bytes_of(source),
                result_bytes=self._bytes_of(result),
                operand=operand,
                group_size=axes_size(axes, self.mesh),
                **details,
            )

    def _gather_parts(self, op: MlirOperation) -> None:
        """Read a reduction of several arrays at once, such as `argmax`: XLA's partitioner gathers the results of all
        devices, and each device reduces them again."""
        dimensions = [*ir.DenseI64ArrayAttr(op.attributes["dimensions"])]
        cut = Spec.of(self.graph.spec_of(op.operands[0], self.around.manual), len(op.operands[0].shape))
        axes = tuple(axis for d in dimensions for axis in cut.dims[d])
        if not (members := axes_size(axes, self.mesh)) > 1:
            return
        place = self.place(op)
        for value in op.results:
            after = Spec(tuple(axes for d, axes in enumerate(cut.dims) if d not in dimensions))
            part = shard_shape(value.shape, after, self.mesh)
            size = math.prod(part) * itemsize(value.dtype)
            self._add(
                "all-gather",
                value,
                place,
                self._phase(op, place),
                axes=axes,
                dtype=value.dtype,
                shape=(*part, members),
                operand_bytes=size,
                result_bytes=size * members,
                group_size=members,
                before=Spec((*after.dims, axes)),
                after=Spec((*after.dims, ())),
                array=(*value.shape, members),
                made_by="reduce",
                read_by=("reduce",),
            )

    def _stands(self, op: MlirOperation) -> dict[str, Any]:
        """Return the operations around a collective, as fields of `Collective`."""
        stands = surroundings(self.graph, op, self.around.calls, self.around.manual, self._same)
        asked = ("asked",) if self.place(op).op == "sharding_constraint" else ()
        constraint = constraint_behind(self.graph, op, self.around.calls, self.around.manual)
        return stands | {"facts": stands["facts"] + asked, "constraint": constraint}

    def _sums(self, op: MlirOperation, axes: tuple[Axis, ...]) -> list[tuple[Axis, ...]]:
        """Return the axes of each all-reduce that the partitioner makes of one sum over several axes: one for each
        sharded dimension that is summed over, the last dimension's first. A TPU's partitioner makes one."""
        maker = op.operands[0].maker
        if op.name != "sdy.all_reduce" or len(axes) < 2 or maker is None:
            return [axes]
        for value in maker.operands:
            cut = self.graph.spec_of(value, self.around.manual) or Spec()
            dims = [summed for dim in cut.dims if (summed := tuple(a for a in dim if a in axes))]
            if sum(map(len, dims)) == len(axes):
                return [tuple(chain.from_iterable(dims))] if self.on_tpu else dims[::-1]
        return [axes]

    def _used_at(self, op: MlirOperation) -> Place:
        """Return where the result is used. The own line of a collective that moves an argument is where a scan
        begins."""
        own, (value,) = self.place(op), op.results
        for _ in range(8):
            if not value.uses:
                break
            user, number = value.uses[0]
            if isinstance(user, Block):
                if not user.name or not self.around.calls:
                    break
                value = self.around.calls[-1].results[number]
            elif user.kind == "opt-barrier":
                value = user.results[number]
            elif user.name in TRIVIAL:
                (value,) = user.results
            else:
                used = self.place(user)
                return used if used.frame else own
        return own

    def _shard_of(self, value: GraphValue) -> tuple[int, ...]:
        """Return one device's shape; a value without a sharding is replicated."""
        return shard_shape(value.shape, self.graph.spec_of(value, self.around.manual) or Spec(), self.mesh)

    def _operand(self, value: GraphValue) -> str:
        """Return the name of the argument that a value slices, copies or rearranges; empty if there is none."""
        origin = self._moved(At(value, self.around.calls)).value
        return self.traced.arguments[origin.index].name if origin.owner is self.main else ""

    def read_as(self) -> dict[str, Spec]:
        """Return argument → the spec in which the program reads it, if all devices first slice their shards of it."""
        specs = {}
        for argument, value in zip(self.traced.arguments, self.main.arguments, strict=True):
            cuts = {self.graph.spec_of(user.result, ()) if is_slice(user) else None for user, _ in value.uses}
            if len(cuts) == 1 and (spec := cuts.pop()) is not None:
                specs[argument.name] = spec
        return specs

    def computed_as(self) -> dict[str, Spec]:
        """Return the specs in which results are computed that are resharded before they are returned."""
        specs = {}
        for output, value in zip(self.traced.outputs, self.main.returned, strict=True):
            computed = root(value, is_reshard)
            if computed is not value and (spec := self.graph.spec_of(computed, ())) is not None:
                specs[output.name] = spec
        return specs

    def free(self) -> None:
        """Break the cycles of references between operations, values and fusions, which frees them: 180,000 objects for
        11,000 operations. Python's garbage collector would read every object of the kernel for that."""
        self.graph.free()
        self.listing.free()
        vars(self).clear()

    def outputs(self) -> tuple[Spec, ...]:
        return output_specs(self.graph.functions["main"], self.traced)
