"""The explorer of a dry run, or of programs that share arrays: a strip with the programs, and the explorer of the open
one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import anywidget
import ipywidgets
import traitlets

from shardviz.costs.machine import Machine
from shardviz.errors import ShardvizError
from shardviz.explorer.background import Steps
from shardviz.explorer.cards import BASELINE
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from shardviz.records.amounts import format_bytes, format_seconds, plural
from shardviz.records.runs import RunProgram, RunRecord
from shardviz.records.together import ProgramCost
from shardviz.runs.run import Run, RunStep
from shardviz.runs.sets import SetMember
from shardviz.runs.together import Together
from shardviz.view.run import held_text, is_large

_STATIC = Path(__file__).with_name("static") / "run"
_MOST_MOVES = 3


class Strip(anywidget.AnyWidget):
    """The programs of a run, each with the time of its calls and a device's memory meanwhile, the memory at the peak by
    what holds it, and the run's transfers. `at` is the open program, and `note` says which plans the numbers are of,
    unless each has its own."""

    _esm = _STATIC / "strip.js"
    _css = _STATIC / "strip.css"
    blocks = traitlets.List().tag(sync=True)
    limit = traitlets.Float(0.0).tag(sync=True)
    limit_words = traitlets.Unicode().tag(sync=True)
    held = traitlets.Unicode().tag(sync=True)
    moves = traitlets.List().tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)
    at = traitlets.Int().tag(sync=True)


class RunExplorer(ipywidgets.VBox):
    """The programs of a run or of a set, and the `Explorer` of one of them. Each explorer also has the wishes and costs
    of the programs that share arrays.

    Attributes:
        run: the run, or the set of programs that share arrays.
        together: the programs that share arrays; None if there are none.
        explorer: the explorer that is open.
    """

    def __init__(self, run: Run | Together, at: int, make: Callable[[RunStep | SetMember], Explorer]):
        self.run, self._make = run, make
        self._explorers: dict[int, Explorer] = {}
        if isinstance(run, Run):
            self.together, self.members, moves = _together(run), run.steps, moves_of(run.record)
        else:
            self.together, self.members, moves = run, run.sides, []
        self._machines: dict[int, Machine] = {}
        self._own = run.record if isinstance(run, Run) else run
        self._elsewhere: dict[Machine | None, _Elsewhere] = {}
        self._estimating: Machine | Literal[False] | None = False
        held = held_text(self._own) if isinstance(self._own, RunRecord) else ""
        self.strip = Strip(moves=moves, held=held, at=at, **self._drawn({}, self._own))
        super().__init__()
        self.strip.observe(lambda change: self.choose(change["new"]), "at")
        self.choose(at)

    @property
    def explorer(self) -> Explorer:
        return self._explorers[self.strip.at]

    def choose(self, program: int | str) -> None:
        """Open a program by its name or its place.

        Raises:
            ShardvizError: if there is no such program, or it is not one that shardviz can explore.
        """
        at = program if isinstance(program, int) else self.members.index(self.run[program])
        member = self.members[at]
        if at not in self._explorers:
            self._explorers[at] = self._make(member)
            state = self._explorers[at].state
            self._machines[at] = state.now.deck.now.results.machine
            sides = () if self.together is None else self.together.sides
            side = [s for s in sides if s is member] or [s for s in sides if s.program is member.program]
            if self.together is not None and side:
                state.background.share(self.together, side[0].name)
            state.subscribe(lambda changed: self._follow(at, changed))
        if self.children:
            _carry(self.children[1].state, self._explorers[at].state)
        self.strip.at = at
        self.children = (self.strip, self._explorers[at])
        self._follow(at, frozenset({"sharing"}))

    def _drawn(
        self, costs: Mapping[str, ProgramCost], there: RunRecord | Together, known: int | None = None
    ) -> dict[str, Any]:
        """Return the strip's blocks and its limit: of a run's record, or of a set, with other costs of some of the
        programs that share arrays. Of a set the costs of the first `known` programs are known, or of all."""
        if isinstance(there, Together):
            return _strip(rows_of_set(there, costs, known), there.usable)
        by_step: dict[int, ProgramCost] = {}
        for side in () if self.together is None else self.together.sides:
            if side.name in costs:
                same = (number for number, step in enumerate(self.members) if step.program is side.program)
                by_step |= dict.fromkeys(same, costs[side.name])
        return _strip(rows_of(there, self.run.steps if isinstance(self.run, Run) else (), by_step), there.usable)

    def _on(self, machine: Machine | None) -> _Elsewhere:
        """Return what is known of the programs on another machine; at first that is nothing."""
        if machine not in self._elsewhere:
            if isinstance(self._own, Together):
                there = self._own.on(machine)
            else:
                programs = tuple(step.recorded for step in self.run) if isinstance(self.run, Run) else ()
                there = replace(self._own, programs=programs, usable=machine and machine.usable_bytes)
            self._elsewhere[machine] = _Elsewhere(there)
        return self._elsewhere[machine]

    def _estimate(self, machine: Machine | None) -> Steps:
        """Estimate the programs on another machine, one after the other, and show each in the strip."""
        self._estimating = machine
        try:
            while (there := self._on(machine)).known < len(self.members):
                member, on = self.members[there.known], there.of
                if isinstance(member, RunStep) and isinstance(on, RunRecord):
                    programs = list(on.programs)
                    programs[there.known] = member.record_on(machine)
                    on = replace(on, programs=tuple(programs))
                elif isinstance(member, SetMember) and isinstance(on, Together):
                    on.cost(member, member.plan)
                self._elsewhere[machine] = _Elsewhere(on, there.known + 1)
                self._follow(self.strip.at, frozenset({"sharing"}))
                yield
        finally:
            self._estimating = False

    def _follow(self, at: int, changed: frozenset[str]) -> None:
        """Show the costs of every program on the open card's machine, with the shared arrays sharded as on this card.
        For the initial card, and while these costs are unknown, show those under each program's own plan. Costs on
        another machine are estimated in the background."""
        if at != self.strip.at or not changed & {"sharing", "deck"}:
            return
        state = self._explorers[at].state
        now, count = state.now, len(self.members)
        card, name = now.deck.now, self.members[at].name
        machine = None if card.results.machine.chip.kind == "cpu" else card.results.machine
        moved = card.results.machine != self._machines[at]
        there = self._on(machine) if moved else _Elsewhere(self._own, count)
        if there.known < count and self._estimating != machine:
            state.background.begin("strip", self._estimate(machine))
            there = self._on(machine)  # without an event loop all are known by now
        programs = now.sharing.programs
        is_current = programs is not None and programs.machine == machine and there.known == count
        costs = now.sharing.costs.get(card.plan) if is_current and card.id != BASELINE else None
        where = f" on {machine.text if machine else 'no known machine'}" if moved else ""
        alike = f"shared arrays as on the card {card.name!r} of {name}" if costs else "every program" if moved else ""
        progress = f"; {there.known} of {count} are estimated" if there.known < count else ""
        drawn = self._drawn({cost.program: cost for cost in costs or ()}, there.of, there.known)
        with self.strip.hold_sync():
            self.strip.note = f"{alike}{where}{progress}"
            for trait, value in drawn.items():
                setattr(self.strip, trait, value)

    def close(self) -> None:
        """Close every explorer that was opened."""
        for explorer in self._explorers.values():
            explorer.close()
        self.strip.close()
        super().close()

    def __repr__(self) -> str:
        return self.run.text()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return {**(super()._repr_mimebundle_(**options) or {}), "text/plain": self.run.text()}


@dataclass(frozen=True)
class _Elsewhere:
    """The programs on another machine, and how many of them are estimated."""

    of: RunRecord | Together
    known: int = 0


def _together(run: Run) -> Together | None:
    try:
        return run.together()
    except ShardvizError:  # no two programs share an array
        return None


def _carry(before: ExplorerState, after: ExplorerState) -> None:
    """Add the open card's sharding of the shared arrays as a card of another program."""
    sharing, now, card = before.now.sharing, after.now, before.deck.now
    if before is after or card.id == BASELINE or sharing.programs is None or now.sharing.programs is None:
        return
    programs = sharing.programs.with_plan(sharing.name, card.plan)
    name = f"as {sharing.name}: {card.name}"
    old = next((c for c in now.deck.cards if c.name == name and c.id != now.deck.at), None)
    try:
        plan = programs.plan_as(now.sharing.programs[now.sharing.name], sharing.name)
        results = after.asking.results(plan, now.machine)
        if old is not None:
            after.put(deck=now.deck.filled(old.id, plan, results, note=old.note))
        elif all(c.plan != plan for c in now.deck.cards):
            after.put(deck=now.deck.added(plan, results, name=name)[0])
    except ShardvizError as error:
        after.refuse(error, "card")


_Row = tuple[str, str, str, float, float, bool]
"""A program: its name, label and tip, its seconds in all calls, the bytes that a device needs, whether it opens."""


def rows_of(record: RunRecord, steps: Sequence[RunStep], costs: Mapping[int, ProgramCost]) -> Iterator[_Row]:
    """Yield the programs of a run, each with its own cost, or with that in `costs`."""
    for number, (program, step) in enumerate(zip(record.programs, steps, strict=True)):
        needed, why_not = max(map(record.needs_at, (c for c in record.calls if c.program == number)), default=0.0), ""
        if number in costs:
            other = costs[number]
            needed += (other.needs_bytes or 0.0) - (program.needs_bytes or 0.0)
            program = replace(program, seconds=other.seconds)
            why_not = other.why_not
        tip = why_not or step.why_not or _tip(program, needed)
        took = (program.seconds or 0.0) * program.calls
        yield program.name, label_of(program), tip, took, needed, step.program is not None


def rows_of_set(programs: Together, costs: Mapping[str, ProgramCost], known: int | None = None) -> Iterator[_Row]:
    """Yield the programs of a set, each under its own plan, or with the cost in `costs`; those after the first `known`
    without a cost."""
    for number, side in enumerate(programs.sides):
        cost = costs.get(side.name)
        if cost is None and (known is None or number < known):
            cost = programs.cost(side, side.plan)
        elif cost is None:
            cost = ProgramCost(program=side.name)
        took, needed = "" if cost.seconds is None else format_seconds(cost.seconds), cost.needs_bytes or 0.0
        label = took if side.calls is None or not took else f"{side.calls:,.10g} × {took}"
        tip = cost.why_not or f"{side.name}: {label}; a device needs {format_bytes(needed)} (level propagated)"
        yield side.name, label, tip, (cost.seconds or 0.0) * (side.calls or 1.0), needed, True


def _strip(programs: Iterable[_Row], usable: float | None) -> dict[str, Any]:
    """Return each program as a block of the strip, and the machine's limit, as a share of the highest bar."""
    rows = list(programs)
    top = max([usable or 0.0, *(needed for *_, needed, _ in rows), 1.0])
    total = sum(took for _, _, _, took, _, _ in rows)
    blocks = [
        {
            "name": name,
            "label": label,
            "tip": tip,
            "share": round(100 * took / total, 3) if total else 1.0,
            "height": needed / top,
            "over": usable is not None and needed > usable,
            "opens": opens,
        }
        for name, label, tip, took, needed, opens in rows
    ]
    words = f"{format_bytes(usable)} a device" if usable else ""
    return {"blocks": blocks, "limit": (usable or 0.0) / top, "limit_words": words}


def moves_of(record: RunRecord) -> list[dict[str, str]]:
    """Return the largest transfers, each as a few words with a tip."""
    large = sorted(filter(is_large, record.transfers), key=lambda t: -t.nbytes)
    moves = []
    for each in large[:_MOST_MOVES]:
        took = "" if each.seconds is None else f", {format_seconds(each.seconds)}"
        where = f" at {each.source.short}" if each.source else ""
        over = "" if each.seconds is None else f"; over PCIe: {format_bytes(each.device_bytes)} on one device"
        tip = f"{each.kind}{where}: {plural(each.count, 'array')}, {each.before} → {each.after}{over}"
        before, after = (place.partition(" on ")[0] for place in (each.before, each.after))  # without the meshes
        moves.append({"text": f"{before} → {after}: {format_bytes(each.nbytes)}{took}", "tip": tip})
    if more := large[_MOST_MOVES:]:
        moves.append({"text": f"{len(more)} more: {format_bytes(sum(t.nbytes for t in more))}", "tip": ""})
    return moves


def label_of(program: RunProgram) -> str:
    """Return `3 × 1.35 s`, or how many calls where their time is not known."""
    if program.seconds is None:
        return plural(program.calls, "call")
    return f"{program.calls:,} × {format_seconds(program.seconds)}"


def _tip(program: RunProgram, needed: float) -> str:
    line = f" at {program.source.short}" if program.source else ""
    where = f"{program.name}{line}: {label_of(program)} on {plural(program.devices, 'device')}"
    return f"{where}; a device needs {format_bytes(needed)} meanwhile (level propagated)"
