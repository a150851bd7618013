"""Every value's sharding as the compiler decided it, from the module just before partitioning.

There each instruction carries its sharding over its global shape:

    %dot.1 = bf16[8,64,256] dot(...), sharding={mesh['data'=2,'model'=4], [{'data'}, {}, {'model'}]}

so `values` returns `Value("dot.1", (8, 64, 256), "bfloat16", P('data', None, 'model'), shard_shape=(4, 64, 64), ...)`.
After partitioning, the text no longer contains the outputs' shardings.
"""

from __future__ import annotations

from functools import lru_cache

from shardviz.compiler.module import Module
from shardviz.compiler.phases import Phases
from shardviz.compiler.shapes import HloShape, leaves
from shardviz.errors import ParseError, SpecError
from shardviz.graph import runs
from shardviz.notation import hlo
from shardviz.notation.hlo import read_spec, split_tuple, tile_counts
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.spec import Axis, Spec, axis_size
from shardviz.records import Value

_TRIVIAL = frozenset(
    ("constant", "parameter", "tuple", "get-tuple-element", "bitcast", "iota", "partition-id", "after-all")
)


def values(module: Module, mesh: DeviceMesh) -> tuple[Value, ...]:
    """Return every value of the module before partitioning with its sharding, in program order: each instruction that
    has a sharding and is no constant, tuple, inner parameter or copy. Inside a `shard_map` the shape is one device's
    along the `manual` axes."""
    phases = Phases(module)
    block_runs = runs(phases.graph)
    rows: list[Value] = []
    for name, computation in module.computations.items():
        block = phases.graph.blocks[name]
        for instruction in computation.instructions if block in block_runs else ():
            if instruction.opcode in _TRIVIAL or not (text := instruction.sharding):
                continue
            if not isinstance(shape := instruction.shape, HloShape):
                continue
            copied = instruction.operands[0] if instruction.opcode == "copy" else ""
            if copied and instruction.operand_parts == ((),) and computation.by_name[copied].sharding == text:
                continue
            spec, shard_shape = spec_and_shard(text, shape.dims, mesh)
            manual, rest = manual_part(text, shape.dims, mesh)
            name_stack = phases.full_name(block, instruction)
            rows.append(
                Value(
                    name=instruction.name,
                    shape=shape.dims,
                    dtype=shape.dtype,
                    spec=rest if manual else spec,
                    shard_shape=shard_shape,
                    bytes_per_device=None if shard_shape is None else HloShape(shape.dtype, shard_shape).nbytes,
                    sharding={"hlo": text},
                    source=module.source(instruction),
                    op=name_stack.rpartition("/")[2] if "/" in name_stack.rstrip("/") else instruction.opcode,
                    name_stack=name_stack,
                    count=block_runs[block].count,
                    manual=manual,
                )
            )
    return tuple(rows)


@lru_cache(maxsize=8192)
def spec_and_shard(text: str, shape: tuple[int, ...], mesh: DeviceMesh) -> tuple[Spec | None, tuple[int, ...] | None]:
    """Return the spec that an HLO sharding gives an array, and the shard's shape, `ceil(size / tiles)`; None if
    unknown."""
    try:
        spec = read_spec(text, mesh, len(shape))
    except SpecError:
        spec = None
    try:
        tiles = tile_counts(text, len(shape))
    except (ParseError, SpecError):
        tiles = None
    return spec, None if tiles is None else tuple(-(-size // n) for size, n in zip(shape, tiles, strict=True))


@lru_cache(maxsize=8192)
def manual_part(text: str, shape: tuple[int, ...], mesh: DeviceMesh) -> tuple[tuple[Axis, ...], Spec | None]:
    """Return the axes along which an HLO sharding is manual, and the spec over the others (None if there are none)."""
    if "manual" not in text:
        return (), None
    sharding = hlo.read(text.strip(), mesh, len(shape))
    whole = {name for name in sharding.manual if isinstance(name, str)}
    has_others = any(size > 1 and name not in whole for name, size in mesh.shape.items())
    return tuple(a for a in sharding.manual if axis_size(a, mesh) > 1), sharding.spec if has_others else None


def output_shardings(before: Module) -> tuple[str, ...]:
    """Return each output's sharding as HLO text, from the root before partitioning; `{replicated}` if it has none."""
    root = before.entry.root
    text = root.sharding or "{replicated}"
    count = len(leaves(root.shape))
    parts = split_tuple(text)
    return parts * count if len(parts) == 1 and count != 1 else parts
