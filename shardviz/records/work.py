"""What one device computes, and reads and writes, at each place of the program; and what XLA itself says.

>>> tally = WorkTally()
>>> for trips in (80, 1):
...     tally.add("forward", None, "block", "bfloat16", dot_flops=2e9 * trips)
>>> [(row.phase, row.module, row.dot_flops) for row in tally.rows]
[('forward', 'block', 162000000000.0)]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from shardviz.notation import Axis
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
        opaque: names of kernels and calls here whose FLOPs nobody says, so that there are more than these.
    """

    phase: str
    source: Frame | None
    module: str
    dtype: str
    dot_flops: float
    other_flops: float = 0.0
    hbm_bytes: float | None = None
    opaque: tuple[str, ...] = ()

    @property
    def flops(self) -> float:
        """All FLOPs."""
        return self.dot_flops + self.other_flops


_Key = tuple[str, Frame | None, str, str]


class WorkTally:
    """Work added up by its place: phase, line, module and element type."""

    def __init__(self) -> None:
        self._sums: dict[_Key, tuple[float, float, float | None]] = {}
        self._opaque: dict[_Key, set[str]] = {}

    def add(
        self,
        phase: str,
        source: Frame | None,
        module: str,
        dtype: str,
        dot_flops: float = 0.0,
        other_flops: float = 0.0,
        hbm_bytes: float | None = None,
        opaque: Iterable[str] = (),
    ) -> None:
        """Adds to the row of a place; all as in `Work`."""
        key = phase, source, module, dtype
        dot, other, moved = self._sums.get(key, (0.0, 0.0, None))
        if hbm_bytes is not None:
            moved = (moved or 0.0) + hbm_bytes
        self._sums[key] = dot + dot_flops, other + other_flops, moved
        if opaque:
            self._opaque.setdefault(key, set()).update(opaque)

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
        rows = (
            Work(
                phase=phase,
                source=source,
                module=module,
                dtype=dtype,
                dot_flops=dot,
                other_flops=other,
                hbm_bytes=moved,
                opaque=tuple(sorted(self._opaque.get((phase, source, module, dtype), ()))),
            )
            for (phase, source, module, dtype), (dot, other, moved) in self._sums.items()
        )
        return tuple(sorted(rows, key=_weight))


def _weight(row: Work) -> tuple[float, float, str, str, str, str]:
    where = row.source.short if row.source else ""
    return -row.flops, -(row.hbm_bytes or 0.0), where, row.phase, row.module, row.dtype


def joined(computed: Iterable[Work], moved: Iterable[Work]) -> tuple[Work, ...]:
    """Rows of FLOPs and rows of bytes as one list; those of the same place are one row, the most FLOPs first."""
    tally = WorkTally()
    tally.join(replace(row, hbm_bytes=0.0) for row in computed)
    tally.join(moved)
    return tally.rows


@dataclass(frozen=True, kw_only=True)
class Factor:
    """How one factor of a product comes, before it is brought into the sharding that the product needs: the program's
    argument that it is, or is a slice or a rearrangement of (else empty); the axes that shard a batch dimension which
    others shard in the other factor; and those that shard what is summed over here, and a dimension of the other factor
    that is not."""

    argument: str = ""
    batch: tuple[Axis, ...] = ()
    crossed: tuple[Axis, ...] = ()


Sizes = tuple[int, int, int, int]
"""Of a product: how many (batch), rows (m), what is summed over (k), columns (n)."""


@dataclass(frozen=True, kw_only=True)
class Product:
    """A matrix product of the program, as one device does it.

    Attributes:
        value: the name of the intermediate that it makes; empty where that has no row of its own.
        source: the line.
        phase: as `Collective.phase`.
        dtype: in which its factors are multiplied.
        count: how often it runs in a step; None where not known.
        whole, shard: its sizes, all devices together and on one.
        flops: FLOPs of one run on one device.
        repeated: the mesh axes along which all devices do the same product.
        left_axes, right_axes: the axes that shard what is summed over in either factor, as it comes, before it is
            brought into the sharding that the product needs, and that shard nothing of the other factor.
        factors: the left and the right one, where their shardings do not fit each other.
    """

    value: str
    source: Frame | None
    phase: str
    dtype: str
    count: int | None
    whole: Sizes
    shard: Sizes
    flops: float
    repeated: tuple[Axis, ...] = ()
    left_axes: tuple[Axis, ...] = ()
    right_axes: tuple[Axis, ...] = ()
    factors: tuple[Factor, ...] = ()

    @property
    def step_flops(self) -> float:
        """FLOPs on one device in a step; of one run where the count is not known."""
        return self.flops * (self.count or 1)
