"""Text in pieces with meanings: the output of every notation's writer.

A writer yields punctuation as plain strings and everything else as `Letter`s. The joined pieces are the
sharding's text; the letters' meanings explain it.

>>> pieces = ["{", Letter("maximal device=3", "the full array is on device 3"), "}"]
>>> text_of(pieces), [letter.meaning for letter in letters_of(pieces)]
('{maximal device=3}', ['the full array is on device 3'])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from shardviz.notation.record import Sharding
from shardviz.notation.spec import Axis, axes_size, axis_name, axis_size, axis_text

NOT_SHARDED = "a dimension that is not sharded"
OPEN = "the compiler may shard this dimension further"
SUM = "over {} the devices hold partial sums, still to be added"
_PARTIAL = {
    "sum": SUM,
    "max": "over {} the devices hold partial maxima; the greatest is the value",
    "min": "over {} the devices hold partial minima; the least is the value",
}
MANUAL = "over {} the program itself says what each device does, as in a shard_map; the shape is one device's along it"
REDUCED = "over {} the value is reduced already; its gradient is a partial sum"


@dataclass(frozen=True)
class Letter:
    """A piece of a notation's text, and its meaning in words."""

    piece: str
    meaning: str


Piece = str | Letter


def text_of(pieces: Iterable[Piece]) -> str:
    return "".join(piece if isinstance(piece, str) else piece.piece for piece in pieces)


def letters_of(pieces: Iterable[Piece]) -> tuple[Letter, ...]:
    """Return the pieces that have a meaning, in order, without repetitions."""
    return tuple(dict.fromkeys(piece for piece in pieces if isinstance(piece, Letter)))


def listed(items: Iterable[Iterable[Piece]], begin: str, separator: str = ", ") -> Iterator[Piece]:
    """Yield the pieces of each item, with a separator between items."""
    for place, item in enumerate(items):
        yield separator if place else begin
        yield from item


def partial_words(axes: Sequence[Axis], kind: str) -> str:
    """Return the meaning of axes over which the devices hold partial results."""
    return _PARTIAL[kind].format(names_words(axes))


def names_words(axes: Sequence[Axis]) -> str:
    """Write axes as `data, model:(2)4`."""
    return ", ".join(map(axis_text, axes))


def unsharded_words(sharding: Sharding) -> str:
    """Return the meaning of a text without dimensions."""
    words = "no dimension is named, so none is sharded"
    return f"{words}: every device holds the full array" if sharding.kind == "replicated" else words


def axis_words(sharding: Sharding, axis: Axis) -> str:
    """Return the meaning of an axis: the dimension that it shards, into how many tiles, and after which axes."""
    where = [(i, dim) for i, dim in enumerate(sharding.spec.dims) if axis in dim] if sharding.spec else []
    name = axis_name(axis)
    if not where:
        return f"the axis {name} of a mesh of its own"
    dimension, axes = where[0]
    before = axes[: axes.index(axis)]
    size = axis_size(axis, sharding.mesh)
    words = f"mesh axis {name}" if isinstance(axis, str) else _part_words(axis, sharding.mesh.shape[name])
    if size == 1:
        return f"{words}, of 1 device, leaves dimension {dimension} as it is"
    if not before:
        return f"{words} shards dimension {dimension} in {size}"
    tiles = axes_size(before, sharding.mesh)
    return f"{words} shards each of these {tiles} pieces of dimension {dimension} again, in {size}"


def _part_words(axis: tuple[str, int, int], whole: int) -> str:
    name, before, size = axis
    counted = [n for n in (before, size, whole // (before * size)) if n > 1]
    which = "second" if before > 1 else "first"
    return f"a part of mesh axis {name} (its {whole} devices counted as {' x '.join(map(str, counted))}, the {which})"
