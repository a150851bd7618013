"""The open card and the one that it is compared with: everything, one pane's numbers, the lines, the machine's links.

Over a machine's picture stands where links are busy for longer or for less time, and whether chips hold more or less.
Red and an arrow upwards is more, green and an arrow downwards less. A link is busy with what moves along the mesh axis
that steps along it. So two plans can be compared link by link, be their meshes the same or not, as long as the machine
is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from shardviz.costs.step_cost import StepCost
from shardviz.explorer.cards import Deck, Known, equal_level
from shardviz.judge.comparison import Comparison, compare
from shardviz.judge.report import Report
from shardviz.notation import Axis, axis_name
from shardviz.records import Collective
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.records.sums import CollectiveTotal
from shardviz.view.cards import signed
from shardviz.view.comparison import amounts_table, comparison_document
from shardviz.view.document import Document, Inline, Piece, axes, paragraph, right, section, table, words
from shardviz.view.machine import Floor, box, floor
from shardviz.view.picture import Key, Lines, Marks, Picture, Point, Shape


def _level(deck: Deck) -> str:
    """The highest level that both cards have reached; empty where there is nothing to compare."""
    return "" if deck.now.id == deck.other.id else equal_level(deck.now.known, deck.other.known)


def compared(deck: Deck) -> Comparison | None:
    """The comparison at the highest level that both cards have reached; None where there is nothing to compare."""
    now, other, level = deck.now, deck.other, _level(deck)
    if not level:
        return None
    before, after = other.known.reports[level], now.known.reports[level]
    here, there = now.known.cost(level), other.known.cost(level)
    if here is not None and there is not None and here.machine == there.machine:
        return compare((other.name, before), (now.name, after), target=here.machine.text)
    before, after = replace(before, target="cpu"), replace(after, target="cpu")  # which has no times
    return compare((other.name, before), (now.name, after))


def difference_pane(deck: Deck) -> Document:
    """All that is different: numbers, specs and collectives, by meaning."""
    both = compared(deck)
    if both is None:
        return Document(blocks=(paragraph(_nothing(deck), quiet=True, name="difference-none"),))
    title = words(f"{deck.now.name} compared with {deck.other.name}", strong=True)
    return replace(comparison_document(both), title=(title, words(f"level {both.level}", quiet=True)), lead=())


def _nothing(deck: Deck) -> str:
    if len(deck.cards) < 2:
        return "There is one plan. After a change or a preset, this shows the difference."
    return (
        f"{deck.other.name} is the plan that others are compared with: open another card, or compare with another one."
    )


def with_difference(pane: Document, deck: Deck, groups: Collection[str]) -> Document:
    """A place's document, with what is different in the numbers that it is about.

    Args:
        pane: the document.
        deck: the cards.
        groups: of the numbers: `work`, `collectives`, `memory`, `step`.
    """
    both = compared(deck)
    if both is None or not any(a.group in groups for a in both.amounts):
        return pane
    lead = words(f"{deck.now.name}, at level {both.level}", quiet=True)
    amounts = replace(amounts_table(both, groups), name="difference-amounts")
    here = section(f"Compared with {deck.other.name}", amounts, lead=lead, name="difference-here")
    return replace(pane, blocks=(*pane.blocks, here))


# What each source line costs more, or less.

Line = tuple[str, int]
Moved = tuple[str, tuple[Axis, ...] | None]

_LEAST = 0.0005  # of the whole step, or of all that moves
_SHARE = 0.01  # of what the line costs on either side


@dataclass(frozen=True, kw_only=True)
class LineDifference:
    """How the lines of a program differ between two plans.

    Attributes:
        name: of the card that is compared with.
        level: at which they are compared.
        timed: whether the amounts are seconds; else operand bytes.
        more: (file, line) → seconds or bytes more than there, of lines where that is worth saying.
        new: (file, line) → the kinds and axes of collectives that are not there.
        gone: (file, line) → those that are there only.
    """

    name: str
    level: str
    timed: bool
    more: Mapping[Line, float] = field(default_factory=dict)
    new: Mapping[Line, frozenset[Moved]] = field(default_factory=dict)
    gone: Mapping[Line, frozenset[Moved]] = field(default_factory=dict)

    def said(self, at: Line) -> Piece:
        """`▲ 17.4 s`, `▼ 12 GB`; empty words where the line costs the same."""
        amount = self.more.get(at, 0.0)
        if not amount:
            return words("")
        text = format_seconds(abs(amount)) if self.timed else format_bytes(abs(amount))
        than = f"{'more' if amount > 0 else 'less'} than on {self.name} in a step, at level {self.level}"
        return signed(amount, text, of=f"{text} {than}: compute and communication")


def line_difference(deck: Deck) -> LineDifference | None:
    """The open card's lines against those of the card that is compared with; None where there is no other."""
    now, other, level = deck.now.known, deck.other.known, _level(deck)
    if not level:
        return None
    timed = now.cost(level) is not None and other.cost(level) is not None
    ours, theirs = _amounts(now, level, timed), _amounts(other, level, timed)
    least = _LEAST * max(sum(ours.values()), sum(theirs.values()))
    both = {at: (ours.get(at, 0.0), theirs.get(at, 0.0)) for at in {*ours, *theirs}}
    more = {at: one - two for at, (one, two) in both.items() if abs(one - two) > max(least, _SHARE * max(one, two))}
    mine, its = _moved(now.reports[level]), _moved(other.reports[level])
    none: frozenset[Moved] = frozenset()
    return LineDifference(
        name=deck.other.name,
        level=level,
        timed=timed,
        more=more,
        new={at: kinds for at in mine if (kinds := mine[at] - its.get(at, none))},
        gone={at: kinds for at in its if (kinds := its[at] - mine.get(at, none))},
    )


def _amounts(known: Known, level: str, timed: bool) -> dict[Line, float]:
    """Seconds of each line, what it computes and what it moves; or its operand bytes."""
    cost: StepCost | None = known.cost(level) if timed else None
    sums: dict[Line, float] = {} if cost is None else dict(cost.compute_by_line())
    for at, each in _placed(known.reports[level].collectives if cost is None else cost.partitioned):
        sums[at] = sums.get(at, 0.0) + (each.assumed_bytes if cost is None else each.assumed_seconds)
    return sums


def _moved(report: Report) -> dict[Line, frozenset[Moved]]:
    kinds: dict[Line, frozenset[Moved]] = {}
    for at, each in _placed(report.collectives):
        kinds[at] = kinds.get(at, frozenset()) | {(each.kind, each.axes)}
    return kinds


def _placed(collectives: Collection[Collective]) -> Iterator[tuple[Line, Collective]]:
    return (((each.source.file, each.source.line), each) for each in collectives if each.source is not None)


# The machine's links and chips.

MOST_MARKS = 48
"""Arrows on links, of which more are not drawn: they stand on every other link then, and so on."""
LEAST = 0.005
"""The least difference that is drawn, of the time that all links are busy, or of the memory."""
_UNDER, _BETWEEN, _OVER = -1, 1, 3  # layers: below the links, below the tiles, above them

Between = tuple[str | None, str | None]


def costs_of(deck: Deck) -> tuple[StepCost, StepCost] | None:
    """What the open card and the other cost at the highest level that both have reached; None where not known."""
    level = _level(deck)
    here, there = (deck.now.known.cost(level), deck.other.known.cost(level)) if level else (None, None)
    return None if here is None or there is None else (here, there)


def with_links(pane: Document, deck: Deck) -> Document:
    """The machine's document, with how long its links are busy along each mesh axis here and on the other card."""
    costs, other = costs_of(deck), deck.other
    if costs is None:
        return pane
    here, there = ({total.axes: total for total in cost.by("axes")} for cost in costs)
    links = table(
        dict.fromkeys((*here, *there)),
        ("over", lambda over: axes(over)),
        (right(deck.now.name), lambda over: _busy_words(here.get(over))),
        (right(other.name), lambda over: _busy_words(there.get(over))),
        (right(), lambda over: _longer(_seconds(here.get(over)) - _seconds(there.get(over)))),
        noun="axis",
        folds="never",
        name="links-difference",
    )
    what = "communication along each mesh axis, and how long its links are busy"
    own = {(path.name, str(path)) for path in costs[0].placement.paths}
    lines = tuple(
        paragraph(axes((path.name,)), words(f"uses {path} there", quiet=True))
        for path in costs[1].placement.paths
        if path.size > 1 and (path.name, str(path)) not in own
    )
    none = paragraph("Neither plan communicates between devices.", quiet=True)
    lead = words(f"{what}, at level {_level(deck)}", quiet=True)
    busy = section(f"Compared with {other.name}", links if links.rows else none, *lines, lead=lead, name="links-here")
    return replace(pane, blocks=(*pane.blocks, busy))


def _seconds(total: CollectiveTotal | None) -> float:
    return (total.seconds if total is not None else 0.0) or 0.0


def _busy_words(total: CollectiveTotal | None) -> Inline:
    if total is None:
        return words("nothing", quiet=True)
    return (words(total.bytes_text), words(format_seconds(_seconds(total)), strong=True))


def _longer(more: float) -> Piece:
    text = format_seconds(abs(more))
    return words("the same", quiet=True) if text == "0 s" else signed(more, text, of="seconds of a step on the links")


def busy_along(cost: StepCost) -> dict[str, float]:
    """Mesh axis → seconds in a step for which the links along it are busy."""
    busy: dict[str, float] = {}
    for total in cost.by("axes"):
        for name in dict.fromkeys(axis_name(axis) for axis in total.axes or ()):
            busy[name] = busy.get(name, 0.0) + _seconds(total)
    return busy


def machine_difference(here: StepCost, there: StepCost) -> Picture | None:
    """What is different on the machine's links and chips.

    Args:
        here: a step on a machine, of which the picture under it is.
        there: another on the same machine.

    Returns:
        The picture that lies over `machine_picture(here.placement)`; None where nothing is different that could be
        drawn, or where the machines are others.
    """
    if here.machine != there.machine or here.machine.chip.kind == "cpu":
        return None
    stand = floor(here.placement)
    shapes: list[Shape] = []
    keys: list[Key] = []
    busy = busy_along(here), busy_along(there)
    least = LEAST * max(*(sum(each.values()) for each in busy), 1e-12)
    groups = _by_axes(stand, floor(there.placement))
    longer = {over: busy[0].get(over[0], 0.0) - busy[1].get(over[1], 0.0) for over in groups}  # type: ignore[arg-type]
    drawn = {over: change for over, change in longer.items() if abs(change) >= least}
    strongest = max(map(abs, drawn.values()), default=1.0)
    for over, change in sorted(drawn.items(), key=lambda item: -abs(item[1])):
        lines, role = tuple(line for line, _ in groups[over]), _role(change)
        look = {"stroke": role, "strength": 0.4, "width": 4 + 6 * abs(change) / strongest}
        shapes.append(Lines(lines=lines, name=f"links {over}", layer=_UNDER, **look))  # type: ignore[arg-type]
        whole = [line for line, stub in groups[over] if not stub] or lines
        some = whole[:: -(-len(whole) // MOST_MARKS)]
        middles = tuple((sum(x for x, _ in line) / len(line), sum(y for _, y in line) / len(line)) for line in some)
        shapes.append(Marks(at=middles, mark=_mark(change), size=8, fill=role, stroke="ground", layer=_BETWEEN))
        keys.append(_key(f"{_links(over)}: busy", change, format_seconds, f"links {over}"))
    seen = {axis for over in groups for axis in over}
    for axis in dict.fromkeys((*busy[0], *busy[1])):
        change = busy[0].get(axis, 0.0) - busy[1].get(axis, 0.0)
        if axis not in seen and abs(change) >= least:  # a switch's, a network's, or inside a chip
            keys.append(_key(f"links of {axis}: busy", change, format_seconds))
    holds = sum(here.needs.parts.values()), sum(there.needs.parts.values())
    change = holds[0] - holds[1]
    if here.needs.complete == there.needs.complete and abs(change) >= LEAST * max(*holds, 1.0):
        wide, high = (side / 2 + 1 for side in stand.tile)
        boxes = tuple(box(n.x - wide, n.y - high, 2 * wide, 2 * high) for n in stand.nodes)
        shapes.append(Lines(lines=boxes, closed=True, stroke=_role(change), width=1.6, name="chips", layer=_OVER))
        chip = "chip" if here.machine.chip.kind == "tpu" else "GPU"
        key = _key(f"each {chip}:", change, format_bytes, "chips")
        keys.append(replace(key, text=f"{key.text} of memory"))
    if not keys:
        return None
    return Picture(width=stand.width, height=stand.height, shapes=tuple(shapes), axes=here.mesh.names, keys=tuple(keys))


def _role(change: float) -> str:
    return "more" if change > 0 else "less"


def _mark(change: float) -> str:
    return "up" if change > 0 else "down"


def _key(text: str, change: float, form: Callable[[float], str], name: str = "") -> Key:
    words_ = f"{text} {form(abs(change))} {_role(change)}"
    return Key(text=words_, stroke=_role(change), mark=_mark(change), name=name)


def _links(over: Between) -> str:
    here, there = over
    if here == there:
        return f"links along {here}"
    return f"links along {here or 'no one axis'}, there along {there or 'no one axis'}"


def _by_axes(stand: Floor, other: Floor) -> dict[Between, list[tuple[tuple[Point, ...], bool]]]:
    """The links by the mesh axes that step along them here and there: where each is drawn, and whether as a stub."""
    along = dict(_links_of(other))
    groups: dict[Between, list[tuple[tuple[Point, ...], bool]]] = {}
    for link, axis in _links_of(stand):
        if axis is not None or along.get(link) is not None:
            groups.setdefault((axis, along.get(link)), []).append(_drawn(stand, link))
    return groups


def _links_of(stand: Floor) -> Iterator[tuple[Hashable, str | None]]:
    """Every link that is drawn, by its nodes or by its node and the way that its stub points, with its mesh axis."""
    for axis, pairs in stand.links.items():
        yield from ((tuple(sorted(pair)), axis) for pair in pairs)
    for axis, stubs in stand.wraps.items():
        yield from ((stub, axis) for stub in stubs)


def _drawn(stand: Floor, link: Hashable) -> tuple[tuple[Point, ...], bool]:
    first, *rest = link  # type: ignore[misc]
    node = stand.nodes[first]
    if len(rest) == 1:
        end = stand.nodes[rest[0]]
        return ((node.x, node.y), (end.x, end.y)), False
    dx, dy = rest
    reach = max(stand.tile) / 2 + 7
    return ((node.x, node.y), (node.x + dx * reach, node.y + dy * reach)), True
