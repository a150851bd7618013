"""Moves real arrays between random meshes of 16 simulated devices, and compares with what shardviz says; a program of
its own, which ends with 0 if everything agrees.

    python reshard_on_16.py pairs      # the bytes of each pair of devices, and the route of jax.device_put
    python reshard_on_16.py code       # the printed code of every way: equal bytes arrive, and no more are alive
"""

from __future__ import annotations

import math
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=16"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from jax._src import array, dispatch  # JAX has no public way to see which route an array takes
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import shardviz as sv
from shardviz.layouts import layout
from shardviz.layouts.transfers import transfers

DEVICES = jax.devices()
SIZES = [(8,), (4, 2), (2, 2, 2), (16,), (2, 8), (4,), (3, 2), (1, 2), (2, 1, 3)]
DTYPES = ["float32", "bfloat16", "int8", "float16"]


def random_mesh(rng, names: str) -> Mesh:
    sizes = SIZES[rng.integers(len(SIZES))]
    order = rng.permutation(16) if rng.random() < 0.5 else np.arange(16) + (rng.integers(0, 17 - math.prod(sizes)))
    chosen = [DEVICES[i] for i in order[: math.prod(sizes)]]
    return Mesh(np.array(chosen).reshape(sizes), tuple(names[: len(sizes)]))


def random_spec(rng, mesh: Mesh, rank: int) -> PartitionSpec:
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in rng.permutation(list(mesh.axis_names)):
        where = int(rng.integers(-1, rank)) if rank else -1
        if where >= 0:
            dims[where].append(str(name))
    return PartitionSpec(*(tuple(dim) or None for dim in dims))


def ways(spec: PartitionSpec, mesh: Mesh) -> list[int]:
    return [math.prod(mesh.shape[name] for name in dim or ()) for dim in spec]


def random_case(rng):
    """Two shardings of an array that divides under both."""
    before = random_mesh(rng, "abc")
    after = random_mesh(rng, "xyz") if rng.random() < 0.6 else Mesh(before.devices, before.axis_names)
    rank = int(rng.integers(0, 4))
    specs = [random_spec(rng, mesh, rank) for mesh in (before, after)]
    shape = tuple(
        math.lcm(*both) * int(rng.integers(1, 3))
        for both in zip(ways(specs[0], before), ways(specs[1], after), strict=True)
    )
    return shape, NamedSharding(before, specs[0]), NamedSharding(after, specs[1])


def held(x: jax.Array) -> dict[int, set[int]]:
    """Device → the elements of the array that its real shard has, by their place; the values are their places."""
    places = np.arange(math.prod(x.shape)).reshape(x.shape)
    for shard in x.addressable_shards:
        assert (np.asarray(shard.data).astype(int) == places[shard.index] % 100).all()
    return {shard.device.id: set(places[shard.index].ravel().tolist()) for shard in x.addressable_shards}


def check_pairs(shape, before, after, dtype, rng) -> None:
    values = (np.arange(math.prod(shape)) % 100).astype(dtype).reshape(shape)
    x = jax.block_until_ready(jax.device_put(values, before))
    route.clear()
    y = jax.block_until_ready(jax.device_put(x, after))
    taken = set(route)
    have, want = held(x), held(y)
    hosts, slices = rng.integers(0, 3, 16), rng.integers(0, 2, 16)
    slices = slices[hosts]
    rows = transfers(layout(shape, before), layout(shape, after), near=(hosts, slices))
    size = np.dtype(dtype).itemsize

    def far(one: int, other: int) -> int:
        return 0 if one == other else 1 if hosts[one] == hosts[other] else 2 if slices[one] == slices[other] else 3

    got: dict[int, set[int]] = {device: set() for device in want}
    for sender, receiver, elements in zip(
        *(c.tolist() for c in (rows.senders, rows.receivers, rows.elements)), strict=True
    ):
        part = have[sender] & want[receiver]
        assert len(part) == elements > 0, "what the two shards have in common"
        assert not got[receiver] & part, "no element arrives twice"
        got[receiver] |= part
        same = [d for d in have if have[d] >= part]
        assert far(sender, receiver) == min(far(d, receiver) for d in same), "the nearest holder"
    assert got == want, "every element arrives"
    moved = sv.reshard({"w": x}, None, after)
    (leaf,) = moved.leaves
    kept = sum(len(have.get(device, set()) & elements) for device, elements in want.items())
    assert leaf.kept_bytes == kept * size
    assert leaf.moved_bytes == (sum(map(len, want.values())) - kept) * size
    assert sum(nbytes for _, _, nbytes in moved.pairs) == leaf.moved_bytes
    expected = {"nothing": set(), "copies": set(), "a program": {"program"}, "the host": {"host"}}[leaf.taken]
    assert taken == expected, (shape, before, after, leaf.taken, taken)
    shares = {device: len(elements) * size for device, elements in want.items()}
    assert leaf.after_bytes == max(shares.values())


def live() -> np.ndarray:
    """The bytes of all buffers that are alive, by device."""
    buffers = {}
    for each in jax.live_arrays():
        for shard in [] if each.is_deleted() else each.addressable_shards:
            if not shard.data.is_deleted():
                buffers[shard.device.id, shard.data.unsafe_buffer_pointer()] = shard.data.nbytes
    return np.bincount([device for device, _ in buffers], list(buffers.values()), 16)


def random_tree(rng):
    """Values, and their shardings before and after, of four arrays."""
    before = random_mesh(rng, "abc")
    after = random_mesh(rng, "xyz") if (other := rng.random() < 0.5) else before
    values, old, new = {}, {}, {}
    for name in ("w0", "w1", "w2", "w3"):
        specs = [
            random_spec(rng, mesh, int(rank))
            for mesh, rank in zip((before, after), [rng.integers(1, 3)] * 2, strict=True)
        ]
        specs[1] = specs[1] if other or name != "w0" else specs[0]  # which then stays where it is
        pairs = zip(ways(specs[0], before), ways(specs[1], after), strict=True)
        values[name] = rng.integers(0, 100, [math.lcm(*both) * 16 for both in pairs]).astype("float32")
        old[name], new[name] = NamedSharding(before, specs[0]), NamedSharding(after, specs[1])
    return values, old, new


def check_way(moved, way, values, old, new, dtype: str) -> None:
    """Runs the code of one way, and compares what arrives, and the bytes alive before each chunk is freed."""
    space, peak, base = {}, np.zeros(16), live()
    exec(moved.code(way), space)
    if free := space.get("free"):

        def seen(one, other):
            np.maximum(peak, live() - base, out=peak)
            free(one, other)

        space["free"] = seen
    devices = list(new["w0"].mesh.devices.flat)
    tree = {name: jax.device_put(values[name], old[name]) for name in values}
    result = space["reshard"](tree, devices)
    if not free:
        peak = live() - base
    for name, wanted in values.items():
        assert result[name].sharding.is_equivalent_to(new[name], wanted.ndim), way
        assert result[name].dtype == dtype
        assert (np.asarray(result[name]).astype("float32") == wanted).all(), way
    if way.name != "through the host":
        for mesh, told in ((old["w0"].mesh, way.before_peak), (new["w0"].mesh, way.after_peak)):
            most = max(peak[device.id] for device in mesh.devices.flat)
            exact = way.name == "jax.device_put" and not way.cast
            assert most == told if exact else most <= told, (way, most, told)


def check_code(rng, dtype: str) -> int:
    """Runs every way of moving a random tree, with and without a limit; returns how many ran in chunks."""
    values, old, new = random_tree(rng)
    tree = {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=old[name]) for name, x in values.items()}
    loose = sv.reshard(tree, None, new, dtype=dtype)
    limit = 0.7 * max(max(way.before_peak, way.after_peak) for way in loose.ways)
    moved = [loose, sv.reshard(tree, None, new, dtype=dtype, limit=limit)]
    for each in moved:
        for way in each.ways:
            check_way(each, way, values, old, new, dtype)
    return sum(len(way.chunks) > 1 and way.name != "through the host" for way in moved[1].ways)


route: list[str] = []
_value, _program = array.ArrayImpl._value, dispatch._different_device_order_reshard
array.ArrayImpl._value = property(lambda x: (route.append("host"), _value.fget(x))[1])
dispatch._different_device_order_reshard = lambda *args: (route.append("program"), _program(*args))[1]

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    if sys.argv[1] == "pairs":
        for _ in range(300):
            check_pairs(*random_case(rng), DTYPES[rng.integers(4)], rng)
    else:
        assert sum(check_code(rng, dtype) for dtype in ("float32", "bfloat16") for _ in range(3)) > 5
