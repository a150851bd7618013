"""Comparison of two dry runs, program by program: calls, seconds, memory, and the shardings of arrays."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from shardviz.costs.machine import Machine
from shardviz.display import Displayed
from shardviz.errors import ShardvizError
from shardviz.judge.comparison import Comparison, compare_reports, named_in
from shardviz.judge.processes import ProcessComparison, compare_processes, of_one_job
from shardviz.records.runs import RunArray, RunProgram, RunRecord


@dataclass(frozen=True, kw_only=True)
class ProgramChange:
    """A program in two runs.

    Attributes:
        name: the function's name.
        before, after: the program in the first and in the second run; None where that run has none.
    """

    name: str
    before: RunProgram | None
    after: RunProgram | None

    @property
    def same(self) -> bool:
        """Return whether only the line of the first call may differ."""
        if self.before is None or self.after is None:
            return False
        before, after = (replace(each, source=None, operations=()) for each in (self.before, self.after))
        return before == after

    @property
    def arrays(self) -> tuple[tuple[str, RunArray | None, RunArray | None], ...]:
        """Return each array that differs in spec, shape, element type or donation, by role and tree path."""
        one, other = dict(_arrays(self.before)), dict(_arrays(self.after))
        both = ((name, one.get(name), other.get(name)) for name in dict.fromkeys((*one, *other)))
        return tuple((name, before, after) for name, before, after in both if before != after)


@dataclass(frozen=True, kw_only=True, repr=False)
class RunComparison(Displayed):
    """The differences between two dry runs.

    Attributes:
        names: of the runs, the baseline first.
        before, after: the runs.
        programs: every program of either, in the order of the first run. Programs of one name are matched by their
            order.
    """

    names: tuple[str, str]
    before: RunRecord
    after: RunRecord
    programs: tuple[ProgramChange, ...]

    @property
    def same(self) -> bool:
        """Return whether the runs have the same programs, called as often, and need the same memory."""
        return _peak(self.before) == _peak(self.after) and all(each.same for each in self.programs)

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the comparison as JSON text: both runs' peaks in bytes per device, and each program that differs."""
        peaks, changes = (_peak(self.before), _peak(self.after)), [each for each in self.programs if not each.same]
        data = RunComparisonData(names=self.names, peak_bytes=peaks, programs=changes)
        return json.dumps(msgspec.to_builtins(data), indent=indent)


class RunComparisonData(msgspec.Struct, kw_only=True):
    """The JSON of `RunComparison`; `peak_bytes` per device, None if nothing was recorded."""

    shardviz_run_comparison: int = 1
    names: tuple[str, str]
    peak_bytes: tuple[float | None, float | None]
    programs: list[ProgramChange]


def compare(*what: Any, target: str | Machine | None = None) -> Comparison | RunComparison | ProcessComparison:
    """Compare a baseline with other reports, or two dry runs with each other, or those of the processes of one job.

    Args:
        what: two or more `Report`s, or (name, report) pairs, or one dictionary of them; the first is the baseline. They
            have one level; plans, meshes, targets and versions of the function or JAX may differ (`Report.from_json`).
            Or two runs (`sv.dry_run`, `RunRecord.from_json`), given in the same ways; or two or more runs of other
            processes of one job (`process=(i, n)`).
        target: the machine that every step is timed on; each report's own if not given, if it has a known speed (a CPU
            has none). Runs keep their own.

    Returns:
        The comparison; `.same` is whether nothing differs.

    Raises:
        ShardvizError: if there are fewer than two reports, not two runs, or both reports and runs; if two have one
            name, or reports have several levels.
        TargetError, MeshError: as `sv.cost`.

    Examples:
        >>> import shardviz as sv
        >>> mlp = sv.gallery.mlp()
        >>> replicated = mlp.plan.with_spec("params[1]['w']", None)
        >>> sv.compare(mlp.program.propagate(mlp.plan), mlp.program.propagate(replicated)).same
        False
    """
    named = [(name, getattr(each, "record", each)) for name, each in named_in(what)]
    runs = {name: each for name, each in named if isinstance(each, RunRecord)}
    if not runs:
        return compare_reports(*what, target=target)
    if len(runs) == len(named) > 1 and of_one_job(list(runs.values())):
        return compare_processes(list(runs.values()))
    if len(named) != 2 or len(runs) != 2:
        raise ShardvizError(
            f"compare: {len(runs)} of {len(named)} are dry runs; give two runs with two names, or reports alone"
        )
    (one, before), (other, after) = runs.items()
    return RunComparison(names=(one, other), before=before, after=after, programs=tuple(_matched(before, after)))


def _matched(before: RunRecord, after: RunRecord) -> Iterator[ProgramChange]:
    unmatched = defaultdict[str, list[RunProgram]](list)
    for program in after.programs:
        unmatched[program.name].append(program)
    for program in before.programs:
        others = unmatched[program.name]
        yield ProgramChange(name=program.name, before=program, after=others.pop(0) if others else None)
    for name, others in unmatched.items():
        yield from (ProgramChange(name=name, before=None, after=program) for program in others)


def _arrays(program: RunProgram | None) -> Iterator[tuple[str, RunArray]]:
    for role, arrays in (("argument", program.arguments), ("result", program.results)) if program else ():
        yield from ((f"{role} {array.name}", array) for array in arrays)


def _peak(run: RunRecord) -> float | None:
    return None if run.peak is None else run.needs_at(run.peak)
