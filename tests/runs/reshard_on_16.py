"""Moves real arrays between random meshes of 16 simulated devices, and compares with what shardviz says; a program of
its own, which ends with 0 if everything agrees.

    python reshard_on_16.py pairs      # the bytes of each pair of devices, and the route of jax.device_put
    python reshard_on_16.py code       # the printed code of every way: equal bytes arrive, and no more are alive
    python reshard_on_16.py changed    # the same of arrays that are stacked, get or lose scales, or are in host memory
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
            if not shard.data.is_deleted() and shard.data.sharding.memory_kind == "device":
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


def ran(code: str, make, devices):
    """Run the code on a tree; return the new arrays, and the most bytes alive before a chunk is freed, by device."""
    space, peak, base = {}, np.zeros(16), live()
    exec(code, space)
    if free := space.get("free"):

        def seen(one, other):
            np.maximum(peak, live() - base, out=peak)
            free(one, other)

        space["free"] = seen
    tree = make()
    result = space["reshard"](tree, list(devices))
    return result, peak if free else live() - base


def check_way(moved, way, values, old, new, dtype: str) -> None:
    """Runs the code of one way, and compares what arrives, and the bytes alive before each chunk is freed."""
    make = lambda: {name: jax.device_put(values[name], old[name]) for name in values}
    result, peak = ran(moved.code(way), make, new["w0"].mesh.devices.flat)
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


def scaled(x: np.ndarray, dims: tuple[int, ...], keep: bool):
    """Return int8 numbers and scales of an array."""
    scales = np.abs(x).max(dims, keepdims=True) / np.float32(127)
    scales = np.where(scales == 0, np.float32(1), scales)
    return np.round(x / scales).astype("int8"), scales if keep else scales.squeeze(dims)


def changed_case(rng):
    """Return a tree by path, what must arrive by path, and how they are renamed: the element type of an array that is
    float32, its layers, their shardings, scales and memory differ at random. Each entry is values and a sharding."""
    before = random_mesh(rng, "abc")
    after = random_mesh(rng, "xyz") if rng.random() < 0.5 else before
    old, new, rename = {}, {}, {}
    for name in ("v", "w"):
        rank, layers = 3, rng.integers(2, 4)
        dim, stack, scale = (int(rng.integers(n)) for n in (3, 3, 3))  # stack or scale: 0 none, 1 before, 2 after
        kinds = [("device", "pinned_host")[rng.random() < 0.25] for _ in range(2)]
        reduced, keep = int(rng.integers(3)), bool(rng.integers(2))
        specs = [list((*random_spec(rng, mesh, rank), None, None, None)[:rank]) for mesh in (before, after)]
        for side in (1, 2):
            if stack == side:
                specs[side - 1][dim] = None
        shape = [math.lcm(*both) * 2 for both in zip(ways(specs[0], before), ways(specs[1], after), strict=True)]
        shape[dim] = shape[dim] if not stack else math.lcm(layers, shape[dim])
        if len(set(shape)) < rank:  # shapes alone then do not say which dimension is which
            return None
        x = rng.normal(size=shape).astype("float32")
        values, scales = scaled(x, (reduced,), True)
        wide = values.astype("float32") * scales if scale == 1 else x
        paths = []
        for side, (mesh, spec, tree) in enumerate(((before, specs[0], old), (after, specs[1], new)), 1):
            parts = {"": (wide, spec)}
            if scale == side:
                few = [s for d, s in enumerate(spec) if keep or d != reduced]
                few = [None if keep and d == reduced else s for d, s in enumerate(few)]
                parts = {"q": (values, spec), "s": (scales if keep else scales.squeeze(reduced), few)}
            names = []
            for part, (numbers, its) in parts.items():
                at = dim - (part == "s" and not keep and reduced < dim)
                on = NamedSharding(mesh, PartitionSpec(*its), memory_kind=kinds[side - 1])
                if stack != side:
                    names.append(f"['{name}{part}{side}']")
                    tree[names[-1]] = numbers, on
                    continue
                names.append(f"['{name}{part}{side}_*']")
                its = (*its[:at], *its[at + 1 :])
                if part == "s" and not keep and reduced == dim:
                    return None  # scales of all layers are no layers
                alike = scale or rng.random() < 0.4
                for n, layer in enumerate(np.moveaxis(numbers, at, 0)):
                    spec = PartitionSpec(*its if alike or rng.random() < 0.5 else ())
                    on = NamedSharding(mesh, spec, memory_kind=kinds[side - 1])
                    tree[names[-1].replace("*", str(n))] = layer, on
            paths.append(names[0] if len(names) == 1 else tuple(names))
        if "s" in str(paths) and keep and reduced == dim and stack:
            return None
        rename[paths[0]] = paths[1]
    return old, new, rename, (before, after)


def held_of(leaf, side: int, tree) -> dict[int, set[int]]:
    """Device → the elements of an array that a device has on one side, by their places in the stacked array."""
    places, found = np.arange(math.prod(leaf.shape)).reshape(leaf.shape), {}
    dim = leaf.layer_dims[side]
    if leaf.stack and dim is not None:  # its place in the stacked array, where no device lacks a layer
        shape, on = tree[leaf.stack][0].shape, tree[leaf.stack][1]
        for device, index in on.devices_indices_map(shape).items():
            found[device.id] = set(places[index[:dim] + index[dim + 1 :]].ravel().tolist())
        return found
    dim = None if leaf.stack else dim
    parts = {(leaf.name, leaf.new_name)[side]: places}
    parts = parts if dim is None else dict(zip(leaf.layers, np.moveaxis(places, dim, 0), strict=True))
    for path, part in parts.items():
        for device, index in tree[path][1].devices_indices_map(part.shape).items():
            found.setdefault(device.id, set()).update(part[index].ravel().tolist())
    return found


def check_changed(rng) -> bool:
    """Runs every way of a random tree; whether there is one."""
    if (case := changed_case(rng)) is None:
        return False
    old, new, rename, meshes = case
    key = lambda path: path[2:-2]
    structs = lambda tree: {
        key(path): jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=on) for path, (x, on) in tree.items()
    }
    loose = sv.reshard(structs(old), None, structs(new), rename=rename)
    assert not loose.nowhere and not loose.unfed
    for leaf in (each for each in loose.leaves if not each.scales):
        have, want = (held_of(leaf, side, tree) for side, tree in enumerate((old, new)))
        kept = sum(len(have.get(device, set()) & elements) for device, elements in want.items())
        size = min(np.dtype(leaf.dtype).itemsize, np.dtype(leaf.new_dtype).itemsize)
        assert leaf.moved_bytes == (sum(map(len, want.values())) - kept) * size, leaf
    done.update("layer by layer" if leaf.stack else "as a stack" if leaf.layers else "" for leaf in loose.leaves)
    limit = 0.7 * max(max(way.before_peak, way.after_peak) for way in loose.ways)
    make = lambda: {key(path): jax.device_put(x, on) for path, (x, on) in old.items()}
    for moved in (loose, sv.reshard(structs(old), None, structs(new), rename=rename, limit=limit)):
        for way in moved.ways:
            result, peak = ran(moved.code(way), make, meshes[1].devices.flat)
            for path, (wanted, on) in new.items():
                got = result[path]
                assert got.sharding.is_equivalent_to(on, got.ndim) and got.dtype == wanted.dtype, (way, path)
                off = (0, 1) if wanted.dtype == "int8" else (1e-6, 0)  # XLA may multiply by an inverse
                np.testing.assert_allclose(np.asarray(got), wanted, *off, err_msg=str(way))
            for mesh, told in zip(meshes, (way.before_peak, way.after_peak), strict=True):
                assert max(peak[device.id] for device in mesh.devices.flat) <= told, (way, peak.max(), told)
    return True


route: list[str] = []
done: set[str] = set()
_value, _program = array.ArrayImpl._value, dispatch._different_device_order_reshard
array.ArrayImpl._value = property(lambda x: (route.append("host"), _value.fget(x))[1])
dispatch._different_device_order_reshard = lambda *args: (route.append("program"), _program(*args))[1]

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    if sys.argv[1] == "pairs":
        for _ in range(300):
            check_pairs(*random_case(rng), DTYPES[rng.integers(4)], rng)
    elif sys.argv[1] == "changed":
        left = int(sys.argv[2]) if sys.argv[2:] else 6
        while left:
            left -= check_changed(rng)
        assert done >= {"layer by layer", "as a stack"}
    else:
        assert sum(check_code(rng, dtype) for dtype in ("float32", "bfloat16") for _ in range(3)) > 5
