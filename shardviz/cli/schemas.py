"""The JSON of the verbs, and the JSON Schema of each.

Where the API has a JSON of its own (`Report.to_json`, `Comparison.to_json`, ...) a verb prints that; the structs below
say what else there is. Each begins with `shardviz_...`, its version, which goes with the report's. A schema is closed:
there is no field that it does not name.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from typing import Any, TypedDict

import msgspec

from shardviz.compiler.targets import TargetStatus
from shardviz.costs.timeline import Timeline
from shardviz.notation import Spec
from shardviz.records import Collective, Finding, Frame, Value
from shardviz.records.options import Option
from shardviz.records.report import SCHEMA_VERSION, ReportRecord
from shardviz.records.why import CollectiveWhy, Why

Specs = dict[str, str | None]
"""Tree path → spec as it is written, `P('data', None)`; None for the compiler's choice."""


class StepData(msgspec.Struct, kw_only=True):
    """What a step takes on its machine.

    Attributes:
        target: the machine.
        seconds: of the step; None where the level counts no FLOPs.
        low, high: if it is off as far as measured steps were; None where nobody compared.
        bound: what bounds it: `compute`, `memory` or `communication`.
        compute, hbm, communication: seconds of each, by itself.
        memory_bytes: what one device needs, as far as it is known.
        memory_is_whole: that is all, by a compiler's plan; else a lower bound or an estimate.
        usable_bytes: what one device has; None where not known.
        fits: whether it fits, by an estimate unless `memory_is_whole`; None where that cannot be told.
        tokens_per_second: of the whole machine; None where the tokens are not known.
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


class TimelineMore(msgspec.Struct, kw_only=True):
    """The version of a timeline's JSON."""

    shardviz_timeline: int


class CollectivesData(TypedDict):
    """Collectives of one meaning, on one side of a comparison."""

    kind: str
    axes: list[str] | None
    dtype: str
    phase: str
    line: str
    text: str
    operations: int
    runs: int
    operand_bytes: float
    count_not_known: int


class CollectiveChangeData(TypedDict):
    """Collectives that differ."""

    of: str
    what: str
    before: CollectivesData | None
    after: CollectivesData | None


class AmountData(TypedDict):
    """A number of both reports, on one device."""

    of: str
    group: str
    name: str
    unit: str
    before: float | None
    after: float | None
    difference: float | None


class Compared(TypedDict):
    """A report that is compared."""

    name: str
    mesh: dict[str, int]
    target: str
    options: dict[str, Option]


class ValueData(TypedDict):
    """How a value is sharded in one of the reports."""

    spec: str | None
    shape: list[int]
    dtype: str
    bytes_per_device: float | None


class SpecChange(TypedDict):
    """An argument, output or intermediate that is sharded otherwise; None where a report has none."""

    of: str
    role: str
    name: str
    before: ValueData | None
    after: ValueData | None


class ComparisonData(msgspec.Struct, kw_only=True):
    """`shardviz compare --json`: `Comparison.to_json`."""

    shardviz_comparison: int
    program: str
    level: str
    reports: list[Compared]
    specs: list[SpecChange]
    collectives: list[CollectiveChangeData]
    amounts: list[AmountData]
    notes: list[str]


class Failure(msgspec.Struct, kw_only=True):
    """What a check found to be otherwise than it must be.

    Attributes:
        rule: `golden`, `forbid`, `max-step-time`, `max-memory`, or `new:` and the finding that a change brings.
        text: it in words, with its numbers.
        line: the source line that it is about, `model.py:64`; empty where it is about none.
    """

    rule: str
    text: str
    line: str = ""


class CheckedStep(msgspec.Struct, kw_only=True):
    """A step that was checked.

    Attributes:
        name: the step.
        program, level, target: of its report.
        ok: nothing failed.
        failures: what failed.
        accepted: what would have failed, and is accepted.
        step, base: what it takes, and took at the base; None where not known or not asked.
        comparison: what differs from the base; None without one.
        note: why there is no base, where one was asked for.
    """

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
    """What became worse or better of a step.

    Attributes:
        step: its name.
        amounts: numbers beyond the threshold.
        new, gone: findings that only the head or only the base has, as texts.
        collectives: how many collectives differ beyond the threshold.
        problem: why the base cannot be compared with; empty where it can.
    """

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


class MendData(TypedDict):
    """A change that was tried and helps; bytes and seconds on one device."""

    finding: str | None
    findings: list[str]
    action: str
    text: str
    write: str
    level: str
    seconds_saved: float | None
    step_seconds: float | None
    bytes_saved: float
    memory_more: float
    memory_over: float
    lines: list[str]


class NotOfferedData(TypedDict):
    """A change that was tried and is not offered."""

    action: str
    why: str


class MendsData(msgspec.Struct, kw_only=True):
    """`shardviz mends --json`: `Mends.to_json`."""

    shardviz_mends: int
    program: str
    target: str
    level: str
    mends: list[MendData]
    not_offered: list[NotOfferedData]
    by_hand: list[str]
    tried: int
    finished: bool


class WhyValue(msgspec.Struct, kw_only=True):
    """The value that is asked about."""

    name: str
    label: str
    shape: list[int]
    dtype: str
    spec: str | None
    source: str | None


class WhyCollective(msgspec.Struct, kw_only=True):
    """The collective that is asked about; bytes on one device, of one run."""

    kind: str
    axes: list[str] | None
    source: str | None
    name: str
    operand_bytes: float
    count: int | None


_WRITTEN: dict[Any, Any] = {Spec: str, Frame: str, Value: WhyValue, Collective: WhyCollective}
"""Record → as what it stands in the answer to a why."""
_NOT_WRITTEN = ("mesh", "source", "ask")


@functools.cache
def _written(kind: Any) -> Any:
    """The type of what `records.why.plain` makes of a type."""
    if kind in _WRITTEN:
        return _WRITTEN[kind]
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        hints, answer = typing.get_type_hints(kind), kind in (Why, CollectiveWhy)
        left_out = _NOT_WRITTEN if answer else ("places",)
        names = [field.name for field in dataclasses.fields(kind) if field.name not in left_out]
        head = [("shardviz_why", int), ("mesh", dict[str, int])] if answer else []
        return msgspec.defstruct(kind.__name__, [*head, *((name, _written(hints[name])) for name in names)])
    parts = tuple(_written(part) for part in typing.get_args(kind) if part is not ...)
    return kind if not parts else list[parts[0]] if typing.get_origin(kind) is tuple else typing.Union[parts]  # noqa: UP007


class OfferData(msgspec.Struct, kw_only=True):
    """A plan that a search offers.

    Attributes:
        text: what it shards along what.
        mesh: axis name → size.
        in_specs, out_specs: its specs.
        seconds: of a step.
        memory_bytes: what one device needs.
        accepted: the target's own compiler took it, and it fits; None where it was not asked.
        verdict: who says that it fits, or why that is not known.
    """

    text: str
    mesh: dict[str, int]
    in_specs: Specs
    out_specs: Specs
    seconds: float | None
    memory_bytes: float
    accepted: bool | None
    verdict: str


class Other(msgspec.Struct, kw_only=True):
    """A decision of the best plan, and the nearest alternative: how much longer it takes, how much more it needs."""

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


class ReshardStep(msgspec.Struct, kw_only=True):
    """A collective of a resharding, or a `slice`, which sends nothing.

    Attributes:
        kind, axes: what it is, and over which axes; None where these have no names.
        after: the spec after it; None where no spec says it.
        received_bytes: what a device receives at most.
        seconds: what it takes on the target; None where there is none, or that is not known.
        formula: how that was computed.
    """

    kind: str
    axes: list[str] | None
    after: str | None
    received_bytes: float
    seconds: float | None
    formula: str


class ReshardedArray(msgspec.Struct, kw_only=True):
    """An array that changes its sharding; bytes are the most of any device.

    Attributes:
        name: its path in the tree; empty where there is one array only.
        before, after: its specs; None where no spec says it.
        steps: how it is done; empty where nothing changes.
        seconds: what they take on the target; None where there is none, or that is not known.
    """

    name: str
    shape: list[int]
    dtype: str
    before: str | None
    after: str | None
    received_bytes: float
    steps: list[ReshardStep]
    seconds: float | None


class ReshardData(msgspec.Struct, kw_only=True):
    """`shardviz reshard --json`: what a resharding sends; bytes are the most of any device."""

    shardviz_reshard: int = SCHEMA_VERSION
    mesh: dict[str, int]
    target: str
    arrays: list[ReshardedArray]
    kept_bytes: float
    received_bytes: float
    dropped_bytes: float
    seconds: float | None


class TargetsData(msgspec.Struct, kw_only=True):
    """`shardviz targets --json`."""

    shardviz_targets: int = SCHEMA_VERSION
    targets: list[TargetStatus]


class DoctorData(msgspec.Struct, kw_only=True):
    """`shardviz doctor --json`: whether the basics work, and what `shardviz doctor` prints."""

    shardviz_doctor: int = SCHEMA_VERSION
    works: bool
    text: str


class SkillData(msgspec.Struct, kw_only=True):
    """`shardviz skill --json`: the guide, in Markdown."""

    shardviz_skill: int = SCHEMA_VERSION
    text: str


SCHEMAS: dict[str, tuple[type, ...]] = {
    "report": (ReportRecord, ReportMore),
    "compare": (ComparisonData,),
    "check": (CheckData,),
    "comment": (CommentData,),
    "why": (_written(Why), _written(CollectiveWhy)),
    "mends": (MendsData,),
    "search": (SearchData,),
    "sweep": (SweepData,),
    "timeline": (Timeline, TimelineMore),
    "show": (ShowData,),
    "reshard": (ReshardData,),
    "targets": (TargetsData,),
    "doctor": (DoctorData,),
    "skill": (SkillData,),
}
"""Verb → what its JSON holds; of several, all their fields, and for `why` one of the two."""


def schema_of(verb: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of what a verb prints with `--json`."""
    tops, definitions = msgspec.json.schema_components(SCHEMAS[verb], ref_template="#/$defs/{name}")
    together = len(tops) > 1 and verb != "why"
    whole = {top["$ref"].rpartition("/")[2] for top in tops} if together else {}
    for name, definition in definitions.items():
        if "properties" in definition and name not in whole:
            definition["additionalProperties"] = False
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"shardviz {verb} --json"}
    combined = {"allOf": list(tops), "unevaluatedProperties": False} if together else {"anyOf": list(tops)}
    return head | combined | {"$defs": definitions}
