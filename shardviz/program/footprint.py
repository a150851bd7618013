"""About how much memory a program takes on one device, told from its propagated schedule, before any compiler plans it.

    needed = arguments + the most that the schedule holds at one moment, less what a chip keeps in a memory of its own

The schedule (`graph.listed`) holds what fusions write until it is read last. It is main memory alone, which is what
compilers compare with what there is: a TPU's compiler fills the chip's own memory (VMEM) with such values. It is an
estimate: a compiler orders operations otherwise and holds what is cheaper to hold. Of 154 plans of many kinds of
programs (the presets in `docs/promised_and_compiled.py` on 8 chips of v5e and 64 of v5p, and the gallery's), the chip's
compiler takes between `LESS` below it and `MORE` above it for nine of ten, and just about it in the median.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shardviz.records.schedule import Scheduled

LESS, MORE = 0.4, 0.9
"""The shares of an estimate by which nine of ten compilers' plans take less at most, and more."""
SMALL = 50e6
"""Bytes about which an estimate may be off however small the program: as much as v5p's compiler puts into VMEM."""


@dataclass(frozen=True)
class Footprint:
    """An estimate of the memory that a program takes on one device, in bytes.

    Attributes:
        arguments: the arguments that it uses, as the plan shards them.
        made: the most of what it makes that is held at one moment in main memory, results included.
    """

    arguments: float
    made: float

    @classmethod
    def of(cls, arguments: float, schedule: Iterable[Scheduled], room: float = 0.0) -> Footprint:
        """The estimate for a schedule.

        Args:
            arguments: bytes of the arguments.
            schedule: what one device does.
            room: bytes of its own memory that a chip's compiler fills with values (a TPU's VMEM).
        """
        return cls(arguments, max(0.0, _most_alive(schedule) - room))

    @property
    def needed(self) -> float:
        """Bytes in all."""
        return self.arguments + self.made

    @property
    def margin(self) -> tuple[float, float]:
        """The shares of them by which a compiler's plan may be less, and more."""
        small = SMALL / self.needed if self.needed else 0.0
        return min(1.0, max(LESS, small)), max(MORE, small)


def _most_alive(schedule: Iterable[Scheduled]) -> float:
    """The most that a schedule holds at one moment."""
    return max((max(entry.alive_bytes or 0.0, _most_alive(entry.body)) for entry in schedule), default=0.0)
