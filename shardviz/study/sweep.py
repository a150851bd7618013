"""A sweep: the same question for every point of a grid of batches, policies, meshes, machines or compiler options.

    def make(batch, policy):
        return train_step(policy), (params, tokens_of(batch)), {"in_specs": specs}

    sweep = sv.sweep(make, over={"batch": [8, 16, 32], "policy": ["none", "full"]}, mesh=mesh, target="tpu v5p:4x4x4")
    sweep.pareto, sweep.best

Points that fail or do not fit are rows too. A grid that takes more than a few seconds is distributed over worker
processes (see `study/workers.py`), a `concurrent.futures.Executor` or a cluster.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from shardviz.ask.calls import program_and_plan
from shardviz.ask.program import Program
from shardviz.costs.step_cost import StepCost, cost_of
from shardviz.display import Displayed, paint
from shardviz.errors import ANYTHING, ShardvizError
from shardviz.judge.report import Report
from shardviz.plan.plan import Plan
from shardviz.study.answer import pareto
from shardviz.study.workers import WORTH as _WORTH
from shardviz.study.workers import Lost, Shared, Workers, answers, can_travel, cores

ASK_AT: Mapping[str, Callable[..., Report]] = {
    "propagated": lambda program, plan, target: program.propagate(plan),
    "partitioned": lambda program, plan, target: program.partition(plan, target or "cpu"),
    "compiled": lambda program, plan, target: program.compile(plan, target or "cpu"),
}
"""Level → the function that returns a program's report under a plan, on a target (None: the CPU)."""


def report_at(level: str, program: Program, plan: Plan, target: str | None) -> Report:
    """Return the report of a level. Only `compiled` depends on the target, so that other answers are the same
    everywhere."""
    return ASK_AT[level](program, plan, target if level == "compiled" else None)


_OWN = ("mesh", "target", "options")
Point = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """One point of a sweep and its result.

    Attributes:
        point: name → value.
        report: the report; None if it failed.
        cost: the cost of a step on the target; None if it failed, or the machine has no known speed.
        trouble: why it failed, or why there is no cost; empty if neither.
        seconds: duration in seconds.
    """

    point: Point
    report: Report | None = None
    cost: StepCost | None = None
    trouble: str = ""
    seconds: float = 0.0

    @property
    def label(self) -> str:
        """The point in one line: `batch=8, policy='full'`."""
        return ", ".join(f"{name}={value_text(value)}" for name, value in self.point.items())

    @property
    def fits(self) -> bool | None:
        """Whether it fits its machine; None if unknown."""
        return None if self.cost is None else self.cost.needs.fits

    @property
    def time(self) -> float | None:
        """Seconds per step; None if unknown."""
        return None if self.cost is None else self.cost.seconds

    @property
    def memory(self) -> float | None:
        """Bytes per device, estimated unless a compiler planned them; None if unknown."""
        return None if self.cost is None else self.cost.needs.total


@dataclass(frozen=True, kw_only=True, repr=False)
class Sweep(Displayed):
    """The result of a sweep, complete or interrupted.

    Attributes:
        over: name → the values.
        level: the level of all reports.
        asked: the sweep's default mesh and target, and the tokens, in words.
        rows: the finished points, in the grid's order.
        left: number of points that are missing after an interrupt.
    """

    _width: ClassVar[int | None] = 140

    over: Mapping[str, tuple[Any, ...]]
    level: str
    rows: tuple[SweepRow, ...]
    left: int = 0
    asked: str = ""

    @property
    def pareto(self) -> tuple[SweepRow, ...]:
        """The Pareto front of time and memory, fastest first, of the rows that may fit."""
        may_fit = (row for row in self.rows if None not in (row.time, row.memory) and row.fits is not False)
        return pareto(may_fit, lambda row: (row.time or 0.0, row.memory or 0.0))

    @property
    def best(self) -> SweepRow | None:
        """The fastest row that may fit; by tokens (or samples) per second if all rows have that; None if there is
        none."""
        rated = [r for r in self.rows if r.time is not None and r.fits is not False]
        if rated and all(_rate(r) is not None for r in rated):
            return max(rated, key=lambda r: _rate(r) or 0.0)
        return min(rated, key=lambda r: r.time or 0.0, default=None)

    @property
    def failed(self) -> tuple[SweepRow, ...]:
        """The rows without a report."""
        return tuple(r for r in self.rows if r.report is None)

    def row(self, **point: Any) -> SweepRow:
        """Return the row of a point.

        Raises:
            ShardvizError: if no row, or more than one, matches.
        """
        matching = [r for r in self.rows if all(_same(r.point.get(n), v) for n, v in point.items())]
        if len(matching) != 1:
            words = ", ".join(f"{n}={v!r}" for n, v in point.items())
            raise ShardvizError(
                f"row({words}): {len(matching)} rows match, expected 1; name values of {list(self.over)}"
            )
        return matching[0]

    def plot(self, ax: Any = None, *, dark: bool = False) -> Any:
        """Plot step time against memory with matplotlib: one mark per row, the Pareto front joined."""
        return paint("plot", self, ax, dark=dark)


def _rate(row: SweepRow) -> float | None:
    return None if row.cost is None else row.cost.tokens_per_s


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; two different functions of the same name are not."""
    return one is other or (type(one) is type(other) and (one == other) is True)


def sweep(
    make: Callable[..., Any],
    over: Mapping[str, Iterable[Any]],
    *,
    mesh: Any = None,
    target: str | None = None,
    level: str = "propagated",
    tokens: float | None = None,
    executor: Any = None,
    previous: Sweep | None = None,
    progress: bool = True,
) -> Sweep:
    """Ask the same question at every point of a grid.

    Args:
        make: a function called with a point's values by name. It returns a `Program`, an example of the gallery,
            (program, plan), (function, arguments) or (function, arguments, keywords). Keywords are `in_specs`,
            `out_specs` and those of `sv.trace`. Values named `mesh`, `target` and `options` (compiler options, as for
            `Plan.with_options`) that `make` does not take are used by the sweep.
        over: name → values; the grid is their product, the last name varies fastest.
        mesh, target: defaults for points without these names: the plan's mesh, and the machine for step times and, at
            level `compiled`, for compiling.
        level: `propagated`, `partitioned` or `compiled`.
        tokens: tokens per step, as in `sv.cost`.
        executor: a `concurrent.futures.Executor`, or an object with `get_executor()` (a `dask.distributed` client)
            whose workers have the same JAX and shardviz. If None, this process, and worker processes once they save
            time.
        previous: an earlier sweep to resume or extend; its finished points are kept.
        progress: show a bar.

    Returns:
        One row per point. After Ctrl-C the rows finished so far; `left` counts the missing ones.

    Raises:
        ShardvizError: for an empty grid, an unknown level, or a `previous` sweep with other settings.

    Examples:
        >>> import jax, shardviz as sv
        >>> from jax.sharding import PartitionSpec as P
        >>> def make(rows):
        ...     return lambda x: x @ x.T, [jax.ShapeDtypeStruct((rows, 64), "float32")], {"in_specs": P("data")}
        >>> found = sv.sweep(make, over={"rows": [8, 16]}, mesh={"data": 4}, target="tpu v5e:2x2", progress=False)
        >>> [(row.point, row.trouble) for row in found.rows]
        [({'rows': 8}, ''), ({'rows': 16}, '')]
    """
    if level not in ASK_AT:
        raise ShardvizError(f"sweep(level={level!r}): level is {', '.join(map(repr, ASK_AT))}")
    grid = {name: tuple(values) for name, values in over.items()}
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if not grid or not points:
        raise ShardvizError("sweep(over=...): give names with one or more values each, such as {'batch': [8, 16]}")
    if previous is not None and previous.level != level:
        raise ShardvizError(f"sweep(previous=...): expected a sweep of level {level}, not {previous.level}")
    asked = f"mesh {value_text(mesh)}, target {target}, tokens {tokens}"
    if previous is not None and previous.asked != asked:
        raise ShardvizError(f"sweep(previous=...): expected a sweep with {asked}, not with {previous.asked}")
    done: dict[int, SweepRow] = {}
    for place, point in enumerate(points):
        for row in previous.rows if previous is not None else ():
            same = row.point.keys() == point.keys() and all(_same(row.point[name], point[name]) for name in point)
            if same and row.report is not None:
                done[place] = row
    from tqdm.auto import tqdm

    question = _Question(make, mesh, target, level)
    left = {place: point for place, point in enumerate(points) if place not in done}
    with contextlib.suppress(KeyboardInterrupt), contextlib.closing(_answers(question, left, executor)) as answers:
        shown = {"total": len(left), "desc": "sweep", "unit": "point", "disable": not (progress and left)}
        for place, (answer, trouble, seconds) in tqdm(answers, **shown):
            report = Report.from_json(answer) if isinstance(answer, str) else answer
            done[place] = _row(left[place], report, trouble, seconds=seconds, target=target, tokens=tokens)
    rows = tuple(done[place] for place in sorted(done))
    return Sweep(over=grid, level=level, rows=rows, left=len(points) - len(rows), asked=asked)


def _row(
    point: Point, report: Report | None, trouble: str, *, seconds: float, target: str | None, tokens: float | None
) -> SweepRow:
    cost = None
    machine = point.get("target", target)
    if report is not None and machine is not None:
        try:
            cost = cost_of(report, machine, tokens=tokens)
        except ShardvizError as error:
            trouble = str(error)
    return SweepRow(point=point, report=report, cost=cost, trouble=trouble, seconds=seconds)


@dataclass(frozen=True)
class _Question:
    make: Callable[..., Any]
    mesh: Any
    target: str | None
    level: str

    def report(self, point: Point) -> Report:
        takes = inspect.signature(self.make).parameters
        every = any(p.kind is p.VAR_KEYWORD for p in takes.values())
        arguments = {n: v for n, v in point.items() if every or n in takes or n not in _OWN}
        program, plan = program_and_plan(self.make(**arguments), point.get("mesh", self.mesh))
        if "options" in point and "options" not in arguments:
            plan = plan.with_options(point["options"])
        return ASK_AT[self.level](program, plan, point.get("target", self.target))


Answer = tuple[Report | str | None, str, float]
"""The report or its JSON, or None with the error; and the duration in seconds."""


def _tried(question: _Question, point: Point) -> Answer:
    start = time.perf_counter()
    try:
        return question.report(point), "", time.perf_counter() - start
    except ANYTHING as error:  # a user's function may raise any error, and the sweep goes on
        return None, f"{type(error).__name__}: {error}", time.perf_counter() - start


def _tried_there(question: _Question, point: Point) -> Answer:
    """Answer a point in a worker; the report travels as JSON, without the program's texts."""
    report, trouble, seconds = _tried(question, point)
    return report.to_json(stages=False) if isinstance(report, Report) else None, trouble, seconds


def _answers(
    question: _Question, points: Mapping[int, Point], executor: Any
) -> Generator[tuple[int, Answer], None, None]:
    """Yield answers as they complete.

    Without an executor the first point is answered here; workers answer the rest if that pays and the question can be
    pickled.
    """
    shared = Shared(question)
    if executor is not None:
        yield from _elsewhere(shared, points, executor)
        return
    left, travels = dict(points), cores() > 1
    for place in points:
        yield place, (answer := _tried(question, left.pop(place)))
        if travels and len(left) > 1 and len(left) * answer[2] > _WORTH and (travels := can_travel(shared, left)):
            with Workers(min(cores(), len(left))) as own:
                if travels := own.begin():
                    yield from _elsewhere(shared, left, own)
                    return


def _elsewhere(shared: Shared, points: Mapping[int, Point], executor: Any) -> Generator[tuple[int, Answer], None, None]:
    with contextlib.closing(answers(_tried_there, shared, points, executor)) as answered:
        for place, answer in answered:
            yield place, (None, answer.why, 0.0) if isinstance(answer, Lost) else answer


def value_text(value: Any) -> str:
    """Return a point's value in a few words: a function by its name, a mesh by its text."""
    if isinstance(value, str | int | float | bool | None):
        return repr(value) if isinstance(value, str) else str(value)
    if isinstance(value, Mapping):
        return ",".join(f"{name}={size}" for name, size in value.items())
    return getattr(value, "__name__", "") or str(value)
