"""An estimate of a program's memory on one device, from its listed schedule, before a compiler plans it.

    needed = arguments + the most bytes that the step's own arrays, results included, take at one moment

`foresee.listed` says which arrays are written to memory, for how long, and which stay in the chip's own memory. A
result takes the memory of a donated argument of its size if there is one. Temporaries may use the memory of a result
that is written later. A TPU stores arrays that only matrix products read as bfloat16, to which these round, and images
in full tiles. Only main memory counts, because compilers compare only that with a chip's memory. An all-gather that a
TPU's compiler runs as an all-reduce (`timing.runs_as_sum`) needs an operand of the full size, besides its result.

Compilers order operations differently, and recompute arrays if a plan does not fit. For the 204 presets in
`docs/promised_and_compiled.py` that fit their chips, the median error is 5 %. The error is within 25 % for 85 % of them
at level `propagated`, and for 91 % at level `partitioned`. The compiler's bytes are between `LESS` below and `MORE`
above the estimate for 92 % and 95 %. The same holds for 15 of 16 programs that the estimate was not developed on: nine
of MaxText's train steps on v5p (0.91 to 1.10 of the compiler's bytes), and a ResNet-50, an MLP-Mixer and a ViT on v5e;
a ResNet-50 with sharded weights takes 1.8 times its estimate. XLA's partitioner reshards some arrays differently than
Shardy: it may gather in full what a `shard_map` takes and FSDP shards in another way (ring attention on 512 chips: 13
times the estimate). The TPU compiler may delay gradients of weights (up to 2.2 times).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardviz.costs.machine import Machine
from shardviz.costs.placement import Placement
from shardviz.costs.timing import runs_as_sum
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
    """An estimate of a program's memory on one device, in bytes.

    Attributes:
        arguments: the arguments that it uses, as the plan shards them.
        made: the most main memory of the step's own arrays at one moment, outside the arguments' memory.
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
    """Return the shares by which a compiler's plan may be below and above an estimate."""
    small = SMALL / needed if needed else 0.0
    return min(1.0, max(LESS, small)), max(MORE, small)


def span_words(needed: float) -> str:
    """Return the range of a compiler's plan for an estimate of so many bytes, in words."""
    less, more = margin_of(needed)
    least, most = format_bytes(needed * (1 - less)), format_bytes(needed * (1 + more))
    return f"{least} to {most} in nine of ten compilers' plans"


def fits_by_estimate(needed: float, margin: tuple[float, float], usable: float | None) -> bool | None:
    """Return whether an estimate of so many bytes fits; None if its margin leaves both open."""
    if usable is None:
        return None
    less, more = margin
    if needed * (1 + more) <= usable:
        return True
    return False if needed * (1 - less) > usable else None


def footprint(report: ReportRecord, machine: Machine | None = None) -> Footprint:
    """Return the estimate for a report with a listed schedule (level `propagated` or `partitioned`) on a machine's
    chips; without a machine, on chips without their own on-chip memory."""
    arguments = sum(value.bytes_per_device or 0.0 for value in on_device(report.arguments))
    zeros = {} if machine is None else zeros_of(report, machine)
    return Footprint(arguments, _most_held(report.schedule, memory_of(machine), zeros))


def memory_of(machine: Machine | None) -> tuple[float, bool, float]:
    """Return how a machine's chips store arrays, as arguments of `Scheduled.alive`."""
    chip = None if machine is None else machine.chip
    return (0.0, False, 0.0) if chip is None else (chip.own_bytes, chip.kind == "tpu", chip.sent_bytes)


def zeros_of(report: ReportRecord, machine: Machine) -> dict[str, float]:
    """Return, for the all-gathers that run as all-reduces, name → bytes of the operand: the shard padded with zeros."""
    gathers = [one for one in report.collectives if one.kind == "all-gather" and one.axes]
    if not gathers or report.mesh.size != machine.size:
        return {}
    place = Placement.of(report.mesh, machine)
    return {one.name: one.result_bytes for one in gathers if runs_as_sum(one.kind, one.axes or (), place)}


def alive_in(entry: Scheduled, has: tuple[float, bool, float], zeros: Mapping[str, float]) -> float:
    """Return the main memory in use, in bytes, while an entry of a listed schedule runs; see `memory_of` and
    `zeros_of`."""
    return entry.alive(*has) + (zeros.get(entry.name, 0.0) if zeros and entry.kind == "end" else 0.0)


def _most_held(entries: Schedule, has: tuple[float, bool, float], zeros: Mapping[str, float]) -> float:
    inner = (_most_held(entry.body, has, zeros) for entry in entries if entry.body)
    return max([alive_in(entry, has, zeros) for entry in entries] + [*inner], default=0.0)
