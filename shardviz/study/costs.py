"""One table of the costs of a program under several plans, or on several machines.

cost_table(report, targets=["tpu v5p:8x8x8", "tpu v5e:16x16*2", "gpu h100:64x8"])
cost_table({"FSDP": one, "FSDP + TP": other}, targets="tpu v5p:8x8x8")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import StepCost, cost_of
from shardviz.display import Displayed
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report

# column → (its number, None if unknown; whether less is better)
_BEST: Mapping[str, tuple[Callable[[StepCost], float | None], bool]] = {
    "bytes": (lambda c: None if c.total.unknown else float(c.total.bytes), True),
    "runs": (lambda c: None if c.total.unknown else float(c.total.runs), True),
    "seconds": (lambda c: c.seconds, True),
    "memory": (lambda c: c.needs.total if c.needs.complete else None, True),
    "mfu": (lambda c: c.mfu, False),
    "tokens": (lambda c: c.tokens_per_s_per_chip, False),
}
COLUMNS = tuple(_BEST)


@dataclass(frozen=True, repr=False)
class CostTable(Displayed):
    """The costs of several plans or machines, side by side.

    Attributes:
        costs: name → cost, in the order given.
    """

    _width: ClassVar[int | None] = 120

    costs: Mapping[str, StepCost]

    def value(self, name: str, column: str) -> float | None:
        """Return a number of the table; None if unknown.

        `bytes` is collective operands per device; `runs` counts collectives. `memory` is bytes per device as planned by
        a compiler. `tokens` is tokens (or samples) per second and chip. Other columns are `seconds` and `mfu`.
        """
        return _BEST[column][0](self.costs[name])

    def best(self, column: str) -> frozenset[str]:
        """Return the best names in a column. Empty if fewer than two values are known, all are equal, or levels
        differ."""
        if column not in _BEST:
            raise ShardvizError(f"there is no column {column!r}; there are {', '.join(COLUMNS)}")
        if len(self.levels) > 1:
            return frozenset()
        values = {name: value for name in self.costs if (value := self.value(name, column)) is not None}
        if len(values) < 2 or len(set(values.values())) < 2:
            return frozenset()
        most = (min if _BEST[column][1] else max)(values.values())
        return frozenset(name for name, value in values.items() if value == most)

    @property
    def levels(self) -> tuple[str, ...]:
        """The distinct bases of the costs; see `StepCost.basis`."""
        return tuple(dict.fromkeys(c.basis for c in self.costs.values()))


def cost_table(
    what: Report | StepCost | Mapping[str, Any] | Iterable[tuple[str, Any]],
    *,
    targets: str | Machine | Sequence[str | Machine] | None = None,
    tokens: float | bool | None = None,
    model_flops: float | None = None,
) -> CostTable:
    """Return one table of the costs of several plans or machines.

    Args:
        what: a report, or (name, report) pairs or a dictionary of them. A `StepCost` may replace a report; it keeps its
            machine.
        targets: the machine or machines; None for each report's own target.
        tokens, model_flops: as `sv.cost`, the same for all rows. For its other options pass `StepCost`s.

    Raises:
        MeshError: if a mesh and its machine differ in size; the message names the row.
        TargetError: if the machine is unknown, or has no known speed (`cpu`).
        ShardvizError: if there is nothing to compare, two rows share a name, or a row is no report.

    Examples:
        >>> import shardviz as sv
        >>> mlp = sv.gallery.mlp()
        >>> report = mlp.program.propagate(mlp.plan)
        >>> list(sv.cost_table(report, targets=["tpu v5e:2x4", "gpu h100:1x8"]).costs)
        ['tpu v5e:2x4', 'gpu h100:1x8']
    """
    if isinstance(what, Report | StepCost):
        named: list[tuple[str, Any]] = [("", what)]
    else:
        try:
            named = [(str(n), v) for n, v in (what.items() if isinstance(what, Mapping) else what)]
        except (TypeError, ValueError) as error:
            raise ShardvizError(
                f"what={type(what).__name__}: expected a Report, or (name, Report or StepCost) pairs, such as "
                "[('FSDP', one), ('FSDP + TP', other)]"
            ) from error
    machines: list[str | Machine | None] = [None]
    if targets is not None:
        machines = [targets] if isinstance(targets, str | Machine) else list(targets)
    costs: dict[str, StepCost] = {}
    for name, each in named:
        for machine in [None] if isinstance(each, StepCost) else machines:
            cost = _cost(name, each, machine, tokens=tokens, model_flops=model_flops)
            label = name or cost.machine.text
            if name and len(machines) > 1 and not isinstance(each, StepCost):
                label = f"{name} on {cost.machine.text}"
            if label in costs:
                raise ShardvizError(f"two rows are called {label!r}; give each a name of its own")
            costs[label] = cost
    if not costs:
        raise ShardvizError("there is nothing to compare: give a report and targets, or several (name, report) pairs")
    return CostTable(costs)


def _cost(name: str, each: Any, machine: str | Machine | None, **options: Any) -> StepCost:
    if isinstance(each, StepCost):
        return each
    if not isinstance(each, Report):
        raise ShardvizError(f"row {name!r}: expected a Report or a StepCost, not {type(each).__name__}")
    try:
        return cost_of(each, each.target if machine is None else machine, **options)
    except ShardvizError as error:
        if not name:
            raise
        raise type(error)(f"row {name!r}: {error}") from error
