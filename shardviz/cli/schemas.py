"""The JSON that verbs print, and the JSON Schema of each.

A verb prints the API's own JSON if there is one (`Report.to_json`, `Comparison.to_json`, ...). The structs below
describe everything else. Each JSON begins with its version, `shardviz_...`. A schema names every field of an answer,
and the fields of its rows if the rows are the command line's own.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from shardviz.compiler.targets import TargetStatus
from shardviz.costs.timeline import Timeline
from shardviz.judge.comparison import ComparisonData
from shardviz.judge.processes import ProcessComparison
from shardviz.judge.runs import RunComparisonData
from shardviz.records import Finding
from shardviz.records.budget import Budget
from shardviz.records.checkpoint import Checkpoint
from shardviz.records.report import SCHEMA_VERSION, ReportRecord
from shardviz.records.resharding import Resharding
from shardviz.records.runs import RUN_VERSION, RunRecord
from shardviz.records.together import TogetherRecord, TogetherSearchRecord
from shardviz.records.why import CollectiveWhy, Why
from shardviz.study.fixes import FixesData

Specs = dict[str, str | None]
"""Tree path → spec as text, such as `P('data', None)`; None for the compiler's choice."""


class StepData(msgspec.Struct, kw_only=True):
    """A step's cost on its machine (`target`); unknown numbers are None. `low` and `high` bound the seconds by the
    error of measured steps. `bound` is `compute`, `memory` or `communication`, whose seconds follow. Memory is per
    device: a compiler's plan if `memory_is_whole`, otherwise an estimate; a device has `usable_bytes`. Tokens are of
    the whole machine."""

    target: str
    seconds: float | None
    low: float | None
    high: float | None
    bound: str
    compute: float | None
    hbm: float
    communication: float
    memory_bytes: float
    memory_is_whole: bool
    usable_bytes: float | None
    fits: bool | None
    tokens_per_second: float | None


class ReportMore(msgspec.Struct, kw_only=True):
    """The fields of `shardviz report --json` besides the report's own."""

    shardviz_report: int = SCHEMA_VERSION
    findings: tuple[Finding, ...]
    step: StepData | None


class RunMore(msgspec.Struct, kw_only=True):
    """The version of a run's JSON."""

    shardviz_run: int = RUN_VERSION


class TimelineMore(msgspec.Struct, kw_only=True):
    """The version of a timeline's JSON."""

    shardviz_timeline: int


class Failure(msgspec.Struct, kw_only=True):
    """A failure of a check: the rule, such as `golden` or `max-memory`, its text, and its source line, such as
    `model.py:64`."""

    rule: str
    text: str
    line: str = ""


class CheckedStep(msgspec.Struct, kw_only=True):
    """A checked step: its failures, the failures that were `accepted`, its cost now (`step`) and at the `base`, and
    their comparison. `note` is why there is no base although one was requested."""

    name: str
    program: str
    level: str
    target: str
    ok: bool
    failures: list[Failure]
    accepted: list[Failure] = []
    step: StepData | None
    base: StepData | None = None
    comparison: ComparisonData | None = None
    note: str = ""


class CheckData(msgspec.Struct, kw_only=True):
    """`shardviz check --json`."""

    shardviz_check: int = SCHEMA_VERSION
    ok: bool
    against: str = ""
    steps: list[CheckedStep]


class Changed(msgspec.Struct, kw_only=True):
    """A number that changed by more than the threshold, per device and step."""

    name: str
    unit: str
    base: float | None
    head: float | None


class StepChange(msgspec.Struct, kw_only=True):
    """The changes of a step beyond the threshold: numbers, findings that only the head (`new`) or only the base has
    (`gone`), and the number of collectives. `problem` is why the base cannot be compared."""

    step: str
    amounts: tuple[Changed, ...] = ()
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    collectives: int = 0
    problem: str = ""


class CommentData(msgspec.Struct, kw_only=True):
    """`shardviz comment --json`: the changed steps and the Markdown, both empty if nothing changed."""

    shardviz_comment: int = SCHEMA_VERSION
    steps: tuple[StepChange, ...]
    markdown: str


def _record(kind: type, key: str = "shardviz_why") -> type:
    """Return the struct of a record of `shardviz.records`, with the version that its `to_json` writes under `key`."""
    left_out = ("mesh", "source", "ask") if key == "shardviz_why" else ()
    names = [field.name for field in dataclasses.fields(kind) if field.name not in left_out]
    mesh: list[Any] = [("mesh", dict[str, int])] if key == "shardviz_why" else []
    return msgspec.defstruct(kind.__name__, [(key, int), *mesh, *((name, Any) for name in names)])


class RankedPlan(msgspec.Struct, kw_only=True):
    """A plan that a search found: its shardings in words and as specs, seconds of a step, bytes per device. `accepted`
    is whether the target's compiler accepted it (None: not asked), and `verdict` its answer in words."""

    text: str
    mesh: dict[str, int]
    in_specs: Specs
    out_specs: Specs
    seconds: float | None
    memory_bytes: float
    accepted: bool | None
    verdict: str


class Other(msgspec.Struct, kw_only=True):
    """A decision of the best plan and its nearest alternative: the additional seconds and bytes, scored at level
    propagated."""

    decision: str
    chosen: str
    other: str
    seconds: float
    bytes: float
    reason: str


class SearchData(msgspec.Struct, kw_only=True):
    """`shardviz search --json`: the best plans, best first, and why the alternatives are worse."""

    shardviz_search: int = SCHEMA_VERSION
    program: str
    target: str
    level: str
    ranked: list[RankedPlan]
    why_not: list[Other]
    floor_seconds: float | None
    tried: int
    seconds: float
    finished: bool
    note: str


class Point(msgspec.Struct, kw_only=True):
    """A point of a sweep; `pareto` if no other point is both faster and smaller."""

    point: dict[str, str]
    seconds: float | None
    memory_bytes: float | None
    fits: bool | None
    tokens_per_second: float | None
    pareto: bool
    best: bool
    trouble: str


class SweepData(msgspec.Struct, kw_only=True):
    """`shardviz sweep --json`; `left` is the number of points without an answer after an interrupt."""

    shardviz_sweep: int = SCHEMA_VERSION
    level: str
    asked: str
    over: dict[str, list[str]]
    points: list[Point]
    left: int


class Device(msgspec.Struct, kw_only=True):
    """The slice on a device: `start` and `stop` along each dimension; `replica` is -1 if it holds nothing."""

    device: int
    start: list[int]
    stop: list[int]
    replica: int


class ShowData(msgspec.Struct, kw_only=True):
    """`shardviz show --json`: the slice on every device."""

    shardviz_show: int = SCHEMA_VERSION
    shape: list[int]
    dtype: str
    spec: str
    mesh: dict[str, int]
    shard_shape: list[int]
    bytes_per_device: float
    devices: list[Device]


class TargetsData(msgspec.Struct, kw_only=True):
    """`shardviz targets --json`."""

    shardviz_targets: int = SCHEMA_VERSION
    targets: list[TargetStatus]


class DoctorData(msgspec.Struct, kw_only=True):
    """`shardviz doctor --json`: whether the basics work, and the printed text."""

    shardviz_doctor: int = SCHEMA_VERSION
    works: bool
    text: str


_PROCESSES = _record(ProcessComparison, "shardviz_process_comparison")

SCHEMAS: dict[str, tuple[type | tuple[type, ...], ...]] = {
    "run": ((RunRecord, RunMore), _PROCESSES),
    "report": ((ReportRecord, ReportMore),),
    "compare": (ComparisonData, RunComparisonData, _PROCESSES),
    "check": (CheckData,),
    "comment": (CommentData,),
    "why": (_record(Why), _record(CollectiveWhy)),
    "fixes": (FixesData,),
    "search": (SearchData,),
    "sweep": (SweepData,),
    "timeline": ((Timeline, TimelineMore),),
    "show": (ShowData,),
    "reshard": (_record(Resharding, "shardviz_resharding"),),
    "checkpoint": (_record(Checkpoint, "shardviz_checkpoint"),),
    "together": (
        _record(TogetherRecord, "shardviz_together"),
        _record(Budget, "shardviz_budget"),
        _record(TogetherSearchRecord, "shardviz_together_search"),
    ),
    "targets": (TargetsData,),
    "doctor": (DoctorData,),
}
"""Verb → the types that its JSON may have. A tuple of types is one with the fields of all."""


def schema_of(verb: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a verb's `--json`."""
    answers = [each if isinstance(each, tuple) else (each,) for each in SCHEMAS[verb]]
    types = [kind for answer in answers for kind in answer]
    tops, definitions = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    references, options, whole = iter(tops), list[dict[str, Any]](), set[str]()
    for answer in answers:
        parts = [next(references) for _ in answer]
        if len(parts) > 1:
            whole |= {part["$ref"].rpartition("/")[2] for part in parts}
        options.append({"allOf": parts, "unevaluatedProperties": False} if len(parts) > 1 else parts[0])
    for name, definition in definitions.items():
        if "properties" in definition and name not in whole:
            definition["additionalProperties"] = False
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"shardviz {verb} --json"}
    combined = options[0] if len(options) == 1 and "allOf" in options[0] else {"anyOf": options}
    return head | combined | {"$defs": definitions}
