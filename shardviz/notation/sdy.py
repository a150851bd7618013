"""Shardy's text of a sharding, `#sdy.sharding<@mesh, [{"data"}, {}]>`, read and written.

>>> mesh = DeviceMesh.of({"x": 8, "y": 2})
>>> sharding = read('#sdy.sharding<@mesh, [{"x":(2)4}, {?}p1], replicated={"y"}>', mesh)
>>> sharding.tiles, sharding.open, sharding.priorities, sharding.replicated
((4, 1), (False, True), (None, 1), ('y',))
>>> sharding.to("sdy")
'#sdy.sharding<@mesh, [{"x":(2)4}, {?}p1], replicated={"y"}>'

The grammar is that of `TensorSharding` in Shardy's dialect. A priority of 0, the highest, is also the one meant where
there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from shardviz.errors import MeshError, SpecError, excerpt
from shardviz.notation.letters import Letter, Piece
from shardviz.notation.mesh import DeviceMesh, read_module_mesh
from shardviz.notation.named import (
    Lists,
    WrittenDimension,
    axis_with,
    build,
    read_axes,
    read_dimensions,
    read_lists,
    write_dimensions,
    write_lists,
)
from shardviz.notation.record import Sharding
from shardviz.notation.scan import Scanner, escaped
from shardviz.notation.spec import Axis, partial_kind

_WHAT = "Shardy sharding"
_MAXIMAL = re.compile(r"maximal_mesh_([0-9]{1,9})")  # what Shardy calls a mesh of one device when it imports a program


def read(text: str, mesh: DeviceMesh | None, rank: int | None = None) -> Sharding:
    """The Shardy sharding of one array, `#sdy.sharding<@mesh, [...]>`, also without prefix or mesh, or a
    `sharding_per_value` of one; `@mesh` is the mesh. A `ParseError` for other text, a `SpecError` for several values or
    what does not fit, a `MeshError` where nothing says a mesh."""
    it = Scanner(text, _WHAT)
    it.take("sdy.sharding =")
    per_value = it.take("#sdy.sharding_per_value<") or it.take("sdy.sharding_per_value<")
    if per_value:
        it.need("[")
    result = _one(it, mesh, rank, _prefix(it))
    if per_value:
        if it.sees(","):
            raise SpecError(f"{_WHAT} {excerpt(text)}: it is of several values; pick one of them, `<...>`")
        it.need("]")
        it.need(">")
    it.end()
    return result


_LIST = re.compile(r"#sdy<\w+")
_MOVE = re.compile(r":\s*\d+\s*->\s*\d+")


@lru_cache(maxsize=4096)
def axis_lists(text: str) -> tuple[tuple[Axis, ...], ...]:
    """The lists of axes in an attribute of one of Shardy's collectives, which dimensions they move between left out; a
    `ParseError` if it is none.

    >>> axis_lists('#sdy<list_of_axis_ref_lists[{"x", "y":(1)2}, {}]>')
    (('x', ('y', 1, 2)), ())
    >>> axis_lists('#sdy<axis_ref_list{"x"}>'), axis_lists('#sdy<all_to_all_param_list[{"x"}: 0->1]>')
    ((('x',),), (('x',),))
    """
    it = Scanner(text, "Shardy axes")
    it.token(_LIST)

    def one() -> tuple[Axis, ...]:
        axes = read_axes(it)
        it.token(_MOVE)
        return axes

    return (one(),) if it.sees("{") or not it.take("[") else tuple(it.listed(one, "]"))


def _prefix(it: Scanner) -> bool:
    """Whether the sharding stands in `<...>`; `[{...}]` alone is taken too."""
    if it.take("#sdy.sharding") or it.take("sdy.sharding"):
        it.need("<")
        return True
    return it.take("<")


def _one(it: Scanner, mesh: DeviceMesh | None, rank: int | None, enclosed: bool) -> Sharding:
    theirs, alone = mesh, None
    devices = mesh.device_ids if mesh is not None and mesh.by_id else ()
    if it.take("@"):
        named = _MAXIMAL.fullmatch(it.quoted() if it.sees('"') else it.word())
        alone = int(named[1]) if named else None
        it.need(",")
    elif it.sees("mesh<"):
        theirs, devices = read_module_mesh(it)
        if not theirs.names and len(devices) == 1:
            alone = devices[0]
        it.need(",")
    dims = read_dimensions(it)
    lists = read_lists(it, ("replicated", "unreduced"))
    if enclosed:
        it.need(">")
    if alone is not None and not lists and not any(d.axes or d.open for d in dims):
        if mesh is None:
            raise MeshError(f"{_WHAT} {excerpt(it.text)}: one device holds all; give the mesh that it is in")
        return Sharding.on_one(mesh.places_of((alone,))[0], mesh, len(dims) or rank)
    if theirs is None:
        raise MeshError(
            f"{_WHAT} {excerpt(it.text)}: it names its mesh but does not say it; give mesh='data=8,model=4'"
        )
    return build(theirs, devices, dims, lists, mesh, rank)


def from_jax(array: Any, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    """JAX's own record of a Shardy sharding, `SdyArray`, which `NamedSharding` makes for the compiler; errors as of
    `read`."""
    axes = dict(array.mesh_shape or ())
    devices = tuple(map(int, array.logical_device_ids or ()))
    dims = [WrittenDimension(tuple(dim.axes), bool(dim.is_open)) for dim in array.dim_shardings]
    kinds = ("replicated", "unreduced")
    lists: Lists = {kind: tuple(sorted(getattr(array, f"{kind}_axes", None) or (), key=str)) for kind in kinds}
    if lists["unreduced"]:
        lists["kind"] = partial_kind(str(getattr(array, "reduction_op", None)), str(array))
    if len(devices) == 1 and not axes:  # one device holds all
        if mesh is None:
            raise MeshError(f"{array}: one device holds all; give the mesh that it is in")
        return Sharding.on_one(mesh.places_of(devices)[0], mesh, len(dims) or rank)
    return build(DeviceMesh.of(axes), devices, dims, lists, mesh, rank)


def write(sharding: Sharding, mesh_name: str = "mesh") -> Iterator[Piece]:
    """A record in Shardy's text."""
    if sharding.maximal is not None:
        yield "#sdy.sharding<"
        number = int(sharding.mesh.numbers()[sharding.maximal])
        words = f"a mesh of one device: the whole array is on device {number}"
        yield Letter(f"mesh<[], device_ids=[{number}]>, []", words)
        yield ">"
        return
    if sharding.manual:
        raise SpecError(
            f"{sharding}: Shardy says manual axes at the manual computation, sdy.manual_computation, and not in a "
            "sharding"
        )
    if sharding.reduced:
        raise SpecError(f"{sharding}: Shardy has no reduced axes; JAX's types have")
    if sharding.spec is None:
        raise SpecError(f"{sharding}: Shardy names axes of a mesh, and {sharding.why}; hlo-v1 lists the devices")
    yield "#sdy.sharding<"
    yield Letter(f"@{mesh_name}", f"the mesh, by its name in the module; here {str(sharding.mesh) or 'without axes'}")
    yield ", "
    yield from write_dimensions(sharding, sharding.spec.dims, escaped)
    yield from write_lists(
        {"replicated": sharding.replicated, "unreduced": sharding.unreduced}, sharding.unreduced_kind, escaped
    )
    yield ">"


def axis(axis: Axis) -> str:
    """An axis in Shardy's text: `"x"` or `"x":(2)4`."""
    return axis_with(axis, escaped)
