"""A tree of arrays from one mesh to another: who sends what to whom, for how long, and the ways of doing it.

>>> import jax, jax.numpy as jnp
>>> params = {"w": jax.ShapeDtypeStruct((8, 8), jnp.float32)}
>>> moved = reshard(params, ("data", None), (None, "model"), mesh={"data": 4}, to_mesh={"model": 2})
>>> moved.moved_bytes, moved.leaves[0].taken, moved.ways[0].name
(192.0, 'the host', 'piece by piece')
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from shardviz.costs.exchange import Devices, links
from shardviz.costs.machine import Machine, machine_of
from shardviz.costs.placement import Placement
from shardviz.errors import MeshError, ShardvizError, SpecError, TargetError
from shardviz.layouts import Layout, itemsize, layout
from shardviz.layouts.layout import dtype_name, is_plain, is_spec_entry
from shardviz.notation import DeviceMesh
from shardviz.plan.plan import Plan
from shardviz.records.amounts import first_names
from shardviz.records.resharding import ReshardedLeaf, Resharding
from shardviz.runs.ways import BothSides, Load, MovedArray, Ways, exchanged, load_of, one_copy
from shardviz.tracing.prefixes import spread

_MOST_PAIRS = 256


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
    rename: Mapping[str, str] | Callable[[str], str] | None = None,
    limit: float | None = None,
) -> Resharding:
    """Say how a tree of arrays gets from one plan, mesh and machine to another: the bytes that each device sends and
    receives, over which links, in how many seconds, the memory of each side, and Python that does it.

    A device takes each element of its new shard from itself if it has the element; else from a device on the same host
    that has it; else from one in the same slice (or NVLink domain); else from any. Devices that are equally near take
    turns.

    Args:
        tree: arrays, `jax.ShapeDtypeStruct`s or other objects with a shape and a dtype, in any pytree.
        before: how they are sharded: a spec for all arrays, a pytree prefix of specs or shardings, or a `sv.Plan` whose
            first argument is the tree; None for the arrays' own shardings.
        after: the same for the end. Or a tree of arrays with shardings, which may have other paths than `tree`.
        mesh: the mesh before; also the mesh after if `to_mesh` is None.
        to_mesh: the mesh after.
        target: the machine, such as `tpu v5p:4x4x4`, for seconds; a mesh may have only some of its devices.
        to_target: the machine of the mesh after, if that is another machine; a data centre's network joins the two.
        apart: the two meshes have no device in common. Without it, meshes that do not list their devices both begin at
            device 0.
        dtype: the element type of floating-point arrays after the move.
        rename: tree path before → tree path after, as a mapping (paths that it lacks stay) or a function.
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
    new = side_of("after", tree, after, mesh if to_mesh is None else to_mesh)
    pairs = {name: rename(name) if callable(rename) else (rename or {}).get(name, name) for name in old}
    if strange := [name for name in ({} if callable(rename) else rename or {}) if name not in old]:
        raise ShardvizError(f"rename: no array before has the path {strange[0]!r}; it has {_some(old)}")
    if len(set(pairs.values())) < len(pairs):
        twice = next(to for to in pairs.values() if list(pairs.values()).count(to) > 1)
        raise ShardvizError(f"rename: two arrays become {twice!r}; give each its own path")
    if not new.arrays:  # specs, which go by the paths before
        new = GivenTree({to: new[name] for name, to in pairs.items()}, False)
    arriving = {name: to for name, to in pairs.items() if to in new}
    if not arriving:
        raise ShardvizError(
            f"before has {_some(old)}, after {_some(new)}: no path in common; give rename={{path before: path after}}"
        )
    known: dict[Any, Layout] = {}
    arrays = [_array(name, to, old[name], new[to], dtype, known) for name, to in arriving.items()]
    nowhere = tuple(name for name in old if name not in arriving)
    unfed = tuple(to for to in new if to not in arriving.values())
    return _resharding(arrays, _places(arrays, target, to_target, apart), limit, nowhere, unfed)


def _some(paths: Iterable[str]) -> str:
    return first_names(paths, 4) or "no arrays"


class GivenArray(NamedTuple):
    """An array on one side: global shape, element type, sharding, and the mesh unless the sharding has it."""

    shape: tuple[int, ...]
    dtype: str
    sharding: Any
    mesh: Any


class GivenTree(dict[str, GivenArray]):
    """The arrays of a side by tree path, and whether it was given as arrays, with paths of its own."""

    def __init__(self, found: Mapping[str, GivenArray], arrays: bool):
        super().__init__(found)
        self.arrays = arrays


def side_of(side: str, tree: Any, given: Any, mesh: Any) -> GivenTree:
    """Return the arrays of a tree under the shardings of one side, `before` or `after`; raise as `reshard` does."""
    if isinstance(given, Plan):
        if given.overrides:
            raise ShardvizError(f"{side}: this plan has rules or edits, which are for a program; give a tree of specs")
        mesh, given = mesh or given.mesh, given.in_specs[0] if given.in_specs else ()
    own = given is None or (all(map(_is_array, leaves := jax.tree.leaves(given))) and bool(leaves))
    named = jax.tree_util.tree_flatten_with_path(tree if given is None or not own else given)[0]
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in named}
    if wrong := next((name for name, leaf in leaves.items() if not _is_array(leaf)), None):
        raise ShardvizError(f"{wrong}: expected an array or a jax.ShapeDtypeStruct, not {type(leaves[wrong]).__name__}")
    if not leaves:
        raise ShardvizError("tree: it has no arrays; give a pytree of arrays or of jax.ShapeDtypeStruct")
    if own:
        specs = [getattr(leaf, "sharding", None) for leaf in leaves.values()]
        if None in specs:
            name = list(leaves)[specs.index(None)]
            raise ShardvizError(f"{name}, {side}: the array has no sharding; give a spec in `{side}`")
    elif is_spec_entry(given):
        specs = [given] * len(leaves)
    else:
        try:
            specs = spread(given, tree, is_spec_entry)
        except (ValueError, AttributeError) as error:
            theirs = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_flatten_with_path(given, is_spec_entry)[0]]
            odd = [p for p in leaves if not any(map(p.startswith, theirs))]
            odd = odd or [t for t in theirs if not any(p.startswith(t) for p in leaves)]
            raise ShardvizError(
                f"{odd[0] if odd else 'tree'}, {side}: the arrays are {_some(leaves)}, the specs are of "
                f"{_some(theirs)}; give a pytree prefix of the arrays, with None for a replicated array"
            ) from error
    return GivenTree(
        {
            name: GivenArray(tuple(leaf.shape), dtype_name(leaf.dtype), spec, mesh)
            for (name, leaf), spec in zip(leaves.items(), specs, strict=True)
        },
        own and given is not None,
    )


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _array(
    name: str, new_name: str, old: GivenArray, new: GivenArray, dtype: Any, known: dict[Any, Layout]
) -> MovedArray:
    """Return an array whose layouts are those in `known` where an equal one is; raise as `reshard` does."""
    paths = (name or "array") if name == new_name else f"{name} → {new_name}"
    if old.shape != new.shape:
        raise ShardvizError(
            f"{paths}: shape {old.shape} before, {new.shape} after; give trees whose arrays have equal shapes, or "
            "rename={path before: path after}"
        )
    sides = [layout_of(paths, side, at, known) for side, at in (("before", old), ("after", new))]
    cast = dtype is not None and old.dtype.startswith(("float", "bfloat"))
    return MovedArray(name, new_name, sides[0], sides[1], old.dtype, dtype_name(np.dtype(dtype)) if cast else new.dtype)


def layout_of(
    name: str,
    side: str,
    array: GivenArray,
    known: dict[Any, Layout],
    processes: Callable[[DeviceMesh], Sequence[int] | None] = lambda mesh: None,
) -> Layout:
    """Return the layout of an array on one side, and keep it in `known` for equal arrays; raise as `reshard` does.

    `processes` returns the process of each device of a mesh, or None for those that the devices have themselves.
    """
    where = f"{name or 'array'} {list(array.shape)}, {side} {array.sharding}"
    if array.mesh is None and is_plain(array.sharding):
        raise MeshError(f"{where}: a spec alone does not say how many devices its axes have; give a mesh")
    key = array.shape, array.sharding if isinstance(array.sharding, Hashable) else id(array.sharding), id(array.mesh)
    try:
        if key not in known:
            found = layout(array.shape, array.sharding, array.mesh)
            own = processes(found.mesh)
            known[key] = found if own is None else layout(array.shape, array.sharding, array.mesh, processes=own)
    except ShardvizError as error:
        raise type(error)(f"{where}: {error}") from error
    each = known[key]
    if not each.divides:
        d = next(d for d, n in enumerate(array.shape) if n % each.tile_counts[d])
        raise SpecError(
            f"{where}: dimension {d} of size {array.shape[d]} does not divide by {each.tile_counts[d]} devices; shard "
            f"another dimension, or pad it to {-(-array.shape[d] // each.tile_counts[d]) * each.tile_counts[d]}"
        )
    return each


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
    arrays: list[MovedArray], places: BothSides, limit: float | None, nowhere: tuple[str, ...], unfed: tuple[str, ...]
) -> Resharding:
    known: dict[Any, tuple[Load, Load, Layout]] = {}
    for each, ids in zip(arrays, places.ids, strict=True):
        if (key := (id(each.before), id(each.after))) not in known:
            load, first = load_of(each.before, each.after, ids, places), one_copy(each.after)
            same = first is each.after or load.taken == "nothing"
            spread = load if same else load_of(each.before, first, ids, places)
            known[key] = load, spread, each.after if same else first
    found = [known[id(each.before), id(each.after)] for each in arrays]
    loads = [load for load, _, _ in found]
    sizes = np.array([[itemsize(each.dtype), itemsize(each.new_dtype)] for each in arrays])
    order = sorted(
        range(len(arrays)), key=lambda n: float((loads[n].new.sum() * sizes[n, 1]) - loads[n].old.sum() * sizes[n, 0])
    )
    arrays, loads, sizes = [arrays[n] for n in order], [loads[n] for n in order], sizes[order]
    narrow, spread, firsts = sizes.min(axis=1), *zip(*(found[n][1:] for n in order), strict=True)
    leaves = tuple(map(_leaf, arrays, loads, sizes, narrow, firsts))
    machines = places.devices.machines if places.devices else ()
    if limit is None and machines and all(m.chip.hbm_usable_bytes for m in machines):
        limit = min(m.chip.hbm_usable_bytes / m.chip.devices_per_chip for m in machines if m.chip.hbm_usable_bytes)
    rows = exchanged(loads, narrow)
    ways = Ways(arrays, loads, spread, firsts, sizes, places, limit)
    senders, receivers, nbytes = rows
    moved = np.flatnonzero(senders != receivers)
    top = moved[np.argsort(-nbytes[moved], kind="stable")[:_MOST_PAIRS]]
    sent, received = (np.bincount(ends[moved], nbytes[moved], places.size) for ends in (senders, receivers))
    both = [set(np.concatenate([pair[side] for pair in places.ids]).tolist()) for side in (0, 1)]
    return Resharding(
        before=arrays[0].before.mesh,
        after=_one_mesh(arrays),
        before_target=machines[0].text if machines else "",
        after_target=machines[-1].text if machines else "",
        shared_devices=len(both[0] & both[1]),
        leaves=leaves,
        nowhere=nowhere,
        unfed=unfed,
        links=links(places.devices, *rows) if places.devices else (),
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


def _leaf(each: MovedArray, load: Load, size: np.ndarray, narrow: float, first: Layout) -> ReshardedLeaf:
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
        dtype=each.dtype,
        new_dtype=each.new_dtype,
        before=specs[0],
        after=specs[1],
        first=None if first is each.after else str(first.spec and first.spec.canonical()),
        sent_bytes=float(load.sent.max() * narrow),
        received_bytes=float(load.received.max() * narrow),
        moved_bytes=float(load.received.sum() * narrow),
        kept_bytes=float((load.new.sum() - load.received.sum()) * narrow),
        before_bytes=each.before.bytes_per_device(each.dtype),
        after_bytes=each.after.bytes_per_device(each.new_dtype),
        gathered=sharded == [True, False],
        taken=load.taken,
    )


def _notes(leaves: tuple[ReshardedLeaf, ...], places: BothSides) -> Iterator[str]:
    if any(leaf.taken == "the host" for leaf in leaves):
        yield (
            "jax.device_put takes an array through the host if the devices or their order stay the same and the shards "
            "differ, or if no device before has a shard that a device after needs. jax.jit with out_shardings does not."
        )
    if any(leaf.dtype != leaf.new_dtype for leaf in leaves):
        yield "Bytes sent are those of the narrower element type."
    yield "The code is for one process that addresses all devices."
