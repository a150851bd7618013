"""Proposals of changes for `fixing` to try.

A proposal follows a finding's suggestion, shards a logical dimension along other axes, or constrains a value of a
costly line. It may also change the plan's `variant`, which traces the program anew: donated arguments, a padded
dimension, a checkpoint policy, or another constraint in the function.
"""

from __future__ import annotations

import contextlib
import itertools
import linecache
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardviz.ask.derived import checkpoint_words, checkpoints, constraint_words, of_variant, rewritten_words
from shardviz.ask.program import Program
from shardviz.caching import cached_property
from shardviz.costs.machine import Machine
from shardviz.costs.orders import exchanged, reordered
from shardviz.diagnose import findings, policy
from shardviz.diagnose.specs import free, onto
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.notation import Axis, Spec
from shardviz.notation.spec import axes_size, axis_name, axis_text
from shardviz.plan.plan import Plan
from shardviz.propagate.dimensions import Dimension
from shardviz.records import Finding, Findings, Value
from shardviz.records.amounts import plural
from shardviz.records.findings import Suggestion
from shardviz.records.groups import grouped, summed
from shardviz.records.paths import segments
from shardviz.records.phases import phase
from shardviz.records.report import Constrained
from shardviz.study.fixes import Change, Rejected
from shardviz.tracing.intermediates import Constrain, Intermediate, as_propagated

_NAMED = 2
_REPEATED = ("idle-axis", "repeated-work")
"""The rules of findings about devices that repeat each other's work along an axis; another dimension may use that axis.
"""
_REWRITTEN = frozenset(
    ("gathered-each-run", "gathered-wide", "gathered-then-sliced", "gathered-then-summed", "sum-sliced")
)
"""The rules whose suggestion `Plan.with_variant` can carry out in a `shard_map`, or on a constraint in a loop."""
_HOISTED = "gathered-each-run", "gather before the loop"
"""The rule of these that moves a gather out of a loop, and what is written for it."""


_Changes = dict[tuple[str, Spec], Spec | None]
"""(line, spec) of the function's own constraints → the spec in its place; None to drop the constraint."""
_Batches = list[tuple[Dimension, tuple[Axis, ...]]]


def plan_of(report: Report) -> Plan:
    """Return the plan of a report, with every spec explicit."""

    def place(c: Constrained) -> Intermediate:
        text = linecache.getline(c.source.file, c.source.line).strip()
        return Intermediate(c.name, c.source.short, text, c.source.function)

    constraints = [Constrain(place(c), c.spec, c.open) for c in report.plan.constraints]
    return Plan.of_record(report.plan, constraints=constraints)


@dataclass(eq=False)
class Proposals:
    """The changes to try, each once, those of the gravest findings first.

    Attributes:
        program: the variant of the program that the plan asks for.
        machine: None, or a machine without a known speed, counts bytes.
        most: the number of findings to use.
        by_hand: suggestions that only a person can carry out; filled while iterating.
        rejected: suggestions that cannot be tried; filled while iterating.
    """

    program: Program
    report: Report
    machine: Machine | None
    plan: Plan
    most: int
    by_hand: dict[str, None] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)
    _dropped: Change | None = None

    def pairs(self) -> Iterator[Change]:
        """Propose the plan's changes again, each with the function's own constraints dropped that alone change nothing
        or are in the way. Only after all others were proposed."""
        if (drop := self._dropped) is None:
            return
        program = of_variant(self.program, drop.plan.variant)
        others = Proposals(program, program.propagate(drop.plan), self.machine, drop.plan, self.most)
        plain = (change for change in others if not any(others.traces(change)))
        for change in itertools.islice(plain, policy.PAIRS):
            yield replace(drop, plan=change.plan, action=f"{drop.action}, and {change.action}")

    def __iter__(self) -> Iterator[Change]:
        seen: set[str] = set()
        for change in self._proposed():
            key: Any = change.plan
            if change.plan.variant != self.plan.variant:
                key = change.action
            elif not change.plan.constraints:
                with contextlib.suppress(ShardvizError):  # raised again, and reported, when the change is tried
                    key = self.program.bind(change.plan)
            if key != self._bound and repr(key) not in seen:
                seen.add(repr(key))
                yield change

    @cached_property
    def _bound(self) -> Any:
        return self.program.bind(self.plan)

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {v.name: v.shape for v in self.report.arguments}

    def traces(self, change: Change) -> tuple[bool, bool]:
        """Return the two reasons for another trace: a new constraint, and another variant of the program."""
        return len(change.plan.constraints) > len(self.plan.constraints), change.plan.variant != self.plan.variant

    def reconstrains(self, change: Change) -> bool:
        """Return whether it changes one of the function's own constraints."""
        return change.plan.variant.constraints != self.plan.variant.constraints

    @cached_property
    def findings(self) -> Findings:
        """The findings to fix, gravest first."""
        return findings(self.report, self.machine)

    def _proposed(self) -> Iterator[Change]:
        left = self.most
        for finding in (f for f in self.findings if f.suggestions):
            if not left:
                break
            left -= any(suggestion.kind != "code" for suggestion in finding.suggestions)
            against = [self._against(finding, suggestion) for suggestion in finding.suggestions]
            against += [self._along(axis_name(axis)) for axis in finding.axes if finding.rule in _REPEATED]
            yield from (replace(change, finding=finding) for change in itertools.chain.from_iterable(against))
        yield from self._by_more_axes()
        yield from self._reconstrained()
        yield from self._as_most_are()
        moved = summed((axis_name(a), c.assumed_bytes) for c in self.report.collectives for a in c.axes or ())
        for axis in sorted(moved, key=lambda axis: -moved[axis])[: policy.COSTLY_AXES]:
            yield from self._along(axis)
        yield from self._constrained()

    def _against(self, finding: Finding, what: Suggestion) -> Iterator[Change]:
        """Propose a finding's suggestion, if it can be tried."""
        if what.kind == "pad":
            yield from self._padded(finding, what)
        elif what.kind == "checkpoint":

            def code(variant: Program) -> str:
                if not checkpoints(variant):
                    raise ShardvizError("the function differentiates no loop and no jax.checkpoint to apply it to")
                return ", and ".join(checkpoint_words(variant, what.policy, _NAMED))

            plan = self.plan.with_variant(checkpoint=what.policy)
            yield Change(plan=plan, action=f"{what.words} around each layer", code=code)
        elif what.kind == "code" and (line := self._rewritable(finding)):
            yield Change(plan=self.plan.with_variant(collectives=line), action=what.words, write=what.words)
        elif what.kind == "code":
            self.by_hand[what.words] = None
        elif what.kind == "donate":  # JAX donates whole arguments
            targets = [each.target for each in finding.suggestions if each.kind == "donate"]
            roots = tuple(dict.fromkeys(segments(name)[0] for name in targets))
            write = f"jax.jit({self.program.name}, donate_argnames=[{', '.join(map(repr, roots))}])"
            plan = self.plan.with_variant(donated=roots)
            yield Change(plan=plan, action=f"donate {' and '.join(roots)}", write=write)
        elif (plan := self.suggested(what)) is not None:
            action = what.words
            if what.kind == "constrain" and not what.text:  # by the user's name for the value
                value = plan.constraints[-1].value
                action = f"constrain {value.name or 'the value'} at {value.line} to {what.spec}"
            yield Change(plan=plan, action=action)

    def suggested(self, what: Suggestion) -> Plan | None:
        """Return the plan with a suggestion applied; None if a plan cannot express it."""
        plan, spec = self.plan, what.spec or Spec()
        if what.kind == "device-order":
            return self._laid_out(what)
        if what.kind == "constrain":
            value = as_propagated(what.target, self.report.intermediates, lambda: self._propagated.intermediates)
            source = what.source if value is None else value.source
            made = [v for v in self._propagated.intermediates if v.source == source]
            target = value or (made[-1] if made else None)
            if target is not None and len(spec.dims) > len(target.shape):
                return None
            named = value is None or value.label or (source and source.columns)
            if value is not None and not named and made and made[-1].shape != value.shape:
                return None  # the line alone is the place of the last value that it makes
            with contextlib.suppress(ShardvizError):  # no line, or a value of the backward pass
                return plan.constrain(value, spec, line=source.short if source is not None and value is None else "")
            return None
        plan = plan.with_spec({what.target: spec}, output=what.kind == "output")
        return plan.with_spec(dict(what.specs)).with_spec(dict(what.out_specs), output=True)

    def _rewritable(self, finding: Finding) -> str:
        """Return the line of the collective that a finding is about, or of the constraint that asks for it, if another
        one can be written in its place; else an empty string."""
        hoists = finding.rule == _HOISTED[0]
        lines = [finding.source.short] if finding.source is not None and finding.rule in _REWRITTEN else []
        if hoists and (shape := self._shapes.get(finding.value)):
            lines += [line for (line, _), shapes in self._own.items() if shape in shapes]
        for line in dict.fromkeys(lines):
            words = rewritten_words(self.program, line)
            if _HOISTED[1] in words if hoists else set(words) - {_HOISTED[1]}:
                return line
        return ""

    def _padded(self, finding: Finding, what: Suggestion) -> Iterator[Change]:
        """Propose a longer dimension in all arrays that have it, also sharded by the axes that did not divide it."""
        member = f"{what.target}:{what.dimension}"
        having = [d for d in self.program.dimensions if member in map(str, d.members)]
        sizes = self._shapes
        if not having or what.dimension is None or what.size is None or what.target not in sizes:
            self.rejected.append(Rejected(action=what.words, why="the program has no such dimension to change"))
            return
        dimension, was, better = having[0], sizes[what.target][what.dimension], what.size
        arrays = [str(m) for m in dimension.arguments if sizes[m.path][m.dimension] % was == 0]
        write = f"{better} in place of {was} in {', '.join(arrays)}"
        wide = self.plan.with_variant(lengths={member: (was, better)})
        action = f"make dimension {dimension.name} {better:,} long, in place of {was:,}"
        yield Change(plan=wide, action=action, write=write)
        axes = self._axes(dimension)
        if more := tuple(a for a in finding.axes if a not in axes):
            plan, along = wide.with_dimension(dimension, (*axes, *more)), _anded((*axes, *more))
            yield Change(plan=plan, action=f"{action}, and shard it along {along}", write=write)

    def _laid_out(self, what: Suggestion) -> Plan | None:
        """Return the plan with the mesh's devices in the order that the finding timed."""
        mesh = self.plan.mesh
        if what.policy:
            return self.plan.with_mesh(reordered(mesh, what.policy))
        moved = [name for name, other in zip(mesh.names, what.axes, strict=False) if name != other]
        if self.machine is None or len(moved) != 2:
            return None
        return self.plan.with_mesh(exchanged(mesh, self.machine, *moved))

    @cached_property
    def _propagated(self) -> Report:
        """The report, or that of Shardy's propagation if it is of a higher level."""
        return self.report if self.report.level == "propagated" else self.program.propagate(self.plan)

    @cached_property
    def _axes_of(self) -> dict[str, Counter[tuple[Axis, ...]]]:
        """Logical dimension → the axes that shard it, weighted by the number of elements of the arrays."""
        decisions = {}
        for dimension in self.program.dimensions:
            weights = decisions[dimension.name] = Counter[tuple[Axis, ...]]()
            for member in dimension.arguments:
                spec = self._bound.in_specs.get(member.path)
                if spec is not None and member.dimension < len(spec.dims):
                    weights[spec.dims[member.dimension]] += math.prod(self._shapes.get(member.path, ()))
        return decisions

    def _axes(self, dimension: Dimension) -> tuple[Axis, ...]:
        """Return the axes that shard a dimension in most of its arrays."""
        return next((axes for axes, _ in self._axes_of[dimension.name].most_common(1)), ())

    def _as_most_are(self) -> Iterator[Change]:
        """Propose each logical dimension sharded in all its arrays as it is in most of them."""
        for dimension in self.program.dimensions:
            if len(decisions := self._axes_of[dimension.name]) > 1:
                for axes, _ in decisions.most_common(2):
                    if not (axes and dimension.undivided):
                        yield self._with(dimension, axes)

    def _by_more_axes(self) -> Iterator[Change]:
        """Propose the batch sharded along the unused axes too, along all axes, and along all with nothing else
        sharded, then all batches so. The function's own constraints of the batch follow it."""
        used = {axis_name(a) for spec in self._bound.in_specs.values() for a in spec.axes}
        several = [a for a, size in self.plan.mesh.shape.items() if size > 1]
        alone: list[tuple[Dimension, tuple[Axis, ...]]] = []
        for dimension, axes in self._batches:
            others = [a for a in several if a not in map(axis_name, axes)]
            idle = [a for a in others if a not in used]
            single = [(a,) for a in others] if len(others) > 1 else []
            more = [(*axes, *e) for e in (idle, others, *single) if e and self._divides(dimension, (*axes, *e))]
            for each in dict.fromkeys(more):
                yield (change := self._with(dimension, each))
                own = self._own_by_batch([(dimension, each)])
                if follow := {place: after for place, after in own.items() if after}:
                    yield self._with_constraints(follow, change)
            if (*axes, *others) in more or (axes and not others):
                alone.append((dimension, (*axes, *others)))
        for batches in (*([each] for each in alone), *([alone] if len(alone) > 1 else [])):
            bare = {name: Spec() for name, spec in self._bound.in_specs.items() if spec.axes}
            renewed = [v.becomes for v in self.report.arguments if v.name in bare]
            renewed = {name: Spec() for name in renewed if self._bound.out_specs.get(name)}
            plan = self.plan.with_spec(bare).with_spec(renewed, output=True)
            for dimension, axes in batches:
                plan = plan.with_dimension(dimension, axes)
            each = (f"dimension {dimension.name} along {_anded(axes)}" for dimension, axes in batches)
            yield Change(plan=plan, action=f"shard {' and '.join(each)}, and nothing else")

    @cached_property
    def _batches(self) -> _Batches:
        """The batch dimensions, and the axes that shard each in most arrays."""
        return [(d, self._axes(d)) for d in self.program.dimensions if d.of == "batch"]

    @cached_property
    def _own(self) -> dict[tuple[str, Spec], list[tuple[int, ...]]]:
        """(line, spec) of the function's own constraints → the shapes that they constrain."""
        named = ((c, tuple(tuple(map(axis_name, axes)) for axes in c.spec.dims)) for c in self.program.constraints)
        return grouped(((c.source.short, Spec(dims)), c.shape) for c, dims in named if c.source is not None)

    def _own_by_batch(self, batches: _Batches) -> _Changes:
        """(line, spec) of the function's own constraints → the spec with the batch sharded so; None if it is, or
        cannot be."""
        return {place: self._by_batch(place[1], shapes[0], batches) for place, shapes in self._own.items()}

    def _by_batch(self, spec: Spec, shape: Sequence[int], batches: _Batches) -> Spec | None:
        for dimension, axes in batches:
            d = next((d for d, size in enumerate(shape) if size in dimension.sizes), None)
            if d is None or not axes or not all(isinstance(a, str) for a in axes) or not self._divides(dimension, axes):
                continue
            dims = [*spec.dims, *((),) * (d + 1 - len(spec.dims))]
            new = [tuple(a for a in dim if a not in axes) for dim in dims]
            new[d] = tuple(axes)
            return None if set(new[d]) == set(dims[d]) else Spec(tuple(new))
        return None

    def _reconstrained(self) -> Iterator[Change]:
        """Propose to drop the function's constraints, those that fight the plan first, or to shard the batch in them as
        the plan does, or else the array as it is computed. If they are few, all but those of the batch alone are
        proposed."""
        if not self._own:
            return
        moves = [c for c in self._propagated.collectives if c.kind != "all-reduce"]
        total = sum(c.assumed_bytes for c in moves)
        moved: Counter[Any] = Counter()
        computed: dict[Spec, Spec] = {}
        for c, ((line, before), shapes) in itertools.product(moves, self._own.items()):
            asked = c.array in shapes and c.after and c.after.same_as(before, self.plan.mesh)
            if asked and c.before is not None and c.operand not in self._bound.in_specs:
                computed.setdefault(before, c.before)
            if asked or (c.source is not None and c.source.short == line):
                moved[line, before] += round(c.assumed_bytes)
        own = self._own_by_batch(self._batches)
        batches = [[tuple(map(axis_name, axes))] for _, axes in self._batches]
        few = len(self._own) <= policy.OWN_CONSTRAINTS
        changed, dropped = _Changes(), _Changes()
        for place in sorted(self._own, key=lambda place: -moved[place]):
            tried = own[place] or moved[place] > policy.GRAVE * total
            tried = tried or (few and [dim for dim in place[1].dims if dim] not in batches)
            if tried and len(dropped) < policy.OWN_CONSTRAINTS:
                dropped[place] = None
                if after := own[place] or computed.get(place[1]):
                    changed[place] = after
        self._dropped = self._with_constraints(dropped) if dropped else None
        for changes in (changed, dropped):
            yield from (self._with_constraints(dict([each])) for each in changes.items())
        for _, alike in itertools.groupby(changed.items(), lambda each: (each[0][1], each[1])):
            if len(together := dict(alike)) > 1:
                yield self._with_constraints(together)
        if len(dropped) > 1 and self._dropped is not None:
            yield self._dropped

    def _with_constraints(self, changes: Mapping[Any, Spec | None], first: Change | None = None) -> Change:
        lines = " and ".join(line for line, _ in list(changes)[:_NAMED])
        more = f" and at {plural(len(changes) - _NAMED, 'more line')}" if len(changes) > _NAMED else ""
        (_, before), after = next(iter(changes.items()))
        named = f"the constraint {before}" if len({spec for _, spec in changes}) == 1 else "the constraints"
        does = f"drop {named}" if after is None else f"constrain to {after} in place of {before}"
        plan, start = (self.plan, "") if first is None else (first.plan, f"{first.action}, and ")
        plan = plan.with_variant(constraints=changes)
        return Change(plan=plan, action=f"{start}{does} at {lines}{more}", code=constraint_words)

    def _along(self, axis: str) -> Iterator[Change]:
        """Propose an axis more or less for each logical dimension, those of the largest arrays first."""

        def largest(dimension: Dimension) -> int:
            return max((math.prod(self._shapes.get(m.path, ())) for m in dimension.arguments), default=0)

        for dimension in sorted(self.program.dimensions, key=largest, reverse=True):
            axes = self._axes(dimension)
            if axis in axes:
                yield self._with(dimension, tuple(a for a in axes if a != axis))
            elif not dimension.undivided and self._divides(dimension, (*axes, axis)):
                yield self._with(dimension, (*axes, axis))

    def _divides(self, dimension: Dimension, axes: Sequence[Axis]) -> bool:
        by = axes_size(axes, self.plan.mesh)
        return by > 1 and all(size % by == 0 for size in dimension.sizes)

    def _with(self, dimension: Dimension, axes: Sequence[Axis]) -> Change:
        plan = self.plan.with_dimension(dimension, axes)
        does = f"{'shard' if axes else 'replicate'} dimension {dimension.name}"
        along = f" along {_anded(axes)}" if axes else ""
        where = "all its arrays"
        with contextlib.suppress(ShardvizError):  # raised again, and reported, when the change is tried
            specs = self.program.bind(plan).in_specs
            names = [name for name, spec in specs.items() if spec != self._bound.in_specs[name]]
            more = [f"{names[0]} and {plural(len(names) - 1, 'more array')}"] if len(names) > _NAMED else names
            where = " and ".join(more)
        return Change(plan=plan, action=f"{does}{along} in {where}")

    def _constrained(self) -> Iterator[Change]:
        """Propose to shard the largest forward variables along the axes with the most bytes summed."""
        sums = (c for c in self.report.collectives if c.kind == "all-reduce" and c.axes and c.phase == "forward")
        moved = summed((tuple(map(axis_name, c.axes or ())), c.assumed_bytes) for c in sums)
        if (axes := max(moved, key=lambda axes: moved[axes], default=None)) is not None:
            heavy = sorted(self._propagated.intermediates, key=lambda v: -(v.bytes_per_device or 0.0) * (v.count or 1))
            with_axes = ((value, self._more_sharded(value, axes)) for value in heavy)
            for value, spec in itertools.islice(((v, s) for v, s in with_axes if s is not None), policy.HELD):
                with contextlib.suppress(ShardvizError):
                    plan, line = self.plan.constrain(value, spec), value.source.short if value.source else ""
                    yield Change(plan=plan, action=f"constrain {value.label} at {line} to {spec}")

    def _more_sharded(self, value: Value, axes: Sequence[str]) -> Spec | None:
        """Return a variable's spec with these axes on its first unsharded dimension; None if they do not fit."""
        if not value.label or value.source is None or value.manual or phase(value.name_stack) != "forward":
            return None
        if value.spec is None or not all(free(value, axis) for axis in axes):
            return None
        by, dims = axes_size(axes, self.plan.mesh), enumerate(zip(value.shape, value.spec.dims, strict=False))
        even = (d for d, (size, dim) in dims if d and not dim and size % by == 0 and size > by)
        return onto(value.spec, axes, next(even, None))


def _anded(axes: Sequence[Axis]) -> str:
    return " and ".join(map(axis_text, axes))
