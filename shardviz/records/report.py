"""The data of a report: everything found out about a program under a plan on a target.

Nothing in it is a JAX object, a widget or a figure, so it can be kept, sent, compared and drawn anywhere.
`Report.from_json(report.to_json()) == report`. `judge.report.Report` is the same with its judgements: findings,
contracts, goldens.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import msgspec

from shardviz.display import Displayed
from shardviz.errors import ShardvizError, excerpt
from shardviz.notation import DeviceMesh, Spec
from shardviz.records.collectives import Collective, Collectives, TargetCollective
from shardviz.records.findings import Finding
from shardviz.records.options import Option, OptionName
from shardviz.records.schedule import Scheduled
from shardviz.records.sums import Cost
from shardviz.records.values import Frame, Memory, Residual, SourceText, Value
from shardviz.records.variants import Variant
from shardviz.records.work import Product


@dataclass(frozen=True)
class LevelDifference:
    """Something (an output; a kind of collective and its axes, such as `all-gather over data`; or `matrix products`) of
    which Shardy's propagation and XLA's partitioner say different things, each in words with numbers."""

    what: str
    propagated: str
    partitioned: str


@dataclass(frozen=True, kw_only=True)
class Constrained:
    """A value inside the function that a plan constrains, found in the program.

    Attributes:
        name: its variable, or its expression.
        source: its line.
        shapes: that it has there: several where a line that is run several times makes arrays of several sizes.
        dtype: its element type.
        spec: how it is to be sharded, an entry a dimension.
        open: the dimensions that are left to the compiler.
        times: how often the line is run while the function is traced: once for each pass of a loop of Python's.
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
        """The spec as it is written in Python: `P('data', None, P.UNCONSTRAINED)`."""
        entries = ["P.UNCONSTRAINED" if d in self.open else repr(e) for d, e in enumerate(self.spec.entries())]
        while entries and entries[-1] == "None":
            entries.pop()
        return f"P({', '.join(entries)})"

    def __str__(self) -> str:
        """`h at model.py:64 to P('data', None, 'model')`."""
        return f"{self.name} at {self.source.short} to {self.spec_text}"


@dataclass(frozen=True)
class PlanRecord:
    """A plan that was found to fit a program: a full-rank spec for every argument, and for every output or None.

    Attributes:
        mesh: the device mesh.
        in_specs: tree path → spec of every argument.
        out_specs: tree path → spec of every output, None for the compiler's choice.
        in_memory, out_memory: tree path → memory kind of the arguments and outputs that do not lie in the device's
            own memory (`pinned_host`, `unpinned_host`).
        constraints: the values inside that it constrains.
        variant: what the program has otherwise than the person's own.
        options: compiler options by name.
    """

    mesh: DeviceMesh
    in_specs: Mapping[str, Spec]
    out_specs: Mapping[str, Spec | None]
    in_memory: Mapping[str, str] = field(default_factory=dict)
    out_memory: Mapping[str, str] = field(default_factory=dict)
    constraints: tuple[Constrained, ...] = ()
    variant: Variant = field(default_factory=Variant)
    options: Mapping[OptionName, Option] = field(default_factory=dict)


if TYPE_CHECKING:
    _Collectives = Collectives
else:
    _Collectives = tuple[Collective, ...]  # what JSON is read as, any tuple that is given too: `__post_init__` turns it

SCHEMA_VERSION = 1
LEVELS = ("notation", "propagated", "partitioned", "compiled")
ASKED = LEVELS[1:]
"""Those at which a program is asked."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ReportRecord(Displayed):
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
        diagnostics: what was noticed while it was made; `Report.findings` has these and all that follows from the rest.
        source: file → line number → text, for the lines that values and collectives refer to.
        stages: texts of the program at each stage (`before`, `partitioned`, `optimized`).
        timings: seconds that each step took.
        versions: of shardviz, jax and jaxlib.
        residuals: what the backward pass needs of what ran before it, as Shardy's propagation shards it.
        target_collectives: the collectives as the target runs them, at level `compiled`; `collectives` are as the
            partitioner made them.
        products: the matrix products as Shardy shards them.
        level_differences: where the propagated level says something else, from level `partitioned` on.
        schedule: what one device does in a step, in the order in which it begins it.
        scheduled: that order is the target's compiler's; else the program's own (`graph.listed`).
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
    source: SourceText = field(default_factory=dict)
    stages: Mapping[str, str] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
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
        """Bytes on one device that are kept from the forward pass to the backward pass, arguments not counted."""
        return sum(r.value.bytes_per_device or 0 for r in self.residuals if r.takes_memory)

    def value(self, name: str) -> Value:
        """The argument, output or intermediate of this name.

        Raises:
            ShardvizError: if there is none; the message lists near names.
        """
        for value in values_of(self):
            if value.name == name:
                return value
        near = [v.name for v in (*self.arguments, *self.outputs) if name.lower() in v.name.lower()][:5]
        raise ShardvizError(f"no value {name!r} in this report" + (f"; there are {', '.join(near)}" if near else ""))

    def to_json(self, *, stages: bool = True, indent: int | None = None) -> str:
        """The report as JSON text with a schema version.

        Args:
            stages: keep the stages' texts, which may be megabytes.
            indent: as `json.dumps`.
        """
        data = msgspec.to_builtins(self if stages else dataclasses.replace(self, stages={}), str_keys=True)
        return json.dumps({"shardviz_report": SCHEMA_VERSION, **data}, indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote.

        Raises:
            ShardvizError: if the text is no report, or of a schema version that this shardviz does not know; or if a
                field is missing or of another type than it should be, which the message names.
        """
        data = read_versioned(text, "report", SCHEMA_VERSION)
        try:
            report = msgspec.convert(data, cls, str_keys=True)
        except (msgspec.ValidationError, ShardvizError) as error:
            raise ShardvizError(f"this shardviz report is damaged: {error}") from error
        for path, _ in _faults(data, most=_LARGEST_WHOLE):  # which a number of another kind may be
            at: Any = report
            for key in path:
                at = at[key] if isinstance(at, tuple) else getattr(at, key, None)
            if isinstance(at, int):
                raise _damaged("report", path, f"a number from 0 to {_LARGEST_WHOLE}, not {_number(at)}")
        return report


def values_of(report: ReportRecord) -> tuple[Value, ...]:
    """Every value of a report: arguments, outputs and intermediates."""
    return (*report.arguments, *report.outputs, *report.intermediates)


def host_bytes(report: ReportRecord) -> float:
    """Bytes of the host's memory that the program takes for one device: by the compiler's plan, or of what the plan
    puts there."""
    if report.memory is not None and report.memory.host is not None:
        return float(report.memory.host.total)
    values = (*report.arguments, *report.outputs)
    return sum(v.bytes_per_device or 0.0 for v in values if v.on_host and not v.unused)


def read_versioned(text: str, kind: str, version: int) -> dict[str, Any]:
    """The fields of a record that was written as JSON, its schema version under the key `shardviz_` and its kind. A
    `ShardvizError` for what is no JSON, no such record, of another version, or has numbers that count nothing."""
    try:
        data = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:  # no text, no JSON, too many digits, lists without end
        raise ShardvizError(f"this is no shardviz {kind}: not JSON ({error})") from error
    written = data.pop(f"shardviz_{kind}", None) if isinstance(data, dict) else None
    if written != version:
        raise ShardvizError(
            f"this is no shardviz {kind} of schema version {version} (found {excerpt(repr(written))}); "
            "a newer shardviz may read it"
        )
    for path, wrong in _faults(data):
        raise _damaged(kind, path, wrong)
    return data


_LARGEST = 1e30
_LARGEST_WHOLE = 2**63 - 1
_DEEPEST = 32


def _faults(value: Any, path: tuple[Any, ...] = (), most: float = _LARGEST) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Numbers that count nothing (all are 0 or more and finite, whole ones of 64 bits, compiler options alone below 0)
    and text that cannot be written, anywhere in a report's JSON: the path to each, and what is expected there."""
    if isinstance(value, dict | list):
        if len(path) > _DEEPEST:
            yield path, f"lists at most {_DEEPEST} deep"
            return
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _faults(key, path) if isinstance(value, dict) else ()
            yield from _faults(inner, (*path, key), most)
    elif isinstance(value, str):
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            yield path, "text that is UTF-8, not half a letter (a surrogate)"
    elif isinstance(value, int | float):
        most = most if isinstance(value, float) else _LARGEST_WHOLE
        least = -most if path[:2] == ("plan", "options") else 0
        if not least <= value <= most:
            yield path, f"a number from {least} to {most}, not {_number(value)}"


def _damaged(kind: str, path: tuple[Any, ...], expected: str) -> ShardvizError:
    where = "".join(f"[{key}]" if isinstance(key, int) else f".{excerpt(key, 60)}" for key in path).lstrip(".")
    return ShardvizError(f"this shardviz {kind} is damaged: at {where or 'its top'}: expected {expected}")


def _number(value: float) -> str:
    return f"{value:.6g}" if isinstance(value, float) or abs(value) < 1e300 else "one with hundreds of digits"
