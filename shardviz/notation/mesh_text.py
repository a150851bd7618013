"""A mesh as text, and back: `data=2*8,model=4:Explicit devices=[4,16]T(1,0)`.

Axes stand major to minor as `name=size`. Behind the size may stand the axis's type, where it is not Auto. A size of two
factors is over several slices: the first is the number of slices along the axis (DCN, between them), the second the
number of devices within one (ICI). Behind the axes may stand the ids of the devices in mesh order, and the slice that
each is in: a list, or a transposed iota as HLO writes it. Devices that are listed as 0, 1, 2, ... stand so on any
machine; where none are listed, `jax.experimental.mesh_utils` chooses.

>>> mesh = parse_mesh("data=2*2,model=2 devices=[2,4]T(1,0)")
>>> mesh.sizes, mesh.device_ids, mesh.slice_ids, mesh.text
((4, 2), (0, 4, 1, 5, 2, 6, 3, 7), (0, 0, 0, 0, 1, 1, 1, 1), 'data=2*2,model=2 devices=[2,4]T(1,0)')
>>> parse_mesh("mesh<['a'=2, 'b'=4]>").text
'a=2,b=4'
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from shardviz.errors import MeshError, ParseError
from shardviz.notation.mesh import AXIS_TYPES, DeviceMesh, sizes_and_slices
from shardviz.notation.scan import Scanner

_BARE = r"[^\s,=:*'\"\[\]](?:[^,=:*'\"\[\]]*[^\s,=:*'\"\[\]])?"
_NAME = re.compile(rf"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|({_BARE})", re.DOTALL)
_SIZE = re.compile(r"\s*=\s*([0-9]{1,9})(?![0-9])\s*(?:\*\s*([0-9]{1,9})(?![0-9])\s*)?(?::\s*([A-Za-z]+)\s*)?")
_LIST = re.compile(r"(devices|slices)\s*=\s*\[([0-9,\s]*)\]\s*(?:T\(([0-9,\s]*)\))?\s*")
_OF_MODULE = re.compile(r"(?:#?sdy\.)?mesh\s*[<\[]|(?:Abstract)?Mesh\(")
_MOST_DEVICES = 1 << 22


def parse_mesh(text: str) -> DeviceMesh:
    """Reads a mesh from text; also as HLO, Shardy and JAX print it.

    These are `mesh['a'=2,'b'=4]`, `mesh<["a"=2, "b"=4]>` and `Mesh('a': 2, 'b': 4, axis_types=(Auto, Auto))`.

    Raises:
        MeshError: if it is none; the message says where the text stops making sense, and what was expected there.
    """
    plain = text.strip()
    if _OF_MODULE.match(plain):
        return _of_module(plain)
    names: list[str] = []
    sizes: list[tuple[int, int]] = []
    types: list[str] = []
    lists: dict[str, tuple[int, ...]] = {}
    at = 0
    while at < len(plain):
        if plain[at] in ", \t\r\n":
            at += 1
        elif found := _LIST.match(plain, at):
            if found[1] in lists:
                raise MeshError(f"mesh {text!r}: expected {found[1]}=[...] once, behind the axes")
            lists[found[1]] = _numbers(found[2], found[3], text)
            at = found.end()
        else:
            name, size, kind, at = _axis(plain, at, text)
            if lists:
                raise MeshError(
                    f"mesh {text!r}: the axis {name!r} stands behind {next(iter(lists))}=[...]; put it before"
                )
            names.append(name)
            sizes.append(size)
            types.append(kind)
    whole, slices = sizes_and_slices(sizes, names)
    if slices and "slices" in lists:
        raise MeshError(f"mesh {text!r}: sizes such as 2*8 and slices=[...] both say the slices; give one of them")
    devices = lists.get("devices", ())
    return DeviceMesh(
        tuple(names),
        whole,
        tuple(types),
        devices,
        slice_ids=lists.get("slices", ()) or slices,
        in_order=bool(devices) and devices == tuple(range(len(devices))),
    )


def _axis(plain: str, at: int, text: str) -> tuple[str, tuple[int, int], str, int]:
    named = _NAME.match(plain, at)
    sized = None if named is None else _SIZE.match(plain, named.end())
    if named is None or sized is None or (sized.end() < len(plain) and not _goes_on(plain, sized.end())):
        rest = plain[at : at + 30]
        raise MeshError(
            f"mesh {text[:200]!r}: expected axes as 'name=size', such as 'data=8,model=4' (or 'data=2*8' for 2 slices "
            f"of 8, 'model=4:Explicit' for an axis type), not {rest!r}"
        )
    name = named[3] if named[3] is not None else re.sub(r"\\(.)", r"\1", named[1] or named[2] or "", flags=re.DOTALL)
    kind = (sized[3] or "Auto").capitalize()
    if kind not in AXIS_TYPES:
        raise MeshError(
            f"mesh {text!r}: axis {name!r} is of type {sized[3]!r}; an axis type is Auto, Explicit or Manual"
        )
    size = (1, int(sized[1])) if sized[2] is None else (int(sized[1]), int(sized[2]))
    return name, size, kind, sized.end()


def _goes_on(plain: str, at: int) -> bool:
    return plain[at] == "," or (plain[at - 1].isspace() and _LIST.match(plain, at) is not None)


def _numbers(inside: str, order: str | None, text: str) -> tuple[int, ...]:
    """A list of numbers, or with an order of dimensions the transposed iota of that shape."""
    try:
        numbers = tuple(int(n) for n in inside.split(",")) if inside.strip() else ()
        if order is None:
            return numbers
        perm = tuple(int(n) for n in order.split(","))
    except ValueError:
        raise MeshError(f"mesh {text!r}: expected whole numbers with commas between them, such as [0,1,3,2]") from None
    if sorted(perm) != list(range(len(numbers))) or 0 in numbers or math.prod(numbers) > _MOST_DEVICES:
        raise MeshError(
            f"mesh {text!r}: {list(numbers)} with T{perm} is no transposed count of devices; the second is an order of "
            "the first's dimensions, as in [2,4]T(1,0)"
        )
    return tuple(np.arange(math.prod(numbers)).reshape(numbers).transpose(perm).ravel().tolist())


def _of_module(plain: str) -> DeviceMesh:
    from shardviz.notation.named import integers, iota, mesh_axes

    it = Scanner(plain, "mesh")
    try:
        if it.sees("Mesh(") or it.sees("AbstractMesh("):
            found = of_jax(it)
            it.end()
            return found
        it.take("#")
        it.take("sdy.")
        it.need("mesh")
        enclosed = it.take("<")
        names, sizes = mesh_axes(it)
        devices: Sequence[int] = ()
        if it.take(","):
            it.need("device_ids=")
            if it.sees("["):
                devices = integers(it)
            else:
                it.need("(")
                devices = iota(it) if it.sees("[") else it.listed(it.integer, ")")
                it.take(")")
        if enclosed:
            it.need(">")
        it.end()
    except ParseError as error:
        raise MeshError(str(error)) from None
    return DeviceMesh(names, sizes, (), tuple(devices))


def of_jax(it: Scanner) -> DeviceMesh:
    """A mesh as JAX prints it, `Mesh('a': 2, axis_types=(Auto,))`; the order of its devices is not in there."""
    it.word()
    it.need("(")
    it.take(",")  # JAX prints a Mesh without axes as `Mesh(, axis_types=())`
    names: list[str] = []
    sizes: list[int] = []
    lists: dict[str, list[str]] = {}
    while not it.take(")"):
        if it.take("("):  # no axes
            it.need(")")
        elif it.sees("'") or it.sees('"'):
            names.append(it.quoted())
            it.need(":")
            sizes.append(it.integer())
        else:
            key = it.word("an axis such as 'data': 8, or axis_types=(...)")
            if key not in ("axis_sizes", "axis_names", "axis_types") or key in lists:
                it.refuse("axis_sizes=, axis_names= or axis_types=, each once")
            it.need("=")
            it.need("(")
            lists[key] = []
            while not it.take(")"):
                lists[key].append(it.quoted() if it.sees("'") else str(it.integer()) if "size" in key else it.word())
                it.take(",")
        it.take(",")
    names += lists.get("axis_names", [])
    sizes += map(int, lists.get("axis_sizes", []))
    return DeviceMesh(tuple(names), tuple(sizes), tuple(lists.get("axis_types", ())))


def axes_text(mesh: DeviceMesh) -> str:
    """The axes: `data=2*8,model=4:Explicit`; without the factors where the slices are numbered in another way."""
    factors = mesh.dcn if mesh.slices_in_order else (1,) * len(mesh.names)
    assert factors is not None  # slices in order are blocks
    return ",".join(
        f"{_quoted(name)}={f'{dcn}*{size // dcn}' if dcn > 1 else size}{'' if kind == 'Auto' else f':{kind}'}"
        for name, size, kind, dcn in zip(mesh.names, mesh.sizes, mesh.types, factors, strict=True)
    )


def mesh_text(mesh: DeviceMesh) -> str:
    """The whole mesh in text, which `parse_mesh` reads back into an equal one."""
    parts = [axes_text(mesh)]
    if mesh.device_ids or mesh.in_order:
        parts.append(f"devices={_list_text(mesh.ids().tolist())}")
    if mesh.slice_ids and not mesh.slices_in_order:
        parts.append(f"slices={_list_text(mesh.slice_ids)}")
    return " ".join(filter(None, parts))


def _quoted(name: str) -> str:
    bare = re.fullmatch(_BARE, name) is not None and _OF_MODULE.match(name) is None
    return name if bare else "'" + re.sub(r"(['\\])", r"\\\1", name) + "'"


def _list_text(numbers: Sequence[int]) -> str:
    from shardviz.notation.tiling import iota_of

    listed = f"[{','.join(map(str, numbers))}]"
    found = iota_of(numbers) if sorted(numbers) == list(range(len(numbers))) else None
    if found is None:
        return listed
    short = f"[{','.join(map(str, found[0]))}]T({','.join(map(str, found[1]))})"
    return min(listed, short, key=len)
