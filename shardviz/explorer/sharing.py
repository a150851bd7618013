"""The programs that share arrays with the explorer's program: the shardings that they want for these arrays, and their
costs if every program takes the arrays as a card's plan shards them.

Every number is at level propagated, and is the program set's own (`runs.sets`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shardviz.errors import ShardvizError
from shardviz.records.amounts import plural
from shardviz.records.together import Conflict, ProgramCost
from shardviz.runs.sets import ProgramSet

if TYPE_CHECKING:
    from shardviz.explorer.cards import Deck
    from shardviz.plan.plan import Plan


@dataclass(frozen=True)
class Sharing:
    """The programs that share arrays with the explorer's.

    Attributes:
        programs: the set, in which the explorer's program has the open plan; None for a program alone.
        name: the explorer's program in the set.
        wishes: array of the explorer's program → (`≠ decode`, `decode: P('model')`), if other programs' specs differ.
        selected: the shared array that `conflict` is about; empty if none was asked for.
        conflict: the different shardings of this array and their costs; None if all programs shard it alike.
        costs: a card's plan → every program's cost under it.
    """

    programs: ProgramSet | None = None
    name: str = ""
    wishes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    selected: str = ""
    conflict: Conflict | None = None
    costs: Mapping[Plan, tuple[ProgramCost, ...]] = field(default_factory=dict)

    def steps(self, deck: Deck, selected: str) -> Iterator[Sharing]:
        """Yield the answers as they become known: the wishes, those about the selected array, then the cards."""
        if self.programs is None:
            return
        machine = deck.now.results.machine
        machine = None if machine.chip.kind == "cpu" else machine
        programs = self.programs.on(machine)
        sharing = self if programs is self.programs else replace(self, programs=programs, costs={}, selected="")
        if sharing.programs is not self.programs or programs[self.name].plan != deck.now.plan or not self.wishes:
            programs = programs.with_plan(self.name, deck.now.plan)
            sharing = replace(sharing, programs=programs, selected="", conflict=None)
            yield (sharing := replace(sharing, wishes=_wishes(programs, self.name)))
        if sharing.selected != selected:
            place = self.name, selected
            array = next((a for a in programs.shared if place in ((m.program, m.path) for m in a.members)), None)
            conflict = None
            with suppress(ShardvizError):  # the open plan's mesh has another number of devices; the cards say so
                conflict = None if array is None else programs.conflict(array)
            yield (sharing := replace(sharing, selected=selected, conflict=conflict))
        for card in sorted(deck.cards, key=lambda card: card.id != deck.at):
            if card.plan not in sharing.costs:
                programs, costs = programs.with_plan(self.name, card.plan), []
                for side in programs.sides:
                    costs.append(programs.cost_as(side, self.name))
                    yield sharing
                yield (sharing := replace(sharing, costs={**sharing.costs, card.plan: tuple(costs)}))


def _wishes(programs: ProgramSet, name: str) -> dict[str, tuple[str, str]]:
    wishes: dict[str, tuple[str, str]] = {}
    for array, each in programs.wishes.items():
        differing = [(spec, names) for spec, names in each if name not in names]
        others = [other for _, names in differing for other in names]
        short = f"≠ {others[0] if len(others) == 1 else plural(len(others), 'program')}" if others else ""
        text = "; ".join(f"{', '.join(names)}: {spec.canonical()}" for spec, names in differing)
        wishes |= {m.path: (short, text) for m in array.members if m.program == name and others}
    return wishes
