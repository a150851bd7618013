"""Python that moves a tree of arrays to another mesh, with JAX alone: the code of `records.resharding.Resharding`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from shardviz.notation import DeviceMesh
from shardviz.notation.spec import DEVICE_MEMORY
from shardviz.records.resharded import ReshardedLeaf, ReshardWay

PUT, JIT, HOST, PIECES = "jax.device_put", "jax.jit", "through the host", "piece by piece"
SPREAD = "one copy, then gathered"
"""The ways of moving an array. The last moves one copy piece by piece, sharded over all axes, and gathers it there."""


def code_of(leaves: Sequence[ReshardedLeaf], mesh: DeviceMesh, way: ReshardWay, same: bool) -> str:
    """Return Python that moves a tree to a mesh in one way; every array has a spec after the move. `same` says whether
    the tree after has the paths of the tree before."""
    ends = [0, *itertools.accumulate(way.chunks)]
    chunks = [leaves[start:end] for start, end in itertools.pairwise(ends)]
    arrays = any(leaf.prepared for leaf in leaves) or (way.name == HOST and way.cast)
    body, used = _of_arrays(way, chunks) if arrays else _of_leaves(way, chunks)
    pieces = way.name in (PIECES, SPREAD)
    numbers = pieces or {*used} - {"placed"}
    move = _MOVE_ALL if arrays and way.name == HOST else _MOVE[way.name]
    chunked = len(way.chunks) > 1
    lines = [
        *(["import collections", ""] if pieces else []),
        "import jax",
        *(["import jax.numpy as jnp"] if numbers else []),
        "import numpy as np",
        "from jax.sharding import Mesh, NamedSharding",
        "from jax.sharding import PartitionSpec as P",
        *(f"\n\n{_HELPERS[name].strip()}" for name in used),
        *[""] * bool(used),
        "",
        *body[0],
        move,
        *([_FREE] if chunked else []),
        "",
        "def reshard(tree, devices):",
        f'    """Return the arrays on {mesh.size} devices, given in the order of the mesh."""',
        f"    mesh = Mesh(np.array(devices).reshape({mesh.sizes!r}), {mesh.names!r})",
        "    paths, structure = jax.tree_util.tree_flatten_with_path(tree)",
        "    old, new = {jax.tree_util.keystr(path): leaf for path, leaf in paths}, {}",
        "    for chunk in CHUNKS:",
        *body[1],
        *(body[2] if chunked else []),
        f"    return {'jax.tree.unflatten(structure, [new[name] for name in old])' if same else 'new  # by path'}",
    ]
    return "\n".join([*lines, ""])


_Body = tuple[list[str], list[str], list[str]]
"""Lines with the table of arrays, the loop over a chunk, and how its old arrays are freed."""


def _chunks(rows: Sequence[Sequence[str]]) -> str:
    chunks = ("    [\n" + "".join(f"        ({row}),\n" for row in chunk) + "    ],\n" for chunk in rows)
    return f"CHUNKS = [\n{''.join(chunks)}]"


def _moved(way: ReshardWay, leaf: str, first: str) -> str:
    """Return the expression that moves an array to `sharding`, where `first` is the spec in which one copy arrives."""
    if way.name != SPREAD:
        return f"move({leaf}, sharding)"
    return f"jax.jit(lambda x: x, out_shardings=sharding)(move({leaf}, NamedSharding(mesh, {first})))"


def _of_leaves(way: ReshardWay, chunks: Sequence[Sequence[ReshardedLeaf]]) -> tuple[_Body, tuple[str, ...]]:
    """Return the lines for arrays that are moved and cast, no more; and the functions that they use."""
    leaves = [leaf for chunk in chunks for leaf in chunk]
    types = {leaf.new_name: leaf.new_dtype for leaf in leaves if leaf.dtype != leaf.new_dtype}
    cast = ".astype(DTYPES.get(to, leaf.dtype))" if types else ""
    before, after = (cast if way.cast == side else "" for side in ("before", "after"))
    table = [_chunks([[f"{x.name!r}, {x.new_name!r}, {x.after}" for x in chunk] for chunk in chunks])]
    table += [f"DTYPES = {types!r}"] if types else []
    firsts = ", ".join(f"{leaf.new_name!r}: {leaf.first}" for leaf in leaves if leaf.first)
    table += [f"FIRST = {{{firsts}}}"] if way.name == SPREAD else []
    loop = [
        "        for name, to, spec in chunk:",
        "            leaf, sharding = old[name], NamedSharding(mesh, spec)",
        f"            new[to] = {_moved(way, f'leaf{before}', 'FIRST.get(to, spec)')}{after}",
        "        jax.block_until_ready([new[to] for _, to, _ in chunk])",
    ]
    return (table, loop, ["        for name, to, _ in chunk:", "            free([old[name]], [new[to]])"]), ()


def _of_arrays(way: ReshardWay, chunks: Sequence[Sequence[ReshardedLeaf]]) -> tuple[_Body, tuple[str, ...]]:
    """Return the lines for arrays of which some are stacked, have scales or are in a host's memory; and the functions
    that they use."""
    rows: list[list[str]] = []
    steps: tuple[dict[str, str], dict[str, str]] = {}, {}
    kinds: dict[str, str] = {}
    for chunk in chunks:
        rows.append([])
        for group in _groups(chunk):
            travels = [leaf for leaf in group if leaf.scales != ("used" if way.cast == "before" else "made")]
            travels = travels if way.cast else group
            specs = [_specs_text([str(leaf.after) for leaf in travels])]
            specs += [_specs_text([leaf.first or str(leaf.after) for leaf in travels])] * (way.name == SPREAD)
            lists = [*(_paths_text(group, side) for side in (0, 1)), *specs]
            rows[-1].append(", ".join(f"[{each}]" for each in lists))
            to = _paths(_present(group, 1)[0], 1)[0]
            for side in (0, 1):
                if (step := _step(group, way, side)) != "x":
                    steps[side][to] = step
            if group[0].new_memory != DEVICE_MEMORY and not _staged(group, way, 1):
                kinds[to] = group[0].new_memory
    table = [_chunks(rows)]
    for name, functions in zip(("BEFORE", "AFTER"), steps, strict=True):
        entries = "".join(f"    {to!r}: lambda x: {step},\n" for to, step in functions.items())
        table += [f"{name} = {{\n{entries}}}" if entries else f"{name} = {{}}"]
    table += [f"KINDS = {kinds!r}"] if kinds else []
    called = set(re.findall(r"\w+(?=\()", " ".join(step for each in steps for step in each.values())))
    used = tuple(name for name in _HELPERS if name in called)
    kind = ", memory_kind=KINDS.get(to[0])" if kinds else ""
    loop = [
        f"        for names, to, specs{', firsts' if way.name == SPREAD else ''} in chunk:",
        "            given = [old[name] for name in names]",
        "            leaves = BEFORE.get(to[0], list)(given)",
        f"            shardings = [NamedSharding(mesh, spec{kind}) for spec in specs]",
    ]
    if way.name == HOST:
        loop += ["            leaves = move(leaves, shardings, given)"]
    else:
        still = "leaf if leaf.sharding.is_equivalent_to(sharding, leaf.ndim) else " if kinds else ""
        each = "leaf, sharding, first in zip(leaves, shardings, firsts)"
        each = each if way.name == SPREAD else "leaf, sharding in zip(leaves, shardings)"
        loop += [f"            leaves = [{still}{_moved(way, 'leaf', 'first')} for {each}]"]
    loop += [
        "            new.update(zip(to, AFTER.get(to[0], list)(leaves)))",
        "            del given, leaves",
        "        jax.block_until_ready([new[path] for _, to, *_ in chunk for path in to])",
    ]
    free = [
        "        for names, to, *_ in chunk:",
        "            free([old[name] for name in names], [new[path] for path in to])",
    ]
    return (table, loop, free), used


def _groups(leaves: Sequence[ReshardedLeaf]) -> Iterator[list[ReshardedLeaf]]:
    """Yield each array, with its scales if one side has some; layers of one stacked array that move by themselves."""
    group: list[ReshardedLeaf] = []
    for leaf in leaves:
        if group and not leaf.scales and not (leaf.stack and leaf.stack == group[0].stack):
            yield group
            group = []
        group.append(leaf)
    if group:
        yield group


def _present(group: Sequence[ReshardedLeaf], side: int) -> list[ReshardedLeaf]:
    return [leaf for leaf in group if leaf.scales != ("made", "used")[side]]


def _paths(leaf: ReshardedLeaf, side: int) -> tuple[str, ...]:
    name = (leaf.name, leaf.new_name)[side]
    return leaf.layers if leaf.layers and leaf.layer_dims[side] is not None else (name,)


def _paths_text(group: Sequence[ReshardedLeaf], side: int) -> str:
    lists = [_paths(leaf, side) for leaf in _present(group, side)]
    if group[0].stack:
        lists = lists[:1] if group[0].layer_dims[side] is not None else [tuple(itertools.chain(*lists))]
    return ", ".join(_numbered(paths) or ", ".join(map(repr, paths)) for paths in lists)


def _specs_text(specs: Sequence[str]) -> str:
    runs = [(spec, len([*run])) for spec, run in itertools.groupby(specs)]
    return ", ".join(spec if count == 1 else f"*[{spec}] * {count}" for spec, count in runs)


def _numbered(paths: Sequence[str]) -> str:
    """Return a comprehension over paths that differ in one number, which counts from 0; empty if there is none."""
    parts = [re.split(r"(\d+)", path) for path in (paths[0], paths[-1])]
    differ = [n for n, (first, last) in enumerate(zip(*parts, strict=False)) if first != last]
    pattern = "".join([*parts[0][: differ[0]], "*", *parts[0][differ[0] + 1 :]]) if differ else ""
    if not differ or any(path != pattern.replace("*", str(n)) for n, path in enumerate(paths)):
        return ""
    return f"*({pattern!r}.replace('*', str(n)) for n in range({len(paths)}))"


def _staged(group: Sequence[ReshardedLeaf], way: ReshardWay, side: int) -> bool:
    """Return whether an array in a host's memory is copied to the device before the move, or to the host after it."""
    leaf = group[0]
    if (leaf.memory, leaf.new_memory)[side] == DEVICE_MEMORY:
        return False
    casts = leaf.dtype != leaf.new_dtype or any(each.scales for each in group)
    if way.name == HOST:
        return leaf.layer_dims[side] is not None or (casts and way.cast == ("before", "after")[side])
    return leaf.memory != leaf.new_memory or leaf.taken != "nothing" or leaf.layer_dims != (None, None) or casts


def _step(group: Sequence[ReshardedLeaf], way: ReshardWay, side: int) -> str:
    """Return the expression of what happens to the arrays `x` before the move (0) or after it (1)."""
    leaf = group[0]
    scales = [each for each in group if each.scales]
    dims = [each.layer_dims[side] for each in _present(group, side)]
    stacked = leaf.layer_dims[side] is not None
    step = "x"
    if side == 0 and _staged(group, way, 0):
        step = f"placed({step}, {DEVICE_MEMORY!r})"
    if side == 0 and stacked:
        step = f"stacked({step}, {len(leaf.layers)}, {dims})" if leaf.layers else f"unstacked({step}, {dims[:1]})"
    if way.cast == ("before", "after")[side]:
        if scales:
            reduced = reduced_dims(leaf.shape, scales[0].shape)
            settings = f"{reduced}, {len(scales[0].shape) == len(leaf.shape)}, {leaf.new_dtype!r}"
            if scales[0].scales == "made":
                spec = (scales[0].before, scales[0].after)[side]
                step = f"quantized({step}, {settings}, {scales[0].new_dtype!r}, {spec})"
            else:
                step = f"dequantized({step}, {settings})"
        elif leaf.dtype != leaf.new_dtype:
            step = f"[each.astype({leaf.new_dtype!r}) for each in {step}]"
    if side == 1 and stacked:
        step = f"unstacked({step}, {dims})" if leaf.layers else f"stacked({step}, {len(group)}, {dims[:1]})"
    if side == 1 and _staged(group, way, 1):
        step = f"placed({step}, {leaf.new_memory!r})"
    return step


def reduced_dims(shape: Sequence[int], scales: Sequence[int]) -> tuple[int, ...] | None:
    """Return the dimensions of an array over which its scales are computed: those that have size 1 in the scales or,
    counted from the last, are left out. None if no scales of this array have this shape.

    >>> reduced_dims((64, 32), (1, 32)), reduced_dims((8, 64, 32), (8, 32)), reduced_dims((64, 32), (16, 32))
    ((0,), (1,), None)
    """
    if len(shape) == len(scales):
        fits = all(n in (size, 1) for size, n in zip(shape, scales, strict=True))
        return tuple(d for d, n in enumerate(scales) if n == 1) if fits else None
    kept, dim = list[int](), len(shape)
    for size in reversed(scales):
        dim = next((d for d in reversed(range(dim)) if shape[d] == size), -1)
        if dim < 0:
            return None
        kept.append(dim)
    return tuple(d for d in range(len(shape)) if d not in kept)


_HELPERS = {
    "placed": """
def placed(leaves, kind):
    return [jax.device_put(leaf, leaf.sharding.with_memory_kind(kind)) for leaf in leaves]
""",
    "stacked": '''
def stacked(leaves, count, dims):
    """Return arrays of `count` layers each, sharded as their layers."""
    arrays = []
    for start, dim in zip(range(0, len(leaves), count), dims):
        layers = leaves[start : start + count]
        spec = (*layers[0].sharding.spec, *[None] * layers[0].ndim)[: layers[0].ndim]
        sharding = NamedSharding(layers[0].sharding.mesh, P(*spec[:dim], None, *spec[dim:]))
        arrays.append(jax.jit(lambda *x: jnp.stack(x, dim), out_shardings=sharding)(*layers))
    return arrays
''',
    "unstacked": '''
def unstacked(leaves, dims):
    """Return the layers of arrays, sharded as the arrays."""
    layers = []
    for leaf, dim in zip(leaves, dims):
        spec = (*leaf.sharding.spec, *[None] * leaf.ndim)
        sharding = NamedSharding(leaf.sharding.mesh, P(*spec[:dim], *spec[dim + 1 : leaf.ndim]))
        split = jax.jit(lambda x: list(jnp.moveaxis(x, dim, 0)), out_shardings=sharding)
        layers += split(leaf)
    return layers
''',
    "dequantized": '''
def dequantized(leaves, dims, keep, dtype):
    """Return the product of an array and its scales."""
    scale = lambda scales: scales if keep else jnp.expand_dims(scales, dims)
    product = lambda x, scales: (x.astype("float32") * scale(scales).astype("float32")).astype(dtype)
    return [jax.jit(product, out_shardings=leaves[0].sharding)(*leaves)]
''',
    "quantized": '''
def quantized(leaves, dims, keep, dtype, scale_dtype, spec):
    """Return an array in a smaller type, and its scales: the array is near their product."""
    whole = jnp.issubdtype(dtype, jnp.integer)
    most = float((jnp.iinfo if whole else jnp.finfo)(dtype).max)

    def both(x):
        x = x.astype("float32")
        scales = jnp.abs(x).max(dims, keepdims=True) / most
        scales = jnp.where(scales == 0, 1, scales).astype(scale_dtype)
        values = x / scales.astype("float32")
        values = (jnp.round(values) if whole else values).clip(-most, most).astype(dtype)
        return values, scales if keep else scales.squeeze(dims)

    sharding = leaves[0].sharding
    shardings = sharding, NamedSharding(sharding.mesh, spec)
    return list(jax.jit(both, out_shardings=shardings)(leaves[0]))
''',
}
"""Functions that the code has where it uses them."""

_MOVE_ALL = """
def move(leaves, shardings, given):
    host = jax.device_get(leaves)
    for leaf in (*leaves, *given):
        leaf.delete()
    return jax.device_put(host, shardings)
"""
_MOVE = {
    PUT: """
def move(leaf, sharding):
    return jax.device_put(leaf, sharding)
""",
    JIT: """
def move(leaf, sharding):
    return jax.jit(lambda x: x, out_shardings=sharding)(leaf)
""",
    HOST: """
def move(leaf, sharding):
    host = jax.device_get(leaf)
    leaf.delete()
    return jax.device_put(host, sharding)
""",
    PIECES: '''
write = jax.jit(jax.lax.dynamic_update_slice, donate_argnums=0)


def bounds(index, shape):
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape))


def move(leaf, sharding):
    """Each device gets every part of its shard from itself, or else from the holders in turn."""
    held = [(shard.device, bounds(shard.index, leaf.shape), shard.data) for shard in leaf.addressable_shards]
    turns, shards = collections.Counter(), []
    for device, index in sharding.addressable_devices_indices_map(leaf.shape).items():
        box, parts = bounds(index, leaf.shape), {}
        for at, other, data in held:
            common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, other))
            if all(a < b for a, b in common):
                parts.setdefault(common, []).append((at, other, data))
        shape = [b - a for a, b in box]
        result = None if box in parts else jnp.zeros(shape, leaf.dtype, device=device)
        for common, holders in parts.items():
            near = [holder for holder in holders if holder[0] == device] or holders
            _, other, data = near[turns[common] % len(near)]
            turns[common] += 1
            if common != other:
                data = data[tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(common, other))]
            data = jax.device_put(data, device)
            result = data if common == box else write(result, data, [a - c for (a, _), (c, _) in zip(common, box)])
        shards.append(result)
    return jax.make_array_from_single_device_arrays(leaf.shape, sharding, shards)
''',
}
_MOVE[SPREAD] = _MOVE[PIECES]
_FREE = '''
def free(old, new):
    """Delete the shards of old arrays that the new ones do not use; `tree` cannot be used afterwards."""
    place = lambda shard: (shard.device, shard.data.unsafe_buffer_pointer())
    used = {place(shard) for leaf in new for shard in leaf.addressable_shards}
    for shard in (shard for leaf in old if not leaf.is_deleted() for shard in leaf.addressable_shards):
        if place(shard) not in used:
            shard.data.delete()
'''
