"""The search for one assignment of the arrays that programs share, and the rest of each program's plan.

The search treats the programs as one program. Its arguments are all arguments, each shared array once. Its logical
dimensions are all logical dimensions; two that contain the same dimension of a shared array are one. `study.search`
then proposes candidates as for a single program. A candidate's score has the weighted sum of the programs' seconds, and
the memory of the program that needs most, other programs' arrays included.

The best sets of plans are then confirmed: each program is compiled or partitioned, and the confirmed seconds and memory
decide. The best set of single searches is always among them.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardviz.ask.program import Program, arrays, named_axes, state_of, update_arguments
from shardviz.ask.targeting import resolve_target
from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import cost_of
from shardviz.errors import ShardvizError
from shardviz.layouts import layout
from shardviz.notation import DeviceMesh, Spec
from shardviz.plan.plan import Plan
from shardviz.propagate.dimensions import Dimension, Dimensions
from shardviz.records.report import ASKED, ReportRecord
from shardviz.records.together import OWN, ProgramCost, SharedPlan, SharedPlanSpec, TogetherSearchRecord
from shardviz.runs.budget import budget_of, kinds_of
from shardviz.runs.sets import ProgramSet, SetMember, assigned, check_calls
from shardviz.runs.shared import SharedGroup
from shardviz.study import search
from shardviz.study.candidates import Space
from shardviz.study.scoring import Score, Scorer
from shardviz.study.search import Searching
from shardviz.study.workers import Shared as Sent
from shardviz.tracing.trace import Argument

TOGETHER = "together"
_ALONE = 0.4
"""Share of the time for the searches of single programs. The joint search starts with the best of their results."""
_FINALISTS = 20
"""Joint candidates, best first, that are tried on the programs of weight 0, up to the first that they can have."""
_SHARE = 0.6
"""Share of the time for the candidates, if the best are confirmed by a compiler or the partitioner."""
_CONFIRMED = 2
"""The number of sets that a compiler must accept. The first may exceed the time limit by `_PATIENCE` seconds."""
_PATIENCE = 120.0
_LEADERS = 3
"""Programs, most seconds first, that are searched alone."""

Plans = dict[str, Plan]
"""Program → its plan."""


def joint_search(
    together: ProgramSet, weights: Mapping[str, float], seconds: float, most: int | None, mesh: Any, level: str
) -> tuple[Plans, TogetherSearchRecord]:
    """Return the best plans, and the record. Arguments and errors as `Together.search`."""
    machine, weights = _checked(together, weights, seconds, most)
    if level not in ASKED:
        raise ShardvizError(f"together.search(level={level!r}): level is {', '.join(map(repr, ASKED))}")
    missing = resolve_target(machine, together.sides[0].plan.mesh).missing if level == "compiled" else ""
    level, scoring = "partitioned" if missing else level, seconds * (1.0 if level == "propagated" else _SHARE)
    begun, only = time.monotonic(), None if mesh is None else DeviceMesh.of(mesh)
    if only is not None:
        resolve_target(machine, only)
    every = together
    together = replace(every, sides=tuple(side for side in every.sides if weights[side.name]))
    names = {side.name: _Names(side, every.shared) for side in every.sides}
    scorer = JointScorer(machine, together.sides, every.shared, weights, names)
    starts: dict[str, Plans] = {OWN: {side.name: side.plan for side in every.sides}}
    for name in every.leaders() or [every.sides[0].name]:
        starts[f"as {name} has them"] = _taken_over(every, name)
    leaders = sorted(together.sides, key=lambda s: -weights[s.name] * (together.cost(s, s.plan).seconds or 0.0))
    for leader in leaders[:_LEADERS]:
        each = scoring * _ALONE / (min(len(leaders), _LEADERS) * len(leaders))
        starts[f"the best for {leader.name} alone"] = _alone(together, leader, machine, each, most, only)
    starts = {name: _whole(every, plans) for name, plans in starts.items() if plans}
    judge = replace(scorer, sides=every.sides)  # also scores programs of weight 0
    rows = {name: judge.row(name, plans) for name, plans in starts.items()}
    tied = [name for name, row in rows.items() if name != OWN and row.mesh is not None and _feasible(row)]
    tied = [name for name in tied if only is None or rows[name].mesh == only]
    base = min(tied, key=lambda name: scorer.score(starts[name]).rank, default=None)
    space = _space(together, machine, names, None if base is None else starts[base], only)
    left = scoring - (time.monotonic() - begun)
    joint = _JointSearching(together.sides[0].program, machine, space, scorer, left, most)
    for _ in joint:
        pass
    candidates = {name: starts[name] for name in tied}
    ranked = sorted(joint.tried.values(), key=lambda tried: tried.score.rank)
    for tried in ranked[:_FINALISTS]:
        plans = _whole(every, scorer.plans(tried.plan))
        if _feasible(judge.row(TOGETHER, plans)):
            candidates[TOGETHER if TOGETHER not in candidates else f"{TOGETHER}: {tried.text}"] = plans
            if len(candidates) == len(tied) + (1 if level == "propagated" else _CONFIRMED):
                break
    if not candidates:
        why = next((cost.why_not for row in rows.values() for cost in row.costs if cost.why_not), "none was scored")
        raise ShardvizError(f"together.search: no set of plans could be scored: {why}; give more seconds")
    scores = {name: judge.score(plans) for name, plans in candidates.items()}
    order = sorted(candidates, key=lambda name: (scores[name].over, scores[name].seconds))
    single = next((name for name in order if name in tied), order[0])
    order = list(dict.fromkeys((order[0], single, *order)))
    until = begun + seconds
    confirmed = [] if level == "propagated" else _confirmed(every, candidates, order, judge, level, until)
    if level != "propagated" and not any(map(_feasible, confirmed)):
        why = next(cost.why_not for row in confirmed for cost in row.costs if cost.why_not)
        raise ShardvizError(f"together.search: the best sets of plans were refused: {why}; see level='propagated'")
    accepted = sorted(filter(_feasible, confirmed), key=lambda row: (row.fits is False, row.seconds))
    name = accepted[0].name if accepted else order[0]
    best, found = candidates[name], judge.row(TOGETHER, candidates[name])
    specs = []
    shared = {array.name for array in every.shared}
    for side in every.sides:
        for path, spec in side.program.bind(best[side.name]).in_specs.items():
            is_shared = names[side.name].joint(path) in shared
            specs.append(SharedPlanSpec(program=side.name, path=path, spec=str(spec.canonical()), shared=is_shared))
    record = TogetherSearchRecord(
        target=machine.text,
        weights=dict(weights),
        level=level,
        best=replace(accepted[0], name=TOGETHER) if accepted else found,
        predicted=found if accepted else None,
        confirmed=(*accepted, *(row for row in confirmed if not _feasible(row))),
        others=tuple(sorted(rows.values(), key=lambda row: math.inf if row.seconds is None else row.seconds)),
        specs=tuple(specs),
        tried=len(joint.tried) + len(rows),
        seconds=time.monotonic() - begun,
        notes=tuple(_notes(leaders, joint, level, missing)),
    )
    return best, record


def _confirmed(
    together: ProgramSet,
    candidates: Mapping[str, Plans],
    order: Sequence[str],
    judge: JointScorer,
    level: str,
    until: float,
) -> list[SharedPlan]:
    """Return sets of plans as the level has them, in this order, until enough are accepted or the time is over. Of sets
    with equal scores, only the first is confirmed."""
    found: list[SharedPlan] = []
    scores = {name: judge.score(candidates[name]) for name in order}
    alike = {(scores[name].seconds, scores[name].needs.total): name for name in reversed(order)}
    for name in (name for name in order if name in alike.values()):
        accepted = sum(_feasible(row) and row.fits is not False for row in found)
        left = until - time.monotonic()
        if accepted >= _CONFIRMED or (any(map(_feasible, found)) and left <= 0):
            break
        found.append(
            _confirm(together, name, candidates[name], judge, level, left if accepted else max(left, _PATIENCE))
        )
    return found


def _confirm(
    together: ProgramSet, name: str, plans: Plans, judge: JointScorer, level: str, timeout: float
) -> SharedPlan:
    """Return what a set of plans costs at a level; the memory is an estimate unless a compiler planned it."""
    target, costs, until = judge.machine.text, [], time.monotonic() + timeout
    reports: dict[str, ReportRecord] = {}
    for side in together.sides:
        asked = side.program.compile if level == "compiled" else side.program.partition
        try:
            report = asked(plans[side.name], target, timeout=max(until - time.monotonic(), 1.0))
            reports[side.name] = report
            cost = cost_of(report, judge.machine, tokens=False)
            costs.append(ProgramCost(program=side.name, seconds=cost.step.seconds, needs_bytes=cost.needs.total))
        except ShardvizError as error:
            costs.append(ProgramCost(program=side.name, why_not=str(error)))
    row = SharedPlan(name=name, mesh=next(iter(plans.values())).mesh, costs=tuple(costs), level=level)
    if not _feasible(row):
        return row
    seconds = sum(judge.weights[cost.program] * (cost.seconds or 0.0) for cost in costs)
    if level == "compiled":
        sides = tuple(replace(side, plan=plans[side.name]) for side in together.sides)
        budget = budget_of(replace(together, sides=sides), level=level, compiled=reports)
        needs, usable = budget.most.total, budget.usable
    else:
        needs, usable = (each := judge.score(plans).needs).total, each.usable
    return replace(row, seconds=seconds, needs_bytes=needs, fits=None if usable is None else needs <= usable)


def _whole(together: ProgramSet, plans: Plans) -> Plans:
    """Return the plans, and for every other program its own plan with these plans' specs of the shared arrays."""
    specs, mesh = _shared_specs(together, plans), next(iter(plans.values())).mesh
    rest = (replace(side, plan=side.plan.with_mesh(mesh)) for side in together.sides if side.name not in plans)
    return {**plans, **{side.name: assigned(side, specs) for side in rest}}


def _shared_specs(together: ProgramSet, plans: Plans) -> dict[SharedGroup, Spec]:
    """Return each shared array's spec in the first of these plans whose program takes it."""
    specs: dict[SharedGroup, Spec] = {}
    for name, plan in plans.items():
        bound = together[name].program.bind(plan)
        for array in together.shared:
            for path in array.of(name, "argument")[:1]:
                specs.setdefault(array, bound.in_specs[path])
    return specs


def _notes(leaders: Sequence[SetMember], joint: _JointSearching, level: str, missing: str) -> Iterator[str]:
    if level == "propagated":
        yield "Seconds are at level propagated; no compiler was asked."
    else:
        yield f"The best plans' seconds are at level {level}, those of the other sets of plans at level propagated."
    if missing:
        yield f"Not confirmed by the target's compiler: {missing}"
    if left := [side.name for side in leaders[_LEADERS:]]:
        yield f"Not searched alone: {', '.join(left)}."
    if joint.fallen:
        yield f"{len(joint.fallen)} candidates were refused, the first because: {joint.fallen[0].why}"


def _checked(
    together: ProgramSet, weights: Mapping[str, float], seconds: float, most: int | None
) -> tuple[Machine, dict[str, float]]:
    names = [side.name for side in together.sides]
    if together.machine is None:
        raise ShardvizError("together.search: the machine is not known; give sv.together(..., target='tpu v5p:4x4x4')")
    together.machine.chip.needs("hbm_bytes_per_s")
    for name, value in (("seconds", seconds), ("most", 1 if most is None else most)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ShardvizError(f"together.search({name}={value!r}): expected a number above 0")
    check_calls("weights", weights, names)
    weights = weights or {side.name: side.calls for side in together.sides if side.calls is not None}
    every = {name: float(weights.get(name, 0.0 if weights else 1.0)) for name in names}
    if not any(every.values()):
        raise ShardvizError(f"weights={dict(weights)}: all are 0; give the calls an hour of a program")
    return together.machine, every


def _feasible(row: SharedPlan) -> bool:
    return not any(cost.why_not for cost in row.costs)


def _taken_over(together: ProgramSet, name: str) -> Plans:
    """Return each program's own plan with the shared arrays sharded as in one program. Empty if a mesh has no axes for
    that, or if the plans' meshes differ."""
    try:
        plans = {side.name: together.plan_as(side, name) for side in together.sides}
    except ShardvizError:
        return {}
    return plans if len({plan.mesh for plan in plans.values()}) == 1 else {}


def _alone(
    together: ProgramSet, leader: SetMember, machine: Machine, seconds: float, most: int | None, mesh: DeviceMesh | None
) -> Plans:
    """Return the best plan of one program alone, then of each other program with the shared arrays' specs fixed by the
    plans before; empty if a search fails."""
    plan = leader.plan if leader.plan.mesh.size == machine.size and mesh in (None, leader.plan.mesh) else None
    best = _searched(leader.program, machine, seconds, most, plan=plan, mesh=mesh)
    if best is None:
        return {}
    plans = {leader.name: best}
    for side in (side for side in together.sides if side is not leader):
        specs = _shared_specs(together, plans)
        pins = {path: spec for array, spec in specs.items() for path in array.of(side.name, "argument")}
        other = _searched(side.program, machine, seconds, most, mesh=best.mesh, pins=pins)
        if other is None:
            return {}
        plans[side.name] = other
    specs = _shared_specs(together, plans)
    return {side.name: assigned(replace(side, plan=plans[side.name]), specs) for side in together.sides}


def _searched(program: Program, machine: Machine, seconds: float, most: int | None, **options: Any) -> Plan | None:
    try:
        best = search(program, machine, seconds=seconds, level="propagated", most=most, finalists=1, **options).best
    except ShardvizError:
        return None
    return None if best is None else best.plan


class _Names:
    """The names of a program's arrays in the set: a shared array's own, or the program's name before the tree path."""

    def __init__(self, side: SetMember, shared: Sequence[SharedGroup]):
        self.side = side
        self._names = {(role, path): a.name for a in shared for role in _ROLES for path in a.of(side.name, role)}

    def joint(self, path: str, role: str = "argument") -> str:
        """Return the name in the set. A shared array's output is another array than its argument."""
        name = self._names.get((role, path))
        if name is not None and role == "argument":
            return name
        return f"{self.side.name}: {path}"

    def follows(self) -> dict[str, str]:
        """Return output → the argument that it replaces, by their names in the set."""
        pairs = {new: self.joint(path) for path, new in state_of(self.side.program).items()}
        pairs |= {path: name for (role, path), name in self._names.items() if role == "output"}
        return {self.joint(new, "output"): name for new, name in pairs.items()}


_ROLES = "argument", "output"


@dataclass
class JointScorer:
    """A scorer of joint plans: each program's plan, and the weighted sum of their scores."""

    machine: Machine
    sides: Sequence[SetMember]
    shared: Sequence[SharedGroup]
    weights: Mapping[str, float]
    names: Mapping[str, _Names]
    _scores: dict[Any, Score | ShardvizError] = field(default_factory=dict)
    _stays: dict[str, tuple[Argument, ...]] = field(default_factory=dict)

    def __call__(self, plan: Plan) -> Score:
        """Score a joint plan. Raises ShardvizError if a program cannot have it."""
        return self.score(self.plans(plan))

    def plans(self, plan: Plan) -> Plans:
        """Return each program's plan of a joint plan."""
        ins, outs = dict(plan.edits), dict(plan.out_edits)
        plans: Plans = {}
        for side in self.sides:
            names = self.names[side.name]
            arguments, outputs = arrays(side.program, side.plan)
            own = {a.name: ins[name] for a in arguments if (name := names.joint(a.name)) in ins}
            new = {o.name: outs[name] for o in outputs if (name := names.joint(o.name, "output")) in outs}
            base = side.plan.with_mesh(plan.mesh).with_spec(own)
            plans[side.name] = base.with_spec(new, output=True) if new else base
        return plans

    def of(self, side: SetMember, plan: Plan) -> Score:
        """Return the score of one program. Raises ShardvizError if it cannot have the plan."""
        key = side.name, plan
        if key not in self._scores:
            try:
                lowered_for = resolve_target(self.machine, plan.mesh).lowered_for
                self._scores[key] = Scorer(side.program, self.machine, lowered_for)(plan)
            except ShardvizError as error:
                self._scores[key] = error
        score = self._scores[key]
        if isinstance(score, ShardvizError):
            raise score
        return score

    def score(self, plans: Plans) -> Score:
        """Return the weighted sum of the programs' seconds, and the memory of the program that needs most."""
        scores = {side.name: self.of(side, plans[side.name]) for side in self.sides}

        def total(what):
            return sum(self.weights[n] * getattr(s, what) for n, s in scores.items())

        held = {side.name: self._held(side, plans[side.name]) for side in self.sides}
        every = {name: size for each in held.values() for name, size in each.items()}
        needs = []
        for name, score in scores.items():
            written = {array.name for array in self.shared if array.of(name, "output")}
            others = sum(size for array, size in every.items() if array not in held[name].keys() | written)
            needs.append(replace(score.needs, parts={**score.needs.parts, "other programs' arrays": others}))
        return Score(
            seconds=total("seconds"),
            compute=total("compute"),
            memory=total("memory"),
            moved=tuple(
                replace(m, seconds=m.seconds * self.weights[n], bytes=m.bytes * self.weights[n])
                for n, s in scores.items()
                for m in s.moved
            ),
            needs=max(needs, key=lambda each: each.total),
        )

    def _held(self, side: SetMember, plan: Plan) -> dict[str, float]:
        """Return the arrays that stay on the devices between calls → bytes of one device."""
        names = self.names[side.name]
        if side.name not in self._stays:
            kinds = kinds_of(side, {path for array in self.shared for path in array.of(side.name, "argument")})
            self._stays[side.name] = tuple(a for a in arrays(side.program, side.plan)[0] if a.name in kinds)
        specs = side.program.bind(plan).in_specs
        return {
            names.joint(a.name): layout(a.shape, specs[a.name], plan.mesh).bytes_per_device(a.dtype)
            for a in self._stays[side.name]
        }

    def row(self, name: str, plans: Plans) -> SharedPlan:
        """Return what plans cost, as plain data."""
        costs = []
        for side in self.sides:
            try:
                score = self.of(side, plans[side.name])
                costs.append(ProgramCost(program=side.name, seconds=score.seconds, needs_bytes=score.needs.total))
            except ShardvizError as error:
                costs.append(ProgramCost(program=side.name, why_not=str(error)))
        meshes = {plan.mesh for plan in plans.values()}
        row = SharedPlan(name=name, mesh=meshes.pop() if len(meshes) == 1 else None, costs=tuple(costs))
        if not _feasible(row):
            return row
        score = self.score(plans)
        fits = None if score.needs.usable is None else not score.over
        return replace(row, seconds=score.seconds, needs_bytes=score.needs.total, fits=fits)


class _JointSearching(Searching):
    """A search whose candidates are joint plans; its state is itself."""

    def __init__(
        self, program: Program, machine: Machine, space: Space, scorer: JointScorer, seconds: float, most: int | None
    ):
        super().__init__(program, machine, space, seconds=max(seconds, 0.1), level="propagated", finalists=1, most=most)
        self.scorer = scorer  # type: ignore[assignment]
        self._shared = Sent(self.scorer)

    @property
    def state(self) -> Any:
        return self

    def _run(self) -> Iterator[Any]:
        yield from self._scored()


def _space(
    together: ProgramSet, machine: Machine, names: Mapping[str, _Names], base: Plans | None, mesh: DeviceMesh | None
) -> Space:
    """Return the space of joint choices. `base` has the plans to improve; `mesh` is the only mesh (None: any)."""
    arguments: dict[str, Argument] = {}
    optimizer: set[str] = set()
    required: list[str] = []
    follows: dict[str, str] = {}
    ins: dict[str, Spec] = {}
    outs: dict[str, Spec] = {}
    for side in together.sides:
        of = names[side.name]
        for argument in arrays(side.program, side.plan)[0]:
            arguments.setdefault(of.joint(argument.name), replace(argument, name=of.joint(argument.name)))
        optimizer |= {of.joint(path) for path in update_arguments(side.program)}
        required += named_axes(side.program)
        follows |= of.follows()
        if base is not None:
            bound = side.program.bind(base[side.name])
            ins |= {name: spec for path, spec in bound.in_specs.items() if (name := of.joint(path)) not in ins}
            outs |= {of.joint(path, "output"): spec for path, spec in bound.out_specs.items() if spec is not None}
    optimizer -= {array.name for array in together.shared if len(array.programs) > 1}
    return Space(
        machine=machine,
        arguments=tuple(arguments.values()),
        dimensions=Dimensions(_joined(together, names)),
        optimizer=frozenset(optimizer),
        required=tuple(dict.fromkeys(required)),
        follows=follows,
        base=None if base is None else Plan(next(iter(base.values())).mesh, edits=ins, out_edits=outs),
        mesh=mesh,
        base_specs=ins,
    )


def _joined(together: ProgramSet, names: Mapping[str, _Names]) -> Iterator[Dimension]:
    """Yield the programs' logical dimensions with joint names. Two that contain the same dimension of a shared array
    become one, unless an array would then have it twice."""
    groups: list[tuple[str, Dimension]] = []  # the first program that has it
    for side in together.sides:
        for dimension in side.program.dimensions:
            members = (m._replace(path=names[side.name].joint(m.path, m.role)) for m in dimension.members)
            new = replace(dimension, members=tuple(dict.fromkeys(members)))
            for n, (owner, old) in enumerate(groups):
                if (both := _merged(old, new)) is not None:
                    groups[n] = owner, both
                    break
            else:
                groups.append((side.name, new))
    counts = Counter(dimension.name for _, dimension in groups)
    for owner, dimension in groups:
        yield dimension if counts[dimension.name] == 1 else replace(dimension, name=f"{owner} {dimension.name}")


def _merged(old: Dimension, new: Dimension) -> Dimension | None:
    """Return two dimensions as one; None if they share no argument, or an array would then have it twice."""
    if not set(old.arguments) & set(new.arguments):
        return None
    both = replace(
        old,
        sizes=tuple(dict.fromkeys((*old.sizes, *new.sizes))),
        members=tuple(dict.fromkeys((*old.members, *new.members))),
        stacked=old.stacked or new.stacked,
        experts=old.experts or new.experts,
        window=old.window or new.window,
        of=old.of or new.of,
        mapped=tuple(dict.fromkeys((*old.mapped, *new.mapped))),
        taken=tuple(dict.fromkeys((*old.taken, *new.taken))),
    )
    return both if both.conflicts.keys() <= old.conflicts.keys() | new.conflicts.keys() else None
