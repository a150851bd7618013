"""Named axes in text: what HLO's V3 and Shardy share, and both read strictly.

>>> from shardviz.notation.scan import Scanner
>>> dimension(Scanner('{"data", "model":(2)4, ?}p1', "Shardy sharding"))
(('data', ('model', 2, 4)), True, 1)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shardviz.errors import MeshError, SpecError
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.record import Sharding
from shardviz.notation.scan import Scanner
from shardviz.notation.spec import Axis, Spec
from shardviz.notation.strides import axes_along, places
from shardviz.notation.tiling import Tiling

MOST_DEVICES = 1 << 22


def axis(it: Scanner) -> Axis:
    """`'a'`, `"a"`, or a part of an axis, `"a":(2)4`."""
    name = it.quoted()
    if not it.take(":"):
        return name
    it.need("(")
    before = it.integer()
    it.need(")")
    return name, before, it.integer()


def axes(it: Scanner) -> tuple[Axis, ...]:
    """Axes in braces: `{"a", "b"}`."""
    it.need("{")
    return tuple(it.listed(lambda: axis(it), "}"))


def dimension(it: Scanner, priorities: bool = True) -> tuple[tuple[Axis, ...], bool, int | None]:
    """A dimension: its axes, whether it is open, its priority, which Shardy has and HLO has not."""
    it.need("{")
    found: list[Axis] = []
    is_open = False
    if not it.take("}"):
        while True:
            if it.take("?"):
                is_open = True
                it.need("}")
                break
            found.append(axis(it))
            if it.take("}"):
                break
            if not it.take(","):
                it.fail("',' or '}'")
    priority = None
    if priorities and it.take("p"):
        priority = it.integer()
    return tuple(found), is_open, priority


def mesh_axes(it: Scanner) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The axes of a mesh, `["a"=2, "b"=4]`."""
    it.need("[")

    def one() -> tuple[str, int]:
        name = it.quoted()
        it.need("=")
        return name, it.integer()

    found = it.listed(one, "]")
    names, sizes = tuple(n for n, _ in found), tuple(s for _, s in found)
    if math.prod(sizes) > MOST_DEVICES:
        it.fail(f"a mesh of at most {MOST_DEVICES} devices")
    return names, sizes


def integers(it: Scanner, opened: str = "[", close: str = "]") -> tuple[int, ...]:
    """Whole numbers in brackets."""
    it.need(opened)
    return tuple(it.listed(it.integer, close))


def iota(it: Scanner) -> tuple[int, ...]:
    """What follows `<=`: `[2,4]T(1,0)`, as the devices it counts."""
    start = it.at
    reshape = integers(it)
    if not reshape or math.prod(reshape) > MOST_DEVICES or 0 in reshape:
        it.refuse(f"an iota of 1 to {MOST_DEVICES} devices", start)
    if len(reshape) > 32:
        it.refuse("an iota of at most 32 dimensions", start)
    values = np.arange(math.prod(reshape)).reshape(reshape)
    if it.take("T"):
        start = it.at
        order = integers(it, "(", ")")
        if sorted(order) != list(range(len(reshape))):
            it.refuse(f"an order of the iota's {len(reshape)} dimensions, 0 to {len(reshape) - 1}", start)
        values = values.transpose(order)
    return tuple(values.ravel().tolist())


def build(
    theirs: DeviceMesh,
    devices: tuple[int, ...],
    dims: Sequence[tuple[tuple[Axis, ...], bool, int | None]],
    lists: dict[str, tuple[Axis, ...]],
    mesh: DeviceMesh | None,
) -> Sharding:
    """The record of named dimensions over the text's own mesh, said in the axes of another.

    Args:
        theirs: the mesh in the text.
        devices: the place (of `mesh`) at each of its places; empty for 0, 1, 2, ...
        dims: axes, open, priority of each dimension.
        lists: the axes that are `replicated`, `unreduced` and `manual`.
        mesh: the mesh to say it in; None for the text's own.

    Raises:
        SpecError: if the axes do not fit the text's mesh, or the meshes differ in their number of devices.
    """
    if devices and sorted(devices) != list(range(theirs.size)):
        raise MeshError(f"mesh {theirs}: its device ids must be 0 to {theirs.size - 1}, each once, not {devices[:8]}")
    if theirs.device_ids or theirs.slice_ids:
        theirs = DeviceMesh(theirs.names, theirs.sizes)
    if not theirs.names and not devices and mesh is not None:  # an empty mesh: no axes to cut along, so copies all over
        theirs = DeviceMesh(mesh.names, mesh.sizes)
    spec = Spec(tuple(d[0] for d in dims), lists.get("unreduced", ()))
    record = Sharding.from_spec(
        spec,
        theirs,
        len(dims),
        manual=lists.get("manual", ()),
        open=[d[1] for d in dims],
        priorities=[d[2] for d in dims],
        replicated=lists.get("replicated", ()),
    )
    if mesh is None:
        return replace(record, mesh=DeviceMesh(theirs.names, theirs.sizes, (), devices))
    return onto(record, devices, mesh)


def onto(record: Sharding, devices: tuple[int, ...], mesh: DeviceMesh) -> Sharding:
    """The record said in the axes of another mesh with as many devices.

    Args:
        record: a sharding.
        devices: the place of `mesh` at each place of the record's mesh; empty for 0, 1, 2, ...
        mesh: the mesh to say it in.

    Raises:
        SpecError: if the meshes differ in their number of devices.
    """
    theirs = record.mesh
    if theirs.size != mesh.size:
        raise SpecError(f"{record}: it is over {theirs.size} devices, and the mesh {mesh} has {mesh.size}")
    if devices == tuple(range(mesh.size)):
        devices = ()
    if theirs.names == mesh.names and theirs.sizes == mesh.sizes and not devices:
        return replace(record, mesh=mesh)
    if record.unknown or record.maximal is not None:
        place = record.maximal
        return replace(record, mesh=mesh, maximal=devices[place] if devices and place is not None else place)
    cut = record.tiling()
    if devices:
        cut = Tiling(cut.dims, cut.kinds, tuple(np.asarray(devices)[list(cut.devices)].tolist()))
    found = Sharding.from_tiling(cut, mesh)
    replicated = places(record.replicated, theirs)
    along = axes_along(np.asarray(devices)[replicated] if devices else replicated, mesh)
    return replace(found, rank=record.rank, open=record.open, priorities=record.priorities, replicated=along or ())
