"""A plan bound to a program: a full-rank spec for every argument and output, found to fit.

An argument's spec is the first of these that says one: an edit of the plan, a rule of the plan, the plan's `in_specs`,
what the function brings along, replicated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from shardviz.errors import SpecError
from shardviz.notation import DeviceMesh, Spec, check_spec
from shardviz.program.call import Call
from shardviz.program.explicit import explicit_axes
from shardviz.program.plan import Plan, expand, is_spec
from shardviz.program.rules import Leaf, Rules, catches, filter_text
from shardviz.program.trace import Argument, Signature, Traced
from shardviz.program.trees import plain_path
from shardviz.records import PlanRecord
from shardviz.visible import Visible


def bind(plan: Plan, call: Call, traced: Traced) -> PlanRecord:
    """The plan with a full-rank spec for every argument and every output; None is the compiler's choice.

    Args:
        plan: the plan.
        call: what was traced, with the plan that it brings.
        traced: its trace on the plan's mesh.

    Raises:
        SpecError: if a spec breaks one of pjit's rules; the message names the argument, the numbers and a way out.
    """
    ins = argument_specs(plan, call, traced)
    outs = _output_specs(plan, call, traced, ins)
    _check_constraints(traced, plan.mesh)
    return PlanRecord(plan.mesh, ins, outs)


def argument_specs(plan: Plan, call: Call, known: Traced | Signature) -> dict[str, Spec]:
    """A full-rank spec for every argument; arguments and errors as `bind`."""
    by_rule = _ruled(plan, call, known, _given(plan, call, known))
    specs = dict(zip((a.name for a in known.arguments), by_rule, strict=True))
    _edit(specs, plan.edits, "argument")
    found = {}
    for argument in known.arguments:
        try:
            found[argument.name] = _checked(argument, specs[argument.name] or Spec(), plan.mesh)
        except SpecError as error:
            whose = _whose(plan, argument.name, call, known)
            if not whose:
                raise error from None
            raise SpecError(f"{error} ({whose})", argument=error.argument, dimension=error.dimension) from None
    return found


def _given(plan: Plan, call: Call, known: Traced | Signature) -> list[Any]:
    """A spec, rules or None for each argument: the plan's `in_specs`, or what the function brings."""
    own = list(call.brings.in_specs or known.in_specs) or [None] * len(known.arguments)
    prefix = plan.in_specs
    if prefix is None:
        return own
    positional, _ = known.in_tree
    if len(positional) == 1 and not isinstance(prefix, tuple) and not is_spec(prefix):
        prefix = (prefix,)
    given = expand("in_specs", prefix, positional)
    return given + own[len(given) :]


def _ruled(plan: Plan, call: Call, known: Traced | Signature, given: Sequence[Any]) -> list[Spec | None]:
    """The given specs with what the plan's rules say in their place, and rules among them resolved."""
    if not plan.rules and not any(isinstance(s, Rules) for s in given):
        return list(given)
    found: list[Spec | None] = []
    for leaf, spec in zip(_leaves(call, known), given, strict=True):
        own = spec.spec(leaf) if isinstance(spec, Rules) else spec
        place = plan.rules.winner(leaf)
        found.append(own if place is None else plan.rules.rules[place].spec or Spec())
    return found


def _leaves(call: Call, known: Traced | Signature) -> tuple[Leaf, ...]:
    """Every array among the arguments as filters see it, in flat order."""
    names = [a.name for a in known.arguments]
    if len(call.leaves) == len(names):
        return tuple(dataclasses.replace(leaf, name=name) for leaf, name in zip(call.leaves, names, strict=True))
    paths = [plain_path(p)[2:] for p, _ in jax.tree_util.tree_flatten_with_path(known.in_tree)[0]]
    values = call.arrays if len(call.arrays) == len(names) else known.arguments
    rows = zip(known.arguments, paths, values, strict=True)
    return tuple(Leaf(a.name, path, value, a.shape) for a, path, value in rows)


def _whose(plan: Plan, name: str, call: Call, known: Traced | Signature) -> str:
    """In words, what gave an argument its spec; empty for an edit and for the plan's `in_specs`."""
    if name in dict(plan.edits):
        return ""
    if plan.rules:
        leaf = next(leaf for leaf in _leaves(call, known) if leaf.name == name)
        if (place := plan.rules.winner(leaf)) is not None:
            return f"rule {place + 1}, {filter_text(plan.rules.rules[place].filter)}"
    return call.brings.specs_from if plan.in_specs is None and call.brings.in_specs else ""


def _output_specs(plan: Plan, call: Call, traced: Traced, ins: dict[str, Spec]) -> dict[str, Spec | None]:
    """A spec or None for every output; a new value of an argument is cut as the argument is, where it follows it."""
    mesh = plan.mesh
    prefix = call.brings.out_specs if plan.out_specs is None else plan.out_specs
    specs: Sequence[Spec | None] = expand("out_specs", prefix, traced.out_tree) + [None] * len(traced.updates)
    if prefix is None and traced.out_specs:
        specs = traced.out_specs
    outs = {o.name: s for o, s in zip(traced.outputs, specs, strict=True)}
    if len(explicit_axes(mesh)) == len(mesh.names):
        types = zip(traced.outputs, traced.out_types, strict=False)
        outs |= {o.name: kind for o, kind in types if outs[o.name] is None}
    outs |= {u.output: ins[u.argument] for u in traced.updates if u.follows and u.argument}
    _edit(outs, plan.out_edits, "output")
    for output in traced.outputs:
        if (spec := outs[output.name]) is not None:
            outs[output.name] = _checked(output, spec, mesh)
    return outs


def _edit(specs: dict[str, Spec | None], edits: Sequence[tuple[str, Spec | None]], what: str) -> None:
    for name, spec in edits:
        if name not in specs:
            near = [n for n in specs if n.split("[")[-1] == name.split("[")[-1]][:5] or list(specs)[:5]
            raise SpecError(f"the program has no {what} {name}; it has {', '.join(near)}", argument=name)
        specs[name] = spec


def _checked(array: Argument, spec: Spec, mesh: DeviceMesh) -> Spec:
    check_spec(array.name, array.shape, spec, mesh)
    return Spec.of(spec, len(array.shape))


def _check_constraints(traced: Traced, mesh: DeviceMesh) -> None:
    """Raises unless every constraint inside the program can be met; the message names its line, and what would do."""
    for constraint in traced.constraints:
        where = f" at {constraint.source.short}" if constraint.source else ""
        where = f"with_sharding_constraint{where}"
        try:
            check_spec(where, constraint.shape, constraint.spec, mesh)
        except SpecError as error:
            raise SpecError(
                f"{error} (the array there has shape {constraint.shape})", argument=where, dimension=error.dimension
            ) from None


@dataclass(frozen=True, kw_only=True)
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


def rules_table(plan: Plan, call: Call, known: Traced | Signature) -> RulesTable:
    """For each rule of a plan what it catches and wins, and the arguments that none catches.

    A spec that does not fit what its rule wins is no error here: the row says so.
    """
    rules, edits = plan.rules.rules, dict(plan.edits)
    wins: list[list[str]] = [[] for _ in rules]
    loses: list[list[tuple[str, int]]] = [[] for _ in rules]
    unfit: list[list[tuple[str, str]]] = [[] for _ in rules]
    uncaught: list[tuple[str, Spec | None]] = []
    for leaf, given in zip(_leaves(call, known), _given(plan, call, known), strict=True):
        otherwise = given.spec(leaf) if isinstance(given, Rules) else given
        places = [i for i, rule in enumerate(rules) if catches(rule.filter, leaf)]
        if not places:
            uncaught.append((leaf.name, edits.get(leaf.name, otherwise) or Spec()))
            continue
        first, *later = places
        wins[first].append(leaf.name)
        for place in later:
            loses[place].append((leaf.name, first + 1))
        try:
            check_spec(leaf.name, leaf.shape, rules[first].spec or Spec(), plan.mesh)
        except SpecError as error:
            unfit[first].append((leaf.name, str(error)))
    rows = (
        Row(
            rule=filter_text(rule.filter),
            spec=rule.spec or Spec(),
            wins=tuple(wins[i]),
            loses=tuple(loses[i]),
            edited=tuple(n for n in wins[i] if n in edits),
            unfit=tuple(unfit[i]),
        )
        for i, rule in enumerate(rules)
    )
    return RulesTable(tuple(rows), tuple(uncaught))


def ruled_arguments(plan: Plan, call: Call, known: Traced | Signature) -> tuple[str, ...]:
    """The tree paths of the arguments that one of the plan's rules catches."""
    if not plan.rules:
        return ()
    return tuple(leaf.name for leaf in _leaves(call, known) if plan.rules.winner(leaf) is not None)
