"""Functions wrapped by `jax.pmap`, as the equivalent `jit` of a `shard_map`.

`jax.pmap` requests its devices when it is called. Here the same `shard_map` is made over the plan's mesh instead: one
axis, as long as the mapped dimension, of which each device has one slice without that dimension.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from shardviz import _jax
from shardviz.errors import MeshError, SpecError, TraceError
from shardviz.notation import DeviceMesh, Spec
from shardviz.records import Finding
from shardviz.tracing.call import Brings, Call, JitOptions, abstract, name_of, without_shardings
from shardviz.tracing.meshes import abstract_mesh
from shardviz.tracing.prefixes import spread
from shardviz.tracing.signature import tree_of_names

DEFAULT_AXIS = "i"
"""The name of the mapped axis if `jax.pmap` is given none."""


def adapt(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: JitOptions) -> Call | None:
    """Return a pmapped function as a `Call`; its mesh has the size of its mapped dimension. Raises SpecError if
    `in_axes` does not fit the arguments, or their mapped dimensions differ in size; TraceError if an argument is
    neither an array nor static, the axis name is no text, or `options` repeat an option of `jax.pmap`."""
    pmap = _jax.unwrap_pmap(fn)
    if pmap is None:
        return None
    name = name_of(pmap.fn)
    if options:
        raise TraceError(
            f"{name} is a pmapped function, which has static_broadcasted_argnums and donate_argnums of its own"
        )
    axis = DEFAULT_AXIS if pmap.axis_name is None else pmap.axis_name
    if not isinstance(axis, str):
        raise TraceError(f"{name}: its axis_name is {axis!r}; to be explored, an axis needs a text for a name")
    if max(pmap.static_argnums, default=-1) >= len(args):
        raise TraceError(
            f"{name} has static_broadcasted_argnums={pmap.static_argnums} and was called with {len(args)} positional "
            "arguments; static arguments must be positional ones"
        )
    options = JitOptions(pmap.static_argnums, (), pmap.donate_argnums)
    args, kwargs = abstract(pmap.fn, args, kwargs, options)
    arrays = _mapped_arrays(pmap, name, args, kwargs)
    mapped = Mapped(name, axis, arrays, _size(pmap, name, arrays))
    if pmap.devices is not None and len(pmap.devices) != mapped.size:
        raise MeshError(f"{name}: pmap was given {len(pmap.devices)} devices for a mapped dimension of {mapped.size}")
    brings = Brings(
        DeviceMesh((axis,), (mapped.size,), (), pmap.devices or ()),
        tuple(mapped_spec(array.dim, axis) for array in arrays),
        _each_dim(lambda dim: mapped_spec(dim, axis), pmap.out_axes),
        "pmap's in_axes",
    )
    jitted = jax.jit(_shard_mapped(pmap, mapped), keep_unused=True, **options.given())
    args, kwargs = without_shardings(args), without_shardings(kwargs)
    return Call(jitted, args, kwargs, name, "pmap", options, brings, lambda mesh, _: (mapped.note(mesh),))


def mapped_spec(dim: int | None, axis: str) -> Spec:
    """Return the spec of an array that pmap maps along a dimension; None is a replicated array."""
    return Spec() if dim is None else Spec(((),) * dim + ((axis,),))


@dataclass(frozen=True)
class MappedArray:
    """An array among a pmapped function's arguments, and its mapped dimension; None for an array that is not mapped."""

    name: str
    shape: tuple[int, ...]
    dim: int | None


@dataclass(frozen=True)
class Mapped:
    """The arguments of a pmap: the function's name, the axis name, the arrays, and the size of their mapped
    dimensions."""

    name: str
    axis: str
    arrays: tuple[MappedArray, ...]
    size: int

    def note(self, mesh: DeviceMesh) -> Finding:
        """Return a note on today's form of this pmap."""
        return Finding(
            "pmap",
            "note",
            f"pmap over {self.axis!r} is today the jit of a shard_map over the mesh {mesh}: each device has one slice "
            "of the mapped dimension, which is squeezed away inside",
        )

    def mesh(self) -> jax.sharding.AbstractMesh:
        """Return the mesh to map over: the plan's, or without one a mesh as large as the mapped dimension. Raises
        MeshError if the plan's mesh has no axis of this name and size."""
        mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty:
            return abstract_mesh(DeviceMesh((self.axis,), (self.size,)))
        ours = f"mesh={{{self.axis!r}: {self.size}}}"
        if self.axis not in mesh.axis_names:
            raise MeshError(
                f"{self.name} is a pmap over {self.axis!r}, and the mesh {DeviceMesh.of(mesh)} has no axis of that "
                f"name; use {ours}"
            )
        devices = mesh.shape[self.axis]
        if devices != self.size:
            first = next(array for array in self.arrays if array.dim is not None)
            more = "more slices than devices" if self.size > devices else "fewer slices than devices"
            raise MeshError(
                f"{first.name}: its mapped dimension {first.dim} is {self.size}, and the mesh {DeviceMesh.of(mesh)} "
                f"has {devices} along {self.axis!r}: {more}. pmap puts one slice on each device, so use {ours}, or "
                f"arguments whose mapped dimension is {devices}"
            )
        return mesh


def _shard_mapped(pmap: _jax.PmapWrapping, mapped: Mapped) -> Any:
    """Return the function that a pmapped function runs, over the mesh that it is traced on."""

    @functools.wraps(pmap.fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        mesh = mapped.mesh()
        flat, tree = jax.tree.flatten((_dynamic(pmap, args), kwargs))
        places = [array.dim for array in mapped.arrays]

        def one_device(*flat: Any) -> Any:
            squeezed = (x if d is None else jax.lax.squeeze(x, [d]) for x, d in zip(flat, places, strict=True))
            positional, keyword = tree.unflatten(squeezed)
            dynamic = iter(positional)
            merged = [a if i in pmap.static_argnums else next(dynamic) for i, a in enumerate(args)]
            result = pmap.fn(*merged, **keyword)
            leaves, out_tree = jax.tree.flatten(result)
            dims = _out_dims(pmap, mapped.name, result)
            stacked = (x if d is None else jax.lax.expand_dims(x, [d]) for x, d in zip(leaves, dims, strict=True))
            return out_tree.unflatten(stacked)

        def pspec(dim):
            return PartitionSpec(*mapped_spec(dim, mapped.axis).entries())

        return jax.shard_map(
            one_device,
            mesh=mesh,
            in_specs=tuple(map(pspec, places)),
            out_specs=_each_dim(pspec, pmap.out_axes),
            axis_names=set(mesh.axis_names),
            check_vma=False,
        )(*flat)

    return run


def _each_dim(change: Any, dims: Any) -> Any:
    """Return a tree of dimensions (None counts as one) with each of them changed."""
    return jax.tree.map(change, dims, is_leaf=lambda dim: dim is None)


def _dynamic(pmap: _jax.PmapWrapping, args: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(a for i, a in enumerate(args) if i not in pmap.static_argnums)


def _mapped_arrays(
    pmap: _jax.PmapWrapping, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[MappedArray, ...]:
    in_axes = pmap.in_axes
    if isinstance(in_axes, tuple) and pmap.static_argnums:
        if len(in_axes) != len(args):
            raise SpecError(f"{name}: in_axes has {len(in_axes)} entries for {len(args)} positional arguments")
        in_axes = _dynamic(pmap, in_axes)
    arguments = _dynamic(pmap, args), kwargs
    names = jax.tree.leaves(tree_of_names(pmap.fn, args, kwargs, pmap.static_argnums))
    try:
        dims = spread((in_axes, 0), arguments)
    except ValueError as error:
        raise SpecError(
            f"{name}: in_axes={in_axes} is no pytree prefix of the tuple of positional arguments: {error}"
        ) from error
    arrays = tuple(map(MappedArray, names, map(np.shape, jax.tree.leaves(arguments)), dims))
    for array in arrays:
        if array.dim is not None and not 0 <= array.dim < len(array.shape):
            raise SpecError(
                f"{array.name}: in_axes maps its dimension {array.dim}, and it has shape {array.shape}; pmap counts "
                "dimensions from 0, and None means a replicated array",
                argument=array.name,
            )
    return arrays


def _out_dims(pmap: _jax.PmapWrapping, name: str, result: Any) -> list[int | None]:
    try:
        dims = spread(pmap.out_axes, result)
    except ValueError as error:
        raise SpecError(f"{name}: out_axes={pmap.out_axes} is no pytree prefix of the result: {error}") from error
    for leaf, dim in zip(jax.tree.leaves(result), dims, strict=True):
        if dim is not None and not 0 <= dim <= np.ndim(leaf):
            raise SpecError(
                f"{name}: out_axes puts the mapped dimension at {dim} of a result with shape {np.shape(leaf)} on each "
                "device"
            )
    return dims


def _size(pmap: _jax.PmapWrapping, name: str, arrays: Sequence[MappedArray]) -> int:
    sizes = {array.name: array.shape[array.dim] for array in arrays if array.dim is not None}
    if not sizes:
        raise SpecError(f"{name}: pmap needs at least one argument with a mapped dimension; all in_axes are None")
    first, size = next(iter(sizes.items()))
    for other, its in sizes.items():
        if its != size:
            raise SpecError(
                f"{other}: its mapped dimension is {its}, and that of {first} is {size}; pmap maps dimensions of one "
                "size",
                argument=other,
            )
    if pmap.axis_size not in (None, size):
        raise SpecError(f"{first}: its mapped dimension is {size}, and axis_size={pmap.axis_size}", argument=first)
    if size < 1:
        raise SpecError(f"{first}: its mapped dimension is 0, so there is nothing to map", argument=first)
    return size
