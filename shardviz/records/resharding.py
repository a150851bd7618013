"""The data of a resharding of a tree of arrays: who sends what, over which links, for how long, and the code for it.

Nothing in it is a JAX object. `Resharding.from_json(moved.to_json())` reads it back.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh
from shardviz.records.versioned import Versioned

PUT, JIT, HOST, PIECES = "jax.device_put", "jax.jit", "through the host", "piece by piece"
SPREAD = "one copy, then gathered"
"""The ways of moving an array. The last moves one copy piece by piece, sharded over all axes, and gathers it there."""


@dataclass(frozen=True, kw_only=True)
class ReshardedLeaf:
    """An array of the tree.

    Attributes:
        name, new_name: its tree path before and after.
        shape: global.
        dtype, new_dtype: its element type before and after.
        before, after: its PartitionSpec as Python writes it; None if none expresses the sharding.
        first: the spec in which one copy of it arrives before it is gathered; None if it has no copies to save.
        sent_bytes, received_bytes: the most that one device sends, and receives.
        moved_bytes: bytes that pass between devices, all devices together.
        kept_bytes: bytes that stay on their device, all devices together.
        before_bytes, after_bytes: bytes of one shard.
        gathered: it is sharded before, and every device has all of it after.
        taken: how `jax.device_put` moves it in one process: `nothing`, `copies` of shards between devices, `a program`
            or `the host`.
    """

    name: str
    new_name: str
    shape: tuple[int, ...]
    dtype: str
    new_dtype: str
    before: str | None
    after: str | None
    first: str | None
    sent_bytes: float
    received_bytes: float
    moved_bytes: float
    kept_bytes: float
    before_bytes: float
    after_bytes: float
    gathered: bool
    taken: str


@dataclass(frozen=True, kw_only=True)
class ReshardLink:
    """A kind of link (`ICI`, `DCN`, `NVLink`, `network`, `PCIe`), the bytes that pass such links, the seconds of the
    busiest one, and the formula. The seconds are None if no machine is known."""

    kind: str
    nbytes: float
    seconds: float | None = None
    formula: str = ""


@dataclass(frozen=True, kw_only=True)
class ReshardWay:
    """A way of moving the tree.

    Attributes:
        name: `jax.device_put`, `jax.jit`, `through the host`, `piece by piece` or `one copy, then gathered`.
        cast: `before` or `after` the move, if the element type changes; else empty.
        chunks: how many arrays each chunk has, in the order of the leaves. The old arrays of a chunk are deleted before
            the next chunk moves.
        seconds: by the busiest link of each kind, or for `jax.jit` by Shardy's collectives; None if not known.
        formula: the arithmetic of the seconds.
        before_peak, after_peak: the most bytes that one device of either side holds at once.
        host_bytes: bytes in the hosts' memory, all hosts together.
        fits: whether both peaks are within the limit; None without a limit.
    """

    name: str
    cast: str
    chunks: tuple[int, ...]
    seconds: float | None
    formula: str
    before_peak: float
    after_peak: float
    host_bytes: float
    fits: bool | None


@dataclass(frozen=True, kw_only=True, repr=False)
class Resharding(Versioned, kind="resharding"):
    """A tree of arrays on its way from one mesh to another.

    Attributes:
        before, after: the meshes.
        before_target, after_target: the machines; empty if not known.
        shared_devices: devices that both meshes have.
        leaves: the arrays, in the order in which chunks take them: those that free most memory come first.
        nowhere: paths of arrays that do not arrive, since the tree after has none of this path.
        unfed: paths of arrays of the tree after that no array becomes.
        links: the links that the bytes pass if each device gets its shards from the nearest holders; slowest first.
        pairs: (sender, receiver, bytes): the pairs of devices that exchange most, largest first.
        pair_count: how many pairs of devices exchange bytes.
        sent_bytes, received_bytes: the most that one device sends, and receives.
        ways: the ways compared; those that fit come first, the fastest of them at the top.
        limit: the bound on bytes per device that the chunks keep; None for no bound.
        notes: facts that the numbers rest on.
    """

    before: DeviceMesh
    after: DeviceMesh
    before_target: str = ""
    after_target: str = ""
    shared_devices: int
    leaves: tuple[ReshardedLeaf, ...]
    nowhere: tuple[str, ...] = ()
    unfed: tuple[str, ...] = ()
    links: tuple[ReshardLink, ...] = ()
    pairs: tuple[tuple[int, int, float], ...] = ()
    pair_count: int = 0
    sent_bytes: float = 0.0
    received_bytes: float = 0.0
    ways: tuple[ReshardWay, ...] = ()
    limit: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def moved_bytes(self) -> float:
        """Bytes that pass between devices, all devices together."""
        return sum(leaf.moved_bytes for leaf in self.leaves)

    @property
    def seconds(self) -> float | None:
        """Seconds of the slowest link, if each device gets its shards from the nearest holders; None if not known."""
        return max((link.seconds or 0.0 for link in self.links), default=0.0) if self.before_target else None

    def code(self, way: ReshardWay | None = None) -> str:
        """Return Python that moves the tree, with JAX alone.

        Args:
            way: one of `ways`; the first if None.

        Raises:
            ShardvizError: if no PartitionSpec expresses a sharding after the move.
        """
        way = way or self.ways[0]
        if lost := next((leaf for leaf in self.leaves if leaf.after is None), None):
            raise ShardvizError(
                f"{lost.new_name or 'array'}: no PartitionSpec expresses its sharding; give it one in `after`"
            )
        rows, start = "", 0
        for count in way.chunks:
            chunk = self.leaves[start : start + count]
            rows += (
                "    [\n" + "".join(f"        ({x.name!r}, {x.new_name!r}, {x.after}),\n" for x in chunk) + "    ],\n"
            )
            start += count
        types = {leaf.new_name: leaf.new_dtype for leaf in self.leaves if leaf.dtype != leaf.new_dtype}
        cast = ".astype(DTYPES.get(to, leaf.dtype))" if types else ""
        firsts = ", ".join(f"{leaf.new_name!r}: {leaf.first}" for leaf in self.leaves if leaf.first)
        to = "NamedSharding(mesh, FIRST.get(to, spec))" if way.name == SPREAD else "sharding"
        moved = f"move(leaf{cast if way.cast == 'before' else ''}, {to})"
        moved = f"jax.jit(lambda x: x, out_shardings=sharding)({moved})" if way.name == SPREAD else moved
        moved += cast if way.cast == "after" else ""
        chunked = len(way.chunks) > 1
        same = not self.nowhere and not self.unfed and all(leaf.name == leaf.new_name for leaf in self.leaves)
        lines = [
            *(["import collections", ""] if way.name in (PIECES, SPREAD) else []),
            "import jax",
            *(["import jax.numpy as jnp"] if way.name in (PIECES, SPREAD) else []),
            "import numpy as np",
            "from jax.sharding import Mesh, NamedSharding",
            "from jax.sharding import PartitionSpec as P",
            "",
            f"CHUNKS = [\n{rows}]",
            *([f"DTYPES = {types!r}"] if types else []),
            *([f"FIRST = {{{firsts}}}"] if way.name == SPREAD else []),
            _MOVE[way.name],
            *([_FREE] if chunked else []),
            "",
            "def reshard(tree, devices):",
            f'    """Return the arrays on {self.after.size} devices, given in the order of the mesh."""',
            f"    mesh = Mesh(np.array(devices).reshape({self.after.sizes!r}), {self.after.names!r})",
            "    paths, structure = jax.tree_util.tree_flatten_with_path(tree)",
            "    old, new = {jax.tree_util.keystr(path): leaf for path, leaf in paths}, {}",
            "    for chunk in CHUNKS:",
            "        for name, to, spec in chunk:",
            "            leaf, sharding = old[name], NamedSharding(mesh, spec)",
            f"            new[to] = {moved}",
            "        jax.block_until_ready([new[to] for _, to, _ in chunk])",
            *(["        for name, to, _ in chunk:", "            free(old[name], new[to])"] if chunked else []),
            "    return jax.tree.unflatten(structure, [new[name] for name in old])"
            if same
            else "    return new  # by path",
        ]
        return "\n".join([*lines, ""])


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
    """Delete the shards of an old array that the new one does not use; `tree` cannot be used afterwards."""
    place = lambda shard: (shard.device, shard.data.unsafe_buffer_pointer())
    used = {place(shard) for shard in new.addressable_shards}
    for shard in [] if old.is_deleted() else old.addressable_shards:
        if place(shard) not in used:
            shard.data.delete()
'''
