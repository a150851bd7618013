"""Text of named axes, `{"data", "model":(2)4, ?}`: a strict reader and a writer for HLO V3 and Shardy.

>>> from shardviz.notation.scan import Scanner
>>> read_dimension(Scanner('{"data", "model":(2)4, ?}p1', "Shardy sharding"))
WrittenDimension(axes=('data', ('model', 2, 4)), open=True, priority=1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from shardviz.errors import MeshError, excerpt
from shardviz.notation import letters
from shardviz.notation.bounds import MOST_DIMENSIONS, MOST_NAMED
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.record import Sharding
from shardviz.notation.scan import Scanner
from shardviz.notation.spec import Axis, Spec, partial_kind


class WrittenDimension(NamedTuple):
    """A dimension in text: its axes, whether it is open, and its priority (HLO has no priorities)."""

    axes: tuple[Axis, ...]
    open: bool = False
    priority: int | None = None


def read_axes(scan: Scanner) -> tuple[Axis, ...]:
    """Read axes in braces: `{"a", "b":(2)4}`."""
    scan.need("{")
    return tuple(scan.listed(lambda: _axis(scan), "}", MOST_NAMED))


def _axis(scan: Scanner) -> Axis:
    name = scan.quoted()
    if not scan.take(":"):
        return name
    scan.need("(")
    before = scan.integer()
    scan.need(")")
    return name, before, scan.integer()


def read_dimension(scan: Scanner, priorities: bool = True) -> WrittenDimension:
    """Read a dimension, `{"a", ?}p1`; read its priority only if `priorities`."""
    scan.need("{")

    def axis() -> Axis | None:
        if not scan.take("?"):
            return _axis(scan)
        return None if scan.sees("}") else scan.fail("'}'")

    entries = scan.listed(axis, "}", MOST_NAMED)
    axes, is_open = tuple(each for each in entries if each is not None), None in entries
    if not axes and not is_open and priorities and scan.sees("p"):
        scan.fail("no priority: a dimension that is closed and has no axes has nothing to propagate")
    return WrittenDimension(axes, is_open, scan.integer() if priorities and scan.take("p") else None)


def read_dimensions(scan: Scanner, priorities: bool = True) -> list[WrittenDimension]:
    scan.need("[")
    return scan.listed(lambda: read_dimension(scan, priorities), "]", MOST_DIMENSIONS)


Lists = dict[str, Any]
"""The `replicated`, `unreduced` and `manual` axes, each a tuple; `kind` is the reduction of the unreduced axes."""


def read_lists(scan: Scanner, kinds: Sequence[str], before: str = "") -> Lists:
    """Read the axes behind the dimensions, such as `, replicated={"a"}, unreduced=max{"b"}`, up to the word `before`.
    Raises ParseError for a word that is not in `kinds` or occurs twice, SpecError for an unknown reduction."""
    lists: Lists = {}
    while scan.take(","):
        if before and scan.sees(before):
            break
        key = scan.word()
        if key not in kinds or key in lists:
            *first, last = (f"{kind}={{...}}" for kind in kinds)
            scan.refuse(f"{', '.join(first)} or {last}, each once")
        scan.need("=")
        if key == "unreduced" and not scan.sees("{"):
            lists["kind"] = partial_kind(scan.word(), f"{scan.what} {excerpt(scan.text)}")
        lists[key] = read_axes(scan)
    return lists


def build(
    text_mesh: DeviceMesh,
    devices: tuple[int, ...],
    dims: Sequence[WrittenDimension],
    lists: Lists,
    *,
    mesh: DeviceMesh | None,
    rank: int | None = None,
) -> Sharding:
    """Return the record of dimensions with named axes over `text_mesh`, the mesh that the text names. The record is
    over `mesh`, or over `text_mesh` if `mesh` is None. `devices` has the position in `mesh` of each device of
    `text_mesh`; empty means 0, 1, 2, ... Text without dimensions fits every rank. Raises SpecError or MeshError if the
    axes or the number of devices do not fit."""
    if devices and sorted(devices) != list(range(text_mesh.size)):
        expected = f"expected the device ids 0 to {text_mesh.size - 1}, each once"
        raise MeshError(f"mesh {text_mesh}: {expected}, not {devices[:8]}")
    text_mesh = DeviceMesh(text_mesh.names, text_mesh.sizes)
    if not text_mesh.names and not devices and mesh is not None:  # a mesh without axes: replicated on every device
        text_mesh = DeviceMesh(mesh.names, mesh.sizes)
    record = Sharding.from_spec(
        Spec(tuple(d.axes for d in dims), lists.get("unreduced", ()), (), lists.get("kind", "sum")),
        text_mesh,
        len(dims),
        manual=lists.get("manual", ()),
        open=[d.open for d in dims],
        priorities=[d.priority for d in dims],
        replicated=lists.get("replicated", ()),
    )
    if mesh is None:
        record = replace(record, mesh=DeviceMesh(text_mesh.names, text_mesh.sizes, (), devices, by_id=True))
    else:
        record = record.onto(mesh, mesh.places_of(devices or range(text_mesh.size)))
    return replace(record, rank=None).with_rank(rank) if rank and not dims else record


Quote = Callable[[str], str]


def axis_with(axis: Axis, quote: Quote) -> str:
    """Write a quoted axis, or a part of an axis: `"x":(2)4`."""
    return quote(axis) if isinstance(axis, str) else f"{quote(axis[0])}:({axis[1]}){axis[2]}"


def write_dimensions(sharding: Sharding, dims: Sequence[Sequence[Axis]], quote: Quote) -> Iterator[letters.Piece]:
    """Write dimensions, `[{"x", ?}p1, {}]`; `sharding` supplies which are open, and their priorities."""
    if not dims:
        yield letters.Letter("[]", letters.unsharded_words(sharding))
        return
    for i, dim in enumerate(dims):
        yield ", " if i else "["
        if not dim and not sharding.open[i]:
            yield letters.Letter("{}", letters.NOT_SHARDED)
        else:
            pieces = [letters.Letter(axis_with(axis, quote), letters.axis_words(sharding, axis)) for axis in dim]
            pieces += [letters.Letter("?", letters.OPEN)] if sharding.open[i] else []
            yield from letters.listed(([letter] for letter in pieces), "{")
            yield "}"
        if sharding.priorities[i] is not None and (dim or sharding.open[i]):
            words = f"priority {sharding.priorities[i]} of this dimension: Shardy heeds 0 first, then 1, and so on"
            yield letters.Letter(f"p{sharding.priorities[i]}", words)
    yield "]"


def write_lists(lists: Mapping[str, Sequence[Axis]], kind: str, quote: Quote) -> Iterator[letters.Piece]:
    """Write the non-empty lists, `, replicated={"x"}, unreduced=max{"y"}`; `kind` reduces the unreduced axes."""
    words = {"replicated": "over {} the devices are to hold copies", "manual": letters.MANUAL}
    for name, axes in lists.items():
        if axes:
            yield ", "
            reduction = kind if name == "unreduced" and kind != "sum" else ""
            meaning = (
                letters.partial_words(axes, kind)
                if name == "unreduced"
                else words[name].format(letters.names_words(axes))
            )
            yield letters.Letter(f"{name}={reduction}{{{', '.join(axis_with(axis, quote) for axis in axes)}}}", meaning)
