"""Named axes in text, `{"data", "model":(2)4, ?}`: what HLO's V3 and Shardy share, read strictly and written.

>>> from shardviz.notation.scan import Scanner
>>> read_dimension(Scanner('{"data", "model":(2)4, ?}p1', "Shardy sharding"))
WrittenDimension(axes=('data', ('model', 2, 4)), open=True, priority=1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from shardviz.errors import MeshError, excerpt
from shardviz.notation.bounds import MOST_DIMENSIONS, MOST_NAMED
from shardviz.notation.letters import (
    MANUAL,
    OPEN,
    UNCUT,
    Letter,
    Piece,
    axis_words,
    listed,
    names_words,
    nothing_cut,
    partial_words,
)
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.record import Sharding
from shardviz.notation.scan import Scanner
from shardviz.notation.spec import Axis, Spec, partial_kind


class WrittenDimension(NamedTuple):
    """A dimension as it is written: its axes, whether it is open, its priority (HLO has none)."""

    axes: tuple[Axis, ...]
    open: bool = False
    priority: int | None = None


def read_axes(it: Scanner) -> tuple[Axis, ...]:
    """Axes in braces: `{"a", "b":(2)4}`."""
    it.need("{")
    return tuple(it.listed(lambda: _axis(it), "}", MOST_NAMED))


def _axis(it: Scanner) -> Axis:
    name = it.quoted()
    if not it.take(":"):
        return name
    it.need("(")
    before = it.integer()
    it.need(")")
    return name, before, it.integer()


def read_dimension(it: Scanner, priorities: bool = True) -> WrittenDimension:
    """A dimension, `{"a", ?}p1`; its priority only where `priorities` are asked for."""
    it.need("{")

    def axis() -> Axis | None:
        if not it.take("?"):
            return _axis(it)
        return None if it.sees("}") else it.fail("'}'")

    entries = it.listed(axis, "}", MOST_NAMED)
    axes, is_open = tuple(each for each in entries if each is not None), None in entries
    if not axes and not is_open and priorities and it.sees("p"):
        it.fail("no priority: a dimension that is closed and has no axes has nothing to propagate")
    return WrittenDimension(axes, is_open, it.integer() if priorities and it.take("p") else None)


def read_dimensions(it: Scanner, priorities: bool = True) -> list[WrittenDimension]:
    it.need("[")
    return it.listed(lambda: read_dimension(it, priorities), "]", MOST_DIMENSIONS)


Lists = dict[str, Any]
"""The axes that are `replicated`, `unreduced` and `manual`, each a tuple; `kind`, what reduces the unreduced ones."""


def read_lists(it: Scanner, kinds: Sequence[str], before: str = "") -> Lists:
    """Axes behind the dimensions, `, replicated={"a"}, unreduced=max{"b"}`, each of `kinds` at most once, up to the
    word `before`. A `ParseError` for another word or one twice, a `SpecError` for an unknown kind of unreduced axes."""
    lists: Lists = {}
    while it.take(","):
        if before and it.sees(before):
            break
        key = it.word()
        if key not in kinds or key in lists:
            *first, last = (f"{kind}={{...}}" for kind in kinds)
            it.refuse(f"{', '.join(first)} or {last}, each once")
        it.need("=")
        if key == "unreduced" and not it.sees("{"):
            lists["kind"] = partial_kind(it.word(), f"{it.what} {excerpt(it.text)}")
        lists[key] = read_axes(it)
    return lists


def build(
    theirs: DeviceMesh,
    devices: tuple[int, ...],
    dims: Sequence[WrittenDimension],
    lists: Lists,
    mesh: DeviceMesh | None,
    rank: int | None = None,
) -> Sharding:
    """The record of named dimensions over the text's own mesh (`theirs`), said in the axes of `mesh`, or of that.
    `devices` are the places of `mesh` at each of its places, empty for 0, 1, 2, ...; text without dimensions fits every
    rank. A `SpecError` where axes or numbers of devices do not fit."""
    if devices and sorted(devices) != list(range(theirs.size)):
        raise MeshError(f"mesh {theirs}: its device ids must be 0 to {theirs.size - 1}, each once, not {devices[:8]}")
    theirs = DeviceMesh(theirs.names, theirs.sizes)
    if (
        not theirs.names and not devices and mesh is not None
    ):  # an empty mesh: no axes to shard along, so copies all over
        theirs = DeviceMesh(mesh.names, mesh.sizes)
    record = Sharding.from_spec(
        Spec(tuple(d.axes for d in dims), lists.get("unreduced", ()), (), lists.get("kind", "sum")),
        theirs,
        len(dims),
        manual=lists.get("manual", ()),
        open=[d.open for d in dims],
        priorities=[d.priority for d in dims],
        replicated=lists.get("replicated", ()),
    )
    if mesh is None:
        record = replace(record, mesh=DeviceMesh(theirs.names, theirs.sizes, (), devices, by_id=True))
    else:
        record = record.onto(mesh, mesh.places_of(devices or range(theirs.size)))
    return replace(record, rank=None).with_rank(rank) if rank and not dims else record


Quote = Callable[[str], str]


def axis_with(axis: Axis, quote: Quote) -> str:
    """An axis in quotes, or a part of one: `"x":(2)4`."""
    return quote(axis) if isinstance(axis, str) else f"{quote(axis[0])}:({axis[1]}){axis[2]}"


def write_dimensions(sharding: Sharding, dims: Sequence[Sequence[Axis]], quote: Quote) -> Iterator[Piece]:
    """`[{"x", ?}p1, {}]`; `sharding` says what is open, and which dimension comes first."""
    if not dims:
        yield Letter("[]", nothing_cut(sharding))
        return
    for i, dim in enumerate(dims):
        yield ", " if i else "["
        if not dim and not sharding.open[i]:
            yield Letter("{}", UNCUT)
        else:
            letters = [Letter(axis_with(axis, quote), axis_words(sharding, axis)) for axis in dim]
            letters += [Letter("?", OPEN)] if sharding.open[i] else []
            yield from listed(([letter] for letter in letters), "{")
            yield "}"
        if sharding.priorities[i] is not None and (dim or sharding.open[i]):
            words = f"priority {sharding.priorities[i]} of this dimension: Shardy heeds 0 first, then 1, and so on"
            yield Letter(f"p{sharding.priorities[i]}", words)
    yield "]"


def write_lists(lists: Mapping[str, Sequence[Axis]], kind: str, quote: Quote) -> Iterator[Piece]:
    """`, replicated={"x"}, unreduced=max{"y"}`: those that are not empty, and what reduces the unreduced ones."""
    words = {"replicated": "over {} the devices are to hold copies", "manual": MANUAL}
    for name, axes in lists.items():
        if axes:
            yield ", "
            reduction = kind if name == "unreduced" and kind != "sum" else ""
            meaning = partial_words(axes, kind) if name == "unreduced" else words[name].format(names_words(axes))
            yield Letter(f"{name}={reduction}{{{', '.join(axis_with(axis, quote) for axis in axes)}}}", meaning)
