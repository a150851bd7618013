"""`show`: the shard map of anything that has a sharding.

>>> print(show((8, 6), ("data",), {"data": 2}))
[8, 6]  P('data', None)  mesh data=2, 2 devices  shard [4, 6]
rows     dimension 0: 8 by data=2, 4 each
columns  dimension 1: 6, not cut
<BLANKLINE>
       0:6
     ┌─────┐
 0:4 │  0  │
 4:8 │  1  │
     └─────┘
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shardviz.errors import ShardvizError, SpecError
from shardviz.layout import Layout, layout
from shardviz.records import Value
from shardviz.render.format import format_bytes
from shardviz.render.mime import bundle
from shardviz.render.shardmap_html import shard_map_html
from shardviz.render.shardmap_text import shard_map_text


class Shown:
    """A shard map that shows itself: as a picture in a notebook, as text in a terminal.

    Attributes:
        layout: where every slice lies.
        title: the array's name; may be empty.
        dtype: the element type, or None where it is not known.
    """

    def __init__(self, layout: Layout, title: str = "", dtype: str | None = None):
        self.layout = layout
        self.title = title
        self.dtype = dtype

    def text(self, width: int = 80) -> str:
        """The shard map in plain text, at most `width` characters wide."""
        named = f"{self._named()}\n" if self._named() else ""
        return named + shard_map_text(self.layout, width)

    def html(self) -> str:
        """The shard map in HTML that survives JupyterLab's sanitizer."""
        return shard_map_html(self.layout, self._named())

    def plot(self, ax: Any = None, *, dark: bool = False) -> Any:
        """The shard map as a matplotlib figure: draws on `ax`, or on a new figure's, and returns the Axes."""
        from shardviz.render.matplotlib import shard_map_axes  # only here is matplotlib needed

        return shard_map_axes(self.layout, ax, dark=dark, title=self._named())

    def _named(self) -> str:
        size = (
            ""
            if self.dtype is None
            else f"{self.dtype}, {format_bytes(self.layout.bytes_per_device(self.dtype))} per device"
        )
        return "  ".join(filter(None, (self.title, size)))

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> dict[str, str]:
        return bundle({"text/plain": self.text, "text/html": self.html}, include, exclude)


def show(array_or_shape: Any, spec: Any = None, mesh: Any = None) -> Shown:
    """The shard map of an array, a shape or a report's value.

    Args:
        array_or_shape: a shape such as `(8192, 4096)`; a `records.Value`; or anything with `.shape` and `.sharding`
            (a `jax.Array`, a `jax.ShapeDtypeStruct`) whose sharding has `.spec` and `.mesh`.
        spec: a PartitionSpec or a tuple such as `("data", None)`; overrides the array's own.
        mesh: a mesh in any form that `DeviceMesh.of` reads; overrides the array's own.

    Returns:
        A `Shown`: it shows itself in a notebook; `.text()`, `.html()`, `.plot(ax=None)`.

    Raises:
        SpecError: if no spec is given and the array has none, or it does not fit.
        MeshError: if `mesh` is no mesh.
        ShardvizError: if it has no shape, or no mesh is given and the array has none.
    """
    shape, title, dtype = _read(array_or_shape)
    own_spec, own_mesh, what = _own(array_or_shape)
    spec = own_spec if spec is None else spec
    mesh = own_mesh if mesh is None else mesh
    if mesh is None:
        raise ShardvizError(f"show({title or list(shape)}): {what}; give a mesh, such as mesh={{'data': 8}}")
    if spec is None and isinstance(array_or_shape, Value):
        raise SpecError(
            f"show({title!r}): no PartitionSpec says how this value is cut; give one, such as spec=('data', None)",
            argument=title,
        )
    return Shown(layout(shape, spec, mesh), title, dtype)


def _read(array_or_shape: Any) -> tuple[tuple[int, ...], str, str | None]:
    """(shape, name, element type or None)."""
    shape = getattr(array_or_shape, "shape", None)
    if shape is not None:
        dtype = getattr(array_or_shape, "dtype", None)
        name = array_or_shape.name if isinstance(array_or_shape, Value) else ""
        return tuple(shape), name, None if dtype is None else str(getattr(dtype, "name", dtype))
    sizes = array_or_shape if isinstance(array_or_shape, tuple | list) else (array_or_shape,)
    if all(hasattr(n, "__index__") and not isinstance(n, bool) for n in sizes):
        return tuple(int(n) for n in sizes), "", None
    raise ShardvizError(
        f"show: expected a shape such as (8192, 4096) or an array with a sharding, not "
        f"{type(array_or_shape).__name__} {str(array_or_shape)[:60]}"
    )


def _own(array: Any) -> tuple[Any, Any, str]:
    """(the spec and the mesh that it has itself, or None each, and what it lacks)."""
    if isinstance(array, Value):
        return array.spec, None, "a report's value does not carry its mesh (it is report.mesh)"
    sharding = getattr(array, "sharding", None)
    if sharding is None:
        return None, None, "a shape alone does not say on which devices it lies"
    if not hasattr(sharding, "spec") or not hasattr(sharding, "mesh"):
        return None, None, f"its sharding is a {type(sharding).__name__}, which has no PartitionSpec and mesh"
    return sharding.spec, sharding.mesh, ""
