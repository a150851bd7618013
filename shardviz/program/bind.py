"""Rules held against a program's arguments: what they resolve to, and who catches what."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from shardviz.errors import SpecError
from shardviz.notation import DeviceMesh, Spec, check_spec
from shardviz.program.call import Call
from shardviz.program.plan import Plan
from shardviz.program.rules import Leaf, Rules, catches, filter_text
from shardviz.program.trace import Signature, Traced
from shardviz.program.trees import plain_path
from shardviz.visible import Visible


@dataclass(frozen=True)
class Row:
    """What one rule does.

    Attributes:
        rule: its filter in words.
        spec: its spec.
        wins: the tree paths that it gives their spec.
        loses: (tree path, number of the earlier rule that wins it) of what it catches besides.
        edited: those of `wins` that an edit by hand goes before.
        unfit: (tree path, why) of those of `wins` that its spec does not fit.
    """

    rule: str
    spec: Spec
    wins: tuple[str, ...]
    loses: tuple[tuple[str, int], ...] = ()
    edited: tuple[str, ...] = ()
    unfit: tuple[tuple[str, str], ...] = ()

    @property
    def caught(self) -> int:
        """How many leaves its filter catches."""
        return len(self.wins) + len(self.loses)


@dataclass(frozen=True, repr=False)
class RulesTable(Visible):
    """For each rule what it catches, what it wins, and what no rule catches. Shows itself as text and HTML.

    Attributes:
        rows: one a rule, in their order.
        uncaught: (tree path, spec) of the arrays that no rule catches, with the spec that they have anyway.
    """

    rows: tuple[Row, ...]
    uncaught: tuple[tuple[str, Spec | None], ...]

    def text(self, width: int = 100) -> str:
        """It in plain text, what each rule wins and loses at most `width` columns wide."""
        from shardviz.render.rules import rules_text

        return rules_text(self, width)

    def html(self) -> str:
        """It in HTML that survives JupyterLab's sanitizer."""
        from shardviz.render.rules import rules_html

        return rules_html(self)


def leaves(call: Call, known: Traced | Signature) -> tuple[Leaf, ...]:
    """Every array among the arguments as filters see it, in flat order."""
    names = [a.name for a in known.arguments]
    if len(call.leaves) == len(names):
        return tuple(dataclasses.replace(leaf, name=name) for leaf, name in zip(call.leaves, names, strict=True))
    paths = [plain_path(p)[2:] for p, _ in jax.tree_util.tree_flatten_with_path(known.in_tree)[0]]
    values = call.arrays if len(call.arrays) == len(names) else known.arguments
    rows = zip(known.arguments, paths, values, strict=True)
    return tuple(Leaf(a.name, path, value, a.shape) for a, path, value in rows)


def resolved(plan: Plan, specs: Sequence[Any], call: Call, known: Traced | Signature) -> list[Spec | None]:
    """The specs with what the plan's rules say in their place, and rules among them resolved.

    Raises:
        SpecError: if an `nnx.StateSharding` catches not all of its variables.
    """
    if not plan.rules and not any(isinstance(s, Rules) for s in specs):
        return list(specs)
    found: list[Spec | None] = []
    for leaf, spec in zip(leaves(call, known), specs, strict=True):
        own = spec.spec(leaf) if isinstance(spec, Rules) else spec
        place = plan.rules.winner(leaf)
        found.append(own if place is None else plan.rules.rules[place].spec or Spec())
    return found


def ruled(plan: Plan, call: Call, known: Traced | Signature) -> tuple[str, ...]:
    """The tree paths of the arguments that one of the plan's rules catches."""
    return tuple(leaf.name for leaf in leaves(call, known) if plan.rules.winner(leaf) is not None) if plan.rules else ()


def whose(plan: Plan, name: str, call: Call, known: Traced | Signature) -> str:
    """In words, which rule gave an argument its spec; empty where none did."""
    if not plan.rules or name in dict(plan.edits):
        return ""
    leaf = next(leaf for leaf in leaves(call, known) if leaf.name == name)
    place = plan.rules.winner(leaf)
    return "" if place is None else f"rule {place + 1}, {filter_text(plan.rules.rules[place].filter)}"


def table(plan: Plan, specs: Sequence[Any], call: Call, known: Traced | Signature) -> RulesTable:
    """For each rule of a plan what it catches and wins, and the arguments that none catches.

    Args:
        plan: with its rules.
        specs: what the arguments have without them.
        call: the program's.
        known: the program's arguments.
    """
    every = leaves(call, known)
    without = [s.spec(leaf) if isinstance(s, Rules) else s for s, leaf in zip(specs, every, strict=True)]
    edits: dict[str, Spec | None] = dict(plan.edits)
    otherwise = {leaf.name: edits.get(leaf.name, s) or Spec() for s, leaf in zip(without, every, strict=True)}
    return _rules_table(plan.rules, every, plan.mesh, edits, otherwise)


def blamed(error: SpecError, whose: str) -> SpecError:
    """The error with the rule, or whatever else brought the spec, at its end."""
    return SpecError(f"{error} ({whose})", argument=error.argument, dimension=error.dimension)


def _rules_table(
    rules: Rules, leaves: Iterable[Leaf], mesh: DeviceMesh, edited: Iterable[str], otherwise: Mapping[str, Spec | None]
) -> RulesTable:
    """Which rule catches and wins what.

    Args:
        rules: the rules.
        leaves: the program's arrays.
        mesh: what the specs are checked against.
        edited: tree paths that have a spec by hand.
        otherwise: the specs that leaves have where no rule catches them.
    """
    edits = set(edited)
    wins: list[list[str]] = [[] for _ in rules]
    loses: list[list[tuple[str, int]]] = [[] for _ in rules]
    unfit: list[list[tuple[str, str]]] = [[] for _ in rules]
    uncaught = []
    for leaf in leaves:
        places = [i for i, rule in enumerate(rules) if catches(rule.filter, leaf)]
        if not places:
            uncaught.append((leaf.name, otherwise.get(leaf.name)))
            continue
        first = places[0]
        wins[first].append(leaf.name)
        for place in places[1:]:
            loses[place].append((leaf.name, first + 1))
        try:
            check_spec(leaf.name, leaf.shape, rules.rules[first].spec or Spec(), mesh)
        except SpecError as error:
            unfit[first].append((leaf.name, str(error)))
    rows = (
        Row(
            filter_text(rule.filter),
            rule.spec or Spec(),
            tuple(wins[i]),
            tuple(loses[i]),
            tuple(n for n in wins[i] if n in edits),
            tuple(unfit[i]),
        )
        for i, rule in enumerate(rules)
    )
    return RulesTable(tuple(rows), tuple(uncaught))
