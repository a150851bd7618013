"""A search's answer: the best plan, its runners-up, why not otherwise, the front, and what fell out; and the front as a
picture.
"""

from __future__ import annotations

from shardviz.records.amounts import format_bytes, format_seconds, plural
from shardviz.study.answer import Floor, Found, Search, Tried, WhyNot
from shardviz.study.scoring import Score
from shardviz.view.document import Block, Column, Document, Inline, Section, Table, document, notes, row, words
from shardviz.view.picture import Labels, Lines, Picture, Rects, Shape, picture, shortened

_MOST_FRONT, _MOST_REASONS = 8, 8
_WIDE, _HIGH, _LEFT, _TOP = 420.0, 240.0, 70.0, 10.0


@document.register
def search_document(found: Search) -> Document:
    """The offers as a table, then why not otherwise, the front and what fell out."""
    best = found.best
    said = [f"{plural(len(found.tried), 'candidate')} tried in {format_seconds(found.seconds)}"]
    if found.fallen:
        said.append(f"{len(found.fallen)} fell out")
    title = (words(found.program, strong=True), words(f"on {found.target}: {', '.join(said)}", quiet=True))
    blocks: list[Block] = []
    if best is None:
        blocks += notes(_nothing(found))
    else:
        blocks += notes(_headline(found, best))
        blocks.append(_offers(found))
        if found.floor is not None:
            blocks += notes(_floor(found.floor, best))
    blocks += notes(found.note)
    if found.why_not:
        blocks.append(Section(title="Why not otherwise", blocks=_why_nots(found.why_not)))
    if len(found.front) > 1:
        blocks.append(Section(title="Faster or smaller: the front", blocks=(_front(found), *notes(_ESTIMATED))))
    if found.fallen:
        blocks.append(Section(title="What fell out", blocks=(_fallen(found),)))
    return Document(title=title, blocks=tuple(blocks), mesh=None if best is None else best.plan.mesh)


def _nothing(found: Search) -> str:
    """Why no plan is offered, and what is known nevertheless."""
    leading = found.leading
    if leading is None:
        return "No plan was found."
    cost = leading.cost
    return (
        "No plan is offered: the target's compiler has not accepted any as fitting. The best by its estimate: "
        f"{leading.text}. A step would take {_between(cost.lower, cost.step.upper)}; {leading.verdict}."
    )


def _headline(found: Search, best: Found) -> str:
    text = f"Best: {best.text}. A step takes {_between(best.cost.lower, best.cost.step.upper)}; {best.verdict}."
    if found.given is not None and found.given is not best.tried:
        before, after = found.given.score.seconds, best.score.seconds
        text += (
            f" The plan that it began with takes {before / after:.3g} times as long, before any compiler."
            if after
            else ""
        )
    return text


def _between(lower: float, upper: float) -> str:
    return f"{format_seconds(lower)} to {format_seconds(upper)}"


def _offers(found: Search) -> Table:
    columns = (
        Column(""),
        Column("plan", wrap=True),
        *(Column("step, overlapped", right=True), Column("not overlapped", right=True), Column("memory", right=True)),
        Column("level"),
        Column("accepted"),
    )
    rows = tuple(
        row(
            words("★ best" if each is found.best else "", tone="good"),
            words(each.text),
            words(format_seconds(each.cost.lower)),
            words(format_seconds(each.cost.step.upper)),
            _memory(each),
            words(each.report.level),
            _accepted(each),
            marked=each is found.best,
        )
        for each in found.offers
    )
    return Table(columns=columns, rows=rows, first=len(rows), most=len(rows), noun="plan")


def _memory(each: Found) -> Inline:
    if each.report.memory is not None:
        return words(format_bytes(each.report.memory.takes))
    return words(f"about {format_bytes(each.score.needed)}", tip=each.verdict)


def _accepted(each: Found) -> Inline:
    if each.accepted:
        return words("yes", tone="good", tip=each.verdict)
    return words("not asked", tone="bad", tip=each.verdict)


def _floor(floor: Floor, best: Found) -> str:
    text = f"No plan is faster than {format_seconds(floor.seconds)}: compute at peak {format_seconds(floor.compute)}, "
    text += f"memory read and written once {format_seconds(floor.memory)}."
    text += f" What the best plan moves would take {format_seconds(floor.links)} on all links of a chip at once."
    if floor.seconds:
        low, high = best.cost.lower / floor.seconds, best.cost.step.upper / floor.seconds
        text += f" The best takes {low:.2f} to {high:.2f} times the floor."
    return text


def _why_nots(rows: tuple[WhyNot, ...]) -> tuple[Block, ...]:
    """What would be otherwise as a table; what would be the same in a sentence below it."""
    same = [f"{each.other} in place of {each.chosen}" for each in rows if not each.seconds and not each.bytes]
    other = tuple(each for each in rows if each.seconds or each.bytes)
    blocks: list[Block] = [_why_not(other)] if other else []
    if same:
        blocks += notes(f"No different: {'; '.join(same)}.")
    return tuple(blocks)


def _why_not(rows: tuple[WhyNot, ...]) -> Table:
    columns = (
        *(Column("instead of", wrap=True), Column("this", wrap=True)),
        *(Column("step", right=True), Column("memory", right=True), Column("because", wrap=True)),
    )
    made = tuple(
        row(
            words(each.chosen),
            words(each.other),
            words(_more(each.seconds, format_seconds), tone="bad" if each.seconds > 0 else ""),
            words(_more(each.bytes, format_bytes)),
            words(each.reason),
        )
        for each in sorted(rows, key=lambda w: w.seconds)
    )
    return Table(columns=columns, rows=made, first=len(made), most=len(made), noun="decision")


def _more(amount: float, form: object) -> str:
    assert callable(form)
    return f"{'+' if amount >= 0 else '-'}{form(abs(amount))}"


_ESTIMATED = (
    "Memory is an estimate of what a device's main memory must hold, before any compiler plans it: for the gallery's "
    "programs it is at most a quarter off what v5p's compiler plans. What a TPU computes and uses up in its chip's own "
    "fast memory (VMEM) is not counted."
)


def _front(found: Search) -> Table:
    columns = (Column("plan", wrap=True), Column("step, between", right=True), Column("memory, about", right=True))
    rows = tuple(
        row(words(each.text), words(_between(each.score.lower, each.score.upper)), words(_about(each.score)))
        for each in found.front
    )
    return Table(columns=columns, rows=rows, first=_MOST_FRONT, most=len(rows), noun="plan")


def _about(score: Score) -> str:
    return format_bytes(score.needed) + (" (too much)" if score.fits is False else "")


def _fallen(found: Search) -> Table:
    reasons = sorted(found.reasons.items(), key=lambda item: -item[1])
    rows = tuple(row(words(str(count)), words(why)) for why, count in reasons)
    columns = (Column("how many", right=True), Column("why", wrap=True))
    return Table(columns=columns, rows=rows, first=_MOST_REASONS, most=len(rows), noun="reason")


@picture.register
def _(found: Search, kind: str = "") -> Picture:
    """Step time against memory: a square a candidate, the front joined by a line, the chip's memory as a bound."""
    front = found.front
    shown = _shown(found)
    usable = next((t.score.usable for t in shown if t.score.usable), None)
    longest = max((t.score.seconds for t in shown), default=1.0)
    most = max((t.score.needed for t in shown), default=1.0)

    def at(seconds: float, nbytes: float) -> tuple[float, float]:
        return _LEFT + _WIDE * seconds / longest, _TOP + _HIGH * (1 - nbytes / most)

    corner = ((_LEFT, _TOP), (_LEFT, _TOP + _HIGH), (_LEFT + _WIDE, _TOP + _HIGH))
    shapes: list[Shape] = [Lines(lines=(corner,), stroke="ink")]
    if usable is not None and usable <= most:
        y = at(0.0, usable)[1]
        shapes.append(Lines(lines=(((_LEFT, y), (_LEFT + _WIDE, y)),), stroke="ink", dash=1))
        bound = f"{format_bytes(usable)} on a device"
        shapes.append(Labels(at=((_LEFT + _WIDE + 6, y),), texts=(bound,), size="small"))
    if len(front) > 1:
        joined = tuple(at(t.score.seconds, t.score.needed) for t in front if t in shown)
        shapes.append(Lines(lines=(joined,), stroke="ink", dash=2))
    for each in sorted(shown, key=lambda t: t in front):  # the front lies over the others
        x, y = at(each.score.seconds, each.score.needed)
        fill = "work" if each in front else "muted"
        shapes.append(Rects(x=(x - 4,), y=(y - 4,), wide=8, high=8, fill=fill, tip=_told(each)))
    best = found.best
    if best is not None:
        x, y = at(best.score.seconds, best.score.needed)
        shapes.append(Rects(x=(x - 7,), y=(y - 7,), wide=14, high=14, fill=None, stroke="ink"))
        shapes.append(Labels(at=((x + 12, y - 10),), texts=(shortened(best.text, 60),), bold=True, halo=True))
    ends = (format_seconds(longest), format_bytes(most))
    shapes.append(Labels(at=((_LEFT + _WIDE, _TOP + _HIGH + 12),), texts=(f"step {ends[0]}",), align="end"))
    shapes.append(Labels(at=((_LEFT - 6, _TOP),), texts=(ends[1],), align="end"))
    hidden = len(found.tried) - len(shown)
    said = "; ".join(_told(t) for t in front)
    return Picture(
        width=_LEFT + _WIDE + 180,
        height=_TOP + _HIGH + 24,
        shapes=tuple(shapes),
        title="step time (between its bounds) against memory on a device, estimated",
        alt=f"Step time against memory of {plural(len(found.tried), 'candidate')}. The front: {said or 'none'}.",
        notes=(
            "dark: the front, than which nothing is both faster and smaller; framed: the best",
            *((f"{plural(hidden, 'candidate')} farther off left out",) if hidden else ()),
        ),
    )


def _shown(found: Search) -> list[Tried]:
    """The candidates near the front: the others would press it into a corner."""
    front = found.front
    if not front:
        return []
    slow = 3 * max(front[0].score.seconds, found.best.score.seconds if found.best else 0.0)
    large = max(3 * front[0].score.needed, 2 * (front[0].score.usable or 0.0))
    return [t for t in found.tried if t.score.seconds <= slow and t.score.needed <= large]


def _told(each: Tried) -> str:
    score = each.score
    return f"{each.text}: {_between(score.lower, score.upper)}, about {format_bytes(score.needed)}"
