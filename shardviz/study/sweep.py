"""A sweep: the same question asked at every point of a grid (batches, policies, meshes, machines, compiler options).

    def make(batch, policy):
        return train_step(policy), (params, tokens_of(batch)), {"in_specs": specs}

    sweep = sv.sweep(make, over={"batch": [8, 16, 32], "policy": ["none", "full"]}, mesh=mesh, target="tpu v5p:4x4x4")
    sweep.pareto, sweep.best

What fails, or does not fit, is a row too. A grid that takes some seconds is shared out over worker processes of our
own, or those of any `concurrent.futures.Executor`, or a cluster's (see `study/workers.py`): a lost worker costs time.
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
from shardviz.costs.step_cost import StepCost, cost_of
from shardviz.display import Displayed, paint
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.study.answer import pareto
from shardviz.study.workers import WORTH as _WORTH
from shardviz.study.workers import Lost, Shared, Workers, answers, can_travel, cores

_ASKS: Mapping[str, Callable[..., Report]] = {
    "propagated": lambda program, plan, target: program.propagate(plan),
    "partitioned": lambda program, plan, target: program.partition(plan, target or "cpu"),
    "compiled": lambda program, plan, target: program.compile(plan, target or "cpu"),
}
_OWN = ("mesh", "target", "options")
Point = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """One point of a sweep, and what came of it.

    Attributes:
        point: name → value.
        report: the report; None where it failed.
        cost: what its step costs on the target; None where it failed, or without a machine that has a speed.
        trouble: why it failed, or why there is no cost; empty where all is well.
        seconds: how long it took.
    """

    point: Point
    report: Report | None = None
    cost: StepCost | None = None
    trouble: str = ""
    seconds: float = 0.0

    @property
    def label(self) -> str:
        """`batch=8, policy='full'`."""
        return ", ".join(f"{name}={value_text(value)}" for name, value in self.point.items())

    @property
    def fits(self) -> bool | None:
        """Whether it fits its machine; None where that is not known."""
        return None if self.cost is None else self.cost.needs.fits

    @property
    def time(self) -> float | None:
        """The step's seconds; None where not known."""
        return None if self.cost is None else self.cost.seconds

    @property
    def memory(self) -> float | None:
        """Bytes on one device, an estimate where no compiler has planned them; None where not known."""
        return None if self.cost is None else self.cost.needs.total


@dataclass(frozen=True, kw_only=True, repr=False)
class Sweep(Displayed):
    """What came of a sweep, as far as it went.

    Attributes:
        over: name → the values that were tried.
        level: of all reports.
        asked: the mesh and the target that held where the points say none, and the tokens, in words.
        rows: the points that were answered, in the grid's order.
        left: how many points were not answered, where it was interrupted.
    """

    _width: ClassVar[int | None] = 140

    over: Mapping[str, tuple[Any, ...]]
    level: str
    rows: tuple[SweepRow, ...]
    left: int = 0
    asked: str = ""

    @property
    def pareto(self) -> tuple[SweepRow, ...]:
        """The rows than which none is both faster and smaller, the fastest first; of those that may fit."""
        may_fit = (row for row in self.rows if None not in (row.time, row.memory) and row.fits is not False)
        return pareto(may_fit, lambda row: (row.time or 0.0, row.memory or 0.0))

    @property
    def best(self) -> SweepRow | None:
        """The fastest row that may fit; by tokens (or samples) a second, where all rows have that; None for none."""
        rated = [r for r in self.rows if r.time is not None and r.fits is not False]
        if rated and all(_rate(r) is not None for r in rated):
            return max(rated, key=lambda r: _rate(r) or 0.0)
        return min(rated, key=lambda r: r.time or 0.0, default=None)

    @property
    def failed(self) -> tuple[SweepRow, ...]:
        """The rows without a report."""
        return tuple(r for r in self.rows if r.report is None)

    def row(self, **point: Any) -> SweepRow:
        """The row of a point.

        Raises:
            ShardvizError: if there is none, or several.
        """
        matching = [r for r in self.rows if all(_same(r.point.get(n), v) for n, v in point.items())]
        if len(matching) != 1:
            words = ", ".join(f"{n}={v!r}" for n, v in point.items())
            raise ShardvizError(
                f"row({words}): {len(matching)} rows are of that point; the sweep is over {list(self.over)}"
            )
        return matching[0]

    def plot(self, ax: Any = None, *, dark: bool = False) -> Any:
        """Step time against memory, a mark a row, the Pareto front joined, drawn with matplotlib."""
        return paint("plot", self, ax, dark=dark)


def _rate(row: SweepRow) -> float | None:
    return None if row.cost is None else row.cost.tokens_per_s


def _same(one: Any, other: Any) -> bool:
    """Whether two values are one: two functions of one name, two lambdas say, are not."""
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
    """Asks the same of every point of a grid.

    Args:
        make: called with a point's values by name; gives a `Program`, an example of the gallery, (program, plan), or
            (function, arguments) or (function, arguments, keywords), with `in_specs`, `out_specs` and what `sv.trace`
            takes among the keywords. Points named `mesh`, `target` and `options` (of the compiler, as
            `Plan.with_options` takes them) that it does not take are the sweep's own.
        over: name → values; the grid is their product, the last name running fastest.
        mesh, target: the mesh of the plan and the machine that a step is timed on, and compiled for at level
            `compiled`, where the points do not say them.
        level: `propagated`, `partitioned` or `compiled`.
        tokens: tokens of a step, as `sv.cost` takes them.
        executor: a `concurrent.futures.Executor`, or an object with `get_executor()` (a client of `dask.distributed`)
            whose workers have this JAX and shardviz; None for this process, and worker processes of our own as soon as
            it shows that they save time.
        previous: a sweep whose answered points are kept as they are, to resume or to extend it.
        progress: show a bar.

    Returns:
        A row for each point. After an interrupt (Ctrl-C) what was answered until then; `left` says how many were not.

    Raises:
        ShardvizError: if there is nothing to sweep over, no such level, or the sweep to go on from was asked otherwise.

    Examples:
        >>> import jax, shardviz as sv
        >>> from jax.sharding import PartitionSpec as P
        >>> def make(rows):
        ...     return lambda x: x @ x.T, [jax.ShapeDtypeStruct((rows, 64), "float32")], {"in_specs": P("data")}
        >>> found = sv.sweep(make, over={"rows": [8, 16]}, mesh={"data": 4}, target="tpu v5e:2x2", progress=False)
        >>> [(row.point, row.trouble) for row in found.rows]
        [({'rows': 8}, ''), ({'rows': 16}, '')]
    """
    if level not in _ASKS:
        raise ShardvizError(f"sweep(level={level!r}): level is {', '.join(map(repr, _ASKS))}")
    grid = {name: tuple(values) for name, values in over.items()}
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if not grid or not points:
        raise ShardvizError("sweep(over=...): give names with one or more values each, such as {'batch': [8, 16]}")
    if previous is not None and previous.level != level:
        raise ShardvizError(f"sweep(previous=...): that one is of level {previous.level}, this one of {level}")
    asked = f"mesh {value_text(mesh)}, target {target}, tokens {tokens}"
    if previous is not None and previous.asked != asked:
        raise ShardvizError(f"sweep(previous=...): that one was asked with {previous.asked}, this one with {asked}")
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
            done[place] = _row(left[place], report, trouble, seconds, target, tokens)
    rows = tuple(done[place] for place in sorted(done))
    return Sweep(over=grid, level=level, rows=rows, left=len(points) - len(rows), asked=asked)


def _row(
    point: Point, report: Report | None, trouble: str, seconds: float, target: str | None, tokens: float | None
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
        return _ASKS[self.level](program, plan, point.get("target", self.target))


Answer = tuple[Report | str | None, str, float]
"""A report or its JSON, or None and why there is none; and the seconds that it took."""


def _tried(question: _Question, point: Point) -> Answer:
    start = time.perf_counter()
    try:
        return question.report(point), "", time.perf_counter() - start
    except Exception as error:  # noqa: BLE001  # a person's function may raise anything, and the sweep goes on
        return None, f"{type(error).__name__}: {error}", time.perf_counter() - start


def _tried_there(question: _Question, point: Point) -> Answer:
    """The same in a worker: the report travels as JSON, without the program's texts."""
    report, trouble, seconds = _tried(question, point)
    return report.to_json(stages=False) if isinstance(report, Report) else None, trouble, seconds


def _answers(
    question: _Question, points: Mapping[int, Point], executor: Any
) -> Generator[tuple[int, Answer], None, None]:
    """The answers as they come: without an executor the first is made here, and the others by workers of our own where
    these pay and what is asked can be sent to them."""
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
    """A point's value in a few words: a function by its name, a mesh by its text."""
    if isinstance(value, str | int | float | bool | None):
        return repr(value) if isinstance(value, str) else str(value)
    if isinstance(value, Mapping):
        return ",".join(f"{name}={size}" for name, size in value.items())
    return getattr(value, "__name__", "") or str(value)
