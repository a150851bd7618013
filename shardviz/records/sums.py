"""Sums of collectives (bytes and seconds) and of work (FLOPs and bytes), grouped by a common property.

A collective whose count is unknown (a loop with an unknown trip count) is never dropped: its sum has the number of such
collectives and the bytes of one run of each.

>>> gradient = Collective(kind="all-reduce", axes=("data",), dtype="float32", shape=(4,), operand_bytes=16,
...                       result_bytes=16, count=3)
>>> loss = Collective(kind="all-reduce", axes=("data", "model"), dtype="float32", shape=(), operand_bytes=4,
...                   result_bytes=4, count=None)
>>> for total in sum_collectives([gradient, loss], "axes"):
...     print(total.label, total.operations, total.runs, total.bytes_text, sep="; ")
data; 1; 3; 48 B
data, model; 1; 0; count not known × 4 B
>>> total_of([gradient, loss]).sentence
'2 operations; 3 runs and 48 B of operands per device in a step; count not known for 1 of them, 4 B if each ran once'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from shardviz.caching import cached_property
from shardviz.errors import ShardvizError
from shardviz.notation import Axis
from shardviz.records.amounts import COUNT_NOT_KNOWN, format_bytes, plural
from shardviz.records.collectives import Collective, axes_words
from shardviz.records.groups import grouped
from shardviz.records.values import Frame
from shardviz.records.work import Work

NO_SOURCE = "no source line"
_Row = TypeVar("_Row")


@dataclass(frozen=True)
class CollectiveTotal:
    """Collectives in program order with a common `key` (mesh axes, a line, a kind, ...), and their sums. `label` is the
    key in plain text. Sums are for one device in a step."""

    key: Hashable
    label: str
    collectives: tuple[Collective, ...]

    @cached_property
    def axes(self) -> tuple[Axis, ...] | None:
        """The mesh axes of all collectives; None if they differ or follow no mesh axes."""
        axes = {c.axes for c in self.collectives}
        return axes.pop() if len(axes) == 1 else None

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The collectives' kinds, sorted."""
        return tuple(sorted({c.kind for c in self.collectives}))

    @property
    def operations(self) -> int:
        """The number of collectives in the program."""
        return len(self.collectives)

    @cached_property
    def runs(self) -> int:
        """The total runs of the collectives with a known count."""
        return sum(c.count or 0 for c in self.collectives)

    @cached_property
    def bytes(self) -> float:
        """Operand bytes of the collectives with a known count."""
        return sum(c.total_bytes or 0 for c in self.collectives)

    @cached_property
    def unknown(self) -> int:
        """The number of collectives with an unknown count."""
        return sum(c.count is None for c in self.collectives)

    @cached_property
    def unknown_bytes(self) -> float:
        """Operand bytes of one run of each collective with an unknown count."""
        return sum(c.operand_bytes for c in self.collectives if c.count is None)

    @cached_property
    def seconds(self) -> float:
        """Seconds on the target of the collectives with known time and count."""
        return sum(c.total_seconds or 0.0 for c in self.collectives)

    @cached_property
    def untimed(self) -> int:
        """The number of collectives with an unknown time or count."""
        return sum(c.total_seconds is None for c in self.collectives)

    @property
    def whole_seconds(self) -> float | None:
        """Seconds of all collectives; None if any is unknown."""
        return None if self.untimed else self.seconds

    @cached_property
    def assumed_seconds(self) -> float:
        """Seconds if each collective with an unknown count runs once; an unknown time counts 0."""
        return sum(c.assumed_seconds for c in self.collectives)

    @cached_property
    def at_most(self) -> bool:
        """Whether any collective is in a branch that may not run."""
        return any(c.conditional for c in self.collectives)

    @cached_property
    def parts(self) -> tuple[CollectiveTotal, ...]:
        """The sums by mesh axes, most bytes first."""
        return sum_collectives(self.collectives, "axes")

    @property
    def sentence(self) -> str:
        """`8 operations; 1,044 runs and 271 GB of operands per device in a step`, and the unknown counts."""
        text = plural(self.operations, "operation")
        counted = self.operations - self.unknown
        if counted:
            what = ("at most " if self.at_most else "") + format_bytes(self.bytes)
            text += f"; {plural(self.runs, 'run')} and {what} of operands per device in a step"
        if self.unknown:
            whose = f"{COUNT_NOT_KNOWN} for {self.unknown:,}" + (" of them" if counted else "")
            text += f"; {whose}, {format_bytes(self.unknown_bytes)} if each ran once"
        return text

    @cached_property
    def sent_bytes(self) -> float:
        """Bytes that one device sends, if each collective with an unknown count runs once."""
        return sum(c.assumed_sent_bytes for c in self.collectives)

    @property
    def bytes_text(self) -> str:
        """`34.4 GB`, with `at most` and the unknown counts if there are any."""
        if self.unknown and self.unknown == self.operations:
            return f"{COUNT_NOT_KNOWN} × {format_bytes(self.unknown_bytes)}"
        text = ("at most " if self.at_most else "") + format_bytes(self.bytes)
        return text + (f" + {format_bytes(self.unknown_bytes)} × {COUNT_NOT_KNOWN}" if self.unknown else "")

    @property
    def runs_text(self) -> str:
        """`640`, and the unknown counts if there are any."""
        if self.unknown and self.unknown == self.operations:
            return COUNT_NOT_KNOWN
        return f"{self.runs:,}" + (f"; {COUNT_NOT_KNOWN} for {self.unknown:,}" if self.unknown else "")


def _over(kind: str, axes: tuple[Axis, ...] | None) -> str:
    return f"{kind} over {axes_words(axes)}"


# key → (the property that groups collectives, its text)
_COLLECTIVE_KEYS: Mapping[str, tuple[Callable[[Collective], Any], Callable[[Any], str]]] = {
    "axes": (lambda c: c.axes, axes_words),
    "source": (lambda c: c.source and c.source.bare, lambda frame: NO_SOURCE if frame is None else frame.short),
    "kind": (lambda c: c.kind, str),
    "kind_axes": (lambda c: (c.kind, c.axes), lambda key: _over(*key)),
    "phase": (lambda c: c.phase, str),
    "alike": (lambda c: (c.kind, c.axes, c.count, c.conditional, c.seconds, c.formula), lambda key: _over(*key[:2])),
}


def sum_collectives(
    collectives: Iterable[Collective], key: str, *, order: str = "bytes"
) -> tuple[CollectiveTotal, ...]:
    """Sum collectives by a property, the most `bytes` or `seconds` first, then by label. The keys are `axes`, `source`
    (the line), `kind`, `kind_axes`, `phase`, and `alike`: kind, axes, count, seconds and formula. Raises ShardvizError
    for another key."""
    if key not in _COLLECTIVE_KEYS:
        have = ", ".join(map(repr, _COLLECTIVE_KEYS))
        raise ShardvizError(f"collectives cannot be summed by {key!r}; the keys are {have}")
    group_of, label = _COLLECTIVE_KEYS[key]
    groups = grouped((group_of(c), c) for c in collectives)
    totals = [CollectiveTotal(key, label(key), tuple(rows)) for key, rows in groups.items()]
    if order == "seconds":
        totals.sort(key=lambda t: (-t.seconds, t.untimed == t.operations, -t.assumed_seconds, -t.bytes, t.label))
    else:
        totals.sort(key=lambda t: (-t.bytes, -t.unknown_bytes, t.label))
    return tuple(totals)


def total_of(collectives: Iterable[Collective]) -> CollectiveTotal:
    """Return the sum of all collectives, with an empty label."""
    return CollectiveTotal(None, "", tuple(collectives))


@dataclass(frozen=True)
class WorkTotal:
    """Work with a common `key` (a phase, a line or None if unknown, a module, an element type), and its sums. Sums are
    for one device in a step."""

    key: str | Frame | None
    work: tuple[Work, ...]

    @cached_property
    def dot_flops(self) -> float:
        """FLOPs of matrix products and convolutions."""
        return math.fsum(row.dot_flops for row in self.work)

    @cached_property
    def other_flops(self) -> float:
        """FLOPs of everything else."""
        return math.fsum(row.other_flops for row in self.work)

    @cached_property
    def hbm_bytes(self) -> float | None:
        """Bytes read from and written to main memory; None if the level does not know them."""
        sizes = [row.hbm_bytes for row in self.work if row.hbm_bytes is not None]
        return math.fsum(sizes) if sizes else None

    @property
    def flops(self) -> float:
        """All FLOPs."""
        return self.dot_flops + self.other_flops

    @property
    def at_least(self) -> str:
        """`at least ` if the work includes kernels or calls of unknown FLOPs, otherwise empty."""
        return _at_least(self.work)

    @property
    def label(self) -> str:
        """The key in plain text."""
        return self.key.short if isinstance(self.key, Frame) else self.key or NO_SOURCE


def _at_least(work: Iterable[Work]) -> str:
    return "at least " if any(row.opaque for row in work) else ""


_WORK_KEYS: Mapping[str, Callable[[Work], str | Frame | None]] = {
    "phase": lambda row: row.phase,
    "source": lambda row: row.source and row.source.bare,
    "module": lambda row: row.module,
    "dtype": lambda row: row.dtype,
}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The FLOPs and bytes of a step on one device.

    Attributes:
        dot_flops: FLOPs of all matrix products: 2 x output size x contracted size, times the loops' trip counts.
            Kernels and library calls count if their FLOPs are known (`records.kernels`), otherwise they are `opaque`.
        unknown_loops: the number of loops with an unknown trip count; their bodies count once.
        other_flops: FLOPs of everything else, times trip counts, as in `Work`; None if the level does not count them.
        once_flops: all FLOPs with each loop's body counted once, as in `cost_analysis()`; None if not counted.
        hbm_bytes: bytes that the target's optimised program reads from and writes to main memory, times trip counts;
            None below level `compiled`.
        once_hbm_bytes: `hbm_bytes` with each loop's body counted once.
        work: one row for each phase, line, module and element type, most FLOPs first.
    """

    dot_flops: float
    unknown_loops: int = 0
    other_flops: float | None = None
    once_flops: float | None = None
    hbm_bytes: float | None = None
    once_hbm_bytes: float | None = None
    work: tuple[Work, ...] = ()

    @property
    def flops(self) -> float:
        """All FLOPs that the level counts."""
        return self.dot_flops + (self.other_flops or 0.0)

    @property
    def opaque(self) -> tuple[str, ...]:
        """The names of kernels and library calls of unknown FLOPs."""
        return tuple(sorted({name for row in self.work for name in row.opaque}))

    @property
    def at_least(self) -> str:
        """`at least ` if there are kernels or library calls of unknown FLOPs, otherwise empty."""
        return _at_least(self.work)

    def by(self, key: str) -> tuple[WorkTotal, ...]:
        """Return the work summed by a property, most FLOPs first, then most bytes.

        Args:
            key: `phase`, `source` (the line), `module` or `dtype`.

        Raises:
            ShardvizError: for another key.
        """
        if key not in _WORK_KEYS:
            raise ShardvizError(f"by({key!r}): expected one of {', '.join(map(repr, _WORK_KEYS))}")
        group_of = _WORK_KEYS[key]
        groups = grouped((group_of(row), row) for row in self.work)
        totals = (WorkTotal(value, tuple(rows)) for value, rows in groups.items())
        return tuple(sorted(totals, key=lambda t: (-t.flops, -(t.hbm_bytes or 0.0), str(t.key))))
