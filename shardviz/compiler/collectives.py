"""Every collective of a partitioned module: what it moves, along which mesh axes, how often, and from which line.

    %all-gather.4 = bf16[256,128] all-gather(%squeeze.49), replica_groups=[4,2]<=[2,4]T(1,0), ...   in a scan's body

becomes `Collective(kind="all-gather", axes=("data",), dtype="bfloat16", operand_bytes=32768, count=80,
operand="params['w1']", source=model.py:30, phase="forward", ...)`.

Bytes are one device's. An asynchronous pair or chain is one collective (`asynchronous`). A collective is
the user's where the module had it before partitioning, as `psum` in a `shard_map` is. The groups of devices are read by
`shardviz.notation.groups`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardviz.compiler import uses
from shardviz.compiler.asynchronous import goes_on, kind_of
from shardviz.compiler.graph import graph_of
from shardviz.compiler.module import CALLERS, Computation, Instruction, Module
from shardviz.compiler.phases import Phases, full_name
from shardviz.compiler.shapes import Shape, element, leaves
from shardviz.graph import At, Origins, runs
from shardviz.notation.groups import axes_of, axes_of_pairs, parse_groups, parse_pairs
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.spec import Axis
from shardviz.records import Collective, Frame

_RESHARDS = frozenset(("all-gather", "all-to-all", "collective-permute"))
_CARRIERS = frozenset(("parameter", "while", "tuple", "call", "conditional", "opt-barrier"))
"""Operations whose name says less of a value than that of what hands it on."""
_TRANSPARENT = frozenset(
    (
        "convert",
        "copy",
        "bitcast",
        "reshape",
        "transpose",
        "slice",
        "dynamic-slice",
        "pad",
        "get-tuple-element",
        "copy-start",
        "copy-done",
        *(name for kind in _RESHARDS for name in (kind, f"{kind}-start", f"{kind}-done")),
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
) -> tuple[Collective, ...]:
    """Every collective of a module, in program order.

    Args:
        module: the module after partitioning, or the optimised one.
        mesh: the mesh that it was partitioned over.
        before: the module before partitioning. A collective that it has is the user's; without it, those without the
            mark that newer partitioners leave on theirs are taken for the user's only inside a `shard_map`.
        arguments: the entry parameters' names by number; without it, the tree paths that the module itself has.
        phases: of this module, where they are there already.

    Returns:
        The collectives, callees at the place of their call. `seconds` and `formula` are left None.
    """
    context = _Context(module, mesh, _user_made(before), before is not None, arguments, phases)
    found: list[Collective] = []
    _walk(context, module.entry, found)
    return tuple(found)


class _Context:
    def __init__(
        self,
        module: Module,
        mesh: DeviceMesh,
        user_made: set[tuple[str | None, str, int]],
        knows_before: bool,
        arguments: Sequence[str] | None,
        phases: Phases | None,
    ):
        self.module, self.mesh, self.user_made, self.knows_before, self.arguments = (
            module,
            mesh,
            user_made,
            knows_before,
            arguments,
        )
        # a program for one of several slices counts that slice's devices
        one = module.num_partitions
        self.devices = one if 1 < one < mesh.size else mesh.size
        self.graph = graph_of(module)
        self.runs = {block.name: run for block, run in runs(self.graph).items()}
        self.origins, self.unchanged = Origins(), Origins(uses.SAME_EACH_RUN)
        self.phases = Phases(module) if phases is None else phases


def _walk(context: _Context, entry: Computation, found: list[Collective]) -> None:
    """Collectives of a computation and of those that it calls, where they are called for the first time."""
    seen = {entry.name}
    walks = [_steps(context, entry, found)]  # one within the other, as deep as the calls are
    while walks:
        callee = next(walks[-1], None)
        if callee is None:
            walks.pop()
        elif callee not in seen:
            seen.add(callee)
            walks.append(_steps(context, context.module.computations[callee], found))


def _steps(context: _Context, computation: Computation, found: list[Collective]) -> Iterator[str]:
    """Adds a computation's own collectives, and gives the names of those that it calls where it does."""
    for instruction in computation.instructions:
        if kind := kind_of(instruction):
            if not goes_on(computation, instruction):
                found.append(_collective(context, computation, instruction, kind))
        elif instruction.opcode in CALLERS:
            for names in instruction.called.values():
                yield from (name for name in names if name in context.runs)


def _collective(context: _Context, computation: Computation, instruction: Instruction, kind: str) -> Collective:
    operands = _operand_shapes(computation, instruction)
    results = _result_shapes(instruction)
    main = max(results, key=lambda shape: shape.nbytes)
    axes, size, groups = _span(instruction, kind, context.mesh, context.devices)
    origin = _origin(context, instruction)
    source, name_stack = _source_and_stack(context, computation, instruction, kind, origin)
    run = context.runs[computation.name]
    return Collective(
        kind=kind,
        axes=axes,
        dtype=main.dtype,
        shape=main.dims,
        operand_bytes=sum(s.nbytes for s in operands),
        result_bytes=sum(s.nbytes for s in results),
        count=run.count,
        groups=groups,
        source=source,
        name_stack=name_stack,
        phase=context.phases(computation, instruction, name_stack),
        origin=origin,
        name=instruction.name,
        operand=_operand_name(context, computation, instruction),
        group_size=size,
        conditional=run.conditional,
        made_by=uses.made_by(computation, instruction),
        read_by=uses.read_by(computation, instruction, name_stack),
        facts=uses.facts(context.graph, context.unchanged, context.runs, computation, instruction, kind),
    )


def _operand_shapes(computation: Computation, instruction: Instruction) -> tuple[Shape, ...]:
    return tuple(
        leaf
        for name, part in zip(instruction.operands, instruction.operand_parts, strict=True)
        for leaf in leaves(element(computation.by_name[name].shape, part))
    )


def _result_shapes(instruction: Instruction) -> tuple[Shape, ...]:
    """What a collective makes; of an asynchronous start, what its end will give."""
    shape = instruction.shape
    if (
        instruction.opcode.endswith("-start")
        and instruction.opcode != "all-reduce-start"
        and not isinstance(shape, Shape)
    ):
        return leaves(shape[1])
    return leaves(shape)


def _span(
    instruction: Instruction, kind: str, mesh: DeviceMesh, devices: int
) -> tuple[tuple[Axis, ...] | None, int | None, str]:
    """The axes (None where only a part of the mesh is counted), the devices in a group, and the text of the groups."""
    whole = devices == mesh.size
    if kind == "collective-permute":
        text = instruction.attributes.get("source_target_pairs", "{}")
        axes = axes_of_pairs(parse_pairs(text), mesh) if whole else None
        size = None
        if axes is not None:
            size = 1
            for axis in axes:
                size *= mesh.shape[str(axis)]
        return axes, size, text
    text = instruction.attributes.get("replica_groups", "{}")
    groups = parse_groups(text, devices)
    return axes_of(groups, mesh) if whole else None, int(groups.shape[1]), text


# Whose it is


def _user_made(before: Module | None) -> set[tuple[str | None, str, int]]:
    if before is None:
        return set()
    return {(kind, i.op_name, i.stack_frame_id) for _, i in before if (kind := kind_of(i))}


def _origin(context: _Context, instruction: Instruction) -> str:
    if 'is_spmd_generated="true"' in instruction.attributes_text:
        return "partitioner"
    if (kind_of(instruction), instruction.op_name, instruction.stack_frame_id) in context.user_made:
        return "user"
    last = instruction.op_name.rpartition("/")[2]
    if not context.knows_before and last.partition("[")[0] in _USER_OPS:
        return "user"
    return "partitioner"


_USER_OPS = frozenset(
    (
        "psum",
        "psum2",
        "psum_invariant",
        "pmax",
        "pmin",
        "all_gather",
        "all_gather_invariant",
        "all_to_all",
        "ppermute",
        "reduce_scatter",
        "psum_scatter",
        "pbroadcast",
        "ragged_all_to_all",
    )
)
"""JAX's collectives: their names end the name stack of what a person wrote."""


# Where it stems from


def _source_and_stack(
    context: _Context, computation: Computation, instruction: Instruction, kind: str, origin: str
) -> tuple[Frame | None, str]:
    """Source line and name stack of a collective.

    What the partitioner adds to bring an operand into the cut that its user needs has the line of that user (the
    product that needs the whole weight), whether the partitioner noted the user (jaxlib 0.10), the operand's maker
    (0.12) or nothing.
    """
    named = instruction
    if origin == "partitioner" and kind in _RESHARDS:
        operand = computation.by_name.get(instruction.operands[0]) if instruction.operands else None
        if not instruction.op_name or (operand is not None and _same_place(operand, instruction)):
            named = _user(computation, instruction) or instruction
    if not named.op_name and instruction.operands:
        named = computation.by_name[instruction.operands[0]]
    source = context.module.source(named) or context.module.source(instruction) or _later(context, computation, named)
    at = computation
    while source is None and (call := _only_call(context, at)) is not None:
        source, at = context.module.source(call[1]), call[0]
    return source, full_name(context.module, computation, named, context.phases.prefixes)


def _same_place(one: Instruction, other: Instruction) -> bool:
    return (one.op_name, one.stack_frame_id) == (other.op_name, other.stack_frame_id)


def _user(computation: Computation, instruction: Instruction) -> Instruction | None:
    """The first instruction that computes with a result, past what only moves it; None where there is none here."""
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


def _later(context: _Context, computation: Computation, instruction: Instruction) -> Frame | None:
    """The line of the operation that an instruction is a part of; None where none has it.

    Where XLA writes an operation as several, a windowed sum on a TPU, say, the last alone keeps JAX's name and line.
    """
    seen, waiting = {(computation.name, instruction.name)}, [(computation, instruction)]
    for at, made in waiting:
        for user in at.users.get(made.name, ()):
            if (source := context.module.source(user)) is not None:
                return source
            if "/" in user.op_name:  # JAX's name, and JAX wrote no line
                return None
            where, value = at, user
            if user.opcode == "fusion":
                where = context.module.computations[user.called["calls"][0]]
                value = where.parameters[user.operands.index(made.name)]
            if value.opcode not in _ENDS and (where.name, value.name) not in seen:
                seen.add((where.name, value.name))
                waiting.append((where, value))
    return None


def _only_call(context: _Context, computation: Computation) -> tuple[Computation, Instruction] | None:
    calls = context.module.callers.get(computation.name, ())
    return (calls[0].computation, calls[0].instruction) if calls else None


def _operand_name(context: _Context, computation: Computation, instruction: Instruction) -> str:
    if not instruction.operands:
        return ""
    value = context.origins(At(context.graph.operand(computation.name, instruction))).value
    number: int | None = value.native.parameter_number
    if number is not None and value.block is context.graph.entry:
        if context.arguments is not None and number < len(context.arguments):
            return context.arguments[number]
        return value.native.op_name or value.native.name
    return instruction.operands[0] if value.native.opcode in _CARRIERS else value.native.name
