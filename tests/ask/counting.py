"""Collectives counted from a partitioner's snapshot by plain text search:
none of shardviz's reading of HLO is in it.
"""

import re
from collections import Counter

import numpy as np

BYTES = {"pred": 1, "bool": 1, "s8": 1, "u8": 1, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "f32": 4, "f64": 8, "s64": 8}
NUMPY = {"pred": "bool", "s32": "int32", "u32": "uint32", "bf16": "bfloat16", "f16": "float16", "f32": "float32"}
KINDS = "all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute"
LINE = re.compile(rf"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ({KINDS})\((.*)$", re.M)
SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")


def count(text, mesh, trips):
    """(kind, axes, dtype, operand bytes, result bytes, runs) → how many,
    for a program whose loops all run `trips` times.
    """
    bodies = set(re.findall(r"body=%?([\w.\-]+)", text))
    found = Counter()
    for block in re.split(r"\n\n+", text):
        name = re.match(r"(?:ENTRY )?%?([\w.\-]+) ", block)
        for match in LINE.finditer(block):
            result, kind, rest = match[2], match[3], match[4]
            operands = re.findall(r"%?([\w.\-#]+)", re.sub(r"/\*.*?\*/", "", rest[: rest.index(")")]))
            shapes = [shape(block, operand) for operand in operands]
            key = (kind, axes(rest, mesh), NUMPY[SHAPE.search(result)[1]], sum(map(size, shapes)), size(result))
            found[(*key, trips if name[1] in bodies else 1)] += 1
    return found


def shape(block, operand):
    """The text of an operand's shape; `loop#2` is the third of a tuple."""
    name, _, place = operand.partition("#")
    text = re.search(rf"(?<![\w.\-])%?{re.escape(name)} = (.*?) [\w\-]+\(", block)[1]
    return SHAPE.findall(text)[int(place)] if place else text


def size(shape):
    return sum(
        BYTES[d] * int(np.prod([int(n) for n in dims.split(",") if n]))
        for d, dims in ([shape] if isinstance(shape, tuple) else SHAPE.findall(shape))
    )


def axes(text, mesh):
    """The set of mesh axes along which the members of a group differ."""
    sizes = tuple(mesh.values())
    if pairs := re.search(r"source_target_pairs=\{(\{.*?\})\}", text):
        groups = np.array([[int(n) for n in pair.split(",")] for pair in re.findall(r"(\d+,\d+)", pairs[1])])
    elif iota := re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text):
        shape, dims, order = ([int(n) for n in g.split(",")] if g else None for g in iota.groups())
        groups = np.arange(np.prod(dims)).reshape(dims)
        groups = (groups.transpose(order) if order else groups).reshape(shape)
    elif named := re.search(
        r"replica_groups=mesh\[(.*?)\](?:, device_ids=\(\[([\d,]+)\]T\(([\d,]+)\)\))? \{(.*?)\}", text
    ):
        theirs = dict(re.findall(r"'([^']+)'=(\d+)", named[1]))
        used = re.findall(r"'([^']+)'", named[4])
        grid = np.arange(int(np.prod(sizes)))
        if named[2]:
            shape, order = ([int(n) for n in g.split(",")] for g in named.groups()[1:3])
            grid = grid.reshape(shape).transpose(order)
        grid = grid.reshape([int(n) for n in theirs.values()])
        order = [i for i, n in enumerate(theirs) if n not in used] + [list(theirs).index(n) for n in used]
        groups = grid.transpose(order).reshape(-1, int(np.prod([int(theirs[n]) for n in used])))
    else:
        lists = re.search(r"replica_groups=\{(\{.*?\})\}", text)[1]
        groups = np.array([[int(n) for n in g.split(",")] for g in re.findall(r"\{([\d,]+)\}", lists)])
    places = np.stack(np.unravel_index(groups, sizes), axis=-1)
    differ = (places != places[:, :1]).any(axis=(0, 1))
    return frozenset(name for name, d in zip(mesh, differ, strict=True) if d)
