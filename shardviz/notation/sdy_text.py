"""Shardy's text of a sharding as a record, and back.

>>> mesh = DeviceMesh.of({"x": 8, "y": 2})
>>> cut = parse_sdy('#sdy.sharding<@mesh, [{"x":(2)4}, {?}p1], replicated={"y"}>', mesh)
>>> cut.tiles, cut.open, cut.priorities, cut.replicated
((4, 1), (False, True), (None, 1), ('y',))
>>> write_sdy(cut)
'#sdy.sharding<@mesh, [{"x":(2)4}, {?}p1], replicated={"y"}>'

The grammar is that of `TensorSharding` in Shardy's dialect. A priority of 0, the highest, is also the one meant where
there is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardviz.errors import MeshError, SpecError
from shardviz.notation.hlo_text import with_known_rank
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.named import axes, build, dimension, integers, mesh_axes
from shardviz.notation.record import Sharding
from shardviz.notation.scan import Scanner, escaped
from shardviz.notation.spec import Axis, Spec, only_sums

_WHAT = "Shardy sharding"
_MAXIMAL = re.compile(r"maximal_mesh_([0-9]{1,9})")  # what Shardy calls a mesh of one device when it imports a program


def parse_sdy(text: str, mesh: DeviceMesh | None, rank: int | None = None) -> Sharding:
    """Reads a Shardy sharding of one array.

    Args:
        text: `#sdy.sharding<@mesh, [...]>`, also without the prefix or the mesh, or a `sharding_per_value` of one.
        mesh: the mesh that `@mesh` stands for; None where the text has its own, `mesh<["x"=2]>`.
        rank: the array's rank where it is known.

    Raises:
        ParseError: if it is no Shardy sharding.
        SpecError: if it does not fit the mesh, or is of several values.
        MeshError: if there is no mesh and the text has none.
    """
    several = parse_sdy_values(text, mesh, rank)
    if several is not None:
        if len(several) != 1:
            raise SpecError(
                f"{_WHAT} {text}: it is of {len(several)} values; pick one of them, or read them all with "
                "notation.shardings"
            )
        return several[0]
    it = Scanner(text, _WHAT)
    it.take("sdy.sharding =")
    result = _one(it, mesh, rank, _prefix(it))
    it.end()
    return result


def parse_sdy_values(text: str, mesh: DeviceMesh | None, rank: int | None = None) -> tuple[Sharding, ...] | None:
    """The shardings in a `#sdy.sharding_per_value<[...]>`; None for text that is none. Raises as `parse_sdy` does."""
    it = Scanner(text, _WHAT)
    it.take("sdy.sharding =")
    if not (it.take("#sdy.sharding_per_value<") or it.take("sdy.sharding_per_value<")):
        return None
    it.need("[")
    found = it.listed(lambda: _one(it, mesh, rank, _prefix(it)), "]")
    it.need(">")
    it.end()
    return tuple(found)


def _prefix(it: Scanner) -> bool:
    """Whether the sharding stands in `<...>`; `[{...}]` alone is taken too."""
    if it.take("#sdy.sharding") or it.take("sdy.sharding"):
        it.need("<")
        return True
    return it.take("<")


def _one(it: Scanner, mesh: DeviceMesh | None, rank: int | None, enclosed: bool) -> Sharding:
    theirs, devices = mesh, ()
    alone = None
    if it.take("@"):
        name = it.quoted() if it.sees('"') else it.word()
        alone = _MAXIMAL.fullmatch(name)
        it.need(",")
    elif it.take("mesh<"):
        names, sizes = mesh_axes(it)
        if it.take(","):
            it.need("device_ids=")
            devices = integers(it)
        it.need(">")
        it.need(",")
        if not names and len(devices) == 1:
            dims = _dims(it)
            if any(d[0] for d in dims):
                it.fail("no axes where one device holds all")
            if enclosed:
                it.need(">")
            if mesh is None:
                raise MeshError(f"{_WHAT} {it.text}: one device holds all; give the mesh that it is in")
            return Sharding.on_one(devices[0], mesh, rank if not dims else len(dims))
        theirs = DeviceMesh(names, sizes)
    dims = _dims(it)
    lists: dict[str, tuple[Axis, ...]] = {}
    while it.take(","):
        key = it.word()
        if key not in ("replicated", "unreduced") or key in lists:
            it.refuse("replicated={...} or unreduced={...}, each once")
        it.need("=")
        if not it.sees("{"):
            only_sums(it.word(), f"{_WHAT} {it.text}")
        lists[key] = axes(it)
    if enclosed:
        it.need(">")
    if alone is not None and not lists and not any(d[0] or d[1] for d in dims):
        if mesh is None:
            raise MeshError(f"{_WHAT} {it.text}: one device holds all; give the mesh that it is in")
        return Sharding.on_one(int(alone[1]), mesh, len(dims) or rank)
    if theirs is None:
        raise MeshError(f"{_WHAT} {it.text}: it names its mesh but does not say it; give mesh='data=8,model=4'")
    own = theirs if theirs is mesh else DeviceMesh(theirs.names, theirs.sizes)
    return with_known_rank(build(own, devices, dims, lists, mesh), rank)


def _dims(it: Scanner) -> list[tuple[tuple[Axis, ...], bool, int | None]]:
    it.need("[")
    return it.listed(lambda: dimension(it), "]")


def write_sdy(cut: Sharding, mesh_name: str = "mesh") -> str:
    """A record in Shardy's text.

    Raises:
        SpecError: where Shardy has no word for it.
    """
    if cut.maximal is not None:
        return f"#sdy.sharding<mesh<[], device_ids=[{cut.maximal}]>, []>"
    if cut.manual:
        raise SpecError(
            f"{cut}: Shardy says manual axes at the manual computation, sdy.manual_computation, and not in a sharding"
        )
    if cut.reduced:
        raise SpecError(f"{cut}: Shardy has no reduced axes; JAX's types have")
    if cut.spec is None:
        raise SpecError(f"{cut}: Shardy names axes of a mesh, and {cut.why}; hlo-v1 lists the devices")
    return f"#sdy.sharding<@{mesh_name}, {sdy_dims(cut, cut.spec)}{sdy_lists(cut, ('replicated', 'unreduced'))}>"


def sdy_dims(cut: Sharding, spec: Spec) -> str:
    """`[{"x", ?}p1, {}]`."""
    cells = []
    for dim, is_open, priority in zip(spec.dims, cut.open, cut.priorities, strict=True):
        inside = ", ".join([*(sdy_axis(a) for a in dim), *(["?"] if is_open else [])])
        cells.append(f"{{{inside}}}" + ("" if priority is None else f"p{priority}"))
    return f"[{', '.join(cells)}]"


def sdy_axis(axis: Axis) -> str:
    """`"x"` or `"x":(2)4`."""
    return escaped(axis) if isinstance(axis, str) else f"{escaped(axis[0])}:({axis[1]}){axis[2]}"


def sdy_lists(cut: Sharding, kinds: Sequence[str]) -> str:
    """`, replicated={"x"}, unreduced={"y"}`, those that are not empty."""
    found = ((kind, getattr(cut, kind)) for kind in kinds)
    return "".join(f", {kind}={{{', '.join(map(sdy_axis, axes))}}}" for kind, axes in found if axes)
