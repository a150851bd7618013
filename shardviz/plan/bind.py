"""The binding of a plan to a program: a checked full-rank spec for every argument and output.

An argument's spec is from the plan's `in_specs`, else the function's own, else replicated. The plan's overrides replace
it, from the weakest to the strongest: rules, then edits of single arrays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax

from shardviz.display import Displayed
from shardviz.errors import SpecError
from shardviz.notation import DeviceMesh, Spec, axis_name, check_spec
from shardviz.notation.spec import DEVICE_MEMORY, axes_size, memory_of, placed
from shardviz.plan.plan import MEMORY, SPEC, Plan, by_path, is_by_name, with_dim
from shardviz.propagate.dimensions import Member
from shardviz.records import PlanRecord
from shardviz.records.report import Constrained
from shardviz.tracing.call import Call
from shardviz.tracing.explicit import explicit_axes
from shardviz.tracing.prefixes import expand, is_spec
from shardviz.tracing.rules import Leaf, Rules, catches, filter_text
from shardviz.tracing.trace import Argument, Traced
from shardviz.tracing.trees import plain_path


def bind(plan: Plan, call: Call, traced: Traced) -> PlanRecord:
    """Return the plan with a full-rank spec for every argument and every output; None is the compiler's choice. Raises
    SpecError if a spec breaks one of pjit's rules; the message names the argument and the numbers, and suggests a
    fix."""
    if is_by_name(plan):
        raise SpecError("the plan shards dimensions by name: `program.bind(plan)` has the arrays in their place")
    ins = argument_specs(plan, call, traced)
    outs = _output_specs(plan, call, traced, ins)
    _check_constraints(traced, plan.mesh, divide=call.kind != "recorded")  # JAX pads what a script has asked for
    in_memory = {name: memory_of(spec) for name, spec in ins.items()} | dict(by_path(plan, "argument", MEMORY))
    out_memory = {o.name: memory_of(outs[o.name]) or o.memory_kind for o in traced.outputs}
    out_memory |= {u.output: in_memory[u.argument] for u in traced.updates if u.follows and u.argument}
    return PlanRecord(
        plan.mesh,
        {name: placed(spec, "") for name, spec in ins.items()},
        {name: None if spec is None else placed(spec, "") for name, spec in outs.items()},
        _not_on_device(in_memory),
        _not_on_device(out_memory | dict(by_path(plan, "output", MEMORY))),
        _constraints(plan, traced),
        plan.variant,
        plan.options,
    )


def _not_on_device(kinds: Mapping[str, str]) -> dict[str, str]:
    return {name: kind for name, kind in kinds.items() if kind not in ("", DEVICE_MEMORY)}


class Undivided(NamedTuple):
    """A dimension that its axes do not divide, with its array's spec."""

    member: Member
    size: int
    spec: Spec


def undivided(plan: Plan, call: Call, traced: Traced) -> tuple[Undivided, ...]:
    """Return the dimensions that their plan's axes do not divide; `bind` refuses the plan at the first."""
    ins = argument_specs(plan, call, traced, divide=False)
    outs = _output_specs(plan, call, traced, ins, divide=False)
    return tuple(
        Undivided(Member(role, array.name, d), array.shape[d], spec)
        for role, arrays, specs in (("argument", traced.arguments, ins), ("output", traced.outputs, outs))
        for array in arrays
        if (spec := specs[array.name]) is not None
        for d, axes in enumerate(spec.dims)
        if array.shape[d] % axes_size(axes, plan.mesh)
    )


def argument_specs(plan: Plan, call: Call, traced: Traced, *, divide: bool = True) -> dict[str, Spec]:
    """Return a full-rank spec for every argument; errors as `bind`."""
    by_rule = _ruled(plan, call, traced, _given(plan, call, traced))
    specs = _overridden(plan, "argument", traced.arguments, by_rule)
    checked = {}
    for argument in traced.arguments:
        try:
            checked[argument.name] = _checked(argument, specs[argument.name] or Spec(), plan.mesh, divide)
        except SpecError as error:
            whose = _whose(plan, argument.name, call, traced)
            if not whose:
                raise error from None
            raise SpecError(f"{error} ({whose})", argument=error.argument, dimension=error.dimension) from None
    return checked


def _given(plan: Plan, call: Call, traced: Traced) -> list[Any]:
    """Return a spec, rules or None for each argument: the plan's `in_specs`, or the function's own."""
    own = list(call.brings.in_specs or traced.in_specs) or [None] * len(traced.arguments)
    prefix = plan.in_specs
    if prefix is None:
        return own
    positional, _ = traced.in_tree
    if len(positional) == 1 and not isinstance(prefix, tuple) and not is_spec(prefix):
        prefix = (prefix,)
    if call.places is not None:
        positional, _ = call.places.tree
    specs = expand("in_specs", prefix, positional)
    if call.places is not None:
        leaves = jax.tree.leaves(positional)
        resolved = [s.spec(leaf) if isinstance(s, Rules) else s for s, leaf in zip(specs, leaves, strict=True)]
        specs = call.places.agreed("in_specs", [s or Spec() for s in resolved], Spec.canonical)
    return specs + own[len(specs) :]


def _ruled(plan: Plan, call: Call, traced: Traced, specs: Sequence[Any]) -> list[Spec | None]:
    """Return the specs after applying the plan's rules, and resolving rules among the specs."""
    if not plan.rules and not any(isinstance(s, Rules) for s in specs):
        return list(specs)
    ruled: list[Spec | None] = []
    for leaf, spec in zip(_leaves(call, traced), specs, strict=True):
        own = spec.spec(leaf) if isinstance(spec, Rules) else spec
        place = plan.rules.winner(leaf)
        ruled.append(own if place is None else plan.rules.rules[place].spec or Spec())
    return ruled


def _leaves(call: Call, traced: Traced) -> tuple[Leaf, ...]:
    """Return every array among the arguments as filters see it, in flat order."""
    names = [a.name for a in traced.arguments]
    if len(call.leaves) == len(names):
        return tuple(replace(leaf, name=name) for leaf, name in zip(call.leaves, names, strict=True))
    paths = [plain_path(p)[2:] for p, _ in jax.tree_util.tree_flatten_with_path(traced.in_tree)[0]]
    values = call.arrays if len(call.arrays) == len(names) else traced.arguments
    rows = zip(traced.arguments, paths, values, strict=True)
    return tuple(Leaf(a.name, path, value, a.shape) for a, path, value in rows)


def _whose(plan: Plan, name: str, call: Call, traced: Traced) -> str:
    """Return in words what gave an argument its spec; empty for an edit and for the plan's `in_specs`."""
    if name in dict(plan.edits):
        return ""
    if plan.rules:
        leaf = next(leaf for leaf in _leaves(call, traced) if leaf.name == name)
        if (place := plan.rules.winner(leaf)) is not None:
            return f"rule {place + 1}, {filter_text(plan.rules.rules[place].filter)}"
    return call.brings.specs_from if plan.in_specs is None and call.brings.in_specs else ""


def _output_specs(
    plan: Plan, call: Call, traced: Traced, ins: dict[str, Spec], divide: bool = True
) -> dict[str, Spec | None]:
    """Return a spec or None for every output; an argument's new value is sharded as the argument, if it follows it."""
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
    outs = _overridden(plan, "output", traced.outputs, [outs[o.name] for o in traced.outputs])
    for output in traced.outputs:
        if (spec := outs[output.name]) is not None:
            outs[output.name] = _checked(output, spec, mesh, divide)
    return outs


def _overridden(
    plan: Plan, role: str, arrays: Sequence[Argument], specs: Iterable[Spec | None]
) -> dict[str, Spec | None]:
    """Return tree path → spec, with the plan's edits of single arrays applied; outputs can be edited only if they have
    a spec."""
    overridden = dict(zip((array.name for array in arrays), specs, strict=True))
    ranks = {array.name: len(array.shape) for array in arrays}
    for each in reversed(plan.overrides):
        if each.role != role or not each.is_exact:
            continue
        name, before = each.path, overridden.get(each.path)
        if isinstance(each.part, int):
            if role == "output" and before is None:
                continue
            if each.part >= ranks.get(name, 0):
                raise SpecError(f"the program has no {role} {name} with a dimension {each.part}")
            overridden[name] = with_dim(Spec.of(before or Spec(), ranks[name]), each.part, each.value)
            continue
        if name not in overridden:
            near = [n for n in overridden if n.split("[")[-1] == name.split("[")[-1]][:5] or list(overridden)[:5]
            raise SpecError(f"the program has no {role} {name}; it has {', '.join(near)}", argument=name)
        if each.part == SPEC:
            stays = memory_of(before) and type(each.value) is Spec  # other axes alone leave an array where it lies
            overridden[name] = placed(each.value, memory_of(before)) if stays else each.value
    return overridden


def _constraints(plan: Plan, traced: Traced) -> tuple[Constrained, ...]:
    constraints = []
    by_wanted = {placed.wanted: placed for placed in traced.placed}
    for wanted in plan.constraints:
        placed = by_wanted[wanted.value]
        where, rank = f"{placed.target.label} at {placed.target.frame.short}", len(placed.shapes[0])
        for axis in map(axis_name, wanted.spec.axes):
            why = ""
            if axis in placed.manual:
                why = (
                    f"it is inside a shard_map over {axis!r}, where each device along that axis has an array of its "
                    "own; leave that axis out"
                )
            elif axis in explicit_axes(plan.mesh):
                why = (
                    f"{axis!r} is an Explicit axis, over which an array's sharding is in its type; use "
                    "jax.sharding.reshard in the function, or make the axis Auto"
                )
            if why:
                raise SpecError(f"constrain {where} to {wanted.spec}: {why}", argument=where)
        for shape in placed.shapes:
            try:
                check_spec(where, shape, wanted.spec, plan.mesh)
            except SpecError as error:
                raise SpecError(f"constrain {error}", argument=where, dimension=error.dimension) from None
        constraints.append(
            Constrained(
                name=placed.target.label,
                source=placed.target.frame,
                shapes=placed.shapes,
                dtype=placed.dtype,
                spec=Spec.of(wanted.spec, rank),
                open=wanted.open,
                times=placed.times,
            )
        )
    return tuple(constraints)


def _checked(array: Argument, spec: Spec, mesh: DeviceMesh, divide: bool) -> Spec:
    check_spec(array.name, array.shape, spec, mesh, divide=divide)
    return Spec.of(spec, len(array.shape))


def _check_constraints(traced: Traced, mesh: DeviceMesh, divide: bool) -> None:
    """Raise unless every constraint inside the program can be met; the message names its line and suggests a fix."""
    for constraint in traced.constraints:
        where = "with_sharding_constraint" + (f" at {constraint.source.short}" if constraint.source else "")
        try:
            check_spec(where, constraint.shape, constraint.spec, mesh, divide=divide)
        except SpecError as error:
            raise SpecError(
                f"{error} (the array there has shape {constraint.shape})", argument=where, dimension=error.dimension
            ) from None


@dataclass(frozen=True, kw_only=True)
class RuleRow:
    """The effect of one rule."""

    rule: str  # its filter in words
    spec: Spec
    wins: tuple[str, ...]  # the tree paths that it gives its spec
    # (tree path, number of the earlier rule that wins it) of what it catches besides
    loses: tuple[tuple[str, int], ...] = ()
    edited: tuple[str, ...] = ()  # those of `wins` that an edit by hand goes before
    unfit: tuple[tuple[str, str], ...] = ()  # (tree path, why) of those of `wins` that its spec does not fit

    @property
    def caught(self) -> int:
        """The number of leaves that the filter matches."""
        return len(self.wins) + len(self.loses)


@dataclass(frozen=True, repr=False)
class RulesTable(Displayed):
    """For each rule the arguments that it matches and wins, and the arguments that no rule matches. It displays as text
    and HTML."""

    rows: tuple[RuleRow, ...]  # one a rule, in their order
    uncaught: tuple[tuple[str, Spec | None], ...]  # (tree path, spec that they have anyway) of what no rule catches


def rules_table(plan: Plan, call: Call, traced: Traced) -> RulesTable:
    """Return for each rule of a plan the arguments that it matches and wins, or why its spec does not fit; and the
    arguments that no rule matches."""
    rules, edits = plan.rules.rules, dict(plan.edits)
    wins, loses, unfit = (defaultdict[int, list[Any]](list) for _ in range(3))
    uncaught: list[tuple[str, Spec | None]] = []
    for leaf, spec in zip(_leaves(call, traced), _given(plan, call, traced), strict=True):
        places = [i for i, rule in enumerate(rules) if catches(rule.filter, leaf)]
        if not places:
            otherwise = spec.spec(leaf) if isinstance(spec, Rules) else spec
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
        RuleRow(
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


def ruled_arguments(plan: Plan, call: Call, traced: Traced) -> tuple[str, ...]:
    """Return the tree paths of the arguments that match one of the plan's rules."""
    if not plan.rules:
        return ()
    return tuple(leaf.name for leaf in _leaves(call, traced) if plan.rules.winner(leaf) is not None)
