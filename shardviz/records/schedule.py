"""A schedule as plain data: one device's work in a step, in the order of its begin.

    work   fusion.12                    on the chip's units, one after the other
    begin  all-gather-start.3           in parallel, on links or as a copy
    loop   while.7, 80 trips            has a schedule of its own, run this often
    end    all-gather-start.3           waits for its end

An operation that blocks the chip begins and ends immediately. `compiler.schedule` reads a compiler's schedule from its
program; for a program without a schedule, `foresee.listed` makes one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from shardviz.records.collectives import Collective
from shardviz.records.kernels import Kernel
from shardviz.records.values import Frame


class Scheduled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of a schedule; its JSON omits default values.

    Attributes:
        kind: `work`, `begin`, `end` or `loop`.
        name: the instruction; for `end`, the instruction of its `begin`.
        flops: element type → FLOPs of matrix products.
        side: for work: the shortest side of its products (rows, columns or contracted); 0 if unknown.
        hbm_bytes: bytes read from and written to main memory; for a copy, the bytes copied.
        padding_bytes: bytes that a TPU adds to `hbm_bytes`, since it stores full tiles and copies gathered results; 0
            if `hbm_bytes` includes them.
        on_chip: bytes of a chip's own memory → the part of `hbm_bytes` that stays there on a chip with this many bytes.
        host_bytes: for a copy: the bytes to the host's memory (`to_host`) or from there.
        collective: for `begin`: the name of the report's collective; empty for a copy.
        slices: for an all-reduce: the number of equal slices of its result that are used separately, if it has no other
            use, otherwise 0. With one slice per device of a group, it becomes a reduce-scatter.
        narrows: for an all-gather or a permute of float32: whether only products use its result; TPUs send bfloat16.
        sums_before: for an all-reduce: the length of the longest chain of all-reduces of its block that ends with it.
            All-reduces of equal length do not depend on each other. 0 for other entries.
        after: for `begin`: the instructions that must have ended before.
        kernel: for work: the kind of its products, `attention` (fused into one kernel) or `convolution`; else empty.
        opaque: its kernels and library calls of unknown FLOPs.
        between: for `begin`: a TPU compiler's name for the kind of a transfer between slices (`ALL_REDUCE`).
        sent_bytes: for such a transfer: the bytes that one device sends.
        alive_bytes: bytes of main memory in use meanwhile, for arrays that the step itself computes. In a compiler's
            plan they exclude the results, whose memory is reserved from the start. None if unknown.
        alive_padding: bytes that a TPU adds to `alive_bytes`, as for `padding_bytes`.
        alive_rounded: bytes that a TPU saves by storing arrays as bfloat16 that only products read.
        alive_on_chip: bytes of a chip's own memory → the part of `alive_bytes` in that memory on a chip with this many.
        alive_sent: the same for operands and results of collectives, on a chip whose collectives use that memory.
        source: the user's line that it comes from.
        phase: as `Collective.phase`.
        trips: for `loop`; None if unknown.
        body: for `loop`.
    """

    kind: Literal["work", "begin", "end", "loop"]
    name: str
    flops: Mapping[str, float] = msgspec.field(default_factory=dict)
    side: int = 0
    hbm_bytes: float = 0.0
    padding_bytes: float = 0.0
    on_chip: Mapping[int, float] = msgspec.field(default_factory=dict)
    host_bytes: float = 0.0
    to_host: bool = False
    collective: str = ""
    slices: int = 0
    narrows: bool = False
    sums_before: int = 0
    after: tuple[str, ...] = ()
    kernel: Kernel = ""
    opaque: tuple[str, ...] = ()
    between: str = ""
    sent_bytes: float = 0.0
    alive_bytes: float | None = None
    alive_padding: float = 0.0
    alive_rounded: float = 0.0
    alive_on_chip: Mapping[int, float] = msgspec.field(default_factory=dict)
    alive_sent: Mapping[int, float] = msgspec.field(default_factory=dict)
    source: Frame | None = None
    phase: str = "update"
    trips: int | None = 1
    body: tuple[Scheduled, ...] = ()

    def moved(self, room: float, tiles: bool = False) -> float:
        """Return bytes of main memory, on a chip with `room` bytes of its own memory; `tiles`: it stores full tiles."""
        moved = self.hbm_bytes - sum(kept for needed, kept in self.on_chip.items() if needed <= room)
        if not tiles:
            return moved
        return moved * (1 + self.padding_bytes / self.hbm_bytes) if self.hbm_bytes else self.padding_bytes

    def alive(self, room: float, tiles: bool = False, sent: float = 0.0) -> float:
        """Return the bytes of main memory in use meanwhile, on a chip as for `moved`; 0 if unknown. The chip's
        collectives use `sent` bytes of its own memory."""
        total = (self.alive_bytes or 0.0) + (self.alive_padding - self.alive_rounded if tiles else 0.0)
        kept = ((room, self.alive_on_chip), (sent, self.alive_sent))
        return total - sum(size for most, of in kept for needed, size in of.items() if needed <= most)

    @property
    def total(self) -> tuple[float, float]:
        """FLOPs and bytes of main memory, times the loops' trip counts."""
        times = 1 if self.trips is None else self.trips
        inner = [entry.total for entry in self.body]
        return (
            times * (sum(self.flops.values()) + sum(flops for flops, _ in inner)),
            times * (self.hbm_bytes + sum(moved for _, moved in inner)),
        )


Schedule = tuple[Scheduled, ...]


def heaviest(branches: list[Schedule]) -> Schedule:
    """Return the branch of a conditional with the most FLOPs, then the most bytes."""
    return max(branches, key=lambda entries: tuple(map(sum, zip(*(e.total for e in entries), strict=True))), default=())


def begun_and_ended(collectives: Sequence[Collective]) -> Schedule:
    """Return a schedule of collectives one after the other, each a `begin` and its `end`."""
    entries: list[Scheduled] = []
    for place, one in enumerate(collectives):
        after = (collectives[place - 1].name,) if place else ()
        begin = Scheduled(
            kind="begin", name=one.name, collective=one.name, after=after, source=one.source, phase=one.phase
        )
        entries += (begin, Scheduled(kind="end", name=one.name, source=one.source, phase=one.phase))
    return tuple(entries)
