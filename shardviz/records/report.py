"""The data of a report: all facts about a program under a plan on a target.

It has no JAX objects, widgets or figures, so it can be stored, sent, compared and drawn anywhere.
`Report.from_json(report.to_json()) == report`. `judge.report.Report` adds findings, contracts and golden files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh, Spec
from shardviz.records.collectives import Collective, Collectives, TargetCollective
from shardviz.records.findings import Finding
from shardviz.records.options import Option, OptionName
from shardviz.records.schedule import Scheduled
from shardviz.records.sums import Cost
from shardviz.records.values import Frame, Memory, Residual, SourceText, Value
from shardviz.records.variants import Variant
from shardviz.records.versioned import Versioned
from shardviz.records.work import Product


@dataclass(frozen=True)
class LevelDifference:
    """Something about which Shardy's propagation and XLA's partitioner differ; each side is in words with numbers.
    `what` is an output, a kind of collective and its axes (`all-gather over data`), or `matrix products`."""

    what: str
    propagated: str
    partitioned: str


@dataclass(frozen=True, kw_only=True)
class Constrained:
    """A value inside the function that a plan constrains.

    Attributes:
        name: its variable, or its expression.
        source: its line.
        shapes: its shapes: several if a line runs several times with arrays of different sizes.
        dtype: its element type.
        spec: the requested spec, an entry per dimension.
        open: the dimensions that are left to the compiler.
        times: how often the line runs while the function is traced: once per pass of a Python loop.
    """

    name: str
    source: Frame
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    spec: Spec
    open: tuple[int, ...] = ()
    times: int = 1

    @property
    def spec_text(self) -> str:
        """The spec in Python: `P('data', None, P.UNCONSTRAINED)`."""
        entries = ["P.UNCONSTRAINED" if d in self.open else repr(e) for d, e in enumerate(self.spec.entries())]
        while entries and entries[-1] == "None":
            entries.pop()
        return f"P({', '.join(entries)})"

    def __str__(self) -> str:
        """Return `h at model.py:64 to P('data', None, 'model')`."""
        return f"{self.name} at {self.source.short} to {self.spec_text}"


@dataclass(frozen=True)
class PlanRecord:
    """A plan that fits a program: a full-rank spec for every argument, and for every output or None.

    Attributes:
        mesh: the device mesh.
        in_specs: tree path → spec of every argument.
        out_specs: tree path → spec of every output, None for the compiler's choice.
        in_memory, out_memory: tree path → memory kind of the arguments and outputs in the host's memory
            (`pinned_host`, `unpinned_host`).
        constraints: the values inside the function that the plan constrains.
        variant: the changes of the program itself.
        options: compiler options by name.
    """

    mesh: DeviceMesh
    in_specs: Mapping[str, Spec]
    out_specs: Mapping[str, Spec | None]
    in_memory: Mapping[str, str] = field(default_factory=dict[str, str])
    out_memory: Mapping[str, str] = field(default_factory=dict[str, str])
    constraints: tuple[Constrained, ...] = ()
    variant: Variant = field(default_factory=Variant)
    options: Mapping[OptionName, Option] = field(default_factory=dict[OptionName, Option])


if TYPE_CHECKING:
    _Collectives = Collectives
else:
    _Collectives = tuple[Collective, ...]  # msgspec reads JSON as this type; `__post_init__` converts any tuple

SCHEMA_VERSION = 1
LEVELS = ("notation", "propagated", "partitioned", "compiled")
ASKED = LEVELS[1:]
"""The levels of reports of a program."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ReportRecord(Versioned, kind="report", version=SCHEMA_VERSION):
    """All facts about Program x Plan x Target at a level.

    Attributes:
        level: `notation`, `propagated`, `partitioned` or `compiled`: how close the facts are to the machine's program.
        program: the function's name.
        target: the machine of the compile.
        plan: mesh and specs.
        arguments, outputs, intermediates: every value and its sharding.
        collectives: the communication between devices.
        memory: the compiler's memory plan, at level `compiled`.
        cost: FLOPs.
        diagnostics: findings from the making of the report; `Report.findings` adds the findings that follow from it.
        source: file → line number → text, for the lines that values and collectives refer to.
        stages: texts of the program at each stage (`before`, `partitioned`, `optimized`).
        timings: seconds of each step of making the report.
        versions: of shardviz, jax and jaxlib.
        residuals: the values that the backward pass needs from earlier, as Shardy's propagation shards them.
        target_collectives: the collectives as the target runs them, at level `compiled`; `collectives` are the
            partitioner's.
        products: the matrix products with Shardy's shardings.
        level_differences: differences from the propagated level, from level `partitioned` on.
        schedule: one device's work in a step, in the order of its begin.
        scheduled: whether the target's compiler made the schedule; otherwise it has the program's order.
    """

    level: str
    program: str
    plan: PlanRecord
    arguments: tuple[Value, ...]
    outputs: tuple[Value, ...]
    intermediates: tuple[Value, ...] = ()
    collectives: _Collectives = field(default_factory=Collectives)
    target: str = "cpu"
    memory: Memory | None = None
    cost: Cost | None = None
    diagnostics: tuple[Finding, ...] = ()
    source: SourceText = field(default_factory=dict[str, Mapping[int, str]])
    stages: Mapping[str, str] = field(default_factory=dict[str, str])
    timings: Mapping[str, float] = field(default_factory=dict[str, float])
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    residuals: tuple[Residual, ...] = ()
    target_collectives: tuple[TargetCollective, ...] = ()
    level_differences: tuple[LevelDifference, ...] = ()
    products: tuple[Product, ...] = ()
    schedule: tuple[Scheduled, ...] = ()
    scheduled: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "collectives", Collectives(self.collectives, self.source))

    @property
    def mesh(self) -> DeviceMesh:
        """The device mesh."""
        return self.plan.mesh

    @property
    def residual_bytes(self) -> float:
        """Bytes on one device that are kept from the forward to the backward pass, without arguments."""
        return sum(r.value.bytes_per_device or 0 for r in self.residuals if r.takes_memory)

    def value(self, name: str) -> Value:
        """Return the argument, output or intermediate of this name.

        Raises:
            ShardvizError: if there is none; the message lists similar names.
        """
        for value in values_of(self):
            if value.name == name:
                return value
        near = [v.name for v in (*self.arguments, *self.outputs) if name.lower() in v.name.lower()][:5]
        raise ShardvizError(f"no value {name!r} in this report" + (f"; there are {', '.join(near)}" if near else ""))

    def to_json(self, indent: int | None = None, *, stages: bool = True) -> str:
        """Return the report as JSON text with a schema version.

        Args:
            indent: as `json.dumps`.
            stages: include the stages' texts, which may be megabytes.
        """
        return Versioned.to_json(self if stages else dataclasses.replace(self, stages={}), indent)


def values_of(report: ReportRecord) -> tuple[Value, ...]:
    """Return every value of a report: arguments, outputs and intermediates."""
    return (*report.arguments, *report.outputs, *report.intermediates)


def host_bytes(report: ReportRecord) -> float:
    """Return the bytes of host memory for one device: from the compiler's plan, or of the values in host memory."""
    if report.memory is not None and report.memory.host is not None:
        return float(report.memory.host.total)
    values = (*report.arguments, *report.outputs)
    return sum(v.bytes_per_device or 0.0 for v in values if v.on_host and not v.unused)
