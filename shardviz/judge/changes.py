"""Collectives of two reports, matched by meaning: which appeared, vanished, grew or shrank.

A collective's meaning is its kind, mesh axes, element type, phase and the text of its source line. Its HLO name and
position change with every compiler version.

>>> here = Frame("model.py", 3)
>>> def gather(count):
...     return Collective(kind="all-gather", axes=("data",), dtype="float32", shape=(8,), operand_bytes=16,
...                       result_bytes=32, count=count, source=here)
>>> [(m.what, m.before.bytes, m.after.bytes) for m in match_collectives([gather(1)], [gather(3)])]
[('grew', 16, 48)]
>>> match_collectives([gather(1)], [gather(1)])
()
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from shardviz.notation.spec import axis_text
from shardviz.records import Collective, CollectiveTotal, Frame
from shardviz.records.collectives import axes_words
from shardviz.records.groups import grouped
from shardviz.records.values import SourceText


class SourceLine(NamedTuple):
    """A source line identified by its text, if known, so that edits above it do not change it."""

    file: str
    text: str

    @classmethod
    def of(cls, frame: Frame | None, lines: SourceText) -> SourceLine:
        """Return the place of a frame; a place without a file for None."""
        if frame is None:
            return cls("", "")
        file = frame.short.rpartition(":")[0]
        return cls(file, frame.text_in(lines) or f"line {frame.line}")


class Meaning(NamedTuple):
    """The work of a collective, and its place."""

    kind: str
    axes: tuple[str, ...] | None
    dtype: str
    phase: str
    place: SourceLine

    @classmethod
    def of(cls, c: Collective, lines: SourceText) -> Meaning:
        """Return the meaning of a collective; the order of its axes does not matter."""
        axes = None if c.axes is None else tuple(sorted(map(axis_text, c.axes)))
        return cls(c.kind, axes, c.dtype, c.phase, SourceLine.of(c.source, lines))


@dataclass(frozen=True, kw_only=True)
class CollectiveChange:
    """Collectives of one meaning that differ in the other report: in bytes or runs, or because one report has none.

    Attributes:
        of: the name of the report that is compared with the baseline.
        what: `appeared`, `vanished`, `grew` or `shrank` (by operand bytes, then by runs).
        before, after: the sums in the baseline and in the other report; None if it has no such collective.
    """

    of: str
    what: str
    before: CollectiveTotal | None
    after: CollectiveTotal | None

    @property
    def bytes(self) -> float:
        """Operand bytes on one device in a step: after minus before."""
        return (self.after.bytes if self.after else 0.0) - (self.before.bytes if self.before else 0.0)

    @property
    def runs(self) -> int:
        """Runs in a step: after minus before."""
        return (self.after.runs if self.after else 0) - (self.before.runs if self.before else 0)

    @property
    def source(self) -> Frame | None:
        """The source line in the other report, or in the baseline if the other has none."""
        return self._total.collectives[0].source

    @property
    def lines(self) -> SourceText:
        """The text of the source line, in the report that has it; line numbers of two reports differ."""
        source, meaning = self.source, self._total.key
        if source is None or not isinstance(meaning, Meaning) or meaning.place.text == f"line {source.line}":
            return {}
        return {source.file: {source.line: meaning.place.text}}

    @property
    def _total(self) -> CollectiveTotal:
        total = self.after or self.before
        assert total is not None
        return total


def match_collectives(
    before: Iterable[Collective],
    after: Iterable[Collective],
    lines_before: SourceText = MappingProxyType({}),
    lines_after: SourceText = MappingProxyType({}),
    *,
    of: str = "b",
) -> tuple[CollectiveChange, ...]:
    """Return the differences between two reports' collectives, matched by meaning, largest difference of bytes first.
    `of` names the second report, `lines_before` and `lines_after` are the sources' lines. Bytes and runs add up to the
    totals' difference; swapped reports give swapped changes."""
    olds, news = _by_meaning(before, lines_before), _by_meaning(after, lines_after)
    changes: dict[Meaning, CollectiveChange] = {}
    for meaning in dict.fromkeys((*olds, *news)):
        old, new = olds.get(meaning), news.get(meaning)
        if old is not None and new is not None:
            if _moves(old) == _moves(new):
                continue
            what = "grew" if _size(new) > _size(old) else "shrank"
        else:
            what = "appeared" if old is None else "vanished"
        changes[meaning] = CollectiveChange(of=of, what=what, before=old, after=new)

    def weight(meaning: Meaning) -> tuple[Any, ...]:
        totals = filter(None, (changes[meaning].before, changes[meaning].after))
        return -abs(changes[meaning].bytes), -max(t.bytes + t.unknown_bytes for t in totals), _order(meaning)

    return tuple(changes[meaning] for meaning in sorted(changes, key=weight))


def _by_meaning(collectives: Iterable[Collective], lines: SourceText) -> dict[Meaning, CollectiveTotal]:
    groups = grouped((Meaning.of(c, lines), c) for c in collectives)
    return {m: CollectiveTotal(m, f"{m.kind} over {axes_words(c[0].axes)}", tuple(c)) for m, c in groups.items()}


def _moves(total: CollectiveTotal) -> tuple[float, ...]:
    return total.runs, total.bytes, total.unknown, total.unknown_bytes


def _size(total: CollectiveTotal) -> tuple[float, ...]:
    return total.bytes + total.unknown_bytes, total.runs, total.unknown


def _order(meaning: Meaning) -> tuple[Any, ...]:
    return meaning.kind, meaning.axes or (), meaning.axes is None, meaning.dtype, meaning.phase, meaning.place


def total_data(total: CollectiveTotal | None) -> dict[str, Any] | None:
    """Return a sum of collectives of one meaning as plain data."""
    if total is None:
        return None
    assert isinstance(total.key, Meaning)
    meaning = total.key
    source = total.collectives[0].source
    return {
        "kind": meaning.kind,
        "axes": None if meaning.axes is None else list(meaning.axes),
        "dtype": meaning.dtype,
        "phase": meaning.phase,
        "line": source.short if source else "",
        "text": meaning.place.text,
        "operations": total.operations,
        "runs": total.runs,
        "operand_bytes": total.bytes,
        "count_not_known": total.unknown,
    }
