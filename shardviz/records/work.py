"""What a step computes, and reads and writes, on one device; in all, and where.

>>> tally = WorkTally()
>>> for trips in (80, 1):
...     tally.add("forward", None, "block", "bfloat16", dot_flops=2e9 * trips)
>>> [(row.phase, row.module, row.dot_flops) for row in tally.rows]
[('forward', 'block', 162000000000.0)]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from shardviz.errors import ShardvizError
from shardviz.records.values import Frame


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one device computes, and reads and writes, at one place of the program in a step; loops multiplied in.

    Attributes:
        phase: as `Collective.phase`.
        source: the innermost line of the person's code that it stems from; None where not known.
        module: the module or function of the person's program that it stems from, from JAX's name stack
            (`layers/mlp`), or the function that the line is in; empty where not known.
        dtype: the element type of the products' operands, of the elementwise results, or of what is written.
        dot_flops: FLOPs of matrix products and convolutions.
        other_flops: FLOPs of all else, as XLA counts them: one for each element of an elementwise result or of a
            reduction's operand, none for transcendental functions (`exp`, `tanh`, `rsqrt`).
        hbm_bytes: bytes read from and written to main memory; None where the level does not tell.
    """

    phase: str
    source: Frame | None
    module: str
    dtype: str
    dot_flops: float
    other_flops: float = 0.0
    hbm_bytes: float | None = None

    @property
    def flops(self) -> float:
        """All FLOPs."""
        return self.dot_flops + self.other_flops


class WorkTally:
    """Work added up by its place: phase, line, module and element type."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, Frame | None, str, str], tuple[float, float, float | None]] = {}

    def add(
        self,
        phase: str,
        source: Frame | None,
        module: str,
        dtype: str,
        dot_flops: float = 0.0,
        other_flops: float = 0.0,
        hbm_bytes: float | None = None,
    ) -> None:
        """Adds to the row of a place; all as in `Work`."""
        key = phase, source, module, dtype
        dot, other, moved = self._sums.get(key, (0.0, 0.0, None))
        if hbm_bytes is not None:
            moved = (moved or 0.0) + hbm_bytes
        self._sums[key] = dot + dot_flops, other + other_flops, moved

    def join(self, rows: Iterable[Work]) -> None:
        """Adds rows that were added up elsewhere."""
        for row in rows:
            self.add(**vars(row))

    @property
    def flops(self) -> float:
        """All FLOPs."""
        return sum(dot + other for dot, other, _ in self._sums.values())

    @property
    def rows(self) -> tuple[Work, ...]:
        """One row for each place, the most FLOPs first, then the most bytes."""
        made = (
            Work(
                phase=phase,
                source=source,
                module=module,
                dtype=dtype,
                dot_flops=dot,
                other_flops=other,
                hbm_bytes=moved,
            )
            for (phase, source, module, dtype), (dot, other, moved) in self._sums.items()
        )
        return tuple(sorted(made, key=_weight))


def _weight(row: Work) -> tuple[float, float, str, str, str, str]:
    where = row.source.short if row.source else ""
    return -row.flops, -(row.hbm_bytes or 0.0), where, row.phase, row.module, row.dtype


def joined(computed: Iterable[Work], moved: Iterable[Work]) -> tuple[Work, ...]:
    """Rows of FLOPs and rows of bytes as one list; those of the same place are one row, the most FLOPs first."""
    tally = WorkTally()
    tally.join(replace(row, hbm_bytes=0.0) for row in computed)
    tally.join(moved)
    return tally.rows


@dataclass(frozen=True)
class WorkTotal:
    """`Work` that has something in common, summed.

    Attributes:
        key: what it has in common: a phase, a line (`Frame`, or None where not known), a module or an element type.
        dot_flops, other_flops, hbm_bytes: the sums, as in `Work`.
    """

    key: str | Frame | None
    dot_flops: float
    other_flops: float
    hbm_bytes: float | None

    @property
    def flops(self) -> float:
        """All FLOPs."""
        return self.dot_flops + self.other_flops


_WORK_KEYS: Mapping[str, Callable[[Work], str | Frame | None]] = {
    "phase": lambda row: row.phase,
    "source": lambda row: row.source and row.source.bare,
    "module": lambda row: row.module,
    "dtype": lambda row: row.dtype,
}


@dataclass(frozen=True)
class Stated:
    """What XLA's own `Compiled.cost_analysis()` says of a finished program, word for word.

    Attributes:
        flops, bytes_accessed, transcendentals: its numbers, for one device, a loop's body counted once; None where it
            has no such entry.
        optimal_seconds: what a TPU's compiler takes for the time of a run, a loop's body counted once; None where it
            does not say, or says that it does not know (a negative number).
    """

    flops: float | None
    bytes_accessed: float | None
    transcendentals: float | None = None
    optimal_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a step does on one device.

    Attributes:
        dot_flops: FLOPs of all matrix products: 2 x output size x contracted size, loops multiplied in.
        unknown_loops: loops whose trip count could not be found; their bodies were counted once.
        other_flops: FLOPs of all else, loops multiplied in, as in `Work`; None where the level does not count them.
        once_flops: all FLOPs again, each loop's body counted once, as `cost_analysis()` does; None where not counted.
        hbm_bytes: bytes read from and written to main memory by the target's optimised program, loops multiplied in;
            None below level `compiled`.
        once_hbm_bytes: the same, each loop's body counted once.
        work: where it is done: one row for each phase, line, module and element type, the most FLOPs first.
        stated: what `cost_analysis()` says; None unless the compile was finished.
    """

    dot_flops: float
    unknown_loops: int = 0
    other_flops: float | None = None
    once_flops: float | None = None
    hbm_bytes: float | None = None
    once_hbm_bytes: float | None = None
    work: tuple[Work, ...] = ()
    stated: Stated | None = None

    @property
    def flops(self) -> float:
        """All FLOPs that the level counts."""
        return self.dot_flops + (self.other_flops or 0.0)

    def by(self, key: str) -> tuple[WorkTotal, ...]:
        """The work summed by what it has in common, the most FLOPs first, then the most bytes.

        Args:
            key: `phase`, `source` (the line), `module` or `dtype`.

        Raises:
            ShardvizError: for another key.
        """
        if key not in _WORK_KEYS:
            raise ShardvizError(f"by({key!r}): work is summed by {', '.join(map(repr, _WORK_KEYS))}")
        groups: dict[str | Frame | None, list[Work]] = {}
        for row in self.work:
            groups.setdefault(_WORK_KEYS[key](row), []).append(row)
        totals = (_work_total(of, rows) for of, rows in groups.items())
        return tuple(sorted(totals, key=lambda t: (-t.flops, -(t.hbm_bytes or 0.0), str(t.key))))


def _work_total(key: str | Frame | None, rows: Sequence[Work]) -> WorkTotal:
    moved = [row.hbm_bytes for row in rows if row.hbm_bytes is not None]
    dot, other = (math.fsum(getattr(row, name) for row in rows) for name in ("dot_flops", "other_flops"))
    return WorkTotal(key, dot, other, math.fsum(moved) if moved else None)
