"""The cards of an explorer: plans side by side, with their main numbers and differences.

A card shows its plan's highest level. A difference uses a level that both plans have reached, and names that level if
it is lower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shardviz.explorer.cards import Card, Deck, Results, equal_level
from shardviz.explorer.sharing import Sharing
from shardviz.explorer.snapshot import TriedPreset, TriedPresets
from shardviz.judge.comparison import compare_reports
from shardviz.judge.report import Report
from shardviz.records.amounts import format_bytes, format_change, format_seconds, plural
from shardviz.records.findings import Finding
from shardviz.records.options import options_text
from shardviz.records.report import PlanRecord
from shardviz.records.sums import CollectiveTotal, sum_collectives, total_of
from shardviz.records.together import Assignment
from shardviz.records.values import on_device
from shardviz.view import document as doc
from shardviz.view import step_cost
from shardviz.view.comparison import comparison_document
from shardviz.view.values import total_bytes

if TYPE_CHECKING:
    from shardviz.plan.plan import Plan

_MOST_MOVED = 3
_PREDICTED = "level propagated"


@doc.document.register
def deck_document(deck: Deck, sharing: Sharing | None = None) -> doc.Document:
    """Return a row per card, with the other programs of a set under the card's plan."""

    def difference(card: Card) -> doc.Inline:
        return doc.words("") if card.id == deck.other.id else tuple(difference_pieces(card.results, deck.other))

    def findings(card: Card) -> tuple[doc.Piece]:
        """Return the number of warnings and errors; the tip has the notes."""
        count, notes = severity_words(card.results.findings)
        text = plural(count, "finding")
        tip = " · ".join(filter(None, (text, notes)))
        return (doc.words(text, tone="warn" * bool(count), quiet=not count, tip=tip, selects=("tab", "problems")),)

    def level(card: Card) -> doc.Piece:
        cost, level, other = card.results.cost(), card.results.level, card.results.report.target
        tip = f"{level} program" if cost is None else step_cost.level_words(cost)
        if not card.results.carried or level == "propagated" or not other:
            return doc.words(level, quiet=True, tip=tip)
        return doc.words(f"{level} for {other}", quiet=True, tip=f"{tip}; open the card to ask for this machine")

    def others(card: Card) -> Iterator[doc.Piece]:
        return program_pieces(sharing, card.plan) if sharing else iter(())

    cards = doc.Rows(deck.cards, folds="never", noun="plan", name="cards").table(
        ("plan", lambda card: doc.words(card.name, strong=True)),
        (doc.wrapped("origin"), lambda card: _note(card, deck)),
        (doc.wrapped("step"), lambda card: step_pieces(card.results)),
        (doc.wrapped("difference"), difference),
        (doc.wrapped("memory per device"), lambda card: memory_pieces(card.results)),
        ("", lambda card: doc.bar(_room(card.results))),
        (doc.wrapped("communication"), lambda card: moved_pieces(card.results)),
        (doc.wrapped("findings"), findings),
        (doc.wrapped("level"), level),
        (doc.wrapped("other programs"), others) if sharing and sharing.programs else None,
        detail=lambda card: [doc.paragraph(text, name=f"card-why-{n}") for n, text in enumerate(card.why)],
        selects=lambda card: ("card", card.id),
        marked=lambda card: card.id == deck.at,
    )
    return doc.Document(title=doc.words("Plans", strong=True), blocks=(cards,), mesh=deck.now.results.bound.mesh)


def tried_presets_document(presets: TriedPresets, deck: Deck) -> doc.Document:
    """Return the presets, best first, each with its difference to the open plan."""

    def of_known(pieces: Callable[[Results], Iterator[doc.Piece]]) -> Callable[[TriedPreset], doc.Inline]:
        return lambda preset: doc.words("") if preset.results is None else tuple(pieces(preset.results))

    def taken(preset: TriedPreset) -> tuple[str, str] | None:
        return None if preset.results is None else ("preset", preset.name)

    def does(preset: TriedPreset) -> doc.Piece:
        return doc.words(preset.text, quiet=True) if preset.results else doc.words(preset.trouble, tone="warn")

    rows = doc.Rows(presets.items, noun="preset", name="presets").table(
        ("preset", lambda preset: doc.words(preset.name, strong=True, selects=taken(preset))),
        (doc.wrapped("what it does"), does),
        (doc.right("step"), of_known(step_pieces)),
        ("compared with the current plan", of_known(lambda results: difference_pieces(results, deck.now, named=False))),
        ("memory per device", of_known(memory_pieces)),
        ("communication", of_known(moved_pieces)),
        selects=taken,
    )
    trouble = doc.paragraph(doc.words(presets.trouble, tone="warn"), name="presets-trouble")
    busy = doc.paragraph("presets are being tried …", quiet=True, name="presets-busy")
    return doc.Document.of(
        rows if rows.rows else None,
        trouble if presets.trouble else None,
        busy if presets.busy else None,
        doc.notes("All are predicted by Shardy's propagation; the partitioner confirms the first."),
        title=doc.words("Presets", strong=True),
        mesh=deck.now.results.bound.mesh,
    )


def search_document(presets: TriedPresets, deck: Deck) -> doc.Document:
    """Return a sentence on the search's progress or result; empty before the first search."""
    best = next((card for card in deck.cards if card.id == presets.best), None)
    pieces: list[doc.Piece] = [doc.words(presets.progress)] if presets.progress else []
    if best is not None:
        ran = "the best so far is" if presets.share is not None else "the best is"
        name = doc.words(best.name, strong=True, selects=("card", best.id), tip="open this plan")
        against = () if best.id == deck.other.id else difference_pieces(best.results, deck.other)
        pieces = [doc.words(f"{presets.progress}; {ran}"), name, doc.words(":"), *step_pieces(best.results)]
        pieces += [*memory_pieces(best.results), *against]
    trouble = [doc.words(presets.trouble, tone="warn")] if presets.trouble and not presets.open else []
    return doc.Document.of(doc.paragraph(*pieces, *trouble, name="search") if pieces or trouble else None)


def _note(card: Card, deck: Deck) -> Iterator[doc.Piece]:
    """Yield the changes to the user's program, then the card's note, or the plan's differences from the baseline."""
    base = next((c for c in deck.cards if c.id == "baseline"), None)
    if base is None and card is not deck.cards[0]:
        base = deck.cards[0]
    bound = card.results.bound
    if bound.variant:
        text = f"its program {' and '.join(bound.variant.words)}"
        yield doc.words(f"{text};", tone="warn", tip=f"{text}; the code pane shows what to write")
    if bound.options != (base.results.bound.options if base else {}):
        text = options_text(bound.options)
        yield doc.words(doc.shorten(f"with {text};" if text else "without compiler options;", 60), tip=text)
    if card.note:
        yield doc.words(card.note, quiet=True, tip="\n".join(card.why))
    if base is None or base is card or bound.mesh != base.results.bound.mesh:
        yield doc.mesh_axes(bound.mesh)
    elif not card.note:
        yield from _changes(base.results.bound, bound)


def _changes(base: PlanRecord, plan: PlanRecord) -> Iterator[doc.Piece]:
    """Yield the constraints that only one plan has, and the changed specs and memories."""
    alone = [*(c for c in plan.constraints if c not in base.constraints)]
    alone += [c for c in base.constraints if c not in plan.constraints]
    inside = list({(c.name, c.source): c for c in reversed(alone)}.values())[::-1]
    every = ("in_specs", "out_specs", "in_memory", "out_memory")
    sides = ((getattr(base, side), getattr(plan, side)) for side in every)
    arrays = list(dict.fromkeys(name for a, b in sides for name in (*a, *b) if a.get(name) != b.get(name)))
    if inside:
        text = ", ".join(f"{c.name} at {c.source.short}" for c in inside)
        yield doc.words(doc.shorten(f"constraint changed: {text}", 48), quiet=True, tip=doc.shorten(text, 400))
    elif not arrays:
        yield doc.words("same specs as the baseline", quiet=True)
    if len(arrays) == 1:
        name = arrays[0]
        changed = plan.in_specs.get(name) or plan.out_specs.get(name)
        yield doc.words(doc.shorten(name, 28), quiet=True, tip=name)
        yield doc.spec(changed) if changed is not None else doc.words("left to the compiler", quiet=True)
    elif arrays:
        yield doc.words(f"{len(arrays)} specs changed", quiet=True, tip=doc.shorten(", ".join(arrays), 400))


def step_pieces(results: Results) -> Iterator[doc.Piece]:
    """Yield `7.60 s 6.61 – 8.21 s`, the step and its band; without a machine a hint to choose one."""
    choice, cost = results.priced()
    if cost is None:
        if choice.trouble:
            yield doc.words("no time", strong=True, tone="warn", tip=choice.trouble)
        else:
            tip = "no machine is chosen: simulated devices have no speed"
            yield doc.words("choose a machine", strong=True, tip=tip, selects=("choose", "target"))
            yield doc.words("to see times", quiet=True)
        return
    tip = step_cost.seconds_words(cost) or f"a lower bound: FLOPs are not known at level {cost.level}"
    more = f"bound by {step_cost.BOUND_WORDS.get(cost.bound, cost.bound)}"
    yield doc.words(step_cost.step_words(cost), strong=True, tip="; ".join([tip, more, *cost.notes]))
    if band := step_cost.band_words(cost):
        yield doc.words(band, quiet=True, tip=f"{cost.step.accuracy}")


def signed(amount: float, text: str, *, of: str) -> doc.Piece:
    """Return a difference where more is worse: `▲ 17.9 s`, `▼ 0.54 s`."""
    arrow, tone = ("▲", "bad") if amount > 0 else ("▼", "good")
    return doc.words(f"{arrow} {text}", strong=True, tone=tone, tip=of)


def difference_pieces(results: Results, other: Card, named: bool = True) -> Iterator[doc.Piece]:
    """Yield the difference of the step, or without times of the bytes sent, at a common level; the level is `named` if
    lower."""
    level = equal_level(results, other.results)
    if not level:
        yield doc.words("not comparable", quiet=True, tip="no level that both plans have reached")
        return
    behind = "" if not named or level == results.level == other.results.level else f"at {level}"
    against = f"compared with {other.name}, at level {level}"
    one, two = results.cost(level), other.results.cost(level)
    if one is not None and two is not None:
        both = one.seconds is not None and two.seconds is not None
        later = one.step.seconds - two.step.seconds if both else one.lower - two.lower
        chips, before = one.machine.num_chips, two.machine.num_chips
        if chips != before and both and one.step.seconds and two.step.seconds:
            spent = one.step.seconds * chips / (two.step.seconds * before)
            ours, theirs = step_cost.step_words(one), step_cost.step_words(two)
            tip = f"{against}: {chips:,} chips for {ours}, {before:,} for {theirs} there"
            yield signed(spent - 1, f"{format_change(spent)} chip-seconds", of=tip)
        elif format_seconds(abs(later)) == "0 s" or abs(later) < step_cost.SAME * max(two.lower, 1e-12):
            yield doc.words("the same time", quiet=True, tip=against)
        else:
            yield signed(later, format_seconds(abs(later)), of=against)
    else:
        now, then = _bytes(results.reports[level], other.results.reports[level])
        if now == then:
            yield doc.words("the same communication", quiet=True, tip=against)
        else:
            yield signed(now - then, f"{format_bytes(abs(now - then))} sent", of=against)
    if behind:
        yield doc.words(behind, quiet=True, tip="the highest level that both plans have reached")


def _bytes(one: Report, other: Report) -> tuple[float, float]:
    """Return the bytes sent per device under two plans; for different numbers of devices, by all devices."""
    sent, then = (total_of(report.collectives).sent_bytes for report in (one, other))
    alike = one.mesh.size == other.mesh.size
    return (sent, then) if alike else (sent * one.mesh.size, then * other.mesh.size)


def memory_pieces(results: Results) -> Iterator[doc.Piece]:
    """Yield `60.1 / 103 GB`, and whether it fits; without a machine the bytes of the arguments or of the compiler's
    plan."""
    cost, report = results.cost(), results.report
    if cost is not None:
        needs = cost.needs
        verdict = step_cost.fits_word(needs)
        usable = format_bytes(needs.usable) if needs.usable is not None else "not known"
        text = step_cost.pair(needs.text, usable, " / ")
        tone = "bad" if needs.fits is False else ""
        yield doc.words(text, tone=tone, tip=step_cost.memory_words(needs), selects=("tab", "memory"))
        over = needs.total - needs.usable if needs.fits is False and needs.usable is not None else 0.0
        if verdict:
            more = f": {format_bytes(over)} too much" if over > 0 else ""
            yield doc.words(f"{verdict}{more}", tone=step_cost.FIT_TONES[needs.fits])
        return
    plan = report.memory
    if plan is not None and plan.target != "cpu":
        yield doc.words(f"{format_bytes(plan.set_aside)} by the {plan.target} compiler's plan")
        return
    size, unknown = total_bytes(on_device(report.arguments))
    yield doc.words(f"{'at least ' if unknown else ''}{format_bytes(size)} of arguments")


def _room(results: Results) -> Iterator[doc.Part]:
    cost = results.cost()
    if cost is not None and cost.needs.usable:
        needs, usable = cost.needs, cost.needs.usable or 1.0
        longest = max(needs.total, usable)
        for what, size in needs.parts.items():
            if size:
                yield doc.Part(share=size / longest, role="work", tip=f"{what} {format_bytes(size)}")


def moved_pieces(results: Results) -> Iterator[doc.Piece]:
    """Yield the communication over the slowest axes; without a machine the bytes sent."""
    cost = results.cost()
    collectives = results.report.collectives if cost is None else cost.collectives
    totals = sum_collectives(collectives, "axes", order="bytes" if cost is None else "seconds")
    if not totals:
        yield doc.words("nothing")
        return

    def amount(total: CollectiveTotal) -> float:
        return total.sent_bytes if cost is None else total.seconds

    def text(total: CollectiveTotal) -> str:
        return f"{format_bytes(total.sent_bytes)} sent" if cost is None else format_seconds(total.seconds)

    least = sum(map(amount, totals)) / 1000
    main = [t for t in totals if t.unknown or amount(t) >= least][:_MOST_MOVED]
    for total in main:
        yield doc.axes(total.axes)
        sent = f"{format_bytes(total.sent_bytes)} sent by each device in a step"
        yield doc.words(text(total), tip=f"{sent}; {total.sentence}")
    if others := [t for t in totals if t not in main]:
        yield doc.words(f"+{len(others)}", quiet=True, tip="; ".join(f"{t.label} {text(t)}" for t in others))


def program_pieces(sharing: Sharing, plan: Plan) -> Iterator[doc.Piece]:
    """Yield `decode 12.1 ms, 3.4 GB` for each other program, with the shared arrays sharded as by a plan; last, the
    seconds of all calls."""
    costs, programs = sharing.costs.get(plan), sharing.programs
    if costs is None or programs is None:
        return
    usable = programs.usable
    for cost in costs:
        if cost.program != sharing.name:
            if cost.why_not:
                yield doc.words(f"{cost.program}: not possible", tone="warn", tip=cost.why_not)
                continue
            amounts = [format_bytes(cost.needs_bytes or 0.0)]
            amounts[:0] = [] if cost.seconds is None else [format_seconds(cost.seconds)]
            over = usable is not None and (cost.needs_bytes or 0.0) > usable
            tip = f"{cost.program} with the shared arrays sharded as here: step and memory per device, {_PREDICTED}"
            yield doc.words(f"{cost.program} {', '.join(amounts)}", tone="bad" if over else "", tip=tip)
    calls = {side.name: side.calls for side in programs.sides if side.calls is not None}
    total = Assignment(name="", costs=costs).seconds(calls) if calls else None
    if total:
        counts = ", ".join(f"{count:,.10g} of {name}" for name, count in calls.items())
        yield doc.words(f"all calls {format_seconds(total)}", tip=f"{counts}; {_PREDICTED}")


def severity_words(findings: Sequence[Finding]) -> tuple[int, str]:
    """Return the number of warnings and errors, and the notes in words: `6 notes`, or nothing."""
    notes = sum(f.severity == "note" for f in findings)
    return len(findings) - notes, plural(notes, "note") if notes else ""


def difference_pane(deck: Deck) -> doc.Document:
    """Return all differences from the other card at their highest common level: numbers, specs and matched
    collectives."""
    cards = deck.other, deck.now
    level = "" if cards[0].id == cards[1].id else equal_level(*(card.results for card in cards))
    if not level:
        none = "There is one plan. After a change or a preset, this shows the difference."
        if len(deck.cards) > 1:
            own = f"{deck.other.name} is the plan that others are compared with"
            none = f"{own}: open another card, or compare with another one."
        return doc.Document(blocks=(doc.paragraph(none, quiet=True, name="difference-none"),))
    machines = [cost and cost.machine for cost in (card.results.cost(level) for card in cards)]
    timed = machines[0] is not None and machines[0] == machines[1]
    reports = [card.results.reports[level] for card in cards]
    sides = [each if timed else replace(each, target="cpu") for each in reports]  # which has no times
    before, after = ((card.name, each) for card, each in zip(cards, sides, strict=True))
    both = compare_reports(before, after, target=machines[0].text if timed and machines[0] else None)
    title = doc.words(f"{deck.now.name} compared with {deck.other.name}", strong=True)
    return replace(comparison_document(both), title=(title, doc.words(f"level {both.level}", quiet=True)), lead=())
