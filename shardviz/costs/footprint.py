"""An estimate of a program's memory on one device, from the schedule that is listed of it, before a compiler plans it.

    needed = arguments + the most of what the step makes, results included, that is held at one moment

`foresee.listed` says which arrays are written to memory, how long each is held, and what a chip's own memory keeps; a
result lies in a donated argument's place if there is one of its size. What is held for a moment may lie where a result
will be written. A TPU stores what only matrix products read as bfloat16, to which they round it, and images in whole
tiles. Only main memory counts, as compilers compare only that with a chip's memory.

An all-gather that a TPU's compiler has run as an all-reduce (`timing.runs_as_sum`) holds what each device gives, its
shard among zeros, beside what it gets.

A compiler orders operations otherwise, and where a plan does not fit it computes arrays again. Of the 204 presets in
`docs/promised_and_compiled.py` that fit their chips, the estimate at level `propagated` is off by 5 % in the median and
within 25 % for 85 %, at level `partitioned` by 5 %, and for 91 %; the chip's compiler takes between `LESS` below it and
`MORE` above it for 95 % by the partitioned program, for 92 % by the propagated one. So it does for 15 of 16 programs
that were not written for the estimate: nine of MaxText's train steps on v5p (0.91 to 1.10 of the compiler's bytes), and
a ResNet-50, an MLP-Mixer and a ViT on v5e; a ResNet-50 whose weights are sharded takes 1.8 times. XLA's partitioner
reshards some otherwise than Shardy: what a `shard_map` takes and FSDP shards otherwise it may gather whole (ring
attention, 512 chips: 13 times the estimate). Its compiler puts gradients of weights off (up to 2.2 times).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardviz.costs.machine import Machine
from shardviz.costs.timing import runs_as_sum
from shardviz.records import Collective
from shardviz.records.amounts import format_bytes
from shardviz.records.report import ReportRecord
from shardviz.records.schedule import Schedule, Scheduled
from shardviz.records.values import on_device

LESS, MORE = 0.3, 0.6
"""The shares of an estimate by which nine of ten compilers' plans take less at most, and more: 95 % by the
partitioned program, 92 % by the propagated one."""
SMALL = 50e6
"""Bytes about which an estimate may be off however small the program: as much as v5p's compiler puts into VMEM."""


@dataclass(frozen=True)
class Footprint:
    """An estimate of the memory that a program takes on one device, in bytes.

    Attributes:
        arguments: the arguments that it uses, as the plan shards them.
        made: the most of what the step makes that is held at one moment in main memory, in no argument's place.
    """

    arguments: float
    made: float

    @property
    def needed(self) -> float:
        """Bytes in all."""
        return self.arguments + self.made

    @property
    def margin(self) -> tuple[float, float]:
        """The shares of them by which a compiler's plan may be less, and more."""
        return margin_of(self.needed)


def margin_of(needed: float) -> tuple[float, float]:
    """The shares of an estimate by which a compiler's plan may be less, and more."""
    small = SMALL / needed if needed else 0.0
    return min(1.0, max(LESS, small)), max(MORE, small)


def span_words(needed: float) -> str:
    """What a compiler's plan may take where so many bytes are estimated, in words."""
    less, more = margin_of(needed)
    least, most = format_bytes(needed * (1 - less)), format_bytes(needed * (1 + more))
    return f"{least} to {most} in nine of ten compilers' plans"


def fits_by_estimate(needed: float, margin: tuple[float, float], usable: float | None) -> bool | None:
    """Whether so many bytes fit beyond an estimate's margin, do not, or (None) that cannot be told."""
    if usable is None:
        return None
    less, more = margin
    if needed * (1 + more) <= usable:
        return True
    return False if needed * (1 - less) > usable else None


def footprint(report: ReportRecord, machine: Machine | None = None) -> Footprint:
    """The estimate for a report whose schedule is listed (level `propagated` or `partitioned`) on a machine's chips; on
    chips without a memory of their own if none is given."""
    arguments = sum(value.bytes_per_device or 0.0 for value in on_device(report.arguments))
    zeros = {} if machine is None else zeros_of(report.collectives, machine)
    return Footprint(arguments, _most_held(report.schedule, memory_of(machine), zeros))


def memory_of(machine: Machine | None) -> tuple[float, bool, float]:
    """How a machine's chips hold arrays, as `Scheduled.alive` asks for it."""
    chip = None if machine is None else machine.chip
    return (0.0, False, 0.0) if chip is None else (chip.own_bytes, chip.kind == "tpu", chip.sent_bytes)


def zeros_of(collectives: Iterable[Collective], machine: Machine) -> dict[str, float]:
    """The all-gathers that run as all-reduces: bytes of what each device gives, its shard among zeros, by name."""
    gathers = (one for one in collectives if one.kind == "all-gather" and one.group_size)
    return {one.name: one.result_bytes for one in gathers if runs_as_sum(one.kind, one.group_size or 0, machine)}


def alive_in(entry: Scheduled, has: tuple[float, bool, float], zeros: Mapping[str, float]) -> float:
    """Bytes of main memory that are held while an entry of a listed schedule runs, as of `memory_of` and `zeros_of`."""
    return entry.alive(*has) + (zeros.get(entry.name, 0.0) if zeros and entry.kind == "end" else 0.0)


def _most_held(entries: Schedule, has: tuple[float, bool, float], zeros: Mapping[str, float]) -> float:
    inner = (_most_held(entry.body, has, zeros) for entry in entries if entry.body)
    return max([alive_in(entry, has, zeros) for entry in entries] + [*inner], default=0.0)
