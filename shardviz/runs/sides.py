"""The arrays of one side of a move, by tree path, with their layouts; the layers of a stacked array as one array."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from shardviz.errors import MeshError, ShardvizError, SpecError
from shardviz.layouts import Layout, layout
from shardviz.layouts.layout import dtype_name, is_plain, is_spec_entry
from shardviz.notation import DeviceMesh
from shardviz.notation.spec import DEVICE_MEMORY
from shardviz.plan.plan import Plan
from shardviz.records.amounts import first_names
from shardviz.records.move_code import reduced_dims
from shardviz.runs.mapping import ArrayPaths
from shardviz.tracing.prefixes import spread


class GivenArray(NamedTuple):
    """An array on one side: global shape, element type, sharding, and the mesh unless the sharding has it; `inherited`
    if the mesh is that of the other side, since none was given."""

    shape: tuple[int, ...]
    dtype: str
    sharding: Any
    mesh: Any
    inherited: bool = False


class GivenTree(dict[str, GivenArray]):
    """The arrays of a side by tree path, and whether it was given as arrays, with paths of its own."""

    def __init__(self, found: Mapping[str, GivenArray], arrays: bool):
        super().__init__(found)
        self.arrays = arrays


def side_of(side: str, tree: Any, given: Any, mesh: Any, otherwise: Any = None) -> GivenTree:
    """Return the arrays of a tree under the shardings of one side, `before` or `after`; raise as `reshard` does.
    Without `mesh`, shardings that have no mesh are over `otherwise`."""
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
    elif _is_entry(given):
        specs = [given] * len(leaves)
    else:
        try:
            specs = spread(given, tree, _is_entry)
        except (ValueError, AttributeError) as error:
            theirs = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_flatten_with_path(given, _is_entry)[0]]
            odd = [p for p in leaves if not any(map(p.startswith, theirs))]
            odd = odd or [t for t in theirs if not any(p.startswith(t) for p in leaves)]
            raise ShardvizError(
                f"{odd[0] if odd else 'tree'}, {side}: the arrays are {first_paths(leaves)}, the specs are of "
                f"{first_paths(theirs)}; give a pytree prefix of the arrays, with None for a replicated array"
            ) from error
    return GivenTree(
        {
            name: GivenArray(
                tuple(leaf.shape),
                dtype_name(leaf.dtype),
                spec,
                otherwise if (inherited := mesh is None and not hasattr(spec, "mesh")) else mesh,
                inherited and otherwise is not None,
            )
            for (name, leaf), spec in zip(leaves.items(), specs, strict=True)
        },
        own and given is not None,
    )


def _is_entry(node: Any) -> bool:
    """Return whether a node of a tree of specs is a spec; a flax `State` of specs, as any node that JAX knows, is
    not."""
    return is_spec_entry(node) and (node is None or type(node) is tuple or jax.tree_util.all_leaves([node]))


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


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
        more = ". Without to_mesh (a second --mesh), this is the mesh before" if array.inherited else ""
        raise type(error)(f"{where}: {error}{more}") from error
    each = known[key]
    if not each.divides:
        d = next(d for d, n in enumerate(array.shape) if n % each.tile_counts[d])
        raise SpecError(
            f"{where}: dimension {d} of size {array.shape[d]} does not divide by {each.tile_counts[d]} devices; shard "
            f"another dimension, or pad it to {-(-array.shape[d] // each.tile_counts[d]) * each.tile_counts[d]}"
        )
    return each


class SideArray(NamedTuple):
    """An array on one side, layers as the stacked array that they are.

    Attributes:
        paths: its path, or its layers'.
        layout: where its bytes are.
        dtype: its element type.
        memory: the memory of its shards: `device`, or the host's.
        dim: the dimension that counts layers; None if it has none.
    """

    paths: ArrayPaths
    layout: Layout
    dtype: str
    memory: str
    dim: int | None = None


def side_array(
    side: str,
    text: str,
    paths: ArrayPaths,
    tree: GivenTree,
    known: dict[Any, Layout],
    like: tuple[int, ...] | None = None,
    scales: bool = False,
) -> SideArray:
    """Return an array on one side, `text` in messages; raise as `reshard` does. Layers become the first dimension with
    which the stacked array has the shape `like`, or is `scales` of such an array; without it, the first dimension."""
    if not paths.layers:
        return _single(side, text, paths.name, tree, known)
    layers = layers_of(side, text, paths, tree, known)
    first = layers[0]
    if not alike(layers):
        raise ShardvizError(
            f"{text}, {side}: {sharded_apart(layers)}; layers that become one stacked array there have one sharding"
        )
    fits = (lambda shape: reduced_dims(like or shape, shape) is not None) if scales else (lambda s: like in (None, s))
    dim, shape = stack_dim(side, text, layers, fits, like)
    return first._replace(paths=paths, layout=with_layers(text, first.layout, shape, dim, known), dim=dim)


def _single(side: str, text: str, path: str, tree: GivenTree, known: dict[Any, Layout]) -> SideArray:
    array = tree[path]
    memory = getattr(array.sharding, "memory_kind", None) or DEVICE_MEMORY
    return SideArray(ArrayPaths(path), layout_of(text, side, array, known), array.dtype, memory)


def layers_of(side: str, text: str, paths: ArrayPaths, tree: GivenTree, known: dict[Any, Layout]) -> list[SideArray]:
    """Return the layers of a stacked array, each an array of its own; raise as `reshard` does."""
    layers = [_single(side, path, path, tree, known) for path in paths.layers]
    first, *_ = types = [f"{x.dtype}{list(x.layout.shape)} in {x.memory} memory" for x in layers]
    if odd := next((n for n, each in enumerate(types) if each != first), None):
        raise ShardvizError(
            f"{text}, {side}: {paths.layers[0]} is {first}, {paths.layers[odd]} is {types[odd]}; layers of one stacked "
            "array have one shape, type and memory"
        )
    return layers


def alike(layers: Sequence[SideArray]) -> bool:
    """Return whether layers are sharded alike."""
    mesh, spec = layers[0].layout.mesh, layers[0].layout.spec
    ends = [each.layout for each in layers if each.layout is not layers[0].layout]
    return all(end.mesh == mesh and spec and end.spec and spec.same_as(end.spec, mesh) for end in ends)


def sharded_apart(layers: Sequence[SideArray]) -> str:
    """Return words on the first layer, and the first one that is sharded differently."""
    odd = next(each for each in layers if not alike([layers[0], each]))
    both = (f"{each.paths.name} is {spec_text(each)} on {each.layout.mesh}" for each in (layers[0], odd))
    return " and ".join(both)


def spec_text(array: SideArray) -> str:
    """Return the spec of an array, for messages."""
    return str(array.layout.spec.canonical()) if array.layout.spec else array.layout.why


def stack_dim(
    side: str,
    text: str,
    layers: Sequence[SideArray],
    fits: Callable[[tuple[int, ...]], bool],
    like: tuple[int, ...] | None,
) -> tuple[int, tuple[int, ...]]:
    """Return the first dimension to stack layers in that gives a shape that `fits`, and the shape; if there is none,
    raise ShardvizError, in which `like` is the shape of the stacked array."""
    first, count = layers[0], len(layers)
    shape = first.layout.shape
    stacks = {d: (*shape[:d], count, *shape[d:]) for d in range(len(shape) + 1)}
    if (dim := next((d for d, each in stacks.items() if fits(each)), None)) is None:
        raise ShardvizError(
            f"{text}: {count} layers {first.dtype}{list(shape)} {side}, an array {list(like or ())} on the other side; "
            f"expected {list(stacks[0])}, or the dimension of {count} at another place"
        )
    return dim, stacks[dim]


def with_layers(text: str, each: Layout, shape: tuple[int, ...], dim: int, known: dict[Any, Layout]) -> Layout:
    """Return the layout of a stacked array whose layers are sharded so; it is kept in `known`."""
    if each.spec is None:
        raise SpecError(f"{text}: no PartitionSpec expresses the sharding of its layers; give them one")
    key = "layers", id(each), shape, dim
    if key not in known:
        dims = (*each.spec.dims[:dim], (), *each.spec.dims[dim:])
        known[key] = layout(shape, each.spec.with_dims(dims), each.mesh)
    return known[key]


def scales_layout(array: Layout, shape: tuple[int, ...]) -> Layout:
    """Return the layout of an array's scales of a shape: sharded as the array in the dimensions that they have."""
    assert array.spec is not None
    reduced = reduced_dims(array.shape, shape) or ()
    dims = [() if d in reduced else axes for d, axes in enumerate(array.spec.dims)]
    if len(shape) < len(array.shape):
        dims = [axes for d, axes in enumerate(dims) if d not in reduced]
    return layout(shape, array.spec.with_dims(tuple(dims)), array.mesh)


def first_paths(paths: Iterable[str]) -> str:
    """Return a few of the paths, for messages."""
    return first_names(paths, 4) or "no arrays"
