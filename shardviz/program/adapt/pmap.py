"""Functions that `jax.pmap` has wrapped, as the `jit` of a `shard_map` that they are by now.

`jax.pmap` asks for its devices as soon as it is called. Here the same `shard_map` is made over the plan's mesh instead:
one axis, as long as the mapped dimension, of which each device has one slice with that dimension squeezed away.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
from jax.sharding import PartitionSpec

from shardviz import _jax
from shardviz.errors import MeshError, SpecError, TraceError
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.pmap import Chunked, NoSharding, Replicated, ShardedAxis, ShardingSpec, Unstacked
from shardviz.program.call import Brings, Call, Options, abstract, name_of, without_shardings
from shardviz.program.meshes import abstract_mesh
from shardviz.program.signature import tree_of_names
from shardviz.records import Diagnostic

DEFAULT_AXIS = "i"
"""What the mapped axis is called where `jax.pmap` was given no name."""


def adapt(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Call | None:
    """A pmapped function; the size of its mapped dimension is the size of its mesh.

    Raises:
        SpecError: if `in_axes` does not fit the arguments, or their mapped dimensions differ in size.
        TraceError: if an argument is no array and not static, if the axis's name is no text, or if `options` says again
            what `jax.pmap` was told.
    """
    told = _jax.unwrap_pmap(fn)
    if told is None:
        return None
    name = name_of(told.fn)
    if options:
        raise TraceError(
            f"{name} is a pmapped function, which has static_broadcasted_argnums and donate_argnums of its own"
        )
    axis = DEFAULT_AXIS if told.axis_name is None else told.axis_name
    if not isinstance(axis, str):
        raise TraceError(f"{name}: its axis_name is {axis!r}; to be explored, an axis needs a text for a name")
    if max(told.static_argnums, default=-1) >= len(args):
        raise TraceError(
            f"{name} has static_broadcasted_argnums={told.static_argnums} and was called with {len(args)} positional "
            "arguments; static arguments must be positional ones"
        )
    options = Options(told.static_argnums, (), told.donate_argnums)
    args, kwargs = abstract(told.fn, args, kwargs, options)
    pmapped = Pmapped(told, name, axis, args, kwargs)
    mesh = DeviceMesh((axis,), (pmapped.size,), (), _ids(told, name, pmapped))
    specs = tuple(mapped_spec(dim, axis) for dim in pmapped.in_axes)
    outs = jax.tree.map(lambda dim: mapped_spec(dim, axis), told.out_axes, is_leaf=lambda dim: dim is None)
    jitted = jax.jit(functools.wraps(told.fn)(pmapped), keep_unused=True, **options.given())
    brings = Brings(mesh, specs, outs, "pmap's in_axes")
    args, kwargs = without_shardings(args), without_shardings(kwargs)
    return Call(jitted, args, kwargs, name, "pmap", options, brings, (pmapped.note(mesh),))


def mapped_spec(dim: int | None, axis: str) -> Spec:
    """The spec of an array that pmap maps along a dimension; None is an array that every device has whole."""
    return Spec() if dim is None else Spec(((),) * dim + ((axis,),))


def sharding_spec(shape: tuple[int, ...], spec: Spec, mesh: DeviceMesh) -> ShardingSpec | None:
    """A sharding in pmap's own words; a dimension of which each device has one element is `Unstacked`.

    None where pmap has no word for it: for parts of axes, and partial sums.
    """
    spec = Spec.of(spec, len(shape))
    if spec.unreduced or not all(isinstance(axis, str) for axis in spec.axes):
        return None
    dims: list[NoSharding | Chunked | Unstacked] = []
    for size, axes in zip(shape, spec.dims, strict=True):
        chunks = tuple(mesh.shape[str(a)] for a in axes)
        dims.append(Unstacked(size) if chunks == (size,) else Chunked(chunks) if chunks else NoSharding())
    place = {axis: ShardedAxis(i) for i, axis in enumerate(spec.axes)}
    return ShardingSpec(tuple(dims), tuple(place.get(n) or Replicated(mesh.shape[n]) for n in mesh.names))


class Pmapped:
    """The function that a pmapped function runs, over whichever mesh it is traced on.

    Attributes:
        in_axes: for each array among the arguments the dimension that is mapped, or None.
        names: their tree paths.
        shapes: their shapes.
        size: the size of the mapped dimension.
    """

    def __init__(self, told: _jax.PmapWrapping, name: str, axis: str, args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.told, self.name, self.axis = told, name, axis
        self.names = jax.tree.leaves(tree_of_names(told.fn, args, kwargs, told.static_argnums))
        positional = self._dynamic(args)
        self.shapes = [jax.numpy.shape(x) for x in jax.tree.leaves((positional, kwargs))]
        self.in_axes = self._in_axes(args, positional, kwargs)
        self.size = self._size()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        mesh = self._mesh()
        flat, tree = jax.tree.flatten((self._dynamic(args), kwargs))

        def one_device(*flat: Any) -> Any:
            squeezed = [
                x if dim is None else jax.lax.squeeze(x, [dim]) for x, dim in zip(flat, self.in_axes, strict=True)
            ]
            positional, keyword = jax.tree.unflatten(tree, squeezed)
            dynamic = iter(positional)
            merged = [a if i in self.told.static_argnums else next(dynamic) for i, a in enumerate(args)]
            leaves, out_tree = jax.tree.flatten(self._run(merged, keyword))
            dims = self._out_axes(jax.tree.unflatten(out_tree, leaves))
            stacked = [x if dim is None else jax.lax.expand_dims(x, [dim]) for x, dim in zip(leaves, dims, strict=True)]
            return jax.tree.unflatten(out_tree, stacked)

        in_specs = tuple(_pspec(dim, self.axis) for dim in self.in_axes)
        out_specs = jax.tree.map(lambda dim: _pspec(dim, self.axis), self.told.out_axes, is_leaf=lambda d: d is None)
        names = set(mesh.axis_names)
        run = jax.shard_map(
            one_device, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=names, check_vma=False
        )
        return run(*flat)

    def note(self, mesh: DeviceMesh) -> Diagnostic:
        """What it is today, and what pmap called it."""
        rows = []
        for dim in dict.fromkeys(self.in_axes):
            places = [i for i, other in enumerate(self.in_axes) if other == dim]
            first, spec = places[0], mapped_spec(dim, self.axis)
            more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
            words = sharding_spec(self.shapes[first], spec, mesh)
            rows.append(f"in_axes {dim} of {self.names[first]}{more} is {spec}, pmap's {words}")
        return Diagnostic(
            "pmap",
            "info",
            f"pmap over {self.axis!r} is today the jit of a shard_map over the mesh {mesh}: each device has one slice "
            f"of the mapped dimension, which is squeezed away inside. {'; '.join(rows)}",
        )

    def _run(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            with _jax.inside_pmap():
                return self.told.fn(*args, **kwargs)
        except _jax.NestedPmap as error:
            raise TraceError(
                f"{self.name} calls a pmapped function inside a pmap, which JAX no longer has now that pmap is a "
                "shard_map; write one jax.shard_map over a mesh with an axis for each"
            ) from error

    def _dynamic(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(a for i, a in enumerate(args) if i not in self.told.static_argnums)

    def _in_axes(self, args: tuple[Any, ...], positional: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int | None]:
        given = self.told.in_axes
        if isinstance(given, tuple) and self.told.static_argnums:
            if len(given) != len(args):
                raise SpecError(f"{self.name}: in_axes has {len(given)} entries for {len(args)} positional arguments")
            given = self._dynamic(given)
        found = self._spread("in_axes", (given, 0), (positional, kwargs), "the tuple of positional arguments")
        for name, shape, dim in zip(self.names, self.shapes, found, strict=True):
            if dim is not None and not 0 <= dim < len(shape):
                raise SpecError(
                    f"{name}: in_axes maps its dimension {dim}, and it has shape {shape}; pmap counts dimensions from "
                    "0, and None is for an array that every device has whole",
                    argument=name,
                )
        return found

    def _out_axes(self, result: Any) -> list[int | None]:
        found = self._spread("out_axes", self.told.out_axes, result, "the result")
        for leaf, dim in zip(jax.tree.leaves(result), found, strict=True):
            if dim is not None and not 0 <= dim <= jax.numpy.ndim(leaf):
                raise SpecError(
                    f"{self.name}: out_axes puts the mapped dimension at {dim} of a result with shape "
                    f"{jax.numpy.shape(leaf)} on each device"
                )
        return found

    def _spread(self, what: str, prefix: Any, tree: Any, whole: str) -> list[int | None]:
        """An entry for each leaf; None is an entry and no empty branch."""
        boxed = jax.tree.map(_Box, prefix, is_leaf=lambda dim: dim is None)
        try:
            return [box.dim for box in jax.tree.leaves(jax.tree.broadcast(boxed, tree))]
        except ValueError as error:
            shown = prefix[0] if what == "in_axes" else prefix
            raise SpecError(f"{self.name}: {what}={shown} is no pytree prefix of {whole}: {error}") from error

    def _size(self) -> int:
        """The size of the mapped dimension, the same in every argument."""
        sizes = {
            name: shape[dim]
            for name, shape, dim in zip(self.names, self.shapes, self.in_axes, strict=True)
            if dim is not None
        }
        if not sizes:
            raise SpecError(
                f"{self.name}: pmap needs at least one argument with a mapped dimension; all in_axes are None"
            )
        first, size = next(iter(sizes.items()))
        for name, other in sizes.items():
            if other != size:
                raise SpecError(
                    f"{name}: its mapped dimension is {other}, and that of {first} is {size}; pmap maps dimensions of "
                    "one size",
                    argument=name,
                )
        if self.told.axis_size not in (None, size):
            raise SpecError(
                f"{first}: its mapped dimension is {size}, and axis_size={self.told.axis_size}", argument=first
            )
        if size < 1:
            raise SpecError(f"{first}: its mapped dimension is 0, so there is nothing to map", argument=first)
        return size

    def _mesh(self) -> jax.sharding.AbstractMesh:
        """The mesh to map over: that of the plan.

        Raises:
            MeshError: if it has no axis of this name and size.
        """
        mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty:
            return abstract_mesh(DeviceMesh((self.axis,), (self.size,)))
        first, dim = next((n, d) for n, d in zip(self.names, self.in_axes, strict=True) if d is not None)
        if self.axis not in mesh.axis_names:
            raise MeshError(
                f"{self.name} is a pmap over {self.axis!r}, and the mesh {DeviceMesh.of(mesh)} has no axis of that "
                f"name; use mesh={{{self.axis!r}: {self.size}}}"
            )
        devices = mesh.shape[self.axis]
        if devices != self.size:
            more = "more slices than devices" if self.size > devices else "fewer slices than devices"
            raise MeshError(
                f"{first}: its mapped dimension {dim} is {self.size}, and the mesh {DeviceMesh.of(mesh)} has {devices} "
                f"along {self.axis!r}: {more}. pmap puts one slice on each device, so use "
                f"mesh={{{self.axis!r}: {self.size}}}, or arguments whose mapped dimension is {devices}"
            )
        return mesh


class _Box:
    def __init__(self, dim: int | None):
        self.dim = dim


def _pspec(dim: int | None, axis: str) -> PartitionSpec:
    return PartitionSpec(*mapped_spec(dim, axis).entries())


def _ids(told: _jax.PmapWrapping, name: str, pmapped: Pmapped) -> tuple[int, ...]:
    if told.devices is None:
        return ()
    if len(told.devices) != pmapped.size:
        raise MeshError(f"{name}: pmap was given {len(told.devices)} devices for a mapped dimension of {pmapped.size}")
    return told.devices
