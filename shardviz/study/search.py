"""The search for a program's best plan on a machine.

    search = sv.search(program, "tpu v5p:4x4x4", seconds=30)
    search.best.plan, search.best.report, search.why_not

Candidates (`candidates`) are meshes and the axes that shard the program's dimensions. Shardy's propagation and the cost
model score each candidate (`scoring`). The search starts with the presets on every mesh shape and the given plan. From
the best starts it climbs: it changes one decision at a time as long as that helps. Random changes follow. The best
candidates are compiled for the target, best first, until enough of them fit. The compiled reports decide the order.

Candidates that Shardy or the compiler refuses, that crash, or that do not fit are counted with the reason. A search can
be watched (`stream=True`) and interrupted at any time.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack, overload

from shardviz.ask.program import Program, arrays, named_axes, own_plan, state_of, update_arguments
from shardviz.ask.targeting import resolve_target
from shardviz.costs.machine import Machine, machine_of
from shardviz.costs.step_cost import cost_of
from shardviz.diagnose import policy
from shardviz.errors import CompileStopped, ShardvizError
from shardviz.notation import DeviceMesh, Spec
from shardviz.plan.plan import Plan
from shardviz.records.report import ASKED
from shardviz.study.answer import Fallen, Finalist, Search, Tried, why_not
from shardviz.study.candidates import Choice, Space
from shardviz.study.finalists import Finalists
from shardviz.study.scoring import Floor, Score, Scorer, floor_of, score_there
from shardviz.study.trying import Step, Trying, Wait, outcome
from shardviz.study.workers import WORTH, Lost, Shared, Workers, answers, can_travel, cores, free_cores


class SearchOptions(TypedDict, total=False):
    """Keyword arguments of `search`."""

    seconds: float
    plan: Plan | None
    mesh: Any
    pins: Mapping[str, Any] | None
    executor: Any
    level: str
    finalists: int
    most: int | None


@overload
def search(
    program: Program, target: str | Machine, *, stream: Literal[False] = False, **options: Unpack[SearchOptions]
) -> Search: ...
@overload
def search(
    program: Program, target: str | Machine, *, stream: Literal[True], **options: Unpack[SearchOptions]
) -> Searching: ...
def search(
    program: Program,
    target: str | Machine,
    *,
    seconds: float = 30.0,
    plan: Plan | None = None,
    mesh: Any = None,
    pins: Mapping[str, Any] | None = None,
    executor: Any = None,
    level: str = "compiled",
    finalists: int = policy.COMPILED,
    most: int | None = None,
    stream: bool = False,
) -> Search | Searching:
    """Search for the best plan for a program on a machine.

    Args:
        program: the program.
        target: the machine, such as `tpu v5p:4x4x4`.
        seconds: the time limit. The compiles of the first finalist and of the given plan may exceed it.
        plan: a plan to improve. The search starts with it and keeps every spec that no decision changes. If None, the
            function's own plan (`in_shardings`, say) is used where its number of devices fits.
        mesh: the only mesh to use. If None, every factorisation of the machine's devices into up to three axes, with
            the devices in the order of `mesh_utils` or of the given plan.
        pins: decisions to keep: an argument's tree path → its spec; the name of a logical dimension
            (`program.dimensions`) → the axes that shard it, None for none; the name of a mesh axis → its size.
        executor: where candidates are scored: any `concurrent.futures.Executor`, or a `dask.distributed` client. If
            None, this process, and one worker process per free core if enough work is left.
        level: the level at which the best candidates are confirmed: `propagated`, `partitioned` or `compiled` (by the
            target's own compiler).
        finalists: the number of plans that the compiler must accept. Up to three times as many are compiled if the
            results leave open which plan is best.
        most: the maximum number of candidates to score, which makes the answer reproducible given enough time.
            Neighbours of the best plan, needed for `why_not`, do not count. None for no maximum.
        stream: return an iterator of states, one per better or confirmed candidate. The loop may be left at any time;
            `stop` may be called from any thread.

    Returns:
        The best plan, the runners-up, the Pareto front of time and memory, the floor, and an alternative for each
            decision. At level `compiled` only plans that the target's compiler accepts as fitting are offered. If that
            compiler is not installed, partitioned plans are offered with the estimate's margin. Ctrl-C returns the
            state so far.

    Raises:
        ShardvizError: for an unknown level, an unknown pin or an invalid number.
        MeshError, TargetError: if the mesh size differs from the machine's, or the machine has no known speed.
        TraceError: as `program.dimensions`.

    Examples:
        >>> import shardviz as sv
        >>> mlp = sv.gallery.mlp()
        >>> search = sv.search(mlp.program, "tpu v5e:2x4", plan=mlp.plan, seconds=5, level="propagated", most=10)
        >>> search.best.cost.seconds <= sv.cost(mlp.program.propagate(mlp.plan), "tpu v5e:2x4").seconds
        True
    """
    if level not in ASKED:
        raise ShardvizError(f"search(level={level!r}): level is {', '.join(map(repr, ASKED))}")
    for name, value in (("seconds", seconds), ("finalists", finalists), ("most", 1 if most is None else most)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ShardvizError(f"search({name}={value!r}): expected a number above 0")
    on = None if mesh is None else DeviceMesh.of(mesh)
    size = on.size if on is not None else plan.mesh.size if plan is not None else 0
    machine = machine_of(target, size)
    machine.chip.needs("hbm_bytes_per_s")
    begun = time.monotonic()
    space = space_of(program, machine, plan, on, pins or {})
    searching = Searching(
        program, machine, space, seconds=seconds, level=level, finalists=int(finalists), most=most, executor=executor
    )
    searching.begun = begun
    if stream:
        return searching
    with contextlib.suppress(KeyboardInterrupt):
        for _ in searching:
            pass
    return searching.state


def space_of(
    program: Program, machine: Machine, plan: Plan | None, mesh: DeviceMesh | None, pins: Mapping[str, Any]
) -> Space:
    """Return the space of choices for a search.

    Raises:
        MeshError: if the plan's or the requested mesh has another number of devices than the machine.
        ShardvizError: for a pin that names nothing in the program.
    """
    for own_mesh in (mesh, None if plan is None else plan.mesh):
        if own_mesh is not None:
            resolve_target(machine, own_mesh)
    base = _own_plan(program, machine, mesh) if plan is None else program._settled(plan)
    arguments, _ = arrays(program, Plan(mesh) if mesh is not None else plan)
    dimensions = program.dimensions
    specs: dict[str, Spec] = {}
    decisions: dict[str, tuple[str, ...]] = {}
    sizes: dict[str, int] = {}
    paths, named = {a.name for a in arguments}, {d.name for d in dimensions}
    for what, wanted in pins.items():
        if what in paths:
            shape = next(a.shape for a in arguments if a.name == what)
            specs[what] = Spec.of(wanted, len(shape))
        elif what in named:
            decisions[what] = () if wanted is None else (wanted,) if isinstance(wanted, str) else tuple(wanted)
        elif isinstance(wanted, int) and not isinstance(wanted, bool):
            if wanted < 1 or machine.size % wanted:
                size = machine.size
                raise ShardvizError(f"pins[{what!r}]={wanted}: the size of an axis divides {machine.text}'s {size}")
            sizes[what] = wanted
        else:
            raise ShardvizError(
                f"pins[{what!r}]={wanted!r}: expected an argument's tree path with a spec, one of the dimensions "
                f"{', '.join(map(repr, sorted(named)))} with axes, or a mesh axis with its size"
            )
    space = Space(
        machine=machine,
        arguments=arguments,
        dimensions=dimensions,
        optimizer=update_arguments(program),
        required=named_axes(program),
        follows={new: name for name, new in state_of(program).items()},
        base=base,
        base_specs={} if base is None else program.bind(base).in_specs,
        mesh=mesh,
        specs=specs,
        decisions=decisions,
        sizes=sizes,
    )
    if not space.meshes:
        pinned = ", ".join(f"{what}: {wanted}" for what, wanted in pins.items())
        raise ShardvizError(
            f"pins={{{pinned}}}: no mesh of {machine.size} devices satisfies these pins; an axis that shards something "
            "needs a size above 1, and the axis sizes must multiply to the number of devices"
        )
    return space


def _own_plan(program: Program, machine: Machine, mesh: DeviceMesh | None) -> Plan | None:
    """Return the function's own plan if it fits the number of devices and the requested mesh, else None."""
    own = own_plan(program)
    if own is None or own.mesh.size != machine.size or (mesh is not None and mesh != own.mesh):
        return None
    with contextlib.suppress(ShardvizError):
        program.bind(own)
        return own
    return None


class Searching(Trying[Search]):
    """A running search.

    Attributes:
        program, machine, space: the program, the machine and the space of choices.
        tried: the scored candidates.
        scorer: the scorer of candidates.
        best: the candidate with the best score.
    """

    def __init__(
        self,
        program: Program,
        machine: Machine,
        space: Space,
        *,
        seconds: float,
        level: str,
        finalists: int,
        most: int | None,
        executor: Any = None,
    ):
        """Prepare a search with the arguments of `search`; iterating runs it."""
        super().__init__()
        self.program, self.machine, self.space = program, machine, space
        self.tried: dict[Any, Tried] = {}
        self.best: Tried | None = None
        self._seconds, self._level, self._most, self._executor = seconds, level, most, executor
        shape = dict(space.meshes[0])
        resolved = resolve_target(machine, DeviceMesh(tuple(shape), tuple(shape.values())))
        self.scorer = Scorer(program, machine, resolved.lowered_for)
        self._given: Tried | None = None
        self._refused: dict[Any, Fallen] = {}
        self._floor: Floor | None = None
        self._finished = self._ended = False
        self._note = ""
        self._scores: dict[Any, Score | str] = {}
        self._shared = Shared(self.scorer)
        self._own: Workers | None = None
        self._alone = cores() < 2  # or no workers can be had
        self._until = seconds if level == "propagated" else seconds * policy.SCORING
        reached: str | None = None if level == "propagated" else level
        unasked = "" if level == "compiled" else f"level {level!r} asks no compiler for the target, 'compiled' does"
        if resolved.missing:
            unasked = f"no compiler for the target is here: {resolved.missing}"
        if level == "compiled" and resolved.missing:
            reached = "partitioned"
            self._note = f"not confirmed by the target's compiler: {resolved.missing}"
        self._finalists = Finalists(machine, reached, finalists, unasked)
        self._estimated: dict[int, Finalist] = {}
        self._plans: dict[Choice, tuple[Any, Plan]] = {}
        self._choices = self._candidates()

    @property
    def fallen(self) -> tuple[Fallen, ...]:
        """The rejected candidates, each with the level and the reason."""
        return (*self._refused.values(), *self._finalists.fallen)

    @property
    def state(self) -> Search:
        ranked = sorted(self._finalists.ranked, key=lambda f: f.seconds)
        leading = None
        if not ranked:
            likely = self._likely(self._finalists.wanted if self._ended else 1)
            if self._finalists.level == "compiled":
                leading = likely[0] if likely else None
            else:
                ranked = likely
        best = ranked[0].tried if ranked else self.best
        return Search(
            program=self.program.name,
            target=self.machine.text,
            level=ranked[0].report.level if ranked else "propagated",
            ranked=tuple(ranked),
            leading=leading,
            tried=tuple(self.tried.values()),
            fallen=self.fallen,
            floor=self._floor,
            why_not=() if best is None else why_not(best, tuple(self._neighbours(best))),
            given=self._given,
            seconds=self.elapsed,
            finished=self._finished,
            note=self._note,
        )

    def _end(self) -> None:
        super()._end()
        if self._own is not None:
            self._own.stop()

    def _run(self) -> Iterator[Step]:
        while True:
            yield from self._scored()
            if self.best is None:
                self._note = self._note or "no candidate could be scored; `fallen` says why"
                break
            self._floor = self._floor or floor_of(self.scorer, self.space.names)
            yield from self._confirmed()
            yield from self._complete()
            yield from self._confirmed()  # a neighbour may be better
            if self._finalists.ranked or self._finalists.level is None or self._done():
                break
            self._until = self._seconds  # nothing was accepted: look for candidates that need less memory
        self._ended = True
        yield self.state

    def _full(self) -> bool:
        """Return whether the search is stopped, has nothing left to try, or has reached `most`."""
        return self.stopped or self._finished or (self._most is not None and len(self.tried) >= self._most)

    def _done(self) -> bool:
        return self._full() or self.elapsed > self._seconds

    # Scoring.

    def _over(self) -> bool:
        """Return whether to pause scoring. Until a candidate may fit, scoring gets all of the time, and more for the
        first candidates."""
        fits = self.best is not None and self._finalists.may_fit(self.best)
        if not fits and (self.best is None or len(self.tried) + len(self._refused) < policy.LEAST):
            return self._full()
        return self._done() or self.elapsed > (self._until if fits else self._seconds)

    def _scored(self) -> Iterator[Step]:
        """Score candidates until the time is up or none is left."""
        while not self._over():
            choice = next(self._choices, None)
            if choice is None:
                self._finished = True
                return
            before = self.best
            self._try(choice)
            yield self.state if self.best is not before else None

    def _candidates(self) -> Iterator[Choice]:
        """Yield the next choice to try; it depends on the scores of the choices yielded before."""
        if self.space.begun is not None:
            yield self.space.begun
            self._given = self._score_of(self.space.begun)
        starts: list[Choice] = []
        climbed: list[Tried] = []
        for tier in self.space.starts():
            self._ahead(tier)
            yield from tier
            starts += tier
            yield from self._climbs(starts, climbed, 1)
        yield from self._climbs(starts, climbed, policy.CLIMBS)
        yield from self._by_chance()

    def _climbs(self, starts: Sequence[Choice], climbed: list[Tried], most: int) -> Iterator[Choice]:
        """Climb from the best starts that were not climbed yet."""
        scored = {id(trial): trial for choice in starts if (trial := self._score_of(choice)) is not None}
        ranked = sorted(scored.values(), key=lambda t: t.score.rank)
        for start in [t for t in ranked if t not in climbed][:most]:
            climbed.append(start)
            yield from self._climb(start)

    def _climb(self, at: Tried) -> Iterator[Choice]:
        """Change one decision at a time as long as that helps."""
        better = True
        while better:
            better = False
            moves = [choice for _, choice in self.space.moves(at.choice)]
            most = len(moves) if self._executor is not None else 4 * cores()  # the later may not be needed
            for place, choice in enumerate(moves):
                if place % most == 0:
                    self._ahead(moves[place : place + most])
                if self._seen(choice):
                    continue
                yield choice
                trial = self._score_of(choice)
                if trial is not None and trial.score.rank < at.score.rank * (1 - policy.EQUAL):
                    at, better = trial, True
                    break

    def _by_chance(self) -> Iterator[Choice]:
        """Change the best candidate at random in several decisions, and climb from there."""
        chance, stale = random.Random(0), 0
        while stale < policy.STALE:
            assert self.best is not None
            choice = self.best.choice
            for _ in range(chance.randint(2, policy.KICKS)):
                moves = list(self.space.moves(choice))
                if moves:
                    choice = chance.choice(moves)[1]
            if self._seen(choice):
                stale += 1
                continue
            yield choice
            trial = self._score_of(choice)
            if trial is not None:
                yield from self._climb(trial)
            stale = 0

    def _plan(self, choice: Choice) -> tuple[Any, Plan]:
        if choice not in self._plans:
            plan = self.space.plan(self.space.named(choice))
            self._plans[choice] = self.space.key(plan), plan
        return self._plans[choice]

    def _score_of(self, choice: Choice) -> Tried | None:
        return self.tried.get(self._plan(choice)[0])

    def _seen(self, choice: Choice) -> bool:
        key = self._plan(choice)[0]
        return key in self.tried or key in self._refused

    def _try(self, choice: Choice) -> None:
        """Score a choice, unless its key was scored before."""
        choice = self.space.named(choice)
        if self._seen(choice):
            return
        key, plan = self._plan(choice)
        score = self._scores.pop(key, None) or score_there(self.scorer, plan)
        if isinstance(score, str):
            self._refused[key] = Fallen(choice.text, "propagated", score)
            return
        tried = self.tried[key] = Tried(choice=choice, plan=self.space.plan(choice, bare=True), score=score)
        if self.best is None or score.rank < self.best.score.rank:
            self.best = tried

    def _ahead(self, choices: Sequence[Choice]) -> None:
        """Score the next candidates in workers, if there are any; otherwise they are scored one by one later."""
        pool = self._executor
        if pool is None and not self.shares:  # otherwise this process needs the cores for its other work
            each = self.elapsed / max(1, len(self.tried))
            left = self._until - self.elapsed
            pool = self._workers(left if self._most is None else min(left, each * (self._most - len(self.tried))))
        if pool is None or self._over():
            return
        done = self.tried.keys() | self._refused.keys() | self._scores.keys()
        tasks: dict[Any, Plan] = {}
        for key, plan in map(self._plan, choices):
            if key not in done:
                tasks.setdefault(key, plan)  # the first of the plans with equal keys
        with contextlib.closing(answers(score_there, self._shared, tasks, pool)) as scores:
            for key, score in scores:
                self._scores[key] = score.why if isinstance(score, Lost) else score
                if self._over():
                    return

    def _workers(self, left: float) -> Workers | None:
        """Return this search's workers once they are ready; start them if the seconds of work left are worth it."""
        if self._own is None and not self._alone and left > WORTH and free_cores() >= 1:
            self._own = Workers()
            self._alone = not can_travel(self._shared) or not self._own.begin()
        return self._own if self._own is not None and not self._alone and self._own.ready else None

    def _neighbours(self, best: Tried) -> Iterator[tuple[str, Tried]]:
        for decision, choice in self.space.moves(best.choice):
            trial = self._score_of(choice)
            if trial is not None and trial is not best:
                yield decision, replace(trial, choice=choice)  # one plan may be several choices

    def _complete(self) -> Iterator[None]:
        """Score the untried neighbours of the best candidate, as long as there is time."""
        ranked = self._finalists.ranked
        best = min(ranked, key=lambda f: f.seconds).tried if ranked else self.best
        assert best is not None
        for _, choice in self.space.moves(best.choice):
            if self.stopped or self.elapsed > self._seconds:
                return
            if not self._seen(choice):
                self._try(choice)
                yield

    # Confirming.

    def _confirmed(self) -> Iterator[Step]:
        """Compile the best candidates to the requested level, best first."""
        finalists = self._finalists
        while not self.stopped:
            rival = self._given is not None and finalists.rivals(self._given)
            late = self.elapsed > self._seconds and (finalists.ranked or self.elapsed > self._seconds + policy.PATIENCE)
            each = self._given if rival else None if late else finalists.next(self.tried.values())
            if each is None or (finalists.full and not rival and not finalists.may_win(each)):
                return
            more = max(self._seconds - self.elapsed, 1.0) if finalists.ranked and not rival else math.inf
            yield from self._ask(each, time.monotonic() + more)

    def _ask(self, each: Tried, until: float) -> Iterator[Step]:
        """Compile a candidate; a compile that takes too long is stopped."""
        finalists = self._finalists
        assert finalists.level is not None
        finalists.asked.append(each)
        future = None
        try:
            future = self._submit(self.program, each.plan, finalists.level, self.machine.text, policy.PATIENCE)
            while future is not None and not (self.stopped or future.done() or time.monotonic() >= until):
                yield Wait((future,), until)
            report = outcome(future)
        except ShardvizError as error:
            report = error
        if report is None or isinstance(report, CompileStopped):
            if future is not None:
                future.stop()
            return
        if isinstance(report, ShardvizError):
            finalists.refuse(each, report)
        else:
            finalists.take(each, report)
        yield self.state

    def _likely(self, count: int) -> list[Finalist]:
        """Return the best candidates by their estimate. The given plan goes first if none of them is faster."""
        likely: dict[tuple[str, str], Finalist] = {}
        hopeful = [each for each in self.tried.values() if self._finalists.may_fit(each)] or list(self.tried.values())
        for each in sorted(hopeful, key=lambda t: t.score.rank):
            if len(likely) == count:
                break
            if each.alike not in likely and (estimated := self._as_found(each)) is not None:
                likely[each.alike] = estimated
        ranked = list(likely.values())
        given_finalist = self._as_found(self._given) if self._given in hopeful else None
        if given_finalist is not None and all(given_finalist.seconds <= each.seconds for each in ranked):
            return [given_finalist, *(each for each in ranked if each is not given_finalist)][:count]
        return ranked

    def _as_found(self, each: Tried) -> Finalist | None:
        if id(each) not in self._estimated:
            try:
                report = self.program.propagate(each.plan, self.machine)
            except ShardvizError:
                return None
            cost = cost_of(report, self.machine)
            verdict = self._finalists.estimate_of(each, cost)
            self._estimated[id(each)] = Finalist(tried=each, report=report, cost=cost, accepted=None, verdict=verdict)
        return self._estimated[id(each)]
