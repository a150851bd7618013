"""The differences between reports in specs, collectives, FLOPs, memory and the step.

Collectives are matched by meaning (`changes`), values by tree path, or by line and operation. So reports of another JAX
version, or of a function with an additional line above, can be compared.
"""

from __future__ import annotations

import itertools
import json
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import StepCost, cost_of, memory_parts
from shardviz.display import Displayed
from shardviz.errors import ShardvizError, TargetError
from shardviz.judge.changes import CollectiveChange, SourceLine, match_collectives, total_data
from shardviz.judge.report import Report
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.spec import axis_name
from shardviz.records import CollectiveTotal, Value, sum_collectives
from shardviz.records.collectives import axes_words
from shardviz.records.options import Option
from shardviz.records.values import SourceText


@dataclass(frozen=True, kw_only=True)
class ValueChange:
    """An argument, output or intermediate with another sharding, shape, element type or shard size.

    Attributes:
        of: the name of the report that is compared with the baseline.
        role: `argument`, `output` or `intermediate`.
        name: the tree path; for an intermediate the variable or the operation.
        before, after: the value in the baseline and in the other report; None if the report does not have it.
    """

    of: str
    role: str
    name: str
    before: Value | None
    after: Value | None

    @property
    def changed(self) -> bool:
        """Whether its spec, shape or element type differs, or only one report has it. A shard's bytes alone, which
        change with the mesh, do not count."""
        if self.before is None or self.after is None:
            return True
        before, after = self.before, self.after
        specs = _spec_text(before.spec), _spec_text(after.spec)
        return specs[0] != specs[1] or (before.shape, before.dtype) != (after.shape, after.dtype)

    @property
    def bytes(self) -> float:
        """Bytes on one device: after minus before."""
        return sum(sign * (v.bytes_per_device or 0.0) for sign, v in ((1, self.after), (-1, self.before)) if v)


@dataclass(frozen=True, kw_only=True)
class Amount:
    """A number of both reports, on one device.

    Attributes:
        of: the name of the report that is compared with the baseline.
        group: `work`, `collectives`, `memory` or `step`.
        name: the name of the number.
        unit: `FLOP`, `bytes`, `runs` or `s`.
        before, after: the number in the baseline and in the other report; None if unknown.
        axes: the mesh axes of the collectives, for numbers by axes.
    """

    of: str
    group: str
    name: str
    unit: str
    before: float | None
    after: float | None
    axes: tuple[Axis, ...] | None = None

    @property
    def difference(self) -> float | None:
        """After minus before; None if either is unknown."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, repr=False, kw_only=True)
class Comparison(Displayed):
    """The differences between a baseline and one or more other reports of the same level.

    Attributes:
        names: the reports' names, the baseline first.
        level: the level of all reports.
        meshes, targets: report name → its mesh, and the machine that its step is timed on.
        options: report name → its plan's compiler options.
        values: every argument, output and intermediate that differs, including shards of another size.
        collectives: collectives that differ, by meaning, largest difference of bytes first.
        amounts: FLOPs, bytes, memory and times of both, including equal ones.
        notes: what cannot be compared, and why.
    """

    _width: ClassVar[int | None] = 120

    names: tuple[str, ...]
    level: str
    program: str
    meshes: Mapping[str, DeviceMesh]
    targets: Mapping[str, str]
    values: tuple[ValueChange, ...]
    collectives: tuple[CollectiveChange, ...]
    amounts: tuple[Amount, ...]
    notes: tuple[str, ...] = ()
    source: SourceText
    options: Mapping[str, Mapping[str, Option]] = field(default_factory=dict)

    @property
    def specs(self) -> tuple[ValueChange, ...]:
        """The values whose spec, shape or element type differ, or that are in one report only."""
        return tuple(v for v in self.values if v.changed)

    @property
    def flops(self) -> tuple[Amount, ...]:
        """FLOPs that differ."""
        return self._changed("work")

    @property
    def memory(self) -> tuple[Amount, ...]:
        """Bytes of memory that differ."""
        return self._changed("memory")

    @property
    def step(self) -> tuple[Amount, ...]:
        """Times of the step that differ."""
        return self._changed("step")

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        changed = any(a.before != a.after for a in self.amounts)
        return not (changed or self.values or self.collectives)

    def amount(self, name: str, of: str | None = None) -> Amount:
        """Return a number of both reports.

        Args:
            name: such as `FLOPs`, `operand bytes`, `temporaries` or `step`.
            of: the name of the other report; the first one if not given.

        Raises:
            ShardvizError: if there is none of that name; the message lists them.
        """
        of = self.names[1] if of is None else of
        for each in self.amounts:
            if each.name == name and each.of == of:
                return each
        have = ", ".join(repr(a.name) for a in self.amounts if a.of == of)
        raise ShardvizError(f"amount({name!r}, of={of!r}): there are {have or 'none of that report'}")

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the comparison as JSON text: names, level, and the differences; bytes, seconds and FLOPs on one
        device."""
        data = ComparisonData(
            program=self.program,
            level=self.level,
            reports=[
                {
                    "name": n,
                    "mesh": dict(self.meshes[n].shape),
                    "target": self.targets[n],
                    "options": dict(self.options.get(n, {})),
                }
                for n in self.names
            ],
            specs=[vars(v) | {"before": _value(v.before), "after": _value(v.after)} for v in self.values],
            collectives=[
                vars(c) | {"before": total_data(c.before), "after": total_data(c.after)} for c in self.collectives
            ],
            amounts=[
                {name: value for name, value in vars(a).items() if name != "axes"} | {"difference": a.difference}
                for a in self.amounts
            ],
            notes=self.notes,
        )
        return json.dumps(msgspec.to_builtins(data), indent=indent)

    def _changed(self, group: str) -> tuple[Amount, ...]:
        return tuple(a for a in self.amounts if a.group == group and a.before != a.after)


class ComparisonData(msgspec.Struct, kw_only=True):
    """The JSON of `Comparison`; bytes, seconds and FLOPs per device."""

    shardviz_comparison: int = 1
    program: str
    level: str
    reports: list[dict[str, Any]]
    specs: list[dict[str, Any]]
    collectives: list[dict[str, Any]]
    amounts: list[dict[str, Any]]
    notes: tuple[str, ...]


def compare_reports(
    *what: Any, target: str | Machine | None = None, costs: Sequence[StepCost | None] = ()
) -> Comparison:
    """Compare reports, with the arguments and errors of `sv.compare`; `costs` are the reports', if known."""
    reports = dict(_reports(what))
    if len(reports) < 2:
        raise ShardvizError(f"compare: {len(reports)} report is given; it takes two or more")
    levels = {name: report.level for name, report in reports.items()}
    if len(set(levels.values())) > 1:
        listed = ", ".join(f"{name!r} is {of}" for name, of in levels.items())
        raise ShardvizError(
            f"compare: levels differ ({listed}); that compares levels, not plans: bring both to one level"
        )
    notes: list[str] = []
    known = dict(zip(reports, costs, strict=False))
    steps = {name: known.get(name) or _cost(name, report, target, notes) for name, report in reports.items()}
    (base, before), *others = reports.items()
    values, moved, amounts = list[ValueChange](), list[CollectiveChange](), list[Amount]()
    for name, after in others:
        values += _values(name, before, after)
        moved += match_collectives(before.collectives, after.collectives, before.source, after.source, of=name)
        amounts += _amounts(name, (before, steps[base]), (after, steps[name]))
    return Comparison(
        names=tuple(reports),
        level=before.level,
        program=" and ".join(dict.fromkeys(r.program for r in reports.values())),
        meshes={name: report.mesh for name, report in reports.items()},
        targets={name: cost.machine.text if (cost := steps[name]) else r.target for name, r in reports.items()},
        values=tuple(values),
        collectives=tuple(moved),
        amounts=tuple(amounts),
        notes=tuple(dict.fromkeys(notes)),
        options={name: report.plan.options for name, report in reports.items()},
        source={file: lines for report in reversed(reports.values()) for file, lines in report.source.items()},
    )


def named_in(what: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield each compared object with its name, or a letter."""
    if len(what) == 1 and isinstance(what[0], Mapping):
        what = tuple(what[0].items())
    letters = (string.ascii_lowercase[n] if n < 26 else f"report {n + 1}" for n in itertools.count())
    for each, letter in zip(what, letters, strict=False):
        named = isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str)
        yield each if named else (letter, each)


def _reports(what: Sequence[Any]) -> Iterator[tuple[str, Report]]:
    seen: set[str] = set()
    for name, report in named_in(what):
        if name in seen:
            raise ShardvizError(f"compare: two reports are called {name!r}; give each a name of its own")
        if not isinstance(report, Report):
            raise ShardvizError(
                f"compare: expected a Report, not {type(report).__name__}; of a plan give program.propagate(plan)"
            )
        seen.add(name)
        yield name, report


def _cost(name: str, report: Report, target: str | Machine | None, notes: list[str]) -> StepCost | None:
    try:
        return cost_of(report, target or report.target)
    except TargetError as error:
        if target is not None:
            raise
        notes.append(f"times are not compared: {error}")
    except ShardvizError as error:
        raise type(error)(f"{name}: {error}") from error
    return None


def _spec_text(spec: Spec | None) -> str:
    return "" if spec is None else str(spec.canonical())


def _values(of: str, before: Report, after: Report) -> Iterator[ValueChange]:
    for role, olds, news in (
        ("argument", before.arguments, after.arguments),
        ("output", before.outputs, after.outputs),
    ):
        ours, theirs = {v.name: v for v in olds}, {v.name: v for v in news}
        for name in dict.fromkeys((*ours, *theirs)):
            change = ValueChange(of=of, role=role, name=name, before=ours.get(name), after=theirs.get(name))
            if change.changed or change.bytes:
                yield change
    ours, theirs = _intermediates(before), _intermediates(after)
    for key in ours:
        if len(ours[key]) != len(theirs.get(key, ())):
            continue  # made in another number of places: which is which cannot be told
        for old, new in zip(ours[key], theirs[key], strict=True):
            change = ValueChange(of=of, role="intermediate", name=new.label or new.op, before=old, after=new)
            if change.changed or change.bytes:
                yield change


def _intermediates(report: Report) -> dict[tuple[SourceLine, str], list[Value]]:
    """Return the intermediates with a line, by the line and the variable or operation."""
    by_place: dict[tuple[SourceLine, str], list[Value]] = {}
    for value in report.intermediates:
        if value.source is not None:
            by_place.setdefault((SourceLine.of(value.source, report.source), value.label or value.op), []).append(value)
    return by_place


_GROUPS = ("work", "collectives", "memory", "step")
Side = tuple[Report, StepCost | None]


def _amounts(of: str, before: Side, after: Side) -> list[Amount]:
    one, other = dict(_numbers(before)), dict(_numbers(after))
    amounts = []
    for key in sorted(dict.fromkeys((*one, *other)), key=lambda key: _GROUPS.index(key[0])):
        group, name, unit, axes = key
        numbers = []
        for side, (report, _) in ((one, before), (other, after)):  # what a report has not: nothing, or nobody counted
            counted = report.cost is not None if group == "work" else group != "step"
            numbers.append(side.get(key, 0.0 if counted else None))
        if numbers != [None, None]:
            amounts.append(
                Amount(of=of, group=group, name=name, unit=unit, before=numbers[0], after=numbers[1], axes=axes)
            )
    return amounts


def _numbers(side: Side) -> Iterator[tuple[tuple[str, str, str, tuple[Axis, ...] | None], float | None]]:
    """Yield ((group, name, unit, axes), number) in reading order."""
    report, cost = side
    if report.cost is not None:
        yield ("work", "FLOPs", "FLOP", None), report.cost.dot_flops
        for total in report.cost.by("phase"):
            if total.dot_flops:
                yield ("work", f"FLOPs, {total.label}", "FLOP", None), total.dot_flops
    totals = {}
    for total in sum_collectives(report.collectives, "axes"):
        names = None if total.axes is None else tuple(sorted({axis_name(a) for a in total.axes}))
        totals.setdefault(names, []).extend(total.collectives)
    every = CollectiveTotal(None, "", report.collectives)
    yield ("collectives", "runs", "runs", None), float(every.runs)
    yield ("collectives", "operand bytes", "bytes", None), every.bytes
    for names, collectives in sorted(totals.items(), key=lambda item: (item[0] is None, item[0] or ())):
        moved = CollectiveTotal(None, "", tuple(collectives))
        yield ("collectives", f"operand bytes over {axes_words(names)}", "bytes", names), moved.bytes
    for what, size in (memory_parts(report) if cost is None else cost.needs.parts).items():
        yield ("memory", what, "bytes", None), size
    if report.memory is not None:
        yield ("memory", "peak", "bytes", None), float(report.memory.peak)
    if cost is not None:
        yield ("step", "compute", "s", None), cost.step.compute if cost.flops is not None else None
        yield ("step", "HBM traffic", "s", None), cost.step.memory
        yield ("step", "communication", "s", None), cost.step.communication
        yield ("step", "step", "s", None), cost.seconds


def _value(value: Value | None) -> dict[str, Any] | None:
    if value is None:
        return None
    return {
        "spec": _spec_text(value.spec),
        "shape": list(value.shape),
        "dtype": value.dtype,
        "bytes_per_device": value.bytes_per_device,
    }
