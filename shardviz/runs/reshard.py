"""Resharding a tree of arrays from one mesh to another: the bytes between each pair of devices, the seconds, the ways.

>>> import jax, jax.numpy as jnp
>>> params = {"w": jax.ShapeDtypeStruct((8, 8), jnp.float32)}
>>> moved = reshard(params, ("data", None), (None, "model"), mesh={"data": 4}, to_mesh={"model": 2})
>>> moved.moved_bytes, moved.leaves[0].taken, moved.ways[0].name
(192.0, 'the host', 'piece by piece')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from shardviz.costs.exchange import Devices, links
from shardviz.costs.machine import Machine, machine_of
from shardviz.costs.placement import Placement
from shardviz.errors import MeshError, ShardvizError, SpecError, TargetError
from shardviz.layouts import Layout, itemsize, layout
from shardviz.layouts.layout import dtype_name
from shardviz.notation import DeviceMesh
from shardviz.records.move_code import reduced_dims
from shardviz.records.resharded import ReshardedLeaf, ReshardLink
from shardviz.records.resharding import Resharding
from shardviz.runs.mapping import ArrayPaths, Pair, paired
from shardviz.runs.sides import (
    GivenTree,
    SideArray,
    alike,
    first_paths,
    layers_of,
    scales_layout,
    sharded_apart,
    side_array,
    side_of,
    spec_text,
    stack_dim,
)
from shardviz.runs.ways import BothSides, Load, MovedArray, Ways, exchanged, load_of, one_copy

_MOST_PAIRS = 256
_SIDES = "before", "after"


def reshard(
    tree: Any,
    before: Any = None,
    after: Any = None,
    *,
    mesh: Any = None,
    to_mesh: Any = None,
    target: str | Machine | None = None,
    to_target: str | Machine | None = None,
    apart: bool = False,
    dtype: Any = None,
    rename: Mapping[Any, str | tuple[str, str]] | Callable[[str], str] | None = None,
    limit: float | None = None,
) -> Resharding:
    """Return how to move a tree of arrays from one plan, mesh and machine to another: the bytes that each device sends
    and receives, the links, the seconds, the memory of each side, and Python code for it.

    A device takes each element of its new shard from the nearest device that has it: itself, then a device on the same
    host, then one in the same slice (or NVLink domain), then any. Devices that are equally near take turns.

    Args:
        tree: arrays, `jax.ShapeDtypeStruct`s or other objects with a shape and a dtype, in any pytree.
        before: how they are sharded: a spec for all arrays, a pytree prefix of specs or shardings, or a `sv.Plan` whose
            first argument is the tree; None for the arrays' own shardings. A `NamedSharding` with a `memory_kind` such
            as `pinned_host` puts an array in the memory of its devices' hosts.
        after: the same for the end. Or a tree of arrays with shardings, which may have other paths than `tree`.
        mesh: the mesh before; also the mesh after if `to_mesh` is None.
        to_mesh: the mesh after. Shardings after that have a mesh need none.
        target: the machine, such as `tpu v5p:4x4x4`, for seconds; a mesh may have only some of its devices.
        to_target: the machine of the mesh after, if that is another machine; a data centre's network joins the two.
        apart: the two meshes have no device in common. Without it, meshes that do not list their devices both begin at
            device 0.
        dtype: the element type of floating-point arrays after the move.
        rename: tree path before → tree path after, as a mapping (paths that it lacks stay) or a function. In a mapping,
            `*` stands for a key. A `*` on one side only matches the numbers of layers, and the other side has them
            stacked: `{"['blocks'][*]['w']": "['layers']['w']"}`, in either direction; each layer may have a sharding
            of its own. Two paths in place of one are an
            array in a smaller element type and its scales: `{"['w']": ("['q']", "['scale']")}`, or back.
        limit: bytes per device that the move may use; by default what a chip of the target gives a program.

    Returns:
        A `records.resharding.Resharding`, which shows itself.

    Raises:
        SpecError: if a sharding does not fit an array, or a dimension does not divide; the message has the array's
            path and both sides.
        MeshError: if there is no mesh, or the arrays after are on several meshes.
        TargetError: if there is no such machine, or it has too few devices.
        ShardvizError: if the trees do not match.

    Examples:
        >>> import jax, jax.numpy as jnp, shardviz as sv
        >>> params = {"w": jax.ShapeDtypeStruct((8192, 1024), jnp.bfloat16)}
        >>> moved = sv.reshard(params, ("fsdp",), (None, "tensor"), mesh={"fsdp": 16}, to_mesh={"tensor": 8},
        ...                    target="tpu v5e:4x4", to_target="tpu v5e:2x4")
        >>> moved.moved_bytes, [link.kind for link in moved.links]
        (16777216.0, ['DCN'])
    """
    old = side_of("before", tree, before, mesh)
    new = side_of("after", tree, after, to_mesh, mesh)

    def layers(pattern: str, stacked: str) -> list[str]:
        if new.arrays or stacked not in old or not old[stacked].shape:
            return list(new)
        return [pattern.replace("*", str(number)) for number in range(old[stacked].shape[0])]

    known: dict[Any, Layout] = {}
    pairs = paired(old, rename, layers)
    arriving = [pair for pair in pairs if not new.arrays or all(path in new for path in pair.paths(1))]
    if not arriving:
        raise ShardvizError(
            f"before has {first_paths(old)}, after {first_paths(new)}: no path in common; "
            "give rename={path before: path after}"
        )
    arrays = [array for pair in arriving for array in moved_arrays(pair, old, new, dtype, known)]
    fed = {path for pair in arriving for side in (0, 1) for path in pair.paths(side)}
    nowhere = tuple(path for path in old if path not in fed)
    unfed = tuple(path for path in new if new.arrays and path not in fed)
    kinds = {each.kind: each for each in reversed(arrays)}  # the first array of each
    places = _places(list(kinds.values()), target, to_target, apart)
    return _resharding(arrays, kinds, places, limit, nowhere, unfed)


def moved_arrays(pair: Pair, old: GivenTree, new: GivenTree, dtype: Any, known: dict[Any, Layout]) -> list[MovedArray]:
    """Return an array on its way, and then its scales if one side has some. Layouts are those in `known` where equal
    ones are. Raise as `reshard` does."""
    text, trees = pair.text, (old, new)
    if not new.arrays and len(pair.old) != len(pair.new):
        raise ShardvizError(f"{text}: the scales' shape is not known; give `after` as a tree of arrays with shardings")
    ends = pair.old, pair.new if new.arrays else pair.old  # specs after go by the paths before
    for side in (0, 1) if new.arrays else (0,):
        if pair[side][0].layers:
            layers = layers_of(_SIDES[side], text, pair[side][0], trees[side], known)
            if not alike(layers):
                return _layer_by_layer(pair, side, layers, new, trees[1 - side], dtype, known)
    stacked = [tree[end[0].name].shape for tree, end in zip(trees, ends, strict=True) if not end[0].layers]
    values, other = (
        side_array(side, text, end[0], tree, known, next(iter(stacked), None))
        for side, tree, end in zip(_SIDES, trees, ends, strict=True)
    )
    if not new.arrays:
        other = _by_specs(text, pair.new[0], other)
    if values.layout.shape != other.layout.shape:
        raise ShardvizError(
            f"{text}: shape {values.layout.shape} before, {other.layout.shape} after; give trees whose arrays have "
            "equal shapes, or rename={path before: path after}"
        )
    if len(pair.old) == len(pair.new):
        return [MovedArray(values, _cast(values, other, dtype))]
    at, (wide, small) = (1, (values, other)) if len(pair.new) == 2 else (0, (other, values))
    shape = wide.layout.shape
    scales = side_array(_SIDES[at], text, ends[at][1], trees[at], known, shape, scales=True)
    if scales.memory != small.memory:
        raise ShardvizError(f"{text}: scales in {scales.memory}, their array in {small.memory}; give both one memory")
    if reduced_dims(shape, scales.layout.shape) is None or itemsize(small.dtype) >= itemsize(wide.dtype):
        raise ShardvizError(
            f"{text}: {wide.dtype}{list(shape)} as {small.dtype} with scales {list(scales.layout.shape)}; expected a "
            "smaller element type, and scales of the array's shape with some dimensions 1 or left out"
        )
    if wide.layout.spec is None:
        raise SpecError(f"{text}: no PartitionSpec expresses the sharding of {wide.paths.name}; give it one")
    key = "scales", id(wide.layout), scales.layout.shape
    if key not in known:
        known[key] = scales_layout(wide.layout, scales.layout.shape)
    theirs = scales._replace(paths=wide.paths, layout=known[key], memory=wide.memory, dim=None)
    ends_of = (theirs, scales) if at else (scales, theirs)
    numbers = MovedArray(values, other)
    return [numbers, MovedArray(*ends_of, scales=("used", "made")[at], joins=True, numbers=numbers)]


def _cast(values: SideArray, other: SideArray, dtype: Any) -> SideArray:
    cast = dtype is not None and values.dtype.startswith(("float", "bfloat"))
    return other._replace(dtype=dtype_name(np.dtype(dtype))) if cast else other


def _layer_by_layer(
    pair: Pair,
    side: int,
    layers: list[SideArray],
    new: GivenTree,
    tree: GivenTree,
    dtype: Any,
    known: dict[Any, Layout],
) -> list[MovedArray]:
    """Return layers that are sharded differently on one side, each on its way by itself from or to the stacked array
    of `tree`, the other side."""
    text = pair.text
    if len(pair.old) + len(pair.new) > 2:
        raise ShardvizError(f"{text}: {sharded_apart(layers)}; give layers that have or get scales one sharding")
    given = pair.new if side else pair.old  # specs after go by the paths before
    end = (pair.old if side else pair.new if new.arrays else given)[0]
    whole = side_array(_SIDES[1 - side], text, end, tree, known)._replace(paths=pair[1 - side][0])
    shape = whole.layout.shape
    dim, _ = stack_dim(_SIDES[side], text, layers, lambda each: each == shape, shape)
    spec = whole.layout.spec
    if spec is None or whole.layout.tile_counts[dim] > 1:
        raise SpecError(
            f"{text}: {sharded_apart(layers)}, and the stacked array is {spec_text(whole)}: dimension {dim} counts "
            "the layers; shard only its other dimensions, or give the layers one sharding"
        )
    if (key := ("layer", id(whole.layout), dim)) not in known:
        dims = tuple(axes for d, axes in enumerate(spec.dims) if d != dim)
        known[key] = layout((*shape[:dim], *shape[dim + 1 :]), spec.with_dims(dims), whole.layout.mesh)
    part = whole._replace(layout=known[key], dim=dim)
    ends = ((part, each) if side else (each, part) for each in layers)
    return [MovedArray(old, _cast(old, to, dtype), joins=n > 0) for n, (old, to) in enumerate(ends)]


def _by_specs(text: str, paths: ArrayPaths, given: SideArray) -> SideArray:
    """Return an array after the move; `given` has its sharding under the path before the move."""
    if not paths.layers:
        return given._replace(paths=paths, dim=None)
    if given.layout.tile_counts[0] > 1:
        raise ShardvizError(
            f"{text}, after {given.layout.spec}: dimension 0 counts the layers, which become arrays of their own; "
            "shard another dimension"
        )
    return given._replace(paths=paths, dim=0)


def _places(arrays: list[MovedArray], target: Any, to_target: Any, apart: bool) -> BothSides:
    """Return the devices of both sides; raise TargetError if the machines do not have them."""
    meshes = [max((getattr(each, side).mesh for each in arrays), key=lambda m: m.size) for side in ("before", "after")]
    if target is None and to_target is not None:
        raise TargetError(f"to_target {to_target!r}: the machine before is not known; give target as well")
    machines = [machine_of(t, m.size) for t, m in zip((target, to_target), meshes, strict=True) if t is not None]
    machines = [machine for machine in machines if machine.chip.kind != "cpu"]
    old, new = meshes
    first = machines[0].size if len(machines) > 1 else 0 if not apart else int(old.ids().max()) + 1
    known = {
        (side, mesh): device_numbers(mesh, machine, whole) + start
        for side, machine, start, whole in (
            (0, machines[0] if machines else None, 0, not apart),
            (1, machines[-1] if machines else None, first, len(machines) > 1 or not apart),
        )
        for mesh in {(each.before, each.after)[side].mesh for each in arrays}
    }
    ids = [(known[0, each.before.mesh], known[1, each.after.mesh]) for each in arrays]
    size = max(int(side.max()) for pair in ids for side in pair) + 1
    if not machines:
        return BothSides(None, size, ids)
    devices = Devices(tuple(machines))
    if size > len(devices.machine):
        raise TargetError(
            f"target {machines[0].text!r}: {len(devices.machine)} devices for meshes of {old.size} and {new.size} "
            "devices; give a larger machine, or to_target for the mesh after"
        )
    return BothSides(devices, len(devices.machine), ids)


def device_numbers(mesh: DeviceMesh, machine: Machine | None, whole: bool) -> np.ndarray:
    """Return the number of each device of a mesh on a machine that may be larger."""
    if machine is None or not whole or (mesh.size < machine.size and mesh.ids().max() < machine.size):
        return mesh.ids()
    if mesh.size >= machine.size:
        return np.asarray(Placement.of(mesh, machine).order)
    where = {number: place for place, number in enumerate(machine.ids().tolist())}
    if strange := [number for number in mesh.device_ids if number not in where]:
        raise TargetError(f"mesh {mesh.text}: {machine.text} has no device {strange[0]}")
    return np.array([where[number] for number in mesh.device_ids])


def _resharding(
    arrays: list[MovedArray],
    kinds: dict[Any, MovedArray],
    places: BothSides,
    limit: float | None,
    nowhere: tuple[str, ...],
    unfed: tuple[str, ...],
) -> Resharding:
    alike, number = list(kinds.values()), {kind: n for n, kind in enumerate(kinds)}
    known: dict[Any, tuple[Load, Load, Layout]] = {}
    for each, ids in zip(alike, places.ids, strict=True):
        if (key := (id(each.before), id(each.after))) not in known:
            load, first = load_of(each.before, each.after, ids, places), one_copy(each.after)
            same = first is each.after or load.taken == "nothing"
            spread = load if same else load_of(each.before, first, ids, places)
            known[key] = load, spread, each.after if same else first
    loads, spread, firsts = zip(*(known[id(each.before), id(each.after)] for each in alike), strict=True)
    sizes = np.array([each.sizes for each in alike])
    in_device = sizes * ~np.array([each.on_host for each in alike])
    growth = [float(load.new.sum() * n[1] - load.old.sum() * n[0]) for load, n in zip(loads, in_device, strict=True)]
    which = np.array([number[each.kind] for each in arrays])
    groups = np.cumsum([not each.joins for each in arrays]) - 1
    grown = np.bincount(groups, np.array(growth)[which])
    order = sorted(range(len(arrays)), key=lambda n: (grown[groups[n]], groups[n]))
    which = which[order]
    narrow = np.where(sizes.all(axis=1), sizes.min(axis=1), sizes.max(axis=1))
    rows = list(map(_leaf, alike, loads, narrow, firsts))
    leaves = tuple(_named(rows[kind], arrays[n]) for n, kind in zip(order, which.tolist(), strict=True))
    machines = places.devices.machines if places.devices else ()
    usable = [m.usable_bytes for m in machines]
    limit = limit if limit is not None or None in usable else min(filter(None, usable), default=None)
    ways = Ways(alike, which, loads, spread, firsts, sizes, places, limit)
    senders, receivers, nbytes = between = exchanged(loads, narrow * ways.counts)
    moved = np.flatnonzero(senders != receivers)
    top = moved[np.argsort(-nbytes[moved], kind="stable")[:_MOST_PAIRS]]
    sent, received = (np.bincount(ends[moved], nbytes[moved], places.size) for ends in (senders, receivers))
    both = [set(np.concatenate([pair[side] for pair in places.ids]).tolist()) for side in (0, 1)]
    return Resharding(
        before=arrays[order[0]].before.mesh,
        after=_one_mesh(alike),
        before_target=machines[0].text if machines else "",
        after_target=machines[-1].text if machines else "",
        shared_devices=len(both[0] & both[1]),
        leaves=leaves,
        nowhere=nowhere,
        unfed=unfed,
        links=_links(ways, between),
        pairs=tuple(zip(senders[top].tolist(), receivers[top].tolist(), nbytes[top].tolist(), strict=True)),
        pair_count=len(moved),
        sent_bytes=float(sent.max()),
        received_bytes=float(received.max()),
        ways=tuple(
            sorted(
                ways.every(),
                key=lambda way: (way.fits is False, way.seconds or 0.0, way.host_bytes, sum(way.chunks[1:])),
            )
        ),
        limit=limit,
        notes=tuple(_notes(leaves, places)),
    )


def _one_mesh(arrays: list[MovedArray]) -> DeviceMesh:
    first = arrays[0]
    for each in arrays:
        if each.after.mesh != first.after.mesh:
            raise MeshError(
                f"{each.new_name}, after: its mesh is {each.after.mesh}, that of {first.new_name} {first.after.mesh}; "
                "reshard one mesh's arrays at a time"
            )
    return first.after.mesh


def _links(ways: Ways, rows: tuple[np.ndarray, np.ndarray, np.ndarray]) -> tuple[ReshardLink, ...]:
    if ways.places.devices is None:
        return ()
    found = [*links(ways.places.devices, *rows), *(ways.host_links(ways.staged) or ())]
    return tuple(sorted(found, key=lambda link: -(link.seconds or 0.0)))


def _leaf(each: MovedArray, load: Load, narrow: float, first: Layout) -> ReshardedLeaf:
    sharded = [max(side.tile_counts, default=1) > 1 for side in (each.before, each.after)]
    specs = [
        None
        if side.spec is None or not all(isinstance(axis, str) for axis in side.spec.axes)
        else str(side.spec.canonical())
        for side in (each.before, each.after)
    ]
    return ReshardedLeaf(
        name=each.name,
        new_name=each.new_name,
        shape=each.before.shape,
        dtype=each.old.dtype,
        new_dtype=each.new.dtype,
        before=specs[0],
        after=specs[1],
        first=None if first is each.after else str(first.spec and first.spec.canonical()),
        sent_bytes=float(load.sent.max() * narrow),
        received_bytes=float(load.received.max() * narrow),
        moved_bytes=float(load.received.sum() * narrow),
        kept_bytes=float((load.new.sum() - load.received.sum()) * narrow),
        before_bytes=math.prod(each.before.shard_shape) * each.sizes[0],
        after_bytes=math.prod(each.after.shard_shape) * each.sizes[1],
        gathered=sharded == [True, False],
        taken=load.taken,
        layer_dims=(each.old.dim, each.new.dim),
        memory=each.old.memory,
        new_memory=each.new.memory,
        scales=each.scales,
    )


def _named(leaf: ReshardedLeaf, each: MovedArray) -> ReshardedLeaf:
    """Return the row of an array of the same kind, with its paths."""
    layers = next((side.paths.layers for side in (each.old, each.new) if side.dim is not None), ())
    return replace(leaf, name=each.name, new_name=each.new_name, layers=layers)


def _notes(leaves: tuple[ReshardedLeaf, ...], places: BothSides) -> Iterator[str]:
    if any(leaf.taken == "the host" for leaf in leaves):
        yield (
            "jax.device_put takes an array through the host if the devices or their order stay the same and the shards "
            "differ, or if no device before has a shard that a device after needs. jax.jit with out_shardings does not."
        )
    if any(leaf.dtype != leaf.new_dtype for leaf in leaves):
        yield "Bytes sent are those of the narrower element type."
    if any(leaf.layers for leaf in leaves):
        yield "Layers are stacked before they move, and split after it, which sends nothing."
    if any(leaf.stack for leaf in leaves):
        yield (
            "Layers that are sharded differently move one by one. The stacked array is split before that, or stacked "
            "after it, which sends nothing."
        )
    if any(leaf.scales == "made" for leaf in leaves):
        yield (
            "A scale is the largest absolute value over the dimensions that it lacks, divided by the largest number of "
            "the new type. Where these dimensions are sharded, the largest values pass an all-reduce in float32."
        )
    if any(leaf.memory != leaf.new_memory for leaf in leaves):
        yield "Between a device and its host, arrays keep their sharding: a PCIe link has its device's shard."
    yield "The code is for one process that addresses all devices."
