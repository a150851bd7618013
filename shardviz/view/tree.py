"""Trees of arrays: a table, shard maps side by side, and the changes between two trees. Equal arrays, such as the same
weight of every layer, have one row and one map.

>>> from shardviz.layouts import layout
>>> w = layout((8, 4), ("data", None), {"data": 2})
>>> tree = ShownTree(tuple(Shown(w, f"['layers'][{n}]", "int8") for n in range(3)))
>>> print(doc.plain(tree_document(tree).lead[0]))
3 arrays, 96 B in all; 48 B on each of 2 devices (1 copy of each byte on average)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from shardviz.errors import ShardvizError
from shardviz.layouts import TreeBytes
from shardviz.notation import DeviceMesh
from shardviz.records.amounts import first_names, format_bytes, format_number, format_shape, plural
from shardviz.view import document as doc
from shardviz.view import layouts
from shardviz.view import picture as pic
from shardviz.view.shard_map import change_picture, shard_map
from shardviz.view.show import EqualArrays, Shown, ShownChange, ShownTree, ShownTreeChange
from shardviz.view.values import LONGEST_NAME

MOST_ROWS = 60
"""Maximum number of rows of a tree's table; larger trees show the heaviest."""
_MOST_MAPS, _ACROSS, _MOST_CHANGES = 6, 3, 3
_ROOM = (300.0, 260.0)  # pixels of a map among others
_APART, _LINE = 40.0, 18.0
_MOST_AMOUNTS = 4


@doc.document.register
def tree_document(shown: ShownTree) -> doc.Document:
    """Return the total, the legend, the table of the arrays, and the maps of the heaviest or of the chosen one."""
    mesh = layouts.all_axes(leaf.layout for leaf in shown.leaves)
    if shown.chosen is not None:
        maps: Sequence[doc.Block] = doc.document(shown.chosen).blocks
    else:
        drawn = _heaviest(shown.groups)
        blocks = [_map(each.counted, each.one, mesh) for each in drawn]
        beside = (doc.SideBySide(blocks=tuple(blocks[n : n + _ACROSS])) for n in range(0, len(blocks), _ACROSS))
        maps = (*beside, *doc.notes(_undrawn(shown.groups, drawn)))
    total = (doc.words(_total(shown.bytes, shown.left_out)),)
    return doc.Document(lead=(total, *_legend(shown)), blocks=(*_table(shown.groups), *maps), mesh=mesh)


def _heaviest(groups: Sequence[EqualArrays[Shown]], most: int = _MOST_MAPS) -> list[EqualArrays[Shown]]:
    """Return the groups with the most bytes per device, in tree order."""
    heavy = sorted(range(len(groups)), key=lambda n: (-groups[n].one.nbytes * groups[n].count, n))[:most]
    return [groups[n] for n in sorted(heavy)]


def _undrawn(groups: Sequence[EqualArrays[Shown]], drawn: Sequence[EqualArrays[Shown]]) -> str:
    """Return how many arrays are behind the maps, and how many have no map; empty if each has its own."""
    folded = sum(each.count for each in drawn)
    others = sum(each.count for each in groups if each not in drawn)
    parts = [f"the {len(drawn)} maps show {folded} arrays"] if folded > len(drawn) else []
    parts += [f"{plural(others, 'lighter array')} not drawn (leaf=... draws one)"] if others else []
    return "; ".join(parts)


def _legend(shown: ShownTree) -> Iterator[doc.Inline]:
    for mesh in dict.fromkeys(leaf.layout.mesh for leaf in shown.leaves):
        yield doc.words("mesh"), doc.mesh_axes(mesh), doc.words(f", {plural(mesh.size, 'device')}")


def _map(title: str, shown: Shown, mesh: DeviceMesh) -> doc.Section:
    """Return a map under its title; a mesh of its own is named."""
    own, dtype = shown.layout, shown.dtype
    on = None if own.mesh == mesh else (doc.words("on"), doc.mesh_axes(own.mesh))
    return doc.section(
        doc.shorten(title, LONGEST_NAME),
        doc.paragraph(doc.shape(own.shape, dtype=dtype or "")),
        doc.paragraph(layouts.spec_pieces(own), on),
        doc.paragraph("shard", doc.shape(own.shard_shape)),
        None if dtype is None else doc.paragraph(f"{format_bytes(shown.nbytes)} per device"),
        doc.Figure(of=shard_map(shown).within(_ROOM)),
    )


def _name(group: EqualArrays[Shown] | EqualArrays[ShownChange]) -> doc.Piece:
    short = doc.shorten(group.name, LONGEST_NAME)
    return doc.words(short, strong=True, tip=group.name if short != group.name else "")


def _table(groups: Sequence[EqualArrays[Shown]]) -> tuple[doc.Block, ...]:
    rows = _heaviest(groups, MOST_ROWS)
    several = any(each.count > 1 for each in groups)
    listed = doc.Rows(rows, most=MOST_ROWS, name="leaves").table(
        ("name", _name),
        (doc.right("arrays"), lambda each: str(each.count)) if several else None,
        (doc.right("per device"), _weight),
        (doc.right("ways"), lambda each: str(math.prod(each.one.layout.tile_counts))),
        ("type and shape", lambda each: doc.shape(each.one.layout.shape, dtype=each.one.dtype or "")),
        ("spec", lambda each: layouts.spec_pieces(each.one.layout)),
        ("shard", lambda each: doc.shape(each.one.layout.shard_shape)),
    )
    count = sum(each.count for each in groups) - sum(each.count for each in rows)
    more = f"the {MOST_ROWS} heaviest rows are listed; {plural(count, 'more array')} not" if count > 0 else ""
    return (listed, *doc.notes("a row of several arrays has the sum of their bytes" if several else "", more))


def _weight(group: EqualArrays[Shown]) -> doc.Piece:
    each = "" if group.count == 1 else f"{format_bytes(group.one.nbytes)} each"
    return doc.nbytes(None if group.one.dtype is None else group.one.nbytes * group.count, tip=each)


@doc.document.register
def change_document(shown: ShownTreeChange) -> doc.Document:
    """Return what changes and the data moved in a table, the maps before and after, and what does not change."""
    mesh = layouts.all_axes(leaf.layout for leaf in (*shown.before.leaves, *shown.after.leaves))
    rows, drawn = _moving(shown)
    listed = doc.Rows(rows, most=MOST_ROWS, name="changes").table(
        ("name", _name),
        (doc.right("arrays"), lambda each: str(each.count)),
        ("type and shape", _shapes),
        (doc.wrapped("before → after"), lambda each: _both(each, lambda side: layouts.spec_words(side.layout))),
        (doc.right("each per device"), lambda each: _both(each, lambda side: format_bytes(side.nbytes))),
        (doc.wrapped("moved"), lambda each: _moved(each.one)),
    )
    maps = (
        doc.section(
            doc.shorten(each.counted, LONGEST_NAME),
            doc.SideBySide(blocks=tuple(_map(word, side, mesh) for word, side in each.one.sides)),
        )
        for each in drawn
    )
    more = f"{plural(len(rows) - len(drawn), 'row')} without a map" if len(rows) > len(drawn) else ""
    same = f"unchanged: {first_names([each.counted for each in shown.same], 4)}" if shown.same else ""
    sides = zip(("before", "after"), shown.only, strict=True)
    only = [f"only {word}: {first_names(names, 4)}" for word, names in sides if names]
    heavy = " → ".join(_per_device(tree.bytes) for tree in (shown.before, shown.after))
    legend = dict.fromkeys((*_legend(shown.before), *_legend(shown.after)))
    return doc.Document(
        lead=((doc.words(_counts(shown), strong=True),), (doc.words(heavy),), *legend),
        blocks=(*((listed,) if rows else ()), *maps, *doc.notes(more, same, *only)),
        mesh=mesh,
    )


def _moving(shown: ShownTreeChange) -> tuple[list[EqualArrays[ShownChange]], list[EqualArrays[ShownChange]]]:
    """Return the groups that change, most bytes received first, and those that are drawn."""
    rows = sorted(shown.changed, key=lambda each: -_received(each.one) * each.count)
    return rows, [each for each in rows if _moves(each.one) is not None][:_MOST_CHANGES]


def _counts(shown: ShownTreeChange) -> str:
    changed, same = (sum(each.count for each in groups) for groups in (shown.changed, shown.same))
    return f"{plural(changed + same, 'array')}: {changed} changed, {same} unchanged"


def _both(group: EqualArrays[ShownChange], words: Callable[[Shown], str]) -> str:
    return " → ".join(words(side) for _, side in group.one.sides)


def _shapes(group: EqualArrays[ShownChange]) -> tuple[doc.Piece, ...]:
    texts = dict.fromkeys(f"{s.dtype or ''} {format_shape(s.layout.shape)}".strip() for _, s in group.one.sides)
    return tuple(doc.code(text if n == 0 else f"→ {text}") for n, text in enumerate(texts))


def _moves(change: ShownChange) -> layouts.Moves | None:
    """Return the data moved; None between different shapes or devices."""
    try:
        return change.moves
    except ShardvizError:
        return None


def _received(change: ShownChange) -> float:
    moves = _moves(change)
    return 0.0 if moves is None else float(moves.receive.max(initial=0)) * (change.before.nbytes or 1.0)


def _moved(change: ShownChange) -> str:
    """Return `all-gather data; at most 1.05 MB received`."""
    moves = _moves(change)
    if moves is None:
        alike = change.before.layout.shape == change.after.layout.shape
        return "to other devices: sv.reshard" if alike else "not one array: the shapes differ"
    steps = [f"{step.kind} {' '.join(map(layouts.axis_text, step.axes or ()))}".strip() for step in moves.steps]
    most = int(moves.receive.max(initial=0))
    received = f"; at most {layouts.amount(most, change.before.dtype).text} received" if most else ""
    return (", then ".join(steps) or ("nothing" if moves.free else "unknown steps")) + received


@pic.picture.register
def tree_picture(shown: ShownTree) -> pic.Picture:
    """Return the maps of the heaviest arrays side by side with one legend, or the chosen one's."""
    if shown.chosen is not None:
        return pic.picture(shown.chosen)
    drawn = _heaviest(shown.groups)
    panels = [(_heads(each), shard_map(each.one, _ROOM[0])) for each in drawn]
    notes = (_total(shown.bytes, shown.left_out), _undrawn(shown.groups, drawn))
    return _composed(panels, _ACROSS, layouts.all_axes(leaf.layout for leaf in shown.leaves), notes)


def _heads(group: EqualArrays[Shown]) -> tuple[str, ...]:
    own = group.one.layout
    size = f" · {format_bytes(group.one.nbytes)} per device" if group.one.dtype is not None else ""
    return (
        doc.shorten(group.counted, LONGEST_NAME),
        f"{format_shape(own.shape)} {layouts.spec_words(own)}",
        f"shard {format_shape(own.shard_shape)}{size}",
    )


@pic.picture.register
def tree_change_picture(shown: ShownTreeChange) -> pic.Picture:
    """Return the maps before and after of the arrays that move most, one below the other."""
    _, drawn = _moving(shown)
    panels = [((doc.shorten(each.counted, LONGEST_NAME), _moved(each.one)), change_picture(each.one)) for each in drawn]
    every = (leaf.layout for leaf in (*shown.before.leaves, *shown.after.leaves))
    return _composed(panels, 1, layouts.all_axes(every), (_counts(shown),))


def _composed(
    panels: Sequence[tuple[tuple[str, ...], pic.Picture]], across: int, mesh: DeviceMesh, notes: Sequence[str]
) -> pic.Picture:
    """Return pictures in rows, each below its lines of words, with one legend of the mesh's axes."""
    shapes: list[pic.Shape] = []
    top = right = 0.0
    for start in range(0, len(panels), across):
        left, row = 0.0, panels[start : start + across]
        high = _LINE * max(len(heads) for heads, _ in row) + 6
        for heads, drawn in row:
            first, *rest = heads
            shapes.append(pic.Labels(at=((left, top + 6),), texts=(first,), mono=True, bold=True))
            places = tuple((left, top + 6 + _LINE * n) for n in range(1, len(heads)))
            shapes.append(pic.Labels(at=places, texts=tuple(rest), mono=True, ink="quiet"))
            shapes += [pic.shifted(each, left, top + high) for each in drawn.shapes]
            left += max(drawn.width, *map(pic.text_wide, heads)) + _APART
        top += high + max(drawn.height for _, drawn in row) + _APART
        right = max(right, left - _APART)
    axes = enumerate(zip(mesh.names, mesh.sizes, strict=True))
    return pic.Picture(
        width=right,
        height=max(0.0, top - _APART),
        shapes=tuple(shapes),
        title=f"mesh {mesh.shown}",
        alt=" ".join(f"{heads[0]}: {drawn.alt}" for heads, drawn in panels),
        axes=mesh.names,
        keys=tuple(pic.LegendKey(text=f"{name} = {size}", fill=n, hatch=n) for n, (name, size) in axes if size > 1),
        notes=tuple(filter(None, notes)),
    )


def _total(tree: TreeBytes, left_out: Sequence[str]) -> str:
    """Return `2 arrays, 132 B in all; 36 B on each of 4 devices`, and the omitted leaves."""
    text = f"{plural(len(tree.leaves), 'array')}, {format_bytes(tree.array)} in all; {_per_device(tree)}"
    if tree.array:
        copies = format_number(tree.total / tree.array)
        text += f" ({copies} {'copy' if copies == '1' else 'copies'} of each byte on average)"
    if any(leaf.dtype is None for leaf in tree.leaves):
        text += "; arrays whose type is not known are not counted"
    if left_out:
        text += f"; left out, having no sharding: {first_names(left_out, 3)}"
    return text


def _per_device(tree: TreeBytes) -> str:
    amounts, group = np.unique(tree.per_device, return_inverse=True)
    count = len(tree.per_device)
    if len(amounts) == 1:
        return f"{format_bytes(amounts[0])} on {'each of ' if count > 1 else ''}{plural(count, 'device')}"
    if len(amounts) > _MOST_AMOUNTS:
        return f"{format_bytes(amounts[0])} to {format_bytes(amounts[-1])} on {plural(count, 'device')}"
    parts = []
    for place in reversed(range(len(amounts))):
        ids = tree.device_ids[group.reshape(-1) == place].tolist()
        noun = "device" if len(ids) == 1 else "each of the devices"
        parts.append(f"{format_bytes(amounts[place])} on {noun} {doc.shorten(doc.device_ranges(ids), 40)}")
    return ", ".join(parts)
