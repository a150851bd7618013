"""The Report: everything found out about a program under a plan on a target, as plain data.

Nothing in it is a JAX object, a widget or a figure, so it can be kept, sent, compared and drawn anywhere.
`Report.from_json(report.to_json()) == report`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh, Spec
from shardviz.records.collectives import Collective, TargetCollective
from shardviz.records.memory import Memory
from shardviz.records.sums import Cost
from shardviz.records.values import Frame, Residual, Value
from shardviz.visible import Visible


@dataclass(frozen=True)
class Diagnostic:
    """Something that a person should know about the program under this plan.

    Attributes:
        rule: the name of what found it, such as `levels-differ` or `involuntary-rematerialisation`.
        severity: `info`, `warning` or `error`.
        message: what it is, with its numbers.
        source: the line that it is about.
        value: the argument or value that it is about.
    """

    rule: str
    severity: str
    message: str
    source: Frame | None = None
    value: str = ""


@dataclass(frozen=True)
class PlanRecord:
    """A plan that was found to fit a program: a full-rank spec for every argument, and for every output or None.

    Attributes:
        mesh: the device mesh.
        in_specs: tree path → spec of every argument.
        out_specs: tree path → spec of every output, None for the compiler's choice.
    """

    mesh: DeviceMesh
    in_specs: Mapping[str, Spec]
    out_specs: Mapping[str, Spec | None]


SCHEMA_VERSION = 1
LEVELS = ("notation", "propagated", "partitioned", "compiled")


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(Visible):
    """Everything found out about Program x Plan x Target at a level.

    Attributes:
        level: `notation`, `propagated`, `partitioned` or `compiled`: which rung of the ladder of truth this is.
        program: the function's name.
        target: the machine that it was compiled for.
        plan: what was asked: mesh and specs.
        arguments, outputs, intermediates: every value and its sharding.
        collectives: what moves between devices.
        memory: the compiler's memory plan, at level `compiled`.
        cost: FLOPs.
        diagnostics: what to look at.
        source: file → line number → text, for the lines that values and collectives refer to.
        stages: texts of the program at each stage (`jaxpr`, `stablehlo`, `shardy`, `partitioned`, `optimized`).
        timings: seconds that each step took.
        versions: of shardviz, jax and jaxlib.
        residuals: what the backward pass needs of what ran before it, as Shardy's propagation cuts it.
        target_collectives: the collectives as the target runs them, at level `compiled`; `collectives` are as the
            partitioner made them.
    """

    level: str
    program: str
    plan: PlanRecord
    arguments: tuple[Value, ...]
    outputs: tuple[Value, ...]
    intermediates: tuple[Value, ...] = ()
    collectives: tuple[Collective, ...] = ()
    target: str = "cpu"
    memory: Memory | None = None
    cost: Cost | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    source: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    stages: Mapping[str, str] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    residuals: tuple[Residual, ...] = ()
    target_collectives: tuple[TargetCollective, ...] = ()

    @property
    def mesh(self) -> DeviceMesh:
        """The device mesh."""
        return self.plan.mesh

    @property
    def values(self) -> tuple[Value, ...]:
        """Every value: arguments, outputs and intermediates."""
        return (*self.arguments, *self.outputs, *self.intermediates)

    @property
    def residual_bytes(self) -> float:
        """Bytes on one device that are kept from the forward pass to the backward pass, arguments not counted."""
        return sum(r.value.bytes_per_device or 0 for r in self.residuals if r.takes_memory)

    def runs_as(self, name: str) -> tuple[TargetCollective, ...]:
        """What the target runs for one of `collectives`, by its name; empty where nothing was found to stand for it."""
        return tuple(t for t in self.target_collectives if name in t.stands_for)

    def value(self, name: str) -> Value:
        """The argument, output or intermediate of this name.

        Raises:
            ShardvizError: if there is none; the message lists near names.
        """
        for value in self.values:
            if value.name == name:
                return value
        near = [v.name for v in (*self.arguments, *self.outputs) if name.lower() in v.name.lower()][:5]
        raise ShardvizError(f"no value {name!r} in this report" + (f"; there are {', '.join(near)}" if near else ""))

    def line(self, frame: Frame | None) -> str:
        """The text of a source line, stripped; empty where it is not known."""
        return "" if frame is None else self.source.get(frame.file, {}).get(frame.line, "").strip()

    def to_json(self, *, stages: bool = True, indent: int | None = None) -> str:
        """The report as JSON text with a schema version.

        Args:
            stages: keep the stages' texts, which may be megabytes.
            indent: as `json.dumps`.
        """
        data = msgspec.to_builtins(self if stages else dataclasses.replace(self, stages={}), str_keys=True)
        return json.dumps({"shardviz_report": SCHEMA_VERSION, **data}, indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Reads what `to_json` wrote.

        Raises:
            ShardvizError: if the text is no report, or of a schema version that this shardviz does not know; or if a
                field is missing or of another type than it should be, which the message names.
        """
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ShardvizError(f"this is no shardviz report: not JSON ({error})") from error
        version = data.pop("shardviz_report", None) if isinstance(data, dict) else None
        if version != SCHEMA_VERSION:
            raise ShardvizError(
                f"this is no shardviz report of schema version {SCHEMA_VERSION} (found {version!r}); "
                "a newer shardviz may read it"
            )
        try:
            return msgspec.convert(data, cls, str_keys=True)
        except (msgspec.ValidationError, ShardvizError) as error:
            raise ShardvizError(f"this shardviz report is damaged: {error}") from error
