"""What the target's own compiler adds to a partitioned report: its memory plan, its collectives, its HBM traffic."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardviz import diagnose, hlo
from shardviz.analysis.targeting import Aim
from shardviz.notation import DeviceMesh
from shardviz.records import Collective, Diagnostic, Memory, TargetCollective


@dataclass(frozen=True)
class CompiledFacts:
    """What the optimised program and its memory plan say.

    Attributes:
        memory: the memory plan.
        collectives: the collectives as the target runs them.
        moved: what its instructions read from and write to main memory.
        diagnostics: that the program does not fit.
    """

    memory: Memory
    collectives: tuple[TargetCollective, ...]
    moved: hlo.ByteCount
    diagnostics: tuple[Diagnostic, ...]


def compiled_facts(
    texts: Mapping[str, str],
    aimed: Aim,
    mesh: DeviceMesh,
    partitioned: Sequence[Collective],
    before: hlo.Module,
    after: hlo.Module,
    arguments: Sequence[str],
) -> CompiledFacts:
    """Reads the texts of milestone `compiled`.

    Args:
        texts: stage → text.
        aimed: what was compiled for.
        mesh: the plan's mesh.
        partitioned: the partitioner's collectives.
        before, after: the modules around the partitioner.
        arguments: the names of the program's arguments.
    """
    optimized = hlo.parse(texts["optimized"])
    memory = _memory(texts, optimized, aimed, arguments)
    runs = hlo.as_run(optimized, mesh, partitioned, after, before, arguments=arguments, slices=aimed.slices)
    return CompiledFacts(memory, runs, hlo.count_bytes(optimized), diagnose.does_not_fit(memory, aimed.text))


def _memory(texts: Mapping[str, str], optimized: hlo.Module, aimed: Aim, arguments: Sequence[str]) -> Memory:
    buffers = hlo.Buffers(texts["buffers"], texts.get("live_ranges", ""))
    no_room = texts.get("no_room", "")
    plan = hlo.memory(buffers, target=aimed.text, report=texts.get("memory_report", ""), no_room=no_room)
    plan = dataclasses.replace(plan, alive_at_peak=hlo.alive_at_peak(buffers, optimized, arguments))
    known = aimed.hbm
    if known is None:
        return plan
    # the compiler states it rounded to 0.01 GiB; where the chip's own number rounds to the same, that is exact
    hbm = known if plan.hbm is None or abs(known - plan.hbm) <= 0.006 * 2**30 else plan.hbm
    fits = plan.fits
    if fits is None:  # a TPU's compiler ends with an error where it does not fit; others do not look
        fits = True if aimed.machine.chip.kind == "tpu" else plan.takes <= hbm
    return dataclasses.replace(plan, hbm=hbm, fits=fits)
