"""Shardy's text of a sharding, `#sdy.sharding<@mesh, [{"data"}, {}]>`: a reader and a writer.

>>> mesh = DeviceMesh.of({"x": 8, "y": 2})
>>> sharding = read('#sdy.sharding<@mesh, [{"x":(2)4}, {?}p1], replicated={"y"}>', mesh)
>>> sharding.tiles, sharding.open, sharding.priorities, sharding.replicated
((4, 1), (False, True), (None, 1), ('y',))
>>> sharding.to("sdy")
'#sdy.sharding<@mesh, [{"x":(2)4}, {?}p1], replicated={"y"}>'

The grammar is that of `TensorSharding` in Shardy's dialect. The highest priority is 0, which is also the default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from shardviz.errors import MeshError, SpecError, excerpt
from shardviz.notation import named
from shardviz.notation.letters import Letter, Piece
from shardviz.notation.mesh import DeviceMesh, read_module_mesh
from shardviz.notation.record import Sharding
from shardviz.notation.scan import Scanner, escaped
from shardviz.notation.spec import Axis, partial_kind

_WHAT = "Shardy sharding"
_MAXIMAL = re.compile(r"maximal_mesh_([0-9]{1,9})")  # Shardy's name for a mesh of one device in an imported program


def read(text: str, mesh: DeviceMesh | None, rank: int | None = None) -> Sharding:
    """Read the Shardy sharding of one array, `#sdy.sharding<@mesh, [...]>`. The prefix and the mesh may be missing;
    `sharding_per_value` of one value is read too. `@mesh` means `mesh`. Raises ParseError for other text, SpecError for
    several values or a sharding that does not fit, MeshError without a mesh."""
    scan = Scanner(text, _WHAT)
    scan.take("sdy.sharding =")
    per_value = scan.take("#sdy.sharding_per_value<") or scan.take("sdy.sharding_per_value<")
    if per_value:
        scan.need("[")
    result = _one(scan, mesh, rank, _prefix(scan))
    if per_value:
        if scan.sees(","):
            raise SpecError(f"{_WHAT} {excerpt(text)}: it has several values; pick one of them, `<...>`")
        scan.need("]")
        scan.need(">")
    scan.end()
    return result


_LIST = re.compile(r"#sdy<\w+")
_MOVE = re.compile(r":\s*\d+\s*->\s*\d+")


@lru_cache(maxsize=4096)
def axis_lists(text: str) -> tuple[tuple[Axis, ...], ...]:
    """Read the axes of each list in an attribute of a Shardy collective, without the dimensions that they move between.

    Raises ParseError for other text.

    >>> axis_lists('#sdy<list_of_axis_ref_lists[{"x", "y":(1)2}, {}]>')
    (('x', ('y', 1, 2)), ())
    >>> axis_lists('#sdy<axis_ref_list{"x"}>'), axis_lists('#sdy<all_to_all_param_list[{"x"}: 0->1]>')
    ((('x',),), (('x',),))
    """
    scan = Scanner(text, "Shardy axes")
    scan.token(_LIST)

    def one() -> tuple[Axis, ...]:
        axes = named.read_axes(scan)
        scan.token(_MOVE)
        return axes

    return (one(),) if scan.sees("{") or not scan.take("[") else tuple(scan.listed(one, "]"))


def _prefix(scan: Scanner) -> bool:
    """Return whether the sharding is in `<...>`; `[{...}]` alone is read too."""
    if scan.take("#sdy.sharding") or scan.take("sdy.sharding"):
        scan.need("<")
        return True
    return scan.take("<")


def _one(scan: Scanner, mesh: DeviceMesh | None, rank: int | None, enclosed: bool) -> Sharding:
    text_mesh, device = mesh, None
    devices = mesh.device_ids if mesh is not None and mesh.by_id else ()
    if scan.take("@"):
        maximal = _MAXIMAL.fullmatch(scan.quoted() if scan.sees('"') else scan.word())
        device = int(maximal[1]) if maximal else None
        scan.need(",")
    elif scan.sees("mesh<"):
        text_mesh, devices = read_module_mesh(scan)
        if not text_mesh.names and len(devices) == 1:
            device = devices[0]
        scan.need(",")
    dims = named.read_dimensions(scan)
    lists = named.read_lists(scan, ("replicated", "unreduced"))
    if enclosed:
        scan.need(">")
    if device is not None and not lists and not any(d.axes or d.open for d in dims):
        if mesh is None:
            raise MeshError(f"{_WHAT} {excerpt(scan.text)}: it is on one device; give the mesh of this device")
        return Sharding.on_one(mesh.places_of((device,))[0], mesh, len(dims) or rank)
    if text_mesh is None:
        raise MeshError(f"{_WHAT} {excerpt(scan.text)}: it names its mesh without the axes; give mesh='data=8,model=4'")
    return named.build(text_mesh, devices, dims, lists, mesh=mesh, rank=rank)


def from_jax(array: Any, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    """Read JAX's Python form of a Shardy sharding, `SdyArray`, which `NamedSharding` creates; raise as `read` does."""
    axes: dict[str, int] = dict(array.mesh_shape or ())
    devices = tuple(map(int, array.logical_device_ids or ()))
    dims = [named.WrittenDimension(tuple(dim.axes), bool(dim.is_open)) for dim in array.dim_shardings]
    kinds = ("replicated", "unreduced")
    lists: named.Lists = {kind: tuple(sorted(getattr(array, f"{kind}_axes", None) or (), key=str)) for kind in kinds}
    if lists["unreduced"]:
        lists["kind"] = partial_kind(str(getattr(array, "reduction_op", None)), str(array))
    if len(devices) == 1 and not axes:  # maximal: the array is on one device
        if mesh is None:
            raise MeshError(f"{array}: it is on one device; give the mesh of this device")
        return Sharding.on_one(mesh.places_of(devices)[0], mesh, len(dims) or rank)
    return named.build(DeviceMesh.of(axes), devices, dims, lists, mesh=mesh, rank=rank)


def write(sharding: Sharding, mesh_name: str = "mesh") -> Iterator[Piece]:
    """Write a record as Shardy's text."""
    if sharding.maximal is not None:
        yield "#sdy.sharding<"
        number = int(sharding.mesh.numbers()[sharding.maximal])
        words = f"a mesh of one device: the full array is on device {number}"
        yield Letter(f"mesh<[], device_ids=[{number}]>, []", words)
        yield ">"
        return
    if sharding.manual:
        raise SpecError(f"{sharding}: Shardy writes manual axes at sdy.manual_computation, not in a sharding")
    if sharding.reduced:
        raise SpecError(f"{sharding}: Shardy has no reduced axes; JAX's types have them")
    if sharding.spec is None:
        raise SpecError(f"{sharding}: Shardy names axes of a mesh, and {sharding.why}; hlo-v1 lists the devices")
    yield "#sdy.sharding<"
    yield Letter(f"@{mesh_name}", f"the mesh, by its name in the module; here {str(sharding.mesh) or 'without axes'}")
    yield ", "
    yield from named.write_dimensions(sharding, sharding.spec.dims, escaped)
    yield from named.write_lists(
        {"replicated": sharding.replicated, "unreduced": sharding.unreduced}, sharding.unreduced_kind, escaped
    )
    yield ">"


def axis(axis: Axis) -> str:
    """Write an axis in Shardy's text: `"x"` or `"x":(2)4`."""
    return named.axis_with(axis, escaped)
