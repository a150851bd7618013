"""A schedule as plain data: what one device does in a step, in the order in which it begins it.

    work   fusion.12                    on the chip's units, one after the other
    begin  all-gather-start.3           beside them, on links or as a copy
    loop   while.7, 80 trips            a schedule of its own, so often
    end    all-gather-start.3           waits until that has ended

What blocks the chip while it goes on is begun and ended at once. A compiler's schedule is read from its program
(`compiler.schedule`); where a program has none, `graph.listed` makes one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from shardviz.records.collectives import Collective
from shardviz.records.kernels import Kernel
from shardviz.records.values import Frame


class Scheduled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of a schedule; its JSON leaves out what is as it is by default.

    Attributes:
        kind: `work`, `begin`, `end` or `loop`.
        name: the instruction; of `end` the one that began what is waited for.
        flops: element type → FLOPs of matrix products.
        side: of work: the shortest side of its products (rows, columns, or what is summed over); 0 where not known.
        hbm_bytes: read from and written to main memory; of a copy what it moves.
        padding_bytes: what comes to `hbm_bytes` on a TPU, which stores whole tiles, and copies results that it has
            gathered; 0 where it is in them already.
        on_chip: bytes of a chip's own memory → how many of `hbm_bytes` stay there on a chip that has so many.
        host_bytes: of a copy: what goes to the host's memory (`to_host`) or comes from there.
        collective: of `begin`: the name of the report's collective; empty for a copy.
        slices: of an all-reduce: into how many its result falls, of which single ones are used and nothing else of it:
            where each device of a group keeps one, it becomes a reduce-scatter. 0 for other uses.
        narrows: of an all-gather or a permute of float32: nothing but products use its result; TPUs send bfloat16.
        after: of `begin`: what must have ended before.
        kernel: of work: what its products are of, `attention` (fused into one kernel) or `convolution`; else empty.
        opaque: kernels and library calls in it whose FLOPs nobody says.
        between: of `begin`: the kind of transfer between slices, as a TPU's compiler calls it (`ALL_REDUCE`).
        sent_bytes: of such a transfer: what one device hands over.
        alive_bytes: what is held of main memory meanwhile, of what the step itself makes; where a compiler planned it
            without the results, which have their place from the begin. None where not known.
        alive_padding: what comes to `alive_bytes` on a TPU, as of `padding_bytes`.
        alive_rounded: what a TPU holds less, which stores as bfloat16 what only products read.
        alive_on_chip: bytes of a chip's own memory → how many of these lie there on a chip that has so many.
        alive_sent: the same of what collectives take or give, where a chip's collectives reach that memory.
        source: the person's line that it stems from.
        phase: as `Collective.phase`.
        trips: of `loop`; None where not known.
        body: of `loop`.
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
        """Bytes of main memory on a chip that has `room` bytes of its own for values, and stores whole tiles or not."""
        moved = self.hbm_bytes - sum(kept for needed, kept in self.on_chip.items() if needed <= room)
        if not tiles:
            return moved
        return moved * (1 + self.padding_bytes / self.hbm_bytes) if self.hbm_bytes else self.padding_bytes

    def alive(self, room: float, tiles: bool = False, sent: float = 0.0) -> float:
        """Bytes of main memory that are held meanwhile, on a chip as of `moved`, of whose own memory collectives reach
        `sent` bytes; 0 where not known."""
        there = (self.alive_bytes or 0.0) + (self.alive_padding - self.alive_rounded if tiles else 0.0)
        kept = ((room, self.alive_on_chip), (sent, self.alive_sent))
        return there - sum(size for most, of in kept for needed, size in of.items() if needed <= most)

    @property
    def total(self) -> tuple[float, float]:
        """FLOPs and bytes of main memory, loops multiplied in."""
        times = 1 if self.trips is None else self.trips
        inner = [entry.total for entry in self.body]
        return (
            times * (sum(self.flops.values()) + sum(flops for flops, _ in inner)),
            times * (self.hbm_bytes + sum(moved for _, moved in inner)),
        )


Schedule = tuple[Scheduled, ...]


def heaviest(branches: list[Schedule]) -> Schedule:
    """The branch of a conditional that does most: by FLOPs, then by bytes."""
    return max(branches, key=lambda entries: tuple(map(sum, zip(*(e.total for e in entries), strict=True))), default=())


def begun_and_ended(collectives: Sequence[Collective]) -> Schedule:
    """One after the other, each a `begin` and its `end`."""
    entries: list[Scheduled] = []
    for place, one in enumerate(collectives):
        after = (collectives[place - 1].name,) if place else ()
        begin = Scheduled(
            kind="begin", name=one.name, collective=one.name, after=after, source=one.source, phase=one.phase
        )
        entries += (begin, Scheduled(kind="end", name=one.name, source=one.source, phase=one.phase))
    return tuple(entries)
