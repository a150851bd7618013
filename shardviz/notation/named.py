"""Named axes in text, `{"data", "model":(2)4, ?}`: what HLO's V3 and Shardy share, read strictly and written.

>>> from shardviz.notation.scan import Scanner
>>> read_dimension(Scanner('{"data", "model":(2)4, ?}p1', "Shardy sharding"))
Dimension(axes=('data', ('model', 2, 4)), open=True, priority=1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from shardviz.errors import MeshError
from shardviz.notation.letters import MANUAL, OPEN, SUM, UNCUT, Letter, Piece, axis_words, names_words, nothing_cut
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.record import Sharding
from shardviz.notation.scan import Scanner
from shardviz.notation.spec import Axis, Spec, only_sums


class Dimension(NamedTuple):
    """A dimension as it is written: its axes, whether it is open, its priority (HLO has none)."""

    axes: tuple[Axis, ...]
    open: bool = False
    priority: int | None = None


def read_axes(it: Scanner) -> tuple[Axis, ...]:
    """Axes in braces: `{"a", "b":(2)4}`."""
    it.need("{")
    return tuple(it.listed(lambda: _axis(it), "}"))


def _axis(it: Scanner) -> Axis:
    name = it.quoted()
    if not it.take(":"):
        return name
    it.need("(")
    before = it.integer()
    it.need(")")
    return name, before, it.integer()


def read_dimension(it: Scanner, priorities: bool = True) -> Dimension:
    """A dimension, `{"a", ?}p1`; its priority only where `priorities` are asked for."""
    it.need("{")
    found: list[Axis] = []
    is_open = False
    while not it.take("}"):
        if it.take("?"):
            is_open = True
            it.need("}")
            break
        found.append(_axis(it))
        if it.sees("}"):
            continue
        if not it.take(","):
            it.fail("',' or '}'")
        if it.sees("}"):
            it.fail("a name in quotes")
    return Dimension(tuple(found), is_open, it.integer() if priorities and it.take("p") else None)


def read_dimensions(it: Scanner, priorities: bool = True) -> list[Dimension]:
    """Dimensions in brackets."""
    it.need("[")
    return it.listed(lambda: read_dimension(it, priorities), "]")


def read_lists(it: Scanner, kinds: Sequence[str], before: str = "") -> dict[str, tuple[Axis, ...]]:
    """Axes behind the dimensions, `, replicated={"a"}, unreduced={"b"}`, each of `kinds` at most once.

    Args:
        it: the text.
        kinds: what may be listed.
        before: a word that ends the lists.

    Raises:
        ParseError: for another word, or one that comes twice.
        SpecError: for unreduced axes that are no sums.
    """
    lists: dict[str, tuple[Axis, ...]] = {}
    while it.take(","):
        if before and it.sees(before):
            break
        key = it.word()
        if key not in kinds or key in lists:
            *first, last = (f"{kind}={{...}}" for kind in kinds)
            it.refuse(f"{', '.join(first)} or {last}, each once")
        it.need("=")
        if key == "unreduced" and not it.sees("{"):
            only_sums(it.word(), f"{it.what} {it.text}")
        lists[key] = read_axes(it)
    return lists


def build(
    theirs: DeviceMesh,
    devices: tuple[int, ...],
    dims: Sequence[Dimension],
    lists: dict[str, tuple[Axis, ...]],
    mesh: DeviceMesh | None,
    rank: int | None = None,
) -> Sharding:
    """The record of named dimensions over the text's own mesh, said in the axes of another.

    Args:
        theirs: the mesh in the text.
        devices: the place (of `mesh`) at each of its places; empty for 0, 1, 2, ...
        dims: the dimensions.
        lists: the axes that are `replicated`, `unreduced` and `manual`.
        mesh: the mesh to say it in; None for the text's own.
        rank: the array's rank where it is known; text with no dimensions fits every rank.

    Raises:
        SpecError: if the axes do not fit the text's mesh, or the meshes differ in their number of devices.
    """
    if devices and sorted(devices) != list(range(theirs.size)):
        raise MeshError(f"mesh {theirs}: its device ids must be 0 to {theirs.size - 1}, each once, not {devices[:8]}")
    theirs = DeviceMesh(theirs.names, theirs.sizes)
    if not theirs.names and not devices and mesh is not None:  # an empty mesh: no axes to cut along, so copies all over
        theirs = DeviceMesh(mesh.names, mesh.sizes)
    record = Sharding.from_spec(
        Spec(tuple(d.axes for d in dims), lists.get("unreduced", ())),
        theirs,
        len(dims),
        manual=lists.get("manual", ()),
        open=[d.open for d in dims],
        priorities=[d.priority for d in dims],
        replicated=lists.get("replicated", ()),
    )
    if mesh is None:
        record = replace(record, mesh=DeviceMesh(theirs.names, theirs.sizes, (), devices))
    else:
        record = record.onto(mesh, devices)
    return replace(record, rank=None).with_rank(rank) if rank and not dims else record


Quote = Callable[[str], str]


def axis_with(axis: Axis, quote: Quote) -> str:
    """An axis in quotes, or a part of one: `"x":(2)4`."""
    return quote(axis) if isinstance(axis, str) else f"{quote(axis[0])}:({axis[1]}){axis[2]}"


def write_dimensions(cut: Sharding, dims: Sequence[Sequence[Axis]], quote: Quote) -> Iterator[Piece]:
    """`[{"x", ?}p1, {}]`; `cut` says what is open, and which dimension comes first."""
    if not dims:
        yield Letter("[]", nothing_cut(cut))
        return
    for i, dim in enumerate(dims):
        yield ", " if i else "["
        if not dim and not cut.open[i]:
            yield Letter("{}", UNCUT)
        else:
            yield "{"
            for j, axis in enumerate(dim):
                yield ", " if j else ""
                yield Letter(axis_with(axis, quote), axis_words(cut, axis))
            if cut.open[i]:
                yield ", " if dim else ""
                yield Letter("?", OPEN)
            yield "}"
        if cut.priorities[i] is not None:
            words = f"priority {cut.priorities[i]} of this dimension: Shardy heeds 0 first, then 1, and so on"
            yield Letter(f"p{cut.priorities[i]}", words)
    yield "]"


def write_lists(lists: Mapping[str, Sequence[Axis]], quote: Quote) -> Iterator[Piece]:
    """`, replicated={"x"}, unreduced={"y"}`: those that are not empty."""
    words = {"replicated": "over {} the devices are to hold copies", "unreduced": SUM, "manual": MANUAL}
    for kind, axes in lists.items():
        if axes:
            yield ", "
            text = f"{kind}={{{', '.join(axis_with(axis, quote) for axis in axes)}}}"
            yield Letter(text, words[kind].format(names_words(axes)))
