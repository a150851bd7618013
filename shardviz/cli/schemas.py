"""The JSON of the verbs, and the JSON Schema of each.

Where the API has a JSON of its own (`Report.to_json`, `Comparison.to_json`, ...) a verb prints that; the structs below
say what else there is. Each begins with `shardviz_...`, its version, which goes with the report's. A schema names every
field of an answer, and of its rows where they are the command line's own.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from shardviz.compiler.targets import TargetStatus
from shardviz.costs.timeline import Timeline
from shardviz.judge.runs import ProgramChange
from shardviz.records import Finding
from shardviz.records.report import SCHEMA_VERSION, ReportRecord
from shardviz.records.resharding import Resharding
from shardviz.records.runs import RUN_VERSION, RunRecord
from shardviz.records.why import CollectiveWhy, Why

Specs = dict[str, str | None]
"""Tree path → spec as it is written, `P('data', None)`; None for the compiler's choice."""
Rows = list[dict[str, Any]]
"""Records of the API as its own `to_json` writes them."""


class StepData(msgspec.Struct, kw_only=True):
    """What a step takes on its machine (`target`); what is not known is None.

    Its seconds, and between which they would be if they are off as far as measured steps were (`low`, `high`); `bound`
    is `compute`, `memory` or `communication`, of each its own seconds. Memory is of one device, by a compiler's plan
    where it `is_whole`, else an estimate; `usable_bytes` is what a device has; tokens are of the whole machine.
    """

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
    """What `shardviz report --json` has besides the report's own fields."""

    shardviz_report: int = SCHEMA_VERSION
    findings: tuple[Finding, ...]
    step: StepData | None


class RunMore(msgspec.Struct, kw_only=True):
    """The version of a run's JSON."""

    shardviz_run: int = RUN_VERSION


class TimelineMore(msgspec.Struct, kw_only=True):
    """The version of a timeline's JSON."""

    shardviz_timeline: int


class ComparisonData(msgspec.Struct, kw_only=True):
    """`shardviz compare --json`: `Comparison.to_json`; bytes, seconds and FLOPs on one device."""

    shardviz_comparison: int
    program: str
    level: str
    reports: Rows
    specs: Rows
    collectives: Rows
    amounts: Rows
    notes: list[str]


class RunComparisonData(msgspec.Struct, kw_only=True):
    """`shardviz compare --json` of two dry runs: `RunComparison.to_json`, and the programs that differ; `peak_bytes`
    of a device, None where nothing was recorded."""

    shardviz_run_comparison: int
    names: tuple[str, str]
    peak_bytes: tuple[float | None, float | None]
    programs: list[ProgramChange]


class Failure(msgspec.Struct, kw_only=True):
    """What a check found to be otherwise than it must be: the rule, such as `golden` or `max-memory`, it in words, and
    the source line that it is about, `model.py:64`, if any."""

    rule: str
    text: str
    line: str = ""


class CheckedStep(msgspec.Struct, kw_only=True):
    """A step that was checked: what failed, and what would have failed and is `accepted`; what it takes (`step`), took
    at the `base`, and what differs from it; `note` is why there is no base, where one was asked for."""

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
    """A number beyond the threshold: on one device, in a step."""

    name: str
    unit: str
    base: float | None
    head: float | None


class StepChange(msgspec.Struct, kw_only=True):
    """What became worse or better of a step beyond the threshold: numbers, findings that only the head (`new`) or only
    the base has (`gone`), how many collectives; or the `problem` that the base cannot be compared with."""

    step: str
    amounts: tuple[Changed, ...] = ()
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    collectives: int = 0
    problem: str = ""


class CommentData(msgspec.Struct, kw_only=True):
    """`shardviz comment --json`: the steps that became worse or better, and the Markdown; both empty if none did."""

    shardviz_comment: int = SCHEMA_VERSION
    steps: tuple[StepChange, ...]
    markdown: str


class FixesData(msgspec.Struct, kw_only=True):
    """`shardviz fixes --json`: `Fixes.to_json`, the change that saves most first; bytes and seconds on one device."""

    shardviz_fixes: int
    program: str
    target: str
    level: str
    fixes: Rows
    not_offered: Rows
    by_hand: list[str]
    tried: int
    finished: bool


def _record(kind: type, key: str = "shardviz_why") -> type:
    """A record of `shardviz.records` as plain data, with the version that its `to_json` writes under `key`."""
    names = [field.name for field in dataclasses.fields(kind) if field.name not in ("mesh", "source", "ask")]
    mesh: list[Any] = [("mesh", dict[str, int])] if key == "shardviz_why" else []
    return msgspec.defstruct(kind.__name__, [(key, int), *mesh, *((name, Any) for name in names)])


class OfferData(msgspec.Struct, kw_only=True):
    """A plan that a search offers: what it shards along what, in words and as specs, its step and the bytes of a
    device; whether the target's compiler has `accepted` it (None: it was not asked), and its `verdict` in words."""

    text: str
    mesh: dict[str, int]
    in_specs: Specs
    out_specs: Specs
    seconds: float | None
    memory_bytes: float
    accepted: bool | None
    verdict: str


class Other(msgspec.Struct, kw_only=True):
    """A decision of the best plan, and the nearest alternative: how much longer it takes, how much more it needs, both
    as they were scored at level propagated."""

    decision: str
    chosen: str
    other: str
    seconds: float
    bytes: float
    reason: str


class SearchData(msgspec.Struct, kw_only=True):
    """`shardviz search --json`: the plans that are offered, the best first, and why not otherwise."""

    shardviz_search: int = SCHEMA_VERSION
    program: str
    target: str
    level: str
    offers: list[OfferData]
    why_not: list[Other]
    floor_seconds: float | None
    tried: int
    seconds: float
    finished: bool
    note: str


class Point(msgspec.Struct, kw_only=True):
    """A point of a sweep; `pareto`: none is both faster and smaller."""

    point: dict[str, str]
    seconds: float | None
    memory_bytes: float | None
    fits: bool | None
    tokens_per_second: float | None
    pareto: bool
    best: bool
    trouble: str


class SweepData(msgspec.Struct, kw_only=True):
    """`shardviz sweep --json`: `left` is how many points were not answered, where it was interrupted."""

    shardviz_sweep: int = SCHEMA_VERSION
    level: str
    asked: str
    over: dict[str, list[str]]
    points: list[Point]
    left: int


class Device(msgspec.Struct, kw_only=True):
    """What lies on a device: from `start` to `stop` along each dimension; `replica` is -1 where it holds nothing."""

    device: int
    start: list[int]
    stop: list[int]
    replica: int


class ShowData(msgspec.Struct, kw_only=True):
    """`shardviz show --json`: where every slice lies."""

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
    """`shardviz doctor --json`: whether the basics work, and what `shardviz doctor` prints."""

    shardviz_doctor: int = SCHEMA_VERSION
    works: bool
    text: str


SCHEMAS: dict[str, tuple[type, ...]] = {
    "run": (RunRecord, RunMore),
    "report": (ReportRecord, ReportMore),
    "compare": (ComparisonData, RunComparisonData),
    "check": (CheckData,),
    "comment": (CommentData,),
    "why": (_record(Why), _record(CollectiveWhy)),
    "fixes": (FixesData,),
    "search": (SearchData,),
    "sweep": (SweepData,),
    "timeline": (Timeline, TimelineMore),
    "show": (ShowData,),
    "reshard": (_record(Resharding, "shardviz_resharding"),),
    "targets": (TargetsData,),
    "doctor": (DoctorData,),
}
"""Verb → what its JSON holds; of several, all their fields, and for `why` and `compare` one of the two."""


def schema_of(verb: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of what a verb prints with `--json`."""
    tops, definitions = msgspec.json.schema_components(SCHEMAS[verb], ref_template="#/$defs/{name}")
    together = len(tops) > 1 and verb not in ("why", "compare")
    whole = {top["$ref"].rpartition("/")[2] for top in tops} if together else {}
    for name, definition in definitions.items():
        if "properties" in definition and name not in whole:
            definition["additionalProperties"] = False
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"shardviz {verb} --json"}
    combined = {"allOf": list(tops), "unevaluatedProperties": False} if together else {"anyOf": list(tops)}
    return head | combined | {"$defs": definitions}
