"""Words on layouts: on one, on many together, and on the data that a change moves.

>>> from shardviz.layouts import layout
>>> spec_words(layout((8, 6), ("data",), {"data": 2}))
"P('data', None)"
>>> for sentence in uneven_words(layout((17, 4), ("data", None), {"data": 8}), "float32").split(". "):
...     print(sentence)
JAX refuses this for an argument: dimension 0 is 17, not divisible by 8 (16 or 24 would be)
For a result it silently uses P(None, None): 272 B on each device instead of 48 B, 1.90 kB of copies in all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from shardviz.layouts import Layout, Local, Moves, MoveStep, fallback, indivisible, itemsize, uneven
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import axis_text
from shardviz.records.amounts import format_shape, plural
from shardviz.view import document as doc

_MOST_PROCESSES = 16
_MOST_GROUPS = 24  # rows of the table of devices; devices with the same counts share a row


def spec_words(layout: Layout) -> str:
    """Return the spec or its replacement: `P('data', None)`, `all on device 3`, `not a PartitionSpec`; with manual
    axes."""
    if layout.maximal:
        return f"all on device {int(layout.device_ids[np.argmax(layout.holds)])}"
    if layout.spec is None:
        return "not a PartitionSpec"
    return str(layout.spec) + (f", {_manual(layout)}" if layout.manual else "")


def _manual(layout: Layout) -> str:
    return f"manual over {', '.join(map(axis_text, layout.manual))}"


def spec_pieces(layout: Layout) -> tuple[doc.Piece, ...]:
    """Return `spec_words` as pieces."""
    if layout.maximal or layout.spec is None:
        return (doc.words(spec_words(layout), quiet=True, tip=layout.why),)
    piece = replace(_as_given(layout.spec), tip=str(layout.spec))
    return (piece, *((doc.words(_manual(layout)),) if layout.manual else ()))


def _as_given(layout: Spec) -> doc.Piece:
    return doc.Piece(text=str(layout), kind="spec", value=layout)


def uneven_words(layout: Layout, dtype: Any = None) -> str:
    """Return how JAX treats an uneven sharding, in bytes if the type is known; empty if it is even, or no
    PartitionSpec.

    The map shows XLA's treatment, which pads.
    """
    dimensions = uneven(layout)
    if not dimensions or layout.spec is None:
        return ""
    causes = []
    for it in dimensions:
        sizes = f"{it.smaller} or {it.larger}" if it.smaller else f"{it.larger}"
        causes.append(f"dimension {it.dimension} is {it.size}, not divisible by {it.tiles} ({sizes} would be)")
    text = f"JAX refuses this for an argument: {' and '.join(causes)}."
    if layout.manual:
        return text
    padded = fallback(layout)
    copied = int((padded.elements - layout.elements).sum())
    sizes = (math.prod(padded.shard_shape), math.prod(layout.shard_shape), copied)
    actual, asked, copies = (amount(size, dtype).text for size in sizes)
    text += f" For a result it silently uses {padded.spec}: {actual} on each device instead of {asked}, {copies} of "
    stops = "; JAX 0.12 stops with an IndivisibleError instead" if indivisible(layout, padded) else ""
    return f"{text}copies in all{stops}."


def all_axes(layouts: Iterable[Layout]) -> DeviceMesh:
    """Return the mesh of the layouts; for several meshes all axes, so that each name has one colour."""
    meshes = list(dict.fromkeys(each.mesh for each in layouts))
    if len(meshes) == 1:
        return meshes[0]
    names = tuple(dict.fromkeys(name for mesh in meshes for name in mesh.names))
    return DeviceMesh(names, (1,) * len(names))


@doc.document.register
def of_layout(layout: Layout) -> doc.Document:
    """Return an array and its sharding in a sentence; `show` draws it.

    >>> from shardviz.layouts import layout
    >>> layout((8, 4), ("data", None), {"data": 2, "model": 2})
    array [8, 4] sharded as P('data', None) on data=2,model=2: shard [4, 4]
    """
    text = f"array {format_shape(layout.shape)} sharded as {spec_words(layout)} on {layout.mesh}: "
    return doc.Document(title=doc.words(f"{text}shard {format_shape(layout.shard_shape)}"), mesh=layout.mesh)


def slice_text(layout: Layout, place: int) -> str:
    """Return the slice on the device at a position of the mesh: `[0:4, :]`, or `nothing`."""
    index = zip(layout.index(int(layout.device_ids[place])), layout.shape, strict=True)
    text = ", ".join(":" if part == slice(0, size) else f"{part.start}:{part.stop}" for part, size in index)
    return f"[{text}]" if layout.holds[place] else "nothing"


def process_blocks(layout: Layout, of: str = "") -> tuple[doc.Block, ...]:
    """Return the slices that each of several processes (hosts) loads; `of` names the array."""
    if len(layout.processes) == 1:
        return ()
    caption, hidden = "what each host loads", max(0, len(layout.processes) - _MOST_PROCESSES)
    hosts = map(layout.local, layout.processes[:_MOST_PROCESSES])
    caption = f"{of}: {caption}" if of else caption
    listed = doc.Rows(hosts, caption=caption, hidden=hidden, noun="host", name="hosts").table(
        (doc.right("host"), lambda local: str(local.process)),
        ("devices", lambda local: doc.shorten(doc.device_ranges(local.device_ids), 40)),
        ("holds", _holds),
        ("its own data", lambda local: doc.shape(local.shape)),
        (doc.wrapped("part"), _part),
    )
    if not layout.divides:
        return (listed, *doc.notes("no host can make this array: JAX refuses uneven shards"))
    more = f", global_shape={layout.shape}" if None in layout.local(layout.processes[0]).parts else ""
    call = f"jax.make_array_from_process_local_data(sharding, its_own_data{more})"
    return (listed, *doc.notes(f"{call} puts it together"))


def _holds(local: Local) -> str:
    box = f"[{', '.join(f'{part.start}:{part.stop}' for part in local.index)}]"
    if not math.prod(local.shape):
        return "nothing"
    return box if local.contiguous else f"{box}, with gaps"


def _part(local: Local) -> str:
    """Return the part that a host loads: `1 of 2 along dimension 0` (counted from 0), or `all`."""
    texts = []
    for d, part in enumerate(local.parts):
        if part is None:
            texts.append(f"irregular along dimension {d}")
        elif part[1] > 1:
            texts.append(f"{part[0]} of {part[1]} along dimension {d}")
    return "; ".join(texts) or "all"


@doc.document.register
def of_moves(moves: Moves) -> doc.Document:
    """Return the steps of a resharding, and the data that devices keep, receive and drop.

    >>> from shardviz.stablehlo.resharding import moves
    >>> from shardviz.paint import text
    >>> print(text(moves((8, 8), ("data", None), (None, "data"), {"data": 4})))
    resharding, P('data', None) → P(None, 'data'): 1 collective
         step        over  spec after it    received, at most  what it does
      1  all-to-all  data  P(None, 'data')        12 elements  dimension 0 is no longer sharded, dimension 1 is sharded
    <BLANKLINE>
      devices       keeps     receives        drops
      0-3      4 elements  12 elements  12 elements
    """
    return doc.Document(blocks=move_blocks(moves), mesh=moves.before.mesh)


def move_blocks(moves: Moves, dtype: Any = None) -> tuple[doc.Block, ...]:
    """Return the steps in order, then what devices keep, receive and drop; in bytes if the element type is known."""

    def received(step: MoveStep) -> doc.Piece:
        return amount(step.elements, dtype) if step.elements else doc.words("nothing")

    steps = doc.Rows(enumerate(moves.steps, 1), name="steps").table(
        (doc.right(), lambda each: str(each[0])),
        ("step", lambda each: doc.words(each[1].kind, strong=True)),
        ("over", lambda each: doc.axes(each[1].axes) if each[1].axes else doc.words("no named axes", quiet=True)),
        ("spec after it", lambda each: () if each[1].after is None else _as_given(each[1].after)),
        (doc.right("received, at most"), lambda each: received(each[1])),
        (doc.wrapped("what it does"), lambda each: each[1].done),
    )
    shares = doc.Rows(_groups(moves), kept=_MOST_GROUPS, noun="group", name="shares").table(
        ("devices", lambda group: group[0]),
        (doc.right("keeps"), lambda group: amount(group[1], dtype)),
        (doc.right("receives"), lambda group: amount(group[2], dtype)),
        (doc.right("drops"), lambda group: amount(group[3], dtype)),
    )
    title = f"resharding, {spec_words(moves.before)} → {spec_words(moves.after)}"
    return (doc.section(title, *((steps, shares) if moves.steps else (shares,)), lead=_collectives(moves)),)


def kept_and_moved(moves: Moves, dtype: Any = None) -> Iterator[str]:
    """Yield sentences on what devices keep and receive."""
    yield f"resharding: {_collectives(moves)}"
    for step in moves.steps:
        received = f", at most {amount(step.elements, dtype).text} received" if step.elements else ""
        yield f"{str(step).split('; ')[0]}{received}"
    for who, *counts in _groups(moves)[:_MOST_GROUPS]:
        kept, received, dropped = (amount(n, dtype).text for n in counts)
        yield f"devices {who}: {kept} kept, {received} received, {dropped} dropped"


def _collectives(moves: Moves) -> str:
    if not moves.steps:
        return "nothing" if moves.free else "its steps are not known"
    slices = sum(step.kind == "slice" for step in moves.steps)
    count = len(moves.steps) - slices
    local = plural(slices, "local slice") if slices else ""
    if not count:
        return f"no collective, {local}"
    text = plural(count, "collective") + (f", {local}" if local else "")
    if (needed := int(moves.receive.max(initial=0))) < moves.elements:
        text += f"; a device needs {needed:,} of the {moves.elements:,} elements that arrive"
    return text


def _groups(moves: Moves) -> list[tuple[str, int, int, int]]:
    """Return (devices, elements kept, received, dropped), most received first; equal devices share a row."""
    counts = np.stack([moves.keep, moves.receive, moves.drop], axis=1)
    kinds, inverse = np.unique(counts, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    rows = []
    for kind in np.lexsort((-kinds[:, 2], -kinds[:, 0], -kinds[:, 1])).tolist():
        ids = moves.device_ids[inverse == kind]
        kept, received, dropped = kinds[kind].tolist()
        rows.append((doc.shorten(doc.device_ranges(ids.tolist()), 60), kept, received, dropped))
    return rows


def amount(elements: int, dtype: Any) -> doc.Piece:
    count = plural(elements, "element")
    return doc.words(count) if dtype is None else doc.nbytes(elements * itemsize(dtype), tip=count)
