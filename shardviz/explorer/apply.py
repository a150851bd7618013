"""What an edit makes of what is known: another `Snapshot`, and the effects that follow from it.

`apply` changes nothing. It asks the program (`Answers`), whose answers are the same each time, and says what is to be
compiled, tried or stopped; `explorer.py` does that. An edit that is refused leaves all but `error` as it was.

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
from shardviz.explorer.arrays import Role, kin
from shardviz.explorer.cards import LONGEST_NAME, Deck, Results
from shardviz.explorer.compile_loop import CompileLoop, CompileTask
from shardviz.explorer.logical import standing
from shardviz.explorer.machine_choice import MachineChoice, WholeStep, read
from shardviz.explorer.selection import Selection
from shardviz.explorer.snapshot import Asked, History, Snapshot, UndoStep
from shardviz.explorer.ways import ways as ways_on
from shardviz.notation import Axis, DeviceMesh, Spec, axis_name
from shardviz.program.intermediates import as_propagated
from shardviz.records.report import values_of

if TYPE_CHECKING:
    from shardviz.ask.program import Program
    from shardviz.program.plan import Plan

log = logging.getLogger(__name__)

MOST_KEPT = 64
"""Plans whose answers are kept."""


class Answers:
    """A program, asked about one plan after another, each as far as the `goal` (`propagated`, `partitioned` or
    `compiled`). What was answered is answered again at once. `whole` is what a person says of a whole step."""

    def __init__(self, program: Program, goal: str, whole: WholeStep):
        self.program, self.goal, self.whole = program, goal, whole
        self._kept: dict[Plan, dict[Machine, Results]] = {}

    def results(self, plan: Plan, choice: MachineChoice) -> Results:
        """What is known of a plan on a machine; Shardy is asked where nothing is. A `ShardvizError` where the plan does
        not fit."""
        results = self._kept_of(plan, choice.machine) or self._propagated(plan, choice)
        results = self.on(plan, results, choice.machine)
        self.keep(plan, results)
        return results

    def of_step(self, now: Snapshot, step: UndoStep, always: bool = False) -> Results | None:
        """What is known of a step's plan on its machine, at least Shardy's answer; None where the step is the present
        one. With `always`, a plan that says the same in other words is another one too. A `ShardvizError` where the
        plan does not fit."""
        results = now.results if step.plan == now.plan else self._kept_of(step.plan, step.machine)
        bound = self.program.bind(step.plan) if results is None else results.bound
        if bound is now.bound or not (always or bound != now.bound):
            if step.machine == now.machine.machine:
                return None
            results = now.results
        return self.on(step.plan, results or self._propagated(step.plan, now.machine), step.machine)

    def on(self, plan: Plan, results: Results, machine: Machine) -> Results:
        """What is known of a plan on a machine, or on one of its chip that has as many devices as the plan's mesh."""
        choice = MachineChoice.of(machine, results.bound.mesh)
        kept = self._kept_of(plan, choice.machine)
        return (results if kept is None or kept.machine != choice.machine else kept).on(choice)

    def keep(self, plan: Plan, results: Results) -> None:
        """Keeps what is known of a plan; what was kept longest ago is forgotten where it is too much."""
        others = {machine: old for machine, old in self._kept.pop(plan, {}).items() if machine != results.machine}
        self._kept[plan] = others | {results.machine: results}
        for oldest in list(self._kept)[:-MOST_KEPT]:
            self._kept.pop(oldest)

    def _kept_of(self, plan: Plan, machine: Machine) -> Results | None:
        """What is known of a plan, on this machine or else on the last one that it was on."""
        kept = self._kept.get(plan, {})
        return kept.get(machine) or next(reversed(kept.values()), None)

    def _propagated(self, plan: Plan, choice: MachineChoice) -> Results:
        bound, report = self.program.bind(plan), self.program.propagate(plan)
        return Results(bound, {report.level: report}, choice, self.whole)

    def reach(self, machine: MachineChoice) -> str:
        """How far a plan's report goes: less than is wanted where nothing here compiles for the machine."""
        return "partitioned" if self.goal == "compiled" and not machine.compilable else self.goal

    def task(self, plan: Plan, results: Results) -> CompileTask:
        """What is to be compiled."""
        machine = results.choice
        return CompileTask(
            plan=plan,
            target=machine.compiled_for,
            reach=self.reach(machine),
            due=results.due,
            place=f"{results.report.mesh.size} simulated devices" if machine.simulated else machine.target,
        )


@dataclass(frozen=True)
class Compile:
    """A compile is to be made, a moment later or at once; without a task, the one that runs or is about to is to be
    stopped."""

    task: CompileTask | None
    at_once: bool = False


@dataclass(frozen=True)
class ChoreEffect:
    """A chore of `background.py` (`presets`, `hunt`, `mend`, `why` or `dimensions`) is to end, and unless `begins` is
    false to begin anew."""

    name: str
    about: Any = None
    begins: bool = True


Effect = Compile | ChoreEffect


@dataclass(frozen=True)
class Applied:
    """What became of an edit: what is known now, what is to be done, in order, and whether it was taken."""

    now: Snapshot
    effects: tuple[Effect, ...] = ()
    taken: bool = True


def apply(now: Snapshot, edit: e.Edit, ask: Answers) -> Applied:
    wanted = None
    try:
        match edit:
            case e.Undo() | e.Redo():
                return _back(now, isinstance(edit, e.Undo), ask)
            case e.SetTarget(target):
                return _gone(now, UndoStep(now.plan, read(target, now.report.mesh)), ask)
            case e.TakeWay(place):
                if not 0 <= place < len(now.ways):
                    raise ShardvizError("this way on is out of date: nothing is refused now, or something else is")
                wanted = now.ways[place].plan
                return _gone(now, UndoStep(wanted, now.machine.machine), ask)
            case e.TakeRemedy(action):
                return _mended(now, action, ask)
            case e.TakeOffer(offer):
                return _offered(now, offer, ask)
            case e.Dismiss():
                return Applied(replace(now, error=None, ways=()))
            case e.CardEdit():
                return _dealt(now, _deck(now, edit, ask), ask)
            case e.PlanEdit():
                wanted = plan_after(now, edit, ask.program)
                return _gone(
                    now, UndoStep(wanted, now.machine.machine), ask, always=edit.refused_at in ("rule", "options")
                )
        return _beside(now, edit, ask)
    except ShardvizError as error:
        subject = getattr(edit, edit.about) if edit.about else None
        subject = None if subject is None else str(subject)
        place = "output" if getattr(edit, "output", False) else edit.refused_at
        after = refused(now, error, place, ask, subject, getattr(edit, "dimension", None), wanted)
        return Applied(after, taken=False)


def plan_after(now: Snapshot, edit: e.PlanEdit, program: Program) -> Plan:
    """The plan that an edit asks for, not checked against the program. A `ShardvizError` where the edit makes no
    sense."""
    plan, mesh = now.plan, now.plan.mesh
    match edit:
        case e.SetSpec(name, typed):
            spec = read_spec(typed, name)
            return _sharded(now, edit, spec if edit.output else spec or Spec())
        case e.SetDim():
            return _sharded(now, edit, _with_dim(now, edit))
        case e.MoveAxis():
            return _sharded(now, edit, _moved(now, edit))
        case e.SetMemory(name, kind):
            return plan.with_memory(name, kind, output=edit.output)
        case e.ConstrainValue(name, spec, line):
            what, at = _inside(now, name, line, program), line or ""
            if spec is None:
                return plan.unconstrain(what, line=at)
            return plan.constrain(what, read_spec(spec, name) or Spec(), line=at)
        case e.CutDimension(name, axes):
            if now.logical.found is None:
                raise ShardvizError("the logical dimensions are not known yet")
            dimension = now.logical.found.named(name)
            return plan.with_dimension(dimension, tuple(axes), prefer=standing(dimension, now.bound))
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
        case e.MakeRule(pattern, name):  # it goes before what was said of each argument that it catches
            spec = now.bound.in_specs[changes.named(now.report.arguments, name, "argument").name]
            others = program.rules_table(plan.with_rules([(pattern, None)])).rows[0].wins
            return plan.with_rules([changes.rule(pattern, spec.canonical()), *plan.rules]).without_spec(*others)
        case e.SetRule(place, pattern, spec):
            change = lambda rules: rules.__setitem__(place, changes.changed_rule(rules[place], pattern, spec))  # noqa: E731
            return changes.with_rules(plan, place, change)
        case e.MoveRule(place, to):
            return changes.with_rules(plan, place, lambda rules: rules.insert(to, rules.pop(place)))
        case e.RemoveRule(place):
            return changes.with_rules(plan, place, lambda rules: rules.pop(place))
        case e.SetPlan(wanted):
            return program._settled(wanted)
    raise TypeError(f"{edit} is no edit of the plan")


def _sharded(now: Snapshot, edit: e.ShardingEdit, spec: Spec | None) -> Plan:
    """The plan with a spec for an array, and for its twins where the edit is for these too."""
    others = twins(now, edit.name, layers=not edit.twins) if edit.twins or edit.layers else ()
    specs = {("output" if edit.output else "argument", edit.name): spec} | dict.fromkeys(others, spec)
    of = lambda role: {name: spec for (where, name), spec in specs.items() if where == role}  # noqa: E731
    return now.plan.with_spec(of("argument")).with_spec(of("output"), output=True)


def _inside(now: Snapshot, name: str, line: str | None, program: Program) -> Any:
    """The value of the report that has this name, as Shardy's level has it, which knows its columns; else the name. A
    constraint that the plan has already is known by what it is called there."""
    if line is not None or any(each.value.name == name for each in now.plan.constraints):
        return name or None
    propagated = lambda: program.propagate(now.plan).intermediates  # noqa: E731
    return as_propagated(name, now.report.intermediates, propagated) or name


def _with_dim(now: Snapshot, edit: e.SetDim) -> Spec:
    """A spec with other axes on one dimension."""
    spec = spec_of(now, edit)
    return _recut(spec, (edit.axes if d == edit.dimension else entry for d, entry in enumerate(spec.dims)))


def _moved(now: Snapshot, edit: e.MoveAxis) -> Spec:
    """A spec with an axis taken from wherever it is and put on a dimension, last or at a place among its axes."""
    spec = spec_of(now, edit)
    dims = [[a for a in entry if axis_name(a) != edit.axis] for entry in spec.dims]
    entry = dims[edit.dimension]
    entry.insert(len(entry) if edit.place is None else edit.place, edit.axis)
    return _recut(spec, dims)


def _recut(spec: Spec, dims: Iterable[Iterable[Axis]]) -> Spec:
    """`spec` with other dimensions; an axis that shards one is no `reduced` one any more."""
    cut = replace(spec, dims=tuple(map(tuple, dims)))
    return replace(cut, reduced=tuple(a for a in spec.reduced if axis_name(a) not in map(axis_name, cut.axes)))


def read_spec(spec: Any, name: str) -> Spec | None:
    """A spec from text, a PartitionSpec, a tuple or None, for an argument or output of this name."""
    if isinstance(spec, str):
        return changes.parse_spec(spec, name)
    return None if spec is None else Spec.of(spec)


def spec_of(now: Snapshot, edit: e.SetDim | e.MoveAxis) -> Spec:
    """The spec of an array as it is now, an entry a dimension, of which there must be the one that is edited."""
    report, bound, name = now.report, now.bound, edit.name
    sides = (report.outputs, "output", bound.out_specs), (report.arguments, "argument", bound.in_specs)
    values, role, specs = sides[not edit.output]
    value, own = changes.named(values, name, role), specs.get(name)
    spec = Spec.of(value.spec if own is None else own, len(value.shape))
    if not 0 <= edit.dimension < len(spec.dims):
        raise SpecError(f"{name!r} has no dimension {edit.dimension}; it has {len(spec.dims)}", argument=name)
    return spec


def twins(now: Snapshot, name: str, layers: bool = False) -> tuple[Role, ...]:
    """An argument's twins that are sharded alike, as (`argument` or `output`, name): all, or those of other layers
    alone."""
    return tuple(kin(now.report, now.logical.found).twins(name, now.bound, layers))


def _gone(now: Snapshot, step: UndoStep, ask: Answers, always: bool = False) -> Applied:
    results = ask.of_step(now, step, always)
    if results is None:
        return Applied(replace(now, error=None, ways=()))
    deck = _on_machine(now, results, ask) if step.plan == now.plan else now.deck.edited(step.plan, results)
    return _arrived(now, deck, now.history.after(now.here), ask)


def _back(now: Snapshot, back: bool, ask: Answers) -> Applied:
    steps = now.history.past[-1:] if back else now.history.ahead[:1]
    if not steps:
        return Applied(now, taken=False)
    step = steps[0]
    results = ask.of_step(now, step, always=True)
    if results is None:
        return Applied(replace(now, error=None, ways=()))
    if step.plan == now.plan and step.at == now.deck.at:
        deck = _on_machine(now, results, ask)
    else:
        draft = None if step.draft is None else (step.draft, ask.results(step.draft, now.machine))
        deck = now.deck.returned(step.plan, results, step.at, draft)
    return _arrived(now, deck, now.history.undone(now.here) if back else now.history.redone(now.here), ask)


def _on_machine(now: Snapshot, results: Results, ask: Answers) -> Deck:
    """The cards, every one on the machine on which the present plan is known now."""
    on = results.machine
    put = lambda card: ask.on(card.plan, card.results, on) if card.results.machine != on else card.results  # noqa: E731
    return now.deck.on(put).told(results)


def _dealt(now: Snapshot, deck: Deck, ask: Answers) -> Applied:
    """To a deck; where another card is open in it, to its plan."""
    card = deck.now
    if card.plan == now.plan:
        return Applied(replace(now, deck=deck.told(now.results), error=None, ways=()))
    results = ask.on(card.plan, card.results, card.results.machine)
    return _arrived(now, deck.told(results), now.history.after(now.here), ask)


def _arrived(now: Snapshot, deck: Deck, history: History, ask: Answers) -> Applied:
    """At the plan that is open in a deck; its compile follows."""
    results = deck.now.results
    results.priced()  # what cannot be priced is not come to
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


def _offered(now: Snapshot, name: str, ask: Answers) -> Applied:
    """To a preset, as a card; the presets are closed."""
    offer = next((o for o in now.offers.items if o.name == name), None)
    if offer is None or offer.results is None:
        raise ShardvizError(f"there is no offer {name!r} that could be taken")
    deck, card = now.deck.added(offer.plan, offer.results, name=offer.name, note="a preset")
    taken = _dealt(now, deck.opened(card), ask)
    closed = replace(taken.now, offers=replace(now.offers, open=False, busy=False))
    return replace(taken, now=closed, effects=(*taken.effects, ChoreEffect("presets", begins=False)))


def _mended(now: Snapshot, action: str, ask: Answers) -> Applied:
    mend = next((m for m in now.remedies.items if m.action == action and now.remedies.of == now.plan), None)
    if mend is None:
        raise ShardvizError(f"{excerpt(action)!r} was not tried on the current plan")
    if not mend.write:
        return _gone(now, UndoStep(mend.plan, now.machine.machine), ask)
    name = textwrap.shorten(action, LONGEST_NAME, placeholder=" …")
    deck, card = now.deck.added(mend.plan, ask.results(mend.plan, now.machine), name=name)
    return _dealt(now, deck.opened(card), ask)


def _beside(now: Snapshot, edit: e.Edit, ask: Answers) -> Applied:
    """What an edit that leaves plan, machine and cards as they are makes of what is known."""

    def told(*effects: Effect, **parts: Any) -> Applied:
        return Applied(replace(now, **parts), effects)

    offers = now.offers
    match edit:
        case e.OfferPresets():
            opened = replace(offers, items=(), open=True, busy=True, trouble="")
            return told(ChoreEffect("presets"), offers=opened)
        case e.CloseOffers():
            return told(ChoreEffect("presets", begins=False), offers=replace(offers, open=False, busy=False))
        case e.FindBest() if now.machine.machine.chip.kind == "cpu":
            trouble = "choose a machine first: the best plan is the one with the shortest step on a machine"
            return told(ChoreEffect("hunt", begins=False), offers=replace(offers, trouble=trouble))
        case e.FindBest():
            hunting = replace(offers, hunt="looking for what can be sharded", share=0.0, trouble="")
            return told(ChoreEffect("hunt"), offers=hunting)
        case e.StopFinding():
            return told(ChoreEffect("hunt", begins=False), offers=replace(offers, hunt="", share=0.0))
        case e.TryRemedies():
            return told(ChoreEffect("mend"))
        case e.AskWhy(name, axis):
            moved = () if axis else now.report.collectives  # an axis is asked of values alone
            subject = next((each for each in (*moved, *values_of(now.report)) if each.name == name), None)
            asked = Asked(of=now.plan, name=name, axis=axis)
            if subject is None:
                what = "value" if axis else "value or collective"
                asked = replace(asked, trouble=f"there is no {what} {excerpt(name)!r} here")
                return told(ChoreEffect("why", begins=False), why=asked)
            line = "" if subject.source is None else subject.source.short
            return told(ChoreEffect("why", subject), why=replace(asked, line=line, busy=True))
        case e.CloseWhy():
            return told(ChoreEffect("why", begins=False), why=Asked())
        case e.FindDimensions() if now.logical.busy or now.logical.found is not None:
            return Applied(now)
        case e.FindDimensions():
            return told(ChoreEffect("dimensions"), logical=replace(now.logical, busy=True, trouble=""))
        case e.Select(name, level):
            seen = now.results.reports.get(level, now.report)
            selection = Selection.of(name, seen)
            if seen is not now.report and selection.chosen is not None:
                return told(selection=selection.carried(now.report))
            return Applied(now) if name == now.selection.name else told(selection=Selection.of(name, now.report))
        case e.Stop():
            return Applied(now, (Compile(None),) if now.progress.busy else ())
        case e.Recompile():  # what was missing may be installed by now
            results = replace(now.results, choice=MachineChoice.of(now.machine.machine, now.report.mesh))
            return told(Compile(ask.task(now.plan, results), at_once=True), deck=now.deck.told(results))
    raise TypeError(f"{edit} is no edit")


def refused(
    now: Snapshot,
    error: ShardvizError,
    place: str,
    ask: Answers,
    subject: str | None = None,
    dimension: int | None = None,
    wanted: Plan | None = None,
) -> Snapshot:
    """What is known once an edit was refused: why, at which `place`, `subject` and `dimension` (see `Snapshot.error`),
    and the ways on from the plan that was `wanted`."""
    axis = subject if place == "mesh" else None
    ways = () if wanted is None else ways_on(ask.program, wanted, now.bound)
    named = getattr(error, "argument", None)
    words = _told(error, place, error.__cause__) | {
        "message": str(error),
        "argument": named or (None if place == "target" else subject),
        "axis": axis,
        "subject": subject,
        "dimension": getattr(error, "dimension", None) if named else dimension,
        "ways": [{"text": way.text, "tip": way.tip} for way in ways],
    }
    return replace(now, error=words, ways=ways)


def internal(error: BaseException) -> dict[str, Any]:
    """An error of the explorer's own, as `Snapshot.error` has it."""
    log.error("internal error of the explorer", exc_info=error)
    return _told(error, "internal", error) | {"message": f"{type(error).__name__}: {message_of(error)}"}


def _told(error: BaseException, place: str, cause: BaseException | None) -> dict[str, Any]:
    return {
        **dict.fromkeys(("argument", "axis", "subject", "dimension")),
        "ways": [],
        "place": place,
        "kind": type(error).__name__,
        "detail": "".join(traceback.format_exception(cause)) if cause else "",
    }
