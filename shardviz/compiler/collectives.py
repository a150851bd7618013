"""Every collective of a partitioned module: what it moves, over which mesh axes, how often, and its source line.

    %all-gather.4 = bf16[256,128] all-gather(%squeeze.49), replica_groups=[4,2]<=[2,4]T(1,0), ...   in a scan's body

becomes `Collective(kind="all-gather", axes=("data",), dtype="bfloat16", operand_bytes=32768, count=80,
operand="params['w1']", source=model.py:30, phase="forward", ...)`.

Bytes are per device. An asynchronous pair or chain is one collective (`asynchronous`). A collective is the user's if
the module had it before partitioning, such as `psum` in a `shard_map`. `shardviz.notation.groups` reads the groups of
devices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardviz.compiler import uses
from shardviz.compiler.graph import HloOperation, graph_of
from shardviz.compiler.module import Computation, Instruction, Module
from shardviz.compiler.phases import Phases
from shardviz.graph import At, Origins, runs
from shardviz.graph.collectives import span
from shardviz.graph.uses import SAME_EACH_RUN
from shardviz.notation.groups import parse_groups, parse_pairs
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.spec import Axis
from shardviz.records import Collective, Frame

_CARRIERS = frozenset(("parameter", "while", "tuple", "call", "conditional", "opt-barrier"))
"""Operations whose name says less about a value than the operation that passes it on."""
_TRANSPARENT = frozenset(
    (
        *("convert", "copy", "bitcast", "reshape", "transpose", "slice", "dynamic-slice", "pad"),
        *("get-tuple-element", "copy-start", "copy-done"),
        *(name for kind in uses.RESHARDS for name in (kind, f"{kind}-start", f"{kind}-done")),
    )
)
_ENDS = frozenset(("tuple", "while", "conditional", "opt-barrier"))


def collectives(
    module: Module,
    mesh: DeviceMesh,
    before: Module | None = None,
    *,
    arguments: Sequence[str] | None = None,
    phases: Phases | None = None,
    slices: Sequence[int] = (),
) -> tuple[Collective, ...]:
    """Return every collective of a module, partitioned or optimised, in program order, with callees at their calls.
    Collectives that the module `before` partitioning has are the user's; without that module, JAX's names decide.
    `arguments` names the entry's parameters; if None, their tree paths in the module are used."""
    context = _Context(module, mesh, before, arguments=arguments, phases=phases, slices=slices)
    return tuple(context.collective(op) for op in context.graph.operations if op.collective and not op.goes_on)


class _Context:
    """The facts that all collectives of a module share."""

    def __init__(
        self,
        module: Module,
        mesh: DeviceMesh,
        before: Module | None,
        *,
        arguments: Sequence[str] | None,
        phases: Phases | None,
        slices: Sequence[int],
    ):
        self.module, self.mesh, self.arguments, self.graph = module, mesh, arguments, graph_of(module)
        self.users: set[tuple[str, str, int]] | None = None
        if before is not None:
            self.users = {_signature(op) for op in graph_of(before).operations if op.collective}
        # a program for one of several slices counts that slice's devices
        one = module.num_partitions
        self.devices = one if 1 < one < mesh.size else mesh.size
        places = [np.flatnonzero(np.asarray(slices) == s) for s in sorted(set(slices))]
        self.slices = places if len(places) > 1 and {len(p) for p in places} == {one} else []
        self.runs = runs(self.graph)
        self.origins, self.unchanged = Origins(), Origins(SAME_EACH_RUN)
        self.phases = Phases(module) if phases is None else phases

    def collective(self, op: HloOperation) -> Collective:
        kind, run = op.collective, self.runs[op.block]
        main = max(op.results, key=lambda value: value.array.nbytes)
        axes, size, groups = self._span(op)
        origin = self._origin(op)
        source, name_stack = self._source_and_stack(op, origin)
        return Collective(
            kind=kind,
            axes=axes,
            dtype=main.dtype,
            shape=main.shape,
            operand_bytes=sum(value.array.nbytes for value in op.operands),
            result_bytes=sum(value.array.nbytes for value in op.results),
            count=run.count,
            groups=groups,
            source=source,
            name_stack=name_stack,
            phase=self.phases(op, name_stack),
            origin=origin,
            name=op.native.name,
            operand=self._operand_name(op),
            group_size=size,
            conditional=run.conditional,
            made_by=uses.made_by(op),
            read_by=uses.read_by(op, "" if origin == "user" else name_stack),
            facts=uses.facts(op, self.unchanged),
        )

    def _span(self, op: HloOperation) -> tuple[tuple[Axis, ...] | None, int | None, str]:
        """Return the axes, the number of devices in a group, and the groups' text. If the module is for only a part of
        the mesh, numbered from 0, the axes are None, unless the part is a slice; then they are the axes that the groups
        span on all slices."""
        pairs = op.collective == "collective-permute"
        text = op.native.attributes.get("source_target_pairs" if pairs else "replica_groups", "{}")
        table = parse_pairs(text) if pairs else parse_groups(text, self.devices)
        axes, size = span(op.collective, table, self.mesh, whole=self.devices == self.mesh.size)
        if self.slices and (pairs or table.min() >= 0):
            axes, _ = span(op.collective, np.concatenate([places[table] for places in self.slices]), self.mesh)
        return axes, size, text

    def _origin(self, op: HloOperation) -> str:
        """Return `user` or `partitioner`."""
        if 'is_spmd_generated="true"' in op.native.attributes_text:
            return "partitioner"
        if self.users is None:
            last = op.native.op_name.rpartition("/")[2]
            return "user" if last.partition("[")[0] in _USER_OPS else "partitioner"
        return "user" if _signature(op) in self.users else "partitioner"

    def _source_and_stack(self, op: HloOperation, origin: str) -> tuple[Frame | None, str]:
        """Return a collective's source line and name stack. If the partitioner added the collective to reshard an
        operand for its user, they are that user's; the partitioner itself may have noted the user, the operand's maker
        (jaxlib 0.12) or nothing."""
        computation, named = self.module.computations[op.block.name], op.native
        operand = computation.by_name[named.operands[0]] if named.operands else None
        if origin == "partitioner" and op.collective in uses.RESHARDS:
            alike = operand is not None and (operand.op_name, operand.stack_frame_id) == _signature(op)[1:]
            if not named.op_name or alike:
                named = _user(computation, named) or named
        if not named.op_name and operand is not None:
            named = operand
        source = (
            self.module.source(named)
            or self.module.source(op.native)
            or self._later(computation, named)
            or self.phases.source_around(op)
        )
        return source, self.phases.full_name(op.block, named)

    def _later(self, computation: Computation, instruction: Instruction) -> Frame | None:
        """Return the line of the operation that an instruction is a part of. If XLA writes an operation as several,
        such as a windowed sum on a TPU, only the last one keeps JAX's name and line."""
        seen, waiting = {(computation.name, instruction.name)}, [(computation, instruction)]
        for at, each in waiting:
            for user in at.users.get(each.name, ()):
                if (source := self.module.source(user)) is not None:
                    return source
                if "/" in user.op_name:  # JAX's name, and JAX wrote no line
                    return None
                where, value = at, user
                if user.opcode == "fusion":
                    where = self.module.computations[user.called["calls"][0]]
                    value = where.parameters[user.operands.index(each.name)]
                if value.opcode not in _ENDS and (where.name, value.name) not in seen:
                    seen.add((where.name, value.name))
                    waiting.append((where, value))
        return None

    def _operand_name(self, op: HloOperation) -> str:
        if not op.operands:
            return ""
        value = self.origins(At(op.operands[0])).value
        origin = value.native
        number: int | None = origin.parameter_number
        if number is not None and value.block is self.graph.entry:
            if self.arguments is not None and number < len(self.arguments):
                return self.arguments[number]
            return origin.op_name or origin.name
        return op.native.operands[0] if origin.opcode in _CARRIERS else origin.name


def _signature(op: HloOperation) -> tuple[str, str, int]:
    return op.collective, op.native.op_name, op.native.stack_frame_id


_USER_OPS = frozenset(
    (
        *("psum", "psum2", "psum_invariant", "pmax", "pmin", "all_gather", "all_gather_invariant", "reduce_scatter"),
        *("psum_scatter", "all_to_all", "ragged_all_to_all", "ppermute", "pbroadcast"),
    )
)
"""JAX's collectives, whose names end the name stack of collectives in the user's code."""


def _user(computation: Computation, instruction: Instruction) -> Instruction | None:
    """Return the first instruction that computes with a result, behind instructions that only move it; None if this
    computation has none."""
    seen: set[str] = set()
    waiting = [instruction]
    while waiting:
        at = waiting.pop(0)
        for user in computation.users.get(at.name, ()):
            if user.name in seen:
                continue
            seen.add(user.name)
            if user.opcode in _TRANSPARENT:
                waiting.append(user)
            elif user.opcode not in _ENDS and user.op_name:
                return user
    return None
