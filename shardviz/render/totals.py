"""Collectives summed: by mesh axes, by source line, by kind.

A collective whose count is not known (a loop with an unknown trip count) is never dropped: its row says how many
such there are and what one run of each would move.

>>> from shardviz.records import Collective
>>> gradient = Collective(kind="all-reduce", axes=("data",), dtype="float32", shape=(4,), operand_bytes=16,
...                       result_bytes=16, count=3)
>>> rows = totals_by([gradient], "axes")
>>> rows[0].label, rows[0].runs, rows[0].bytes
('data', 3, 48)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shardviz.errors import ShardvizError
from shardviz.notation import Axis
from shardviz.records import Collective, Frame
from shardviz.records.amounts import format_bytes, plural
from shardviz.render.chips import axes_words

NO_SOURCE = "no source line"


@dataclass(frozen=True)
class Total:
    """A group of collectives, summed.

    Attributes:
        key: what they have in common: axes, a source frame, a kind, ...
        label: the key in plain text.
        axes: the mesh axes of all of them; None where they differ or follow no mesh axes.
        kinds: their kinds, sorted.
        operations: how many collectives stand in the program.
        runs: how often those with a known count run in a step, together.
        bytes: operand bytes on one device over the step, of those with a known count.
        unknown: how many of the operations have a count that is not known.
        unknown_bytes: operand bytes on one device of one run of each of these.
        seconds: time on the target over the step; None where a count or a time is not known.
        at_most: one of them stands in a branch that may not run.
        parts: the bytes again, by mesh axes, the most first.
    """

    key: Hashable
    label: str
    axes: tuple[Axis, ...] | None
    kinds: tuple[str, ...]
    operations: int
    runs: int
    bytes: float
    unknown: int
    unknown_bytes: float
    seconds: float | None
    at_most: bool
    parts: tuple[tuple[tuple[Axis, ...] | None, float], ...] = ()

    @property
    def sentence(self) -> str:
        """`8 operations; 1,044 runs and 271 GB of operands per device in a step`, and what is not known."""
        text = plural(self.operations, "operation")
        known = self.operations - self.unknown
        if known:
            what = ("at most " if self.at_most else "") + format_bytes(self.bytes)
            text += f"; {plural(self.runs, 'run')} and {what} of operands per device in a step"
        if self.unknown:
            whose = f"count not known for {self.unknown:,}" + (" of them" if known else "")
            text += f"; {whose}, {format_bytes(self.unknown_bytes)} if each ran once"
        return text

    @property
    def bytes_text(self) -> str:
        """`34.4 GB`, with `at most` and what is not known said."""
        if self.unknown and self.unknown == self.operations:
            return f"count not known × {format_bytes(self.unknown_bytes)}"
        text = ("at most " if self.at_most else "") + format_bytes(self.bytes)
        return text + (f" + {format_bytes(self.unknown_bytes)} × count not known" if self.unknown else "")

    @property
    def runs_text(self) -> str:
        """`640`, or that the count of some is not known."""
        if self.unknown and self.unknown == self.operations:
            return "count not known"
        return f"{self.runs:,}" + (f"; count not known for {self.unknown:,}" if self.unknown else "")


def _frame_label(frame: Frame | None) -> str:
    return NO_SOURCE if frame is None else frame.short


def total_of(collectives: Iterable[Collective]) -> Total:
    """All collectives summed into one `Total`, whose label is empty."""
    return _total(None, "", list(collectives))


_KEYS: Mapping[str, tuple[Callable[[Collective], Any], Callable[[Any], str]]] = {
    "axes": (lambda c: c.axes, axes_words),
    "source": (lambda c: c.source and c.source.bare, _frame_label),
    "kind": (lambda c: c.kind, str),
    "kind_axes": (lambda c: (c.kind, c.axes), lambda k: f"{k[0]} over {axes_words(k[1])}"),
    "phase": (lambda c: c.phase, str),
}


def key_of(collective: Collective, key: str) -> Hashable:
    """What a collective is summed by: the `Total.key` that it goes into under a key of `totals_by`."""
    return _KEYS[key][0](collective)


def totals_by(collectives: Iterable[Collective], key: str) -> tuple[Total, ...]:
    """Sums collectives that have something in common.

    Args:
        collectives: of a report.
        key: `axes`, `source` (the line), `kind`, `kind_axes` or `phase`.

    Returns:
        One `Total` a group, the most bytes first, then by label.

    Raises:
        ShardvizError: for another key.
    """
    if key not in _KEYS:
        raise ShardvizError(f"collectives cannot be summed by {key!r}; the keys are {', '.join(map(repr, _KEYS))}")
    of, label = _KEYS[key]
    groups: dict[Hashable, list[Collective]] = {}
    for collective in collectives:
        groups.setdefault(of(collective), []).append(collective)
    rows = [_total(k, label(k), group) for k, group in groups.items()]
    return tuple(sorted(rows, key=lambda t: (-t.bytes, -t.unknown_bytes, t.label)))


def _total(key: Hashable, label: str, group: list[Collective]) -> Total:
    known = [c for c in group if c.count is not None]
    unknown = [c for c in group if c.count is None]
    axes = {c.axes for c in group}
    times = [None if c.count is None or c.seconds is None else c.count * c.seconds for c in group]
    return Total(
        key,
        label,
        next(iter(axes)) if len(axes) == 1 else None,
        tuple(sorted({c.kind for c in group})),
        len(group),
        sum(c.count or 0 for c in known),
        sum(c.total_bytes or 0 for c in known),
        len(unknown),
        sum(c.operand_bytes for c in unknown),
        None if None in times else sum(t or 0.0 for t in times),
        any(c.conditional for c in group),
        _parts(known),
    )


def _parts(known: list[Collective]) -> tuple[tuple[tuple[Axis, ...] | None, float], ...]:
    sums: dict[tuple[Axis, ...] | None, float] = {}
    for c in known:
        sums[c.axes] = sums.get(c.axes, 0) + (c.total_bytes or 0)
    return tuple(sorted(sums.items(), key=lambda item: (-item[1], axes_words(item[0]))))
