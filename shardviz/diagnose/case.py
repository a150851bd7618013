"""A report as the rules see it: with its cost on a machine, and helpers for sums and words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

from shardviz.caching import Memo, cached_property
from shardviz.costs.accuracy import STEP_ERROR
from shardviz.costs.step_cost import StepCost, cost_of
from shardviz.diagnose.policy import CUT, GRAVE, SLIGHT
from shardviz.diagnose.specs import moved_off, over_all
from shardviz.errors import MeshError, TargetError
from shardviz.layouts import itemsize
from shardviz.layouts.uneven import shard_shape
from shardviz.notation import Spec
from shardviz.notation.spec import axes_size, axis_name
from shardviz.records import Collective, Frame, Product, Suggestion, Value
from shardviz.records.amounts import format_bytes, format_seconds, plural
from shardviz.records.collectives import axes_words, runs_as
from shardviz.records.groups import grouped
from shardviz.records.report import ReportRecord, values_of
from shardviz.records.values import on_device


@dataclass(frozen=True)
class Case(Memo):
    """A report, and the machine whose seconds count.

    Attributes:
        target: the machine, or the cost of a step on it; None for the report's own target.
    """

    report: ReportRecord
    target: Any = None

    @cached_property
    def cost(self) -> StepCost | None:
        """The cost of a step on the machine; None if no target was given and the report's own has no known speed.

        Raises TargetError, MeshError for a given machine, as `sv.cost`.
        """
        if isinstance(self.target, StepCost):
            return self.target
        try:
            return cost_of(self.report, self.target)
        except (TargetError, MeshError):
            if self.target is not None:
                raise
            return None

    @cached_property
    def step(self) -> float | None:
        """Seconds per step; a lower bound if some FLOPs are unknown."""
        return None if self.cost is None else self.cost.seconds or self.cost.lower

    @cached_property
    def _seconds(self) -> dict[int, float]:
        """`id` of each collective → its seconds per step."""
        timed = self.cost.partitioned if self.cost is not None else ()
        return {id(c): t.assumed_seconds for c, t in zip(self.report.collectives, timed, strict=bool(timed))}

    def moved(self, collectives: Iterable[Collective]) -> dict[str, float]:
        """Return `bytes` (operands per device and step), `runs`, and on a machine `seconds` and their `share` of the
        step."""
        some = list(collectives)
        numbers = {"bytes": sum(c.assumed_bytes for c in some), "runs": float(sum(c.count or 1 for c in some))}
        return numbers if self.cost is None else numbers | self.timed(sum(self._seconds[id(c)] for c in some))

    def timed(self, seconds: float) -> dict[str, float]:
        """Return `seconds`, and their `share` of the step."""
        return {"seconds": seconds, "share": seconds / self.step if self.step else 0.0}

    def grave(self, moved: Mapping[str, float]) -> bool:
        """Return whether the communication exceeds the level's error; without a machine, whether it is a twentieth of
        all bytes moved."""
        part = moved["bytes"] / (self.moved_bytes or 1.0)
        return part >= SLIGHT and moved["share"] >= STEP_ERROR if "share" in moved else part >= GRAVE

    @cached_property
    def moved_bytes(self) -> float:
        """Operand bytes of all collectives per device and step."""
        return sum(c.assumed_bytes for c in self.report.collectives)

    @cached_property
    def _made_at(self) -> dict[tuple[Frame | None, str, str], list[Value]]:
        short = [(v.name.partition(".")[0], v) for v in self.report.intermediates]
        return grouped(((v.source, v.dtype, name), v) for name, v in short)

    def heavy(self, size: float) -> bool:
        """Return whether a size is a twentieth of the arguments' bytes per device, and a hundredth of the device's
        memory if known."""
        usable = self.cost.needs.usable if self.cost is not None else None
        return size >= max(GRAVE * self.argument_bytes, SLIGHT * (usable or 0.0))

    def is_argument(self, name: str) -> bool:
        return name in self.once("arguments", lambda: {v.name for v in self.report.arguments})

    def left(self, c: Collective) -> float:
        """Return the array's bytes per device after a collective, or after the resharding that it belongs to."""
        if c.array is None or c.after is None:
            return c.result_bytes
        return self.shard_bytes(c.array, c.dtype, c.after)

    def shard_bytes(self, shape: tuple[int, ...], dtype: str, spec: Spec) -> float:
        """Return the bytes per device of an array with a spec."""
        return float(math.prod(shard_shape(shape, spec, self.report.mesh)) * itemsize(dtype))

    def value_of(self, c: Collective) -> Value | None:
        """Return the argument or intermediate that a collective moves; None if unknown."""
        if self.is_argument(c.operand):
            return self.report.value(c.operand)
        values = [v for v in self._made_at.get((c.source, c.dtype, c.made_by), ()) if c.array in (None, v.shape)]
        return values[0] if len({v.name for v in values}) == 1 else None

    def name_of(self, name: str) -> str:
        """Return the name if the report has such a value, else an empty string."""
        return name if name in self.once("names", lambda: {v.name for v in values_of(self.report)}) else ""

    def value_name(self, c: Collective) -> str:
        return "" if (value := self.value_of(c)) is None else value.name

    def constrained(self, c: Collective, spec: Spec | None) -> tuple[Suggestion, ...]:
        """Suggest another spec for the argument that a collective moves, or a constraint of the intermediate.

        Empty if the array is unknown, if only a slice of it moves, or if a PartitionSpec cannot express the spec.
        """
        value = self.value_of(c)
        if spec is None or any(not isinstance(axis, str) for axis in spec.axes):
            return ()
        if value is None or value.shape != c.array or value.spec is None:
            return ()
        if self.is_argument(value.name):
            return (Suggestion(kind="argument", target=value.name, spec=spec),) if value.spec != spec else ()
        called, source = value.label or "what is made", value.source or c.source
        return (Suggestion(kind="constrain", target=value.name, spec=spec, source=source, called=called),)

    def elsewhere(self, c: Collective) -> tuple[Suggestion, ...]:
        """Suggest to shard the argument that a collective moves along another dimension."""
        value = self.value_of(c)
        if value is None or value.spec is None or not self.is_argument(value.name):
            return ()
        names = {axis_name(a) for a in c.axes or ()} & {axis_name(a) for a in value.spec.axes}
        spec = moved_off(value, names, self.report.mesh)
        return () if spec is None else (Suggestion(kind="argument", target=value.name, spec=spec),)

    def largest_over(self, axes: Sequence[str]) -> Iterator[Suggestion]:
        """Suggest to shard one of the largest arguments along axes too."""
        for v in sorted(self.arguments, key=lambda v: -nbytes(v))[:CUT]:
            if (spec := over_all(v, axes, self.report.mesh)) is not None:
                yield Suggestion(kind="argument", target=v.name, spec=spec)

    def place(self, c: Collective) -> str:
        """Return a collective's part of a finding's id: its value or line, and its axes."""
        where = self.value_name(c) or (c.source.short if c.source else c.name)
        return f"{where}:{axes_words(c.axes)}"

    def what(self, c: Collective) -> str:
        """Return the moved array in words, for the beginning of a sentence."""
        text = self.what_inside(c)
        return text[0].upper() + text[1:] if text.startswith((*_MADE.values(), "an array")) else text

    def what_inside(self, c: Collective) -> str:
        """Return the moved array in words, for the middle of a sentence."""
        value = self.value_of(c)
        if value is not None and (value.label or self.is_argument(value.name)):
            return value.label or value.name
        what = _MADE.get(c.made_by, "an array")
        return f"{what} at {c.source.short}" if c.source else what

    def runs_as_once(self, c: Collective) -> bool:
        """Return whether the target's compiler moved a collective out of its loop."""
        runs = runs_as(c.name, self.report.target_collectives)
        return bool(runs) and all((r.collective.count or 2) < (c.count or 2) for r in runs)

    def lost(self, products: Sequence[Product], axes: Iterable[str]) -> float:
        """Return the seconds per step that the devices along these axes lose by repeating products; 0 if there is no
        machine."""
        if self.cost is None:
            return 0.0
        chip, usual = self.cost.machine.chip, self.cost.dtype
        rates = ((p, chip.flops(p.dtype if p.dtype and chip.rate_of(p.dtype) else usual)) for p in products)
        seconds = sum(p.step_flops * chip.devices_per_chip / rate for p, rate in rates)
        return seconds * self.share_left(products) * (1 - 1 / axes_size(axes, self.report.mesh))

    @cached_property
    def spared_flops(self) -> float:
        """FLOPs of Shardy's products per device that the partitioner shared out by itself; infinite if unknown."""
        cost, flops = self.report.cost, sum(p.step_flops for p in self.report.products)
        return math.inf if cost is None else max(0.0, flops - cost.dot_flops)

    def share_left(self, products: Iterable[Product]) -> float:
        """Return the least share of these products' FLOPs that the partitioner did not share out by itself."""
        flops = sum(p.step_flops for p in products)
        return max(0.0, 1 - self.spared_flops / flops) if flops else 0.0

    @cached_property
    def used_axes(self) -> frozenset[str]:
        """The mesh axes that shard a value, that a `shard_map` is manual over, or that a collective spans."""
        used = {axis_name(a) for v in values_of(self.report) for a in (*(v.spec.axes if v.spec else ()), *v.manual)}
        return frozenset(used | {axis_name(a) for c in self.report.collectives for a in c.axes or ()})

    @cached_property
    def arguments(self) -> tuple[Value, ...]:
        """The arguments that take device memory."""
        return on_device(self.report.arguments)

    @cached_property
    def argument_bytes(self) -> float:
        """Bytes of `arguments` per device."""
        return total_bytes(self.arguments)

    @cached_property
    def held_bytes(self) -> float:
        """Bytes of arguments and of activations kept for the backward pass, per device."""
        return self.argument_bytes + self.report.residual_bytes


def nbytes(value: Value) -> float:
    """Return a value's bytes per device; 0 if unknown."""
    return value.bytes_per_device or 0.0


def total_bytes(values: Iterable[Value]) -> float:
    """Return the values' total bytes per device."""
    return sum(map(nbytes, values))


def at_line(source: Frame | None) -> str:
    """Return ` at model.py:20`; empty if the line is unknown."""
    return f" at {source.short}" if source is not None else ""


def and_others(alike: Sized, noun: str = "other") -> str:
    """Return ` and 2 others`, counting all but the first; empty if there is only one."""
    return f" and {plural(len(alike) - 1, noun)}" if len(alike) > 1 else ""


def severity(grave: object) -> str:
    return "warning" if grave else "note"


def by_hand(source: Frame | None, text: str) -> Suggestion:
    """Suggest a change that only a person can write."""
    return Suggestion(kind="code", source=source, text=text)


def also_moved(moved: Mapping[str, float]) -> dict[str, float]:
    """Return the numbers of `Case.moved` for a finding about arrays, whose own `bytes` are those of the arrays."""
    return {"moved_bytes": moved["bytes"]} | {name: moved[name] for name in ("seconds", "share") if name in moved}


def moved_words(numbers: Mapping[str, float], of: str = "") -> str:
    """Return `33.6 MB of w on each device in a step, 0.21 s (4 % of the step)`, from the numbers of `Case.moved`."""
    text = f"{format_bytes(numbers['bytes'])}{of and f' of {of}'} on each device in a step"
    if "seconds" in numbers:
        text += f", {format_seconds(numbers['seconds'])} ({numbers['share']:.1%} of the step)"
    return text


_MADE = {
    "dot_general": "the result of a matrix product",
    "reduce": "a sum",
    "gather": "the result of a lookup",
    "scatter": "a gradient summed by index",
    "convolution": "the result of a convolution",
    "reshape": "a reshaped array",
    "transpose": "a transposed array",
    "concatenate": "a concatenated array",
}
"""Operation → the JAX user's words for its result."""


def quoted_axes(axes: Iterable[Any]) -> str:
    """Return `'data' and 'model'`."""
    names = [repr(axis_name(a)) for a in axes]
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
