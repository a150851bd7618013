"""Comparison of the dry runs of one job's processes: the first call, and the first line in it, that differs.

In JAX, all processes must run the same programs on their common devices, in the same order. Where they do not, the job
hangs or fails. Programs on one process's own devices may differ.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from shardviz.records.runs import RunArray, RunCall, RunProgram, RunRecord
from shardviz.records.values import Frame, SourceText
from shardviz.records.versioned import Versioned


@dataclass(frozen=True, kw_only=True)
class ProcessSide:
    """One of two processes at the first call in which they differ.

    Attributes:
        program: the program that it calls; empty if it makes no further call.
        called: the line of the call.
        source: the line of the operation or argument that differs; the line of the call if the programs do.
        text: the operation, argument or program that differs.
    """

    program: str
    called: Frame | None
    source: Frame | None
    text: str


@dataclass(frozen=True, kw_only=True)
class ProcessDifference:
    """The first difference between two processes.

    Attributes:
        call: the number of the call, from 1, among those of programs on devices of both.
        what: `program`, `argument`, `result`, `mesh`, `option` or `operation`.
        sides: what the first process of the comparison does there, and what another does.
        processes: all processes that do the same as this other.
    """

    call: int
    what: str
    sides: tuple[ProcessSide, ProcessSide]
    processes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class ProcessComparison(Versioned, kind="process_comparison"):
    """The differences between the processes of one job.

    Attributes:
        count: the number of processes of the job.
        processes: those that were compared.
        ended: how the run of each ended.
        programs, calls: the number of programs on devices of several processes in the first, and of their calls.
        differences: the first difference of each process from the first of `processes`; those with the same one are
            together.
        source: the text of the differences' lines.
    """

    count: int
    processes: tuple[int, ...]
    ended: tuple[str, ...]
    programs: int
    calls: int
    differences: tuple[ProcessDifference, ...]
    source: SourceText = field(default_factory=dict)

    @property
    def same(self) -> bool:
        """Return whether all processes run the same programs in the same order, and end in the same way."""
        return not self.differences and len(set(self.ended)) == 1


def of_one_job(runs: Sequence[RunRecord]) -> bool:
    """Return whether runs are of different processes, out of equally many."""
    processes = [run.process for run in runs if run.process is not None]
    return len(set(processes)) == len(runs) and len({count for _, count in processes}) == 1


def compare_processes(runs: Sequence[RunRecord]) -> ProcessComparison:
    """Compare runs of several processes, for which `of_one_job` holds, with the first of them."""
    runs = sorted(runs, key=lambda run: run.process or (0, 1))
    first, numbers = runs[0], [run.process[0] for run in runs if run.process]
    differences: dict[ProcessDifference, list[int]] = {}
    for run, number in zip(runs[1:], numbers[1:], strict=True):
        if (difference := _difference(first, run, (numbers[0], number))) is not None:
            differences.setdefault(difference, []).append(number)
    source: dict[str, dict[int, str]] = {}
    for frame in (f for each in differences for side in each.sides for f in (side.source, side.called) if f):
        source.setdefault(frame.file, {})[frame.line] = linecache.getline(frame.file, frame.line).rstrip()
    several = {n for n, program in enumerate(first.programs) if len(program.processes) > 1}
    return ProcessComparison(
        count=first.process[1] if first.process else 1,
        processes=tuple(numbers),
        ended=tuple(run.ended for run in runs),
        programs=len(several),
        calls=sum(call.program in several for call in first.calls),
        differences=tuple(replace(each, processes=tuple(numbers)) for each, numbers in differences.items()),
        source=source,
    )


def _difference(one: RunRecord, other: RunRecord, numbers: tuple[int, int]) -> ProcessDifference | None:
    matched: set[tuple[int | None, ...]] = set()  # the numbers of programs that are the same

    def calls(run: RunRecord) -> list[RunCall]:
        return [call for call in run.calls if {*numbers} <= {*run.programs[call.program].processes}]

    for place, pair in enumerate(zip_longest(calls(one), calls(other)), 1):
        key = tuple(call and call.program for call in pair)
        if key in matched:
            continue
        matched.add(key)
        programs = [run.programs[call.program] if call else None for run, call in zip((one, other), pair, strict=True)]
        lines = [call.source if call else None for call in pair]
        if (different := next(_program_differences(*programs), None)) is None:
            continue
        what, texts = different
        if lines[0] != lines[1]:
            what, texts = "program", _names(programs)
        sides = [
            ProcessSide(program=program.name if program else "", called=line, source=source or line, text=text)
            for program, line, (source, text) in zip(programs, lines, texts, strict=True)
        ]
        return ProcessDifference(call=place, what=what, sides=(sides[0], sides[1]), processes=())
    return None


def _program_differences(
    one: RunProgram | None, other: RunProgram | None
) -> Iterator[tuple[str, list[tuple[Frame | None, str]]]]:
    """Yield what differs between two programs, and the line and text on each side: what says most comes first."""
    if one is None or other is None or one.name != other.name:
        yield "program", _names((one, other))
        return
    arrays = ("argument", one.arguments, other.arguments), ("result", one.results, other.results)
    for what, ours, theirs in arrays:
        for pair in zip_longest(ours, theirs):
            if pair[0] != pair[1]:
                yield what, [(None, _array_text(array)) for array in pair]
    if one.mesh != other.mesh:
        yield "mesh", [(None, program.mesh.text if program.mesh else "none") for program in (one, other)]
    if one.options != other.options:
        yield "option", [(None, str(dict(program.options))) for program in (one, other)]
    for pair in zip_longest(one.operations, other.operations):
        if pair[0] is None or pair[1] is None or pair[0].text != pair[1].text:
            yield "operation", [(each.source, each.text) if each else (None, "none") for each in pair]


def _names(programs: Sequence[RunProgram | None]) -> list[tuple[Frame | None, str]]:
    return [(None, program.name if program else "no further call") for program in programs]


def _array_text(array: RunArray | None) -> str:
    if array is None:
        return "none"
    donated = ", donated" if array.donated else ""
    return f"{array.name}: {array.dtype}[{','.join(map(str, array.shape))}] {array.spec or 'no spec'}{donated}"
