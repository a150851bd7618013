"""The effect of an edit: a new `Snapshot`, and the compiles and chores that follow.

`apply` is pure. It queries the program through `Answers`, which are deterministic. `explorer.py` runs the returned
effects. A refused edit changes only `error`.

>>> apply(now, SetDim("params['w1']", 1, ("model",)), ask).now.plan.edits           # doctest: +SKIP
"""

from __future__ import annotations

import logging
import textwrap
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shardviz.costs.machine import Machine
from shardviz.costs.orders import exchanged, reordered
from shardviz.errors import ShardvizError, SpecError, excerpt, message_of
from shardviz.explorer import changes
from shardviz.explorer import edits as e
from shardviz.explorer.arrays import Role, twins_in
from shardviz.explorer.cards import LONGEST_NAME, Deck, Results
from shardviz.explorer.compile_loop import CompileLoop, CompileTask
from shardviz.explorer.logical import sharded_places
from shardviz.explorer.machine_choice import MachineChoice, WholeStep, read
from shardviz.explorer.selection import Selection
from shardviz.explorer.snapshot import Asked, History, Snapshot, TriedPresets, UndoStep
from shardviz.notation import Axis, DeviceMesh, Spec, axis_name
from shardviz.records.report import values_of
from shardviz.study.simulated import Simulated
from shardviz.tracing.intermediates import as_propagated

if TYPE_CHECKING:
    from shardviz.ask.program import Program
    from shardviz.plan.plan import Plan

log = logging.getLogger(__name__)

MOST_KEPT = 64
"""Number of plans whose results are cached."""


class Answers:
    """Cached queries of a program about one plan after another, up to the level `goal`.

    `whole` has the user's facts about a whole step.
    """

    def __init__(self, program: Program, goal: str, whole: WholeStep):
        self.program, self.goal, self.whole = program, goal, whole
        self._kept: dict[Plan, dict[Machine, Results]] = {}

    def results(self, plan: Plan, choice: MachineChoice) -> Results:
        """Return a plan's results on a machine; the plan is propagated if unknown. Raises ShardvizError if the plan
        does not fit."""
        results = self._kept_of(plan, choice.machine) or self._propagated(plan, choice)
        results = self.on(plan, results, choice.machine)
        self.keep(plan, results)
        return results

    def of_step(self, now: Snapshot, step: UndoStep, always: bool = False) -> Results | None:
        """Return the results of a step's plan on its machine, at least propagated; None if nothing changes.

        With `always`, an equal plan in other words counts as a change. Raises ShardvizError if the plan does not fit.
        """
        results = now.results if step.plan == now.plan else self._kept_of(step.plan, step.machine)
        bound = self.program.bind(step.plan) if results is None else results.bound
        if bound is now.bound or not (always or bound != now.bound):
            if step.machine == now.machine.machine:
                return None
            results = now.results
        return self.on(step.plan, results or self._propagated(step.plan, now.machine), step.machine)

    def on(self, plan: Plan, results: Results, machine: Machine) -> Results:
        """Return a plan's results on a machine, or on the same chip with as many devices as the plan's mesh."""
        choice = MachineChoice.of(machine, results.bound.mesh)
        kept = self._kept_of(plan, choice.machine)
        return (results if kept is None or kept.machine != choice.machine else kept).on(choice)

    def keep(self, plan: Plan, results: Results) -> None:
        """Cache a plan's results; the oldest plan is dropped if there are too many."""
        others = {machine: old for machine, old in self._kept.pop(plan, {}).items() if machine != results.machine}
        self._kept[plan] = others | {results.machine: results}
        for oldest in list(self._kept)[:-MOST_KEPT]:
            self._kept.pop(oldest)

    def _kept_of(self, plan: Plan, machine: Machine) -> Results | None:
        """Return the cached results of a plan on this machine, or else on the last one."""
        kept = self._kept.get(plan, {})
        return kept.get(machine) or next(reversed(kept.values()), None)

    def _propagated(self, plan: Plan, choice: MachineChoice) -> Results:
        bound, report = self.program.bind(plan), self.program.propagate(plan)
        return Results(bound, {report.level: report}, choice, self.whole)

    def reach(self, machine: MachineChoice) -> str:
        """Return the highest level for a machine: `partitioned` if nothing here compiles for it."""
        return "partitioned" if self.goal == "compiled" and not machine.compilable else self.goal

    def task(self, plan: Plan, results: Results) -> CompileTask:
        machine = results.choice
        return CompileTask(
            plan=plan,
            target=machine.compiled_for,
            reach=self.reach(machine),
            due=results.due,
            place=f"{results.report.mesh.size} simulated devices" if machine.simulated else machine.target,
            operations=len(results.report.intermediates),
        )


@dataclass(frozen=True)
class Compile:
    """Start a compile, a moment later or at once; without a task, stop the current one."""

    task: CompileTask | None
    at_once: bool = False


@dataclass(frozen=True)
class ChoreEffect:
    """End a chore of the background (`presets`, `fix`, `code`, ...), by its name; restart it if `begins`."""

    name: str
    about: Any = None
    begins: bool = True


Effect = Compile | ChoreEffect


@dataclass(frozen=True)
class Applied:
    """The result of an edit: the snapshot, the effects in order, and whether the edit was accepted."""

    now: Snapshot
    effects: tuple[Effect, ...] = ()
    taken: bool = True


def apply(now: Snapshot, edit: e.Edit, ask: Answers) -> Applied:
    wanted = None
    try:
        match edit:
            case e.Undo() | e.Redo():
                return _undo_or_redo(now, isinstance(edit, e.Undo), ask)
            case e.SetTarget(target):
                return _to_step(now, UndoStep(now.plan, read(target, now.report.mesh)), ask)
            case e.TakeAlternative(place):
                if not 0 <= place < len(now.alternatives):
                    raise ShardvizError("this alternative is out of date: the last edit was not the refused one")
                wanted = now.alternatives[place].plan
                return _to_plan(now, wanted, ask)
            case e.TakeFix(action):
                return _take_fix(now, action, ask)
            case e.TakePreset(preset):
                return _take_preset(now, preset, ask)
            case e.Dismiss():
                return Applied(replace(now, error=None, alternatives=(), presets=now.presets.dismissed))
            case e.CardEdit():
                return _to_deck(now, _deck(now, edit, ask), ask)
            case e.PlanEdit():
                wanted = plan_after(now, edit, ask.program)
                return _to_plan(now, wanted, ask, always=edit.refused_at in ("rule", "options"))
        return _other_edit(now, edit, ask)
    except ShardvizError as error:
        subject = getattr(edit, edit.about) if edit.about else None
        subject, dimension = None if subject is None else str(subject), getattr(edit, "dimension", None)
        place = "output" if getattr(edit, "output", False) else edit.refused_at
        after = refused(now, error, place, ask=ask, subject=subject, dimension=dimension, wanted=wanted)
        return Applied(after, taken=False)


def plan_after(now: Snapshot, edit: e.PlanEdit, program: Program) -> Plan:
    """Return the plan after an edit, not yet checked against the program. Raises ShardvizError if the edit is
    invalid."""
    plan, mesh = now.plan, now.plan.mesh
    match edit:
        case e.SetSpec(name, typed):
            spec = read_spec(typed, name)
            return _sharded(now, edit, spec if edit.output else spec or Spec())
        case e.SetDim(_, dimension, axes):
            spec = spec_of(now, edit)
            dims = (axes if d == dimension else entry for d, entry in enumerate(spec.dims))
            return _sharded(now, edit, _with_axes(spec, dims))
        case e.MoveAxis(_, axis, dimension, place):
            spec = spec_of(now, edit)
            dims = [[a for a in entry if axis_name(a) != axis] for entry in spec.dims]
            dims[dimension].insert(len(dims[dimension]) if place is None else place, axis)
            return _sharded(now, edit, _with_axes(spec, dims))
        case e.SetMemory(name, kind):
            return plan.with_memory(name, kind, output=edit.output)
        case e.ConstrainValue(name, spec, line):
            what, at = _inside(now, name, line, program), line or ""
            if spec is None:
                return plan.unconstrain(what, line=at)
            return plan.constrain(what, read_spec(spec, name) or Spec(), line=at)
        case e.ShardDimension(name, axes):
            if now.logical.found is None:
                raise ShardvizError("the logical dimensions are not known yet")
            dimension = now.logical.found.named(name)
            return plan.with_dimension(dimension, tuple(axes), prefer=sharded_places(dimension, now.bound))
        case e.AddAxis(name, size):
            return plan.with_mesh(changes.mesh_with_axis(mesh, name, size))  # type: ignore[arg-type] - it says why not
        case e.RemoveAxis(name):
            return plan.without_axis(name)
        case e.RenameAxis(old, new):
            return plan.rename_axis(old, new)
        case e.ResizeAxis(name, size):
            return plan.with_mesh(changes.mesh_with_size(mesh, name, size))  # type: ignore[arg-type] - it says why not
        case e.SetMesh(wanted):
            return plan.with_mesh(DeviceMesh.of(wanted))
        case e.SetOptions(options):
            return plan.with_options(options, only=True)
        case e.SetOrder(order):
            return plan.with_mesh(reordered(mesh, order))
        case e.ExchangeAxes(one, other):
            return plan.with_mesh(exchanged(mesh, now.machine.machine, one, other))
        case e.AddRule(pattern, spec):
            return plan.with_rules([*plan.rules, changes.rule(pattern, spec)])
        case e.MakeRule(pattern, name):  # replaces the edits of the matched arguments
            spec = now.bound.in_specs[changes.named(now.report.arguments, name, "argument").name]
            others = program.rules_table(plan.with_rules([(pattern, None)])).rows[0].wins
            return plan.with_rules([changes.rule(pattern, spec.canonical()), *plan.rules]).without_spec(*others)
        case e.SetRule(place, pattern, spec):

            def change(rules):
                rules[place] = changes.changed_rule(rules[place], pattern, spec)

            return changes.with_rules(plan, place, change)
        case e.MoveRule(place, to):
            return changes.with_rules(plan, place, lambda rules: rules.insert(to, rules.pop(place)))
        case e.RemoveRule(place):
            return changes.with_rules(plan, place, lambda rules: rules.pop(place))
        case e.SetPlan(wanted):
            return program._settled(wanted)
    raise TypeError(f"{edit} is no edit of the plan")


def _sharded(now: Snapshot, edit: e.ShardingEdit, spec: Spec | None) -> Plan:
    """Return the plan with a spec for an array, and for its twins if the edit includes them."""
    others = twins(now, edit.name, layers=not edit.twins) if edit.twins or edit.layers else ()
    specs = {("output" if edit.output else "argument", edit.name): spec} | dict.fromkeys(others, spec)
    return changes.with_specs(now.plan, specs)


def _inside(now: Snapshot, name: str, line: str | None, program: Program) -> Any:
    """Return the propagated value behind a name of the report, which knows its columns; else the name.

    An existing constraint keeps the name that the plan uses.
    """
    if line is not None or any(each.value.name == name for each in now.plan.constraints):
        return name or None

    def propagated():
        return program.propagate(now.plan).intermediates

    return as_propagated(name, now.report.intermediates, propagated) or name


def _with_axes(spec: Spec, dims: Iterable[Iterable[Axis]]) -> Spec:
    """Return `spec` with other dimensions; axes that shard are removed from `reduced`."""
    new = replace(spec, dims=tuple(map(tuple, dims)))
    return replace(new, reduced=tuple(a for a in spec.reduced if axis_name(a) not in map(axis_name, new.axes)))


def read_spec(spec: Any, name: str) -> Spec | None:
    """Return a spec from text, a PartitionSpec, a tuple or None, for the array `name`."""
    if isinstance(spec, str):
        return changes.parse_spec(spec, name)
    return None if spec is None else Spec.of(spec)


def spec_of(now: Snapshot, edit: e.SetDim | e.MoveAxis) -> Spec:
    """Return an array's current full-rank spec. Raises SpecError if it lacks the edited dimension."""
    report, bound, name = now.report, now.bound, edit.name
    sides = (report.outputs, "output", bound.out_specs), (report.arguments, "argument", bound.in_specs)
    values, role, specs = sides[not edit.output]
    value, own = changes.named(values, name, role), specs.get(name)
    spec = Spec.of(value.spec if own is None else own, len(value.shape))
    if not 0 <= edit.dimension < len(spec.dims):
        raise SpecError(f"{name!r} has no dimension {edit.dimension}; it has {len(spec.dims)}", argument=name)
    return spec


def twins(now: Snapshot, name: str, layers: bool = False) -> tuple[Role, ...]:
    """Return an argument's twins with equal sharding as (`argument` or `output`, name); with `layers` only those of
    other layers."""
    return tuple(twins_in(now.report, now.logical.found).twins(name, now.bound, layers))


def _to_plan(now: Snapshot, plan: Plan, ask: Answers, always: bool = False) -> Applied:
    return _to_step(now, UndoStep(plan, now.machine.machine), ask, always)


def _to_step(now: Snapshot, step: UndoStep, ask: Answers, always: bool = False) -> Applied:
    results = ask.of_step(now, step, always)
    if results is None:
        return Applied(replace(now, error=None, alternatives=()))
    deck = _on_machine(now, results, ask) if step.plan == now.plan else now.deck.edited(step.plan, results)
    return _at_card(now, deck, now.history.after(now.here), ask)


def _undo_or_redo(now: Snapshot, back: bool, ask: Answers) -> Applied:
    steps = now.history.past[-1:] if back else now.history.ahead[:1]
    if not steps:
        return Applied(now, taken=False)
    step = steps[0]
    results = ask.of_step(now, step, always=True)
    if results is None:
        return Applied(replace(now, error=None, alternatives=()))
    if step.plan == now.plan and step.at == now.deck.at:
        deck = _on_machine(now, results, ask)
    else:
        draft = None if step.draft is None else (step.draft, ask.results(step.draft, now.machine))
        deck = now.deck.returned(step.plan, results, step.at, draft)
    return _at_card(now, deck, now.history.undone(now.here) if back else now.history.redone(now.here), ask)


def _on_machine(now: Snapshot, results: Results, ask: Answers) -> Deck:
    on = results.machine

    def put(card):
        return ask.on(card.plan, card.results, on) if card.results.machine != on else card.results

    return now.deck.on(put).with_results(results)


def _to_deck(now: Snapshot, deck: Deck, ask: Answers) -> Applied:
    card = deck.now
    if card.plan == now.plan:
        return Applied(replace(now, deck=deck.with_results(now.results), error=None, alternatives=()))
    results = ask.on(card.plan, card.results, card.results.machine)
    return _at_card(now, deck.with_results(results), now.history.after(now.here), ask)


def _at_card(now: Snapshot, deck: Deck, history: History, ask: Answers) -> Applied:
    results = deck.now.results
    results.priced()  # raises before the snapshot changes
    task = ask.task(deck.now.plan, results)
    ask.keep(deck.now.plan, results)
    return Applied(replace(now.moved(deck, history), progress=CompileLoop.expected(task)), (Compile(task),))


def _deck(now: Snapshot, edit: e.CardEdit, ask: Answers) -> Deck:
    deck = now.deck
    match edit:
        case e.Pin(name):
            return deck.pinned(name)
        case e.OpenCard(card):
            return deck.opened(card)
        case e.AddCard(name, plan, note):
            settled = ask.program._settled(plan)
            return deck.added(settled, ask.results(settled, now.machine), name=name, note=note)[0]
        case e.RenameCard(card, name):
            return deck.renamed(card, name)
        case e.MoveCard(card, to):
            return deck.moved(card, to)
        case e.DeleteCard(card):
            return deck.deleted(card)
        case e.CompareWith(card):
            return deck.compared(card)
    raise TypeError(f"{edit} is no edit of the cards")


def _take_preset(now: Snapshot, name: str, ask: Answers) -> Applied:
    preset = next((o for o in now.presets.items if o.name == name), None)
    if preset is None or preset.results is None:
        raise ShardvizError(f"there is no preset {name!r} with results")
    deck, card = now.deck.added(preset.plan, preset.results, name=preset.name, note="a preset")
    taken = _to_deck(now, deck.opened(card), ask)
    closed = replace(taken.now, presets=replace(now.presets, open=False, busy=False))
    return replace(taken, now=closed, effects=(*taken.effects, ChoreEffect("presets", begins=False)))


def _take_fix(now: Snapshot, action: str, ask: Answers) -> Applied:
    fix = next((m for m in now.tried_fixes.items if m.action == action and now.tried_fixes.of == now.plan), None)
    if fix is None:
        raise ShardvizError(f"{excerpt(action)!r} is no fix of the current plan; choose a listed one")
    if not fix.write:
        return _to_plan(now, fix.plan, ask)
    name = textwrap.shorten(action, LONGEST_NAME, placeholder=" …")
    deck, card = now.deck.added(fix.plan, ask.results(fix.plan, now.machine), name=name)
    return _to_deck(now, deck.opened(card), ask)


def _other_edit(now: Snapshot, edit: e.Edit, ask: Answers) -> Applied:
    """Apply an edit that changes neither plan, machine nor cards."""

    def updated(*effects: Effect, **parts: Any) -> Applied:
        return Applied(replace(now, **parts), effects)

    presets = now.presets
    match edit:
        case e.TryPresets():
            opened = replace(presets, items=(), open=True, busy=True, trouble="")
            return updated(ChoreEffect("presets"), presets=opened)
        case e.ClosePresets():
            return updated(ChoreEffect("presets", begins=False), presets=replace(presets, open=False, busy=False))
        case e.BeginSearch() if now.machine.machine.chip.kind == "cpu":
            trouble = "choose a machine first: the best plan is the one with the shortest step on a machine"
            refused_search = TriedPresets(presets.items, presets.open, presets.busy, trouble=trouble)
            return updated(ChoreEffect("search", begins=False), presets=refused_search)
        case e.BeginSearch():
            searching = replace(presets, progress="looking for what can be sharded", best="", share=0.0, trouble="")
            return updated(ChoreEffect("search"), presets=searching)
        case e.StopSearch():
            return updated(ChoreEffect("search", begins=False), presets=replace(presets, share=None))
        case e.TryFixes():
            return updated(ChoreEffect("fix"))
        case e.RunCode():
            return updated(ChoreEffect("code"), simulated=Simulated(of=now.plan, busy=True))
        case e.StopCode():
            stopped = Simulated(of=now.plan, trouble="stopped") if now.simulated.busy else now.simulated
            return updated(ChoreEffect("code", begins=False), simulated=stopped)
        case e.AskWhy(name, axis):
            collectives = () if axis else now.report.collectives  # only values have an axis
            subject = next((each for each in (*collectives, *values_of(now.report)) if each.name == name), None)
            asked = Asked(of=now.plan, name=name, axis=axis)
            if subject is None:
                what = "value" if axis else "value or collective"
                asked = replace(asked, trouble=f"there is no {what} {excerpt(name)!r} here")
                return updated(ChoreEffect("why", begins=False), why=asked)
            line = "" if subject.source is None else subject.source.short
            return updated(ChoreEffect("why", subject), why=replace(asked, line=line, busy=True))
        case e.CloseWhy():
            return updated(ChoreEffect("why", begins=False), why=Asked())
        case e.FindDimensions() if now.logical.busy or now.logical.found is not None:
            return Applied(now)
        case e.FindDimensions():
            return updated(ChoreEffect("dimensions"), logical=replace(now.logical, busy=True, trouble=""))
        case e.Select(name, level):
            seen = now.results.reports.get(level, now.report)
            selection = Selection.of(name, seen)
            if seen is not now.report and selection.chosen is not None:
                return updated(selection=selection.carried(now.report))
            return Applied(now) if name == now.selection.name else updated(selection=Selection.of(name, now.report))
        case e.Stop():
            return Applied(now, (Compile(None),) if now.progress.busy else ())
        case e.Recompile():  # a missing compiler may be installed by now
            results = replace(now.results, choice=MachineChoice.of(now.machine.machine, now.report.mesh))
            return updated(Compile(ask.task(now.plan, results), at_once=True), deck=now.deck.with_results(results))
    raise TypeError(f"{edit} is no edit")


def refused(
    now: Snapshot,
    error: ShardvizError,
    place: str,
    *,
    ask: Answers,
    subject: str | None = None,
    dimension: int | None = None,
    wanted: Plan | None = None,
) -> Snapshot:
    """Return the snapshot after a refusal.

    Args:
        place, subject, dimension: the location of the error; see `Snapshot.error`.
        wanted: the refused plan, for which alternatives are offered.
    """
    axis = subject if place == "mesh" else None
    alternatives = () if wanted is None else changes.alternatives(ask.program, wanted, now.bound)
    named = getattr(error, "argument", None)
    words = _error_data(error, place, error.__cause__) | {
        "message": str(error),
        "argument": named or (None if place == "target" else subject),
        "axis": axis,
        "subject": subject,
        "dimension": getattr(error, "dimension", None) if named else dimension,
        "alternatives": [{"text": alternative.text, "tip": alternative.tip} for alternative in alternatives],
    }
    return replace(now, error=words, alternatives=alternatives)


def internal(error: BaseException) -> dict[str, Any]:
    """Return an internal error as `Snapshot.error`."""
    log.error("internal error of the explorer", exc_info=error)
    return _error_data(error, "internal", error) | {"message": f"{type(error).__name__}: {message_of(error)}"}


def _error_data(error: BaseException, place: str, cause: BaseException | None) -> dict[str, Any]:
    return {
        **dict.fromkeys(("argument", "axis", "subject", "dimension")),
        "alternatives": [],
        "place": place,
        "kind": type(error).__name__,
        "detail": "".join(traceback.format_exception(cause)) if cause else "",
    }
