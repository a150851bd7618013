"""Documents about several plans: costs side by side, presets, a sweep, a search's result, fixes.

A sweep also has a picture of step time against memory: a square per plan, the Pareto front joined by a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from shardviz.ask.presets import Preset, Presets
from shardviz.ask.program import Program
from shardviz.costs.step_cost import StepCost
from shardviz.diagnose.findings import brief
from shardviz.notation import DeviceMesh
from shardviz.plan.plan import Plan
from shardviz.records.amounts import format_bytes, format_count, format_number, format_seconds, format_times, plural
from shardviz.study.answer import Finalist, Floor, Search, Tried, WhyNot
from shardviz.study.costs import CostTable
from shardviz.study.fixes import Fix, Fixes
from shardviz.study.sweep import Sweep, SweepRow, value_text
from shardviz.view import document as doc
from shardviz.view.comparison import difference_text
from shardviz.view.picture import Labels, Lines, Picture, Point, Rects, Shape, picture
from shardviz.view.step_cost import BOUND_WORDS, fits_word, step_words
from shardviz.view.values import total_bytes

_MOST_ARGUMENTS = 16  # arguments in a table of plans
_STEP_TIMES = "step times are predicted from the schedule"


def memory_text(cost: StepCost) -> str:
    """Return `about 12.8 GB of 103 GB`, with `out of memory` (likely or known), or `fits` if known."""
    needs = cost.needs
    if needs.usable is None:
        return needs.text
    verdict = {
        False: ", out of memory" if needs.sure else ", likely out of memory",
        True: ", fits" if needs.complete else "",
        None: ", may be out of memory" if needs.total > needs.usable else "",
    }
    return f"{needs.text} of {format_bytes(needs.usable)}{verdict[needs.fits]}"


# column → its head, and what it says of a cost
_COSTS: dict[str, tuple[str, Callable[[StepCost], str]]] = {
    "target": ("machine", lambda c: c.machine.text),
    "mesh": ("mesh", lambda c: str(c.mesh.shown)),
    "level": ("level", lambda c: c.basis),
    "runs": ("runs", lambda c: format_count(None if c.total.unknown else int(c.total.runs))),
    "bytes": ("communication", lambda c: format_bytes(None if c.total.unknown else float(c.total.bytes))),
    "seconds": ("step", step_words),
    "bound": ("bound by", lambda c: BOUND_WORDS.get(c.bound, c.bound)),
    "memory": ("memory of usable", memory_text),
    "mfu": ("MFU", lambda c: f"{c.mfu:.1%}" if c.mfu else ""),
    "tokens": ("tokens/s, chip", lambda c: format_number(c.tokens_per_s_per_chip) if c.tokens_per_s_per_chip else ""),
}
_NUMBERS = ("runs", "bytes", "seconds", "memory", "mfu", "tokens")
_SAME = {"target": "machine", "mesh": "mesh", "level": "level", "runs": "runs of collectives"}
"""Columns that move above the table if all rows agree → their names there."""


@doc.document.register
def cost_table_document(compared: CostTable) -> doc.Document:
    """Return a row per plan or machine; common values are above the table."""
    costs = list(compared.costs.values())
    texts = {
        name: {key: say(cost) for key, (_, say) in _COSTS.items() if key not in ("target", "mesh") or say(cost) != name}
        for name, cost in compared.costs.items()
    }
    common = {key: {_COSTS[key][1](cost) for cost in costs} for key in _SAME}
    common["runs"] = {format_count(cost.total.runs) for cost in costs}
    same = {key: text for key, (text, *others) in common.items() if not others and len(costs) > 1}
    keys = [key for key in _COSTS if key not in same and any(text.get(key) for text in texts.values())]
    best = {key: compared.best(key) if key in _NUMBERS else frozenset() for key in keys}

    def cell(key: str, name: str) -> doc.Piece:
        if key == "mesh":
            return doc.mesh_axes(compared.costs[name].mesh)
        text, marked = texts[name].get(key, ""), name in best[key]
        tips = {"memory": compared.costs[name].needs.verdict, "target": str(compared.costs[name].machine)}
        return doc.words(f"★ {text}" if marked else text, strong=marked, tip=tips.get(key, ""))

    above = "; ".join(f"{_SAME[key]} {text}" for key, text in same.items())
    programs = ", ".join(dict.fromkeys(cost.program for cost in costs))
    marks = "the best of each column is marked"
    if len(compared.levels) > 1:
        marks = f"no best is marked, because the rows are of several levels ({', '.join(compared.levels)})"
    counted = {cost.tokens_are for cost in costs if cost.tokens_from} or {"tokens"}  # some rows may count samples
    heads = {key: _COSTS[key][0].replace("tokens", " or ".join(sorted(counted, reverse=True))) for key in keys}
    rows = doc.Rows(compared.costs).table(
        ("", lambda name: doc.words(name, strong=True)),
        *((doc.right(heads[key]) if key in _NUMBERS else heads[key], partial(cell, key)) for key in keys),
    )
    return doc.Document(
        title=doc.words(f"{programs}: {above}" if above else programs),
        blocks=(*doc.notes(f"{_STEP_TIMES}; bytes that enter collectives on each device; {marks}"), rows),
        mesh=costs[0].mesh if "mesh" in same or len(costs) == 1 else None,
    )


def _priced(cell: Callable[[StepCost], doc.Cell]) -> Callable[[Preset | SweepRow], doc.Cell]:
    """Return a column about the cost; empty without a cost."""
    return lambda each: "" if each.cost is None else cell(each.cost)


@doc.document.register
def presets_document(presets: Presets) -> doc.Document:
    """Return a row per preset: its sharding, and its costs by Shardy and the cost model."""
    timed = any(each.cost is not None for each in presets.rows)

    def arguments(each: Preset) -> str:
        return format_bytes(total_bytes(each.report.arguments)[0]) if each.report else ""

    def memory(cost: StepCost) -> doc.Piece:
        return doc.words(memory_text(cost), tone="bad" if cost.needs.fits is False else "", tip=cost.needs.verdict)

    rows = doc.Rows(presets.rows, noun="preset").table(
        ("preset", lambda each: doc.code(each.name, strong=True)),
        (doc.wrapped("what it does"), lambda each: doc.words(each.words, tip=each.cut)),
        (doc.right("arguments"), arguments),
        (doc.right("communication"), _bytes_moved),
        (doc.right("memory"), _priced(memory)) if timed else None,
        (doc.right("step"), _priced(step_words)) if timed else None,
        ("level", _confirmed) if timed else None,
        (doc.wrapped(), lambda each: doc.words(each.trouble, tone="bad")),
    )
    what = "arguments and operands of collectives, bytes on one device in a step"
    predicted = "a step is predicted until the partitioner has confirmed it"
    what = f"{what}; {_STEP_TIMES}, {predicted}; what cannot fit is last" if timed else f"level propagated; {what}"
    offered = sum(each.report is not None for each in presets.rows)
    title = doc.words(plural(offered, "preset"), strong=True)
    mesh = presets.rows[0].plan.mesh if presets.rows else None
    return doc.Document(title=title, blocks=(*doc.notes(what), rows), mesh=mesh)


def _confirmed(each: Preset) -> doc.Piece:
    """Return the level of the step's cost, and the prediction if the partitioner corrected it."""
    if each.report is None or each.cost is None:
        return doc.words("")
    if each.predicted is None:
        return doc.words("predicted")
    was = each.predicted.step.seconds
    more = f", {format_seconds(was)} predicted" if abs(each.cost.step.seconds - was) > 0.05 * was else ""
    return doc.words(f"{each.report.level}{more}", tone="warn" * bool(more))


def _bytes_moved(each: Preset | SweepRow) -> str:
    if isinstance(each, SweepRow) and each.cost is not None:
        return format_bytes(each.cost.total.bytes)
    return "" if each.report is None else format_bytes(sum(c.assumed_bytes for c in each.report.collectives))


def arguments_table(program: Program, plans: Mapping[str, Plan], mesh: DeviceMesh) -> doc.Table:
    """Return a row per argument, with its spec under each plan."""
    specs = {
        head if plan.mesh == mesh else f"{head}, on {plan.mesh}": program.bind(plan).in_specs
        for head, plan in plans.items()
    }
    return doc.Rows(program.arguments, most=_MOST_ARGUMENTS, noun="argument").table(
        ("argument", lambda argument: doc.code(argument.name)),
        ("shape", lambda argument: doc.shape(argument.shape, dtype=argument.dtype)),
        *((head, lambda argument, of=of: doc.spec(of[argument.name].canonical())) for head, of in specs.items()),
    )


@doc.document.register
def sweep_document(sweep: Sweep) -> doc.Document:
    """Return a row per evaluated point."""
    front, best = sweep.pareto, sweep.best
    rows = doc.Rows(sweep.rows, noun="point").table(
        *((name, lambda each, name=name: doc.code(value_text(each.point[name]))) for name in sweep.over),
        (doc.right("step"), _priced(step_words)),
        (doc.right("memory"), _priced(lambda cost: doc.words(cost.needs.text, tip=cost.needs.verdict))),
        (doc.right("communication"), _bytes_moved),
        (doc.right("tokens/s"), _priced(lambda c: "" if c.tokens_per_s is None else format_number(c.tokens_per_s))),
        (doc.wrapped(), lambda each: _verdict(each, each in front, each is best)),
        marked=lambda each: each is best,
    )
    what = f"level {sweep.level}; {_STEP_TIMES}; memory on one device"
    missing = f"{plural(sweep.left, 'point')} not evaluated: in Python, sv.sweep(..., previous=this) evaluates the rest"
    over = doc.words(f"over {', '.join(sweep.over)}", quiet=True)
    title = (doc.words(plural(len(sweep.rows), "point"), strong=True), over)
    return doc.Document.of(doc.notes(what), rows, doc.notes(missing if sweep.left else ""), title=title)


def _verdict(each: SweepRow, front: bool, best: bool) -> doc.Inline:
    if each.report is None:
        return doc.words(each.trouble, tone="bad")
    if each.cost is not None and each.fits is False:
        return doc.words(fits_word(each.cost.needs), tone="bad")
    praise = [word for word, so in (("★ best", best), ("on the front", front and not best)) if so]
    return doc.words(", ".join(filter(None, [*praise, each.trouble])), tone="good" if praise else "")


_MOST_LINES = 2
_MOST_BY_HAND = 3
_LONGEST = 120
"""Characters of the code to write that a row shows; the JSON has all."""


@doc.document.register
def fixes_document(fixes: Fixes) -> doc.Document:
    """Return the fixes, largest saving first; below them the changes that do not help."""
    target = doc.code("" if fixes.target == "cpu" else fixes.target)
    title = (doc.words(f"Fixes of {fixes.program}", strong=True), target)
    timed = any(fix.seconds is not None for fix in fixes.fixes)

    def saved(fix: Fix) -> doc.Piece:
        seconds = fix.seconds or 0.0
        return doc.words(format_seconds(seconds) if seconds else "the same", tone="good" * (seconds > 0))

    listed = doc.Rows(fixes.fixes, noun="fix").table(
        (doc.wrapped("change"), _change),
        (doc.right("step saved"), saved) if timed else None,
        (doc.right("communication"), lambda fix: difference_text(fix.difference.amount("operand bytes"))),
        (doc.right("memory, about"), _memory_more),
        ("where", lambda fix: tuple(map(doc.line, fix.lines[:_MOST_LINES])) or ""),
        (doc.wrapped("level"), lambda fix: fix.levels if fix.is_unsure else fix.level),
    )
    single = "Each was tried alone: two together may save less than their sum."
    none = "Nothing to try: no finding suggests a change, and no logical dimension can be sharded another way."
    none = f"None of the {plural(fixes.tried, 'change')} tried makes it better." if fixes.tried else none
    none = none if fixes.tried or fixes.finished else "The time was over before a change was tried."
    blocks: list[doc.Block] = [listed, *doc.notes(single)] if fixes.fixes else [*doc.notes(none)]
    if fixes.by_hand:
        others = len(fixes.by_hand) - _MOST_BY_HAND
        more = f"; and {plural(others, 'other')}" if others > 0 else ""
        changes = "; ".join(fixes.by_hand[:_MOST_BY_HAND])
        blocks += doc.notes(f"Not tried, because only a person can write it: {changes}{more}.")
    if fixes.rejected:
        refused = doc.Rows(fixes.rejected, most=48, noun="change").table(
            (doc.wrapped("change"), lambda refused: refused.action),
            (doc.wrapped("why it is not offered"), lambda refused: refused.why),
        )
        lead = plural(len(fixes.rejected), "change")
        blocks.append(doc.section("Not offered", refused, lead=lead, fold="closed", brief=True))
    tried = f"{fixes.tried} of {plural(fixes.candidates, 'change')} tried, {len(fixes.fixes)} worth making"
    tried += "" if fixes.finished else "; not finished"
    step = next((fix.step for fix in fixes.fixes if fix.step), None)
    tried += f"; the step now takes {format_seconds(step)}" if step else ""
    return doc.Document(title=title, lead=(doc.words(tried),), blocks=tuple(blocks))


def _change(fix: Fix) -> Iterator[doc.Piece]:
    yield doc.words(f"{fix.action}:", strong=True)
    if fix.finding:
        yield doc.words(f"{brief(fix.finding)};", quiet=True, tip=fix.finding.text)
    yield doc.words("; ".join(fix.collectives) or "no other collectives", quiet=True)
    if fix.write:
        yield doc.words("· write", quiet=True)
        yield doc.code(doc.shorten(fix.write, _LONGEST))


def _memory_more(fix: Fix) -> Iterator[doc.Piece]:
    more = doc.signed_text(fix.memory, format_bytes) if abs(fix.memory) >= 0.5e6 else "the same"
    yield doc.words(f"{more}, predicted" if fix.for_memory and fix.level != "compiled" else more)
    if fix.over:
        yield doc.words(f"still {format_bytes(fix.over)} too large", tone="warn")


_MOST_FRONT, _MOST_REASONS = 8, 8
_SCORED = "propagated"
"""The level of all candidates' scores."""
_PREDICTED = f"all as predicted at level {_SCORED}"


@doc.document.register
def search_document(search: Search) -> doc.Document:
    """Return the offered plans as a table, the alternatives, the front, and the rejected candidates."""
    best = search.best
    counts = f"{plural(len(search.tried), 'candidate')} tried in {format_seconds(search.seconds)}"
    counts += f", {len(search.fallen)} dropped" if search.fallen else ""
    title = (doc.words(search.program, strong=True), doc.words(f"on {search.target}: {counts}", quiet=True))
    reasons = sorted(search.reasons.items(), key=lambda item: -item[1])
    fallen = doc.Rows(reasons, first=_MOST_REASONS, noun="reason").table(
        (doc.right("how many"), lambda item: str(item[1])), (doc.wrapped("why"), lambda item: item[0])
    )
    large = [each.score.needs.total for each in search.too_large]
    least = format_bytes(min(large, default=0.0))
    left_out = f"{plural(len(large), 'candidate')} do not fit and are left out: they need {least} or more."
    return doc.Document.of(
        doc.notes(_nothing(search) if best is None else _headline(search, best)),
        None if best is None else _presets(search),
        doc.notes("" if best is None or search.floor is None else _floor(search.floor, best), search.note),
        doc.section("Why this plan", *_why_nots(search.why_not), lead=_PREDICTED) if search.why_not else None,
        _front(search) if len(search.front) > 1 else None,
        doc.notes(left_out if large else ""),
        doc.section("What was dropped", fallen) if search.fallen else None,
        title=title,
        mesh=None if best is None else best.plan.mesh,
    )


def _nothing(search: Search) -> str:
    leading = search.leading
    if leading is None:
        return "No plan was found."
    return (
        "No plan is offered: the target's compiler has not accepted any as fitting. The best by its estimate: "
        f"{leading.text}. A step would take {format_seconds(leading.seconds)}; {leading.verdict}."
    )


def _headline(search: Search, best: Finalist) -> str:
    text = f"Best: {best.text}. A step takes {format_seconds(best.seconds)}; {best.verdict}."
    start = search.given
    if start is None or start is best.tried or not best.score.seconds:
        return text
    compared = search.finalist_of(start)
    if compared is not None:
        return f"{text} The starting plan takes {format_times(compared.seconds / best.seconds)} as long."
    times = format_times(start.score.seconds / best.score.seconds)
    level = "" if best.report.level == _SCORED else f" at level {_SCORED}"
    return f"{text} The starting plan is predicted to take {times} as long{level}."


def _presets(search: Search) -> doc.Table:
    predicted = search.level != _SCORED

    def accepted(each: Finalist) -> doc.Piece:
        word, tone = ("yes", "good") if each.accepted else ("not asked", "bad")
        return doc.words(word, tone=tone, tip=each.verdict)

    return doc.Rows(search.ranked, noun="plan").table(
        ("", lambda each: doc.words("★ best" if each is search.best else "", tone="good")),
        (doc.wrapped("plan"), lambda each: each.text),
        (doc.right("step"), lambda each: step_words(each.cost)),
        (doc.right("memory"), lambda each: doc.words(each.cost.needs.text, tip=each.verdict)),
        ("level", lambda each: each.report.level),
        (doc.right("step predicted"), lambda each: format_seconds(each.score.seconds)) if predicted else None,
        ("accepted", accepted),
        marked=lambda each: each is search.best,
    )


def _front(search: Search) -> doc.Section:
    best, predicted = search.best, search.level != _SCORED
    rows = list({id(each): each for each in (*search.front, *((best.tried,) if best else ()))}.values())
    rows.sort(key=lambda each: (each.score.seconds, each.score.needs.total))

    def above(each: Tried) -> str:
        preset = search.finalist_of(each)
        return "not asked" if preset is None else f"{step_words(preset.cost)}, {preset.cost.needs.text}"

    front = doc.Rows(rows, first=_MOST_FRONT, noun="plan").table(
        ("", lambda each: doc.words("★ best" if best is not None and each is best.tried else "", tone="good")),
        (doc.wrapped("plan"), lambda each: each.text),
        (doc.right("step predicted" if predicted else "step"), lambda each: format_seconds(each.score.seconds)),
        (doc.right("memory predicted" if predicted else "memory"), lambda each: each.score.needs.text),
        (doc.right(search.level), above) if predicted else None,
        marked=lambda each: best is not None and each is best.tried,
    )
    lead = f"as predicted at level {_SCORED}; what is {search.level} has its numbers beside them" if predicted else ""
    return doc.section("Faster or smaller: the front", front, lead=lead)


def _floor(floor: Floor, best: Finalist) -> str:
    text = f"No plan is faster than {format_seconds(floor.seconds)}: compute at peak {format_seconds(floor.compute)}, "
    text += f"memory read and written once {format_seconds(floor.memory)}."
    if floor.seconds:
        text += f" The best takes {format_times(best.seconds / floor.seconds)} the floor."
    return text


def _why_nots(rows: Sequence[WhyNot]) -> tuple[doc.Block, ...]:
    """Return a table of decisions that would change the result; those that would not are listed below."""
    same = [f"{each.other} instead of {each.chosen}" for each in rows if not each.seconds and not each.bytes]
    worse = sorted((each for each in rows if each.seconds or each.bytes), key=lambda each: each.seconds)

    def longer(each: WhyNot) -> doc.Piece:
        return doc.words(doc.signed_text(each.seconds, format_seconds), tone="bad" * (each.seconds > 0))

    other = doc.Rows(worse, noun="decision").table(
        (doc.wrapped("instead of"), lambda each: each.chosen),
        (doc.wrapped("this"), lambda each: each.other),
        (doc.right("step"), longer),
        (doc.right("memory"), lambda each: doc.signed_text(each.bytes, format_bytes)),
        (doc.wrapped("because"), lambda each: each.reason),
    )
    return doc.listed(other if worse else None, doc.notes(f"The same result: {'; '.join(same)}." if same else ""))


_WIDE, _HIGH, _LEFT, _TOP = 420.0, 240.0, 70.0, 10.0


@picture.register
def sweep_picture(sweep: Sweep) -> Picture:
    """Return step time against memory: a square per row; the front is dark, named and joined by a line."""
    rows = [each for each in sweep.rows if each.time is not None and each.memory is not None]
    longest, most = max((r.time or 0.0 for r in rows), default=1.0), max((r.memory or 0.0 for r in rows), default=1.0)

    def at(row: SweepRow) -> Point:
        return _LEFT + _WIDE * (row.time or 0.0) / longest, _TOP + _HIGH * (1 - (row.memory or 0.0) / most)

    corner = ((_LEFT, _TOP), (_LEFT, _TOP + _HIGH), (_LEFT + _WIDE, _TOP + _HIGH))
    shapes: list[Shape] = [Lines(lines=(corner,), stroke="ink")]
    front = [each for each in sweep.pareto if each in rows]
    if len(front) > 1:
        shapes.append(Lines(lines=(tuple(map(at, front)),), stroke="ink", dash=2))
    for row in sorted(rows, key=lambda row: row in front):  # the front lies over the others
        x, y = at(row)
        shapes.append(Rects(x=(x - 4,), y=(y - 4,), wide=8, high=8, fill="work" if row in front else "muted"))
    ends = (_LEFT + _WIDE, _TOP + _HIGH + 12), (_LEFT - 6, _TOP)
    shapes.append(Labels(at=ends, texts=(f"step {format_seconds(longest)}", format_bytes(most)), align="end"))
    if front:
        places = tuple((x + 8, y - 8) for x, y in map(at, front))
        shapes.append(Labels(at=places, texts=tuple(row.label for row in front)))
    plans = "; ".join(f"{r.label}: {format_seconds(r.time)}, {format_bytes(r.memory)}" for r in rows)
    return Picture(
        width=_LEFT + _WIDE + 180,
        height=_TOP + _HIGH + 24,
        shapes=tuple(shapes),
        title="step time against memory on a device",
        alt=f"Step time against memory: {plans or 'nothing is known'}.",
        notes=("dark and named: the Pareto front (nothing is both faster and smaller)",) if rows else (),
    )
