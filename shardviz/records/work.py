"""The FLOPs and bytes of one device at each place of the program.

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
    """The FLOPs and bytes of one device at one place of the program in a step, times the loops' trip counts.

    Attributes:
        phase: as `Collective.phase`.
        source: the innermost line of the user's code that it comes from; None if unknown.
        module: the module or function of the user's program, from JAX's name stack (`layers/mlp`), or the line's
            function; empty if unknown.
        dtype: the element type of the products' operands, of the elementwise results, or of the written arrays.
        dot_flops: FLOPs of matrix products and convolutions.
        other_flops: FLOPs of everything else by XLA's count: one for each element of an elementwise result or of a
            reduction's operand, none for transcendental functions (`exp`, `tanh`, `rsqrt`).
        hbm_bytes: bytes read from and written to main memory; None if the level does not know them.
        opaque: names of kernels and calls of unknown FLOPs at this place; with these, the FLOPs are lower bounds.
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
    """Work summed by place: phase, line, module and element type."""

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
        *,
        other_flops: float = 0.0,
        hbm_bytes: float | None = None,
        opaque: Iterable[str] = (),
    ) -> None:
        """Add to the row of a place; the arguments are the fields of `Work`."""
        key = phase, source, module, dtype
        dot, other, moved = self._sums.get(key, (0.0, 0.0, None))
        if hbm_bytes is not None:
            moved = (moved or 0.0) + hbm_bytes
        self._sums[key] = dot + dot_flops, other + other_flops, moved
        if opaque:
            self._opaque.setdefault(key, set()).update(opaque)

    def join(self, rows: Iterable[Work]) -> None:
        """Add rows of another tally."""
        for row in rows:
            self.add(**vars(row))

    @property
    def flops(self) -> float:
        """All FLOPs."""
        return sum(dot + other for dot, other, _ in self._sums.values())

    @property
    def rows(self) -> tuple[Work, ...]:
        """One row for each place, most FLOPs first, then most bytes."""
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
    """Merge rows of FLOPs and rows of bytes by place, most FLOPs first."""
    tally = WorkTally()
    tally.join(replace(row, hbm_bytes=0.0) for row in computed)
    tally.join(moved)
    return tally.rows


@dataclass(frozen=True, kw_only=True)
class Factor:
    """The sharding of one factor of a product, before it is resharded for the product. `argument` is the program's
    argument that the factor is, or is a slice or a rearrangement of; otherwise empty. `batch` has the axes that shard a
    batch dimension which other axes shard in the other factor. `crossed` has the axes that shard a contracted dimension
    here, and a dimension of the other factor that is not contracted."""

    argument: str = ""
    batch: tuple[Axis, ...] = ()
    crossed: tuple[Axis, ...] = ()


Sizes = tuple[int, int, int, int]
"""The sizes of a product: batch, rows (m), contracted (k), columns (n)."""


@dataclass(frozen=True, kw_only=True)
class Product:
    """A matrix product of the program, on one device.

    Attributes:
        value: the name of the intermediate that it computes; empty if the intermediate has no row.
        source: the line.
        phase: as `Collective.phase`.
        dtype: the element type of the multiplication.
        count: runs in a step; None if unknown.
        whole, shard: the sizes on all devices together, and on one device.
        flops: FLOPs of one run on one device.
        repeated: the mesh axes along which all devices compute the same product.
        left_axes, right_axes: the axes that shard the contracted dimensions of either factor, before it is resharded
            for the product, and that do not shard the other factor.
        factors: the left and the right factor, if their shardings are incompatible.
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
        """FLOPs on one device in a step; an unknown count is taken as one run."""
        return self.flops * (self.count or 1)
