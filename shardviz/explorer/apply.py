"""What an edit makes of what is known: another `Snapshot`, and the effects that follow from it.

`apply` changes nothing. It asks the program (`Asking`), whose answers are the same each time, and says what is to be
compiled, tried or stopped; `explorer.py` does that. An edit that is refused leaves all but `error` as it was.
"""

from __future__ import annotations

import logging
import textwrap
import traceback
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shardviz.errors import ShardvizError, excerpt, message_of
from shardviz.explorer import edits as e
from shardviz.explorer.answers import Known
from shardviz.explorer.asking import Asking
from shardviz.explorer.cards import LONGEST_NAME, Deck
from shardviz.explorer.compile_loop import CompileLoop, Task
from shardviz.explorer.machine_choice import missing_for, read
from shardviz.explorer.offers import Asked
from shardviz.explorer.replan import plan_after
from shardviz.explorer.snapshot import Answers, History, Snapshot, Step
from shardviz.explorer.ways import ways as ways_on
from shardviz.explorer.ways import ways_to
from shardviz.records import Collective, Value
from shardviz.records.report import LEVELS

if TYPE_CHECKING:
    from shardviz.judge.report import Report
    from shardviz.program.plan import Plan

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Compile:
    """A compile is to be made: a moment later, or at once."""

    task: Task
    at_once: bool = False


@dataclass(frozen=True)
class StopCompile:
    """The compile that runs, or is about to, is to be stopped."""


@dataclass(frozen=True)
class Begin:
    """A chore of `background.py` is to begin, in the place of the one of its name that goes on.

    Attributes:
        chore: `presets`, `hunt`, `mend`, `why`, `without`, `passes` or `dimensions`.
        about: what it is about, where that is not the plan.
    """

    chore: str
    about: Any = None


@dataclass(frozen=True)
class End:
    """A chore is to end."""

    chore: str


Effect = Compile | StopCompile | Begin | End


@dataclass(frozen=True)
class Applied:
    """What became of an edit.

    Attributes:
        now: what is known after it.
        effects: what is to be done, in order.
        taken: it was not refused.
    """

    now: Snapshot
    effects: tuple[Effect, ...] = ()
    taken: bool = True


def apply(now: Snapshot, edit: e.Edit, ask: Asking) -> Applied:
    """What becomes of an edit."""
    wanted = None
    try:
        match edit:
            case e.Undo() | e.Redo():
                return _back(now, edit, ask)
            case e.SetTarget(target):
                return _gone(now, Step(now.plan, read(target, now.report.mesh)), ask)
            case e.TakeWay(place):
                way = now.ways[place] if 0 <= place < len(now.ways) else None
                if way is None or way.plan is None:
                    raise ShardvizError("there is no such way on any more: nothing is refused now, or something else")
                wanted = way.plan
                return _gone(now, Step(wanted, way.machine or now.machine.machine), ask)
            case e.TakeRemedy(action):
                return _mended(now, action, ask)
            case e.TakeOffer(offer):
                return _offered(now, offer, ask)
            case e.RenameDimension(old, new):
                return Applied(replace(now, logical=now.logical.renamed(old, new), error=None))
            case e.Dismiss():
                return Applied(replace(now, error=None, ways=()))
            case e.CardEdit():
                return _dealt(now, _deck(now, edit, ask), ask)
            case e.PlanEdit():
                wanted = plan_after(now, edit, ask.program)
                return _gone(now, Step(wanted, now.machine.machine), ask, always=edit.refused_at == "rule")
        return _beside(now, edit, ask)
    except ShardvizError as error:
        subject = getattr(edit, edit.about) if edit.about else None
        dimension = getattr(edit, "dimension", None)
        return Applied(
            refused(now, error, edit.refused_at, None if subject is None else str(subject), dimension, wanted, ask),
            taken=False,
        )


# To another plan, machine or card.


def _gone(now: Snapshot, step: Step, ask: Asking, always: bool = False) -> Applied:
    known = ask.of_step(now, step, always)
    if known is None:
        return Applied(replace(now, error=None, ways=()))
    deck = _on_machine(now, known, ask) if step.plan == now.plan else now.deck.edited(step.plan, known)
    return moved(now, step.plan, known, deck, now.history.after(now.here), ask)


def _back(now: Snapshot, edit: e.Undo | e.Redo, ask: Asking) -> Applied:
    back = isinstance(edit, e.Undo)
    steps = now.history.past[-1:] if back else now.history.ahead[:1]
    if not steps:
        return Applied(now, taken=False)
    step = steps[0]
    known = ask.of_step(now, step, always=True)
    if known is None:
        return Applied(replace(now, error=None, ways=()))
    if step.plan == now.plan and step.at == now.deck.at:
        deck = _on_machine(now, known, ask)
    else:
        draft = None if step.draft is None else (step.draft, ask.known(now, step.draft))
        deck = now.deck.returned(step.plan, known, step.at, draft)
    history = now.history.undone(now.here) if back else now.history.redone(now.here)
    return moved(now, step.plan, known, deck, history, ask)


def _on_machine(now: Snapshot, known: Known, ask: Asking) -> Deck:
    """The cards, every one on the machine on which the present plan is known now."""
    on = known.machine
    put = lambda card: ask.on(card.plan, card.known, on) if card.known.machine != on else card.known  # noqa: E731
    return now.deck.on(put).told(known)


def _dealt(now: Snapshot, deck: Deck, ask: Asking) -> Applied:
    """To a deck; where another card is open in it, to its plan."""
    card = deck.now
    if card.plan == now.plan:
        return Applied(replace(now, deck=deck, error=None, ways=()))
    known = ask.on(card.plan, card.known, card.known.machine)
    return moved(now, card.plan, known, deck.told(known), now.history.after(now.here), ask)


def moved(now: Snapshot, plan: Plan, known: Known, deck: Deck, history: History, ask: Asking) -> Applied:
    """To a plan of which something is known; its compile follows."""
    answers = Answers.of(known.reports, now.answers.known, known.carried)
    machine, cost = known.priced()
    task = ask.task(plan, answers, machine)
    ask.book.keep(plan, known)
    after = replace(
        now,
        plan=plan,
        bound=known.bound,
        answers=answers,
        machine=machine,
        cost=cost,
        deck=deck,
        selection=now.selection.carried(answers.report),
        history=history,
        error=None,
        ways=(),
        progress=CompileLoop.expected(task),
    )
    return Applied(after, (Compile(task),))


def _deck(now: Snapshot, edit: e.CardEdit, ask: Asking) -> Deck:
    deck = now.deck
    match edit:
        case e.Pin(name):
            return deck.pinned(name)
        case e.OpenCard(card):
            return deck.opened(card)
        case e.AddCard(name, plan, note):
            settled = ask.program.settled(plan)
            return deck.added(settled, ask.known(now, settled), name=name, note=note)[0]
        case e.RenameCard(card, name):
            return deck.renamed(card, name)
        case e.MoveCard(card, to):
            return deck.moved(card, to)
        case e.DeleteCard(card):
            return deck.deleted(card)
        case e.CompareWith(card):
            return deck.compared(card)
    raise TypeError(f"{edit} is no edit of the cards")


def _offered(now: Snapshot, name: str, ask: Asking) -> Applied:
    """To a preset, as a card; the presets are closed."""
    offer = next((o for o in now.offers.items if o.name == name), None)
    if offer is None or offer.known is None:
        raise ShardvizError(f"there is no offer {name!r} that could be taken")
    deck, card = now.deck.added(offer.plan, offer.known, name=offer.name, note="a preset")
    taken = _dealt(now, deck.opened(card), ask)
    closed = replace(taken.now, offers=replace(now.offers, open=False, busy=False))
    return replace(taken, now=closed, effects=(*taken.effects, End("presets")))


def _mended(now: Snapshot, action: str, ask: Asking) -> Applied:
    mend = next((m for m in now.remedies.items if m.action == action and now.remedies.of == now.plan), None)
    if mend is None:
        raise ShardvizError(f"{excerpt(action)!r} was not tried on the plan as it is now")
    if not mend.write:
        return _gone(now, Step(mend.plan, now.machine.machine), ask)
    name = textwrap.shorten(action, LONGEST_NAME, placeholder=" …")
    deck, card = now.deck.added(mend.plan, ask.known(now, mend.plan), name=name)
    return _dealt(now, deck.opened(card), ask)


# What goes on beside the plan.


def _beside(now: Snapshot, edit: e.Edit, ask: Asking) -> Applied:
    offers, why = now.offers, now.why
    match edit:
        case e.OfferPresets():
            offers = replace(offers, items=(), open=True, busy=True, trouble="")
            return Applied(replace(now, offers=offers), (Begin("presets"),))
        case e.CloseOffers():
            return Applied(replace(now, offers=replace(offers, open=False, busy=False)), (End("presets"),))
        case e.FindBest() if now.machine.machine.chip.kind == "cpu":
            trouble = "choose a machine first: the best plan is the one with the shortest step on a machine"
            return Applied(replace(now, offers=replace(offers, trouble=trouble)), (End("hunt"),))
        case e.FindBest():
            offers = replace(offers, hunt="looking for what can be sharded", share=0.0, trouble="")
            return Applied(replace(now, offers=offers), (Begin("hunt"),))
        case e.StopFinding():
            return Applied(replace(now, offers=replace(offers, hunt="", share=0.0)), (End("hunt"),))
        case e.TryRemedies():
            return Applied(now, (Begin("mend"),))
        case e.AskWhy(name, axis):
            subject = _named(name, axis, now.report)
            asked = Asked(of=now.plan, name=name, axis=axis)
            if subject is None:
                what = "value" if axis else "value or collective"
                asked = replace(asked, trouble=f"there is no {what} {excerpt(name)!r} here")
                return Applied(replace(now, why=asked), (End("why"),))
            line = "" if subject.source is None else subject.source.short
            return Applied(replace(now, why=replace(asked, line=line, busy=True)), (Begin("why", subject),))
        case e.AskWithout(cause):
            causes = () if why.answer is None else why.answer.causes
            if why.busy or not 0 <= cause < len(causes) or cause in why.changes:
                return Applied(now)
            return Applied(replace(now, why=replace(why, busy=True, trouble="")), (Begin("without", cause),))
        case e.CloseWhy():
            return Applied(replace(now, why=Asked()), (End("why"),))
        case e.FindDimensions():
            if now.logical.busy or now.logical.found is not None:
                return Applied(now)
            return Applied(replace(now, logical=replace(now.logical, busy=True, trouble="")), (Begin("dimensions"),))
        case e.ShowPasses():
            return Applied(now, (Begin("passes"),))
        case e.Stop():
            return Applied(now, (StopCompile(),) if now.progress.busy else ())
        case e.Recompile():  # what was missing may be installed by now
            machine = replace(now.machine, missing=missing_for(now.machine.machine, now.report.mesh))
            task = ask.task(now.plan, now.answers, machine)
            return Applied(replace(now, machine=machine), (Compile(task, at_once=True),))
        case e.Finish():
            if now.progress.busy or not now.answers.finishable:
                return Applied(now)
            task = ask.task(now.plan, now.answers, now.machine)
            task = replace(task, finish=True, due=LEVELS.index("compiled"))
            return Applied(now, (Compile(task, at_once=True),))
    raise TypeError(f"{edit} is no edit")


def _named(name: str, axis: str, report: Report) -> Value | Collective | None:
    """What has a name in a report; an axis is asked of values alone."""
    moved = () if axis else report.collectives
    return next((each for each in (*moved, *report.values) if each.name == name), None)


# What was refused.


def refused(
    now: Snapshot,
    error: ShardvizError,
    place: str,
    subject: str | None,
    dimension: int | None,
    wanted: Plan | None,
    ask: Asking,
) -> Snapshot:
    """What is known once an edit was refused: why, at its place, and the ways on.

    Args:
        now: what was known.
        error: why it was refused.
        place, subject, dimension: where; see `Snapshot.error`.
        wanted: the plan that was refused.
        ask: what is asked for the ways on.
    """
    axis = subject if place == "mesh" else None
    ways = () if wanted is None else ways_on(ask.program, wanted, now.bound, axis or "")
    if place == "target" and subject:
        ways = ways_to(ask.program, now.plan, subject)
    named = getattr(error, "argument", None)
    where = getattr(error, "dimension", None)
    told = _told(error, place, error.__cause__) | {
        "message": str(error),
        "argument": named or (None if place == "target" else subject),
        "axis": axis,
        "subject": subject,
        "dimension": where if named else dimension,
        "ways": [{"text": way.text, "tip": way.tip, "take": way.plan is not None} for way in ways],
    }
    return replace(now, error=told, ways=ways)


def internal(error: BaseException) -> dict[str, Any]:
    """An error of the explorer's own, as `Snapshot.error` has it."""
    log.error("the explorer met an error of its own", exc_info=error)
    return _told(error, "internal", error) | {"message": f"{type(error).__name__}: {message_of(error)}"}


def _told(error: BaseException, place: str, cause: BaseException | None) -> dict[str, Any]:
    return {
        **dict.fromkeys(("argument", "axis", "subject", "dimension")),
        "ways": [],
        "place": place,
        "kind": type(error).__name__,
        "detail": "".join(traceback.format_exception(cause)) if cause else "",
    }
