"""Presets: the plans that people begin with, made for any program from its logical dimensions and its arrays' roles.

| preset | what is sharded | where |
|---|---|---|
| `data parallel` | the batch, and a cache along it | always |
| `zero-1` | the batch and optimizer state | a derivative, and such a state |
| `zero-2` | the batch, optimizer state and gradients | a derivative, and such a state or result |
| `fsdp` | the batch, optimizer state, gradients and parameters (ZeRO-3) | always |
| `tensor parallel` | what lies between the layers' own products: d_ff, heads, vocabulary | always |
| `data + tensor parallel` | the batch by all axes but the last, what lies between by the last | two axes, inference |
| `fsdp + tensor parallel` | the state by all axes but the last, what lies between by the last | two axes |
| `sequence parallel` | the sequence by the last axis (context parallel), the batch by the rest | two axes, a sequence |
| `KV sequence parallel` | a cache's sequence by the last axis, the batch by the others | a cache |
| `expert parallel` | the experts by the last axis, the batch by every axis | experts |
| `2-D tensor parallel` | every matrix in both its dimensions, by the last axis and the one before | two axes |
| `data + fsdp + tensor parallel` | the state by the middle axes, what lies between by the last | three axes |

A ZeRO stage is told by what is sharded besides the batch (Rajbhandari et al., 2020, "ZeRO"); which arguments are
optimizer state and which results gradients, `program/roles.py` reads off what is made of what, and which dimension is
one of experts, `seeding.py`. Gradients that come out of the function are whole at stage 1 and sharded at stage 2. Those
that stay inside lie as the optimizer state does, because Shardy has them follow it: both stages are then one plan. No
plan can name them either, for no line makes them, but the derivative of one; so ZeRO-1's sentence says what to write in
the function to keep them whole. Simulated devices sum them whole either way; v5p's compiler, where that line is not
there, has each device sum its own part alone. The dimension that a loop steps along is never sharded,
nor the height and width of a convolution's kernel.

Each preset has promises: what its sentence says of the arrays, read off the report. A preset that breaks one is not
offered, and says why. Two that come out as the same step are one offer. None is recommended here: with a target the
presets are ordered by the modelled step, which is *predicted* until the partitioner has confirmed it.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec

from shardviz.ask.parts import Parts, nbytes
from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import StepCost, cost_of
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.kept import cached_property
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.spec import axis_name
from shardviz.program.dimensions import Dimension, Dimensions, Member
from shardviz.program.plan import Plan
from shardviz.program.roles import Roles
from shardviz.program.trace import Argument
from shardviz.records import Collective, Value
from shardviz.records.amounts import plural
from shardviz.records.groups import grouped
from shardviz.visible import Visible


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A plan to begin with.

    Attributes:
        name: such as `fsdp + tensor parallel`.
        text: what it does, in a sentence.
        cut: how many dimensions of arguments are sharded along what.
        plan: the plan.
        report: what Shardy, or the partitioner, makes of it; None where it is not offered.
        cost: what its step costs on the target, by that report; None without one.
        predicted: what it costs by Shardy's report, where `report` is the partitioner's.
        also: other presets that come out as the same step here.
        trouble: why it is not offered; empty where it is.
        promises: what its sentence says, each read off a report: why it does not hold, or nothing.
    """

    name: str
    text: str
    plan: Plan
    cut: str = ""
    report: Report | None = None
    cost: StepCost | None = None
    predicted: StepCost | None = None
    also: tuple[str, ...] = ()
    trouble: str = ""
    promises: tuple[Promise, ...] = field(default=(), compare=False, repr=False)

    def broken(self, report: Report) -> str:
        """Why its sentence does not hold of the plan that it made; empty where it does."""
        return next((why for promise in self.promises if (why := promise(report))), "")

    @property
    def words(self) -> str:
        """What it does, and what else comes out the same."""
        return self.text + (f" ({' and '.join(self.also)}: the same step here)" if self.also else "")


class Presets(dict[str, Plan], Visible):
    """Name → plan, the shortest modelled step first where a target was given; `rows` has what was found of each, those
    that are not offered last, with the reason. Several names may be one row, which has them as `also`."""

    __repr__ = Visible.__repr__

    def __init__(self, rows: Sequence[Preset]):
        offered = [row for row in rows if row.report is not None]
        super().__init__({name: row.plan for row in offered for name in (row.name, *row.also)})
        self.rows = tuple(rows)


P = ParamSpec("P")
Promise = Callable[[Report], str]
"""What a preset's sentence says of a report: why that does not hold, or nothing."""


@dataclass(frozen=True, kw_only=True)
class _Subject(Parts):
    """What presets are made from: a program's parts, the roles of its arrays, and a mesh."""

    mesh: DeviceMesh
    roles: Roles

    @property
    def last(self) -> str:
        return self.mesh.names[-1]

    def of(self, what: str) -> list[Dimension]:
        return [d for d in self.dimensions if d.of == what]

    def copies(self, plan: Plan, axes: Sequence[str]) -> Plan:
        """The plan with every device group's own rows of the batch."""
        return _cut(self, plan, self.of("batch"), axes)

    @cached_property
    def parameters(self) -> list[Argument]:
        """The state but for the optimizer's."""
        return [a for a in self.state if a.name not in self.optimizer]

    @cached_property
    def weights(self) -> list[Argument]:
        return list(self.matrices.values())

    @cached_property
    def cached(self) -> list[Dimension]:
        """The sequence of a cache: dimensions of nothing but data that comes out again, no derivative being taken."""
        state = {a.name for a in self.state}
        again = set(self.roles.becomes) - state if not self.roles.differentiated else set[str]()
        free = (d for d in self.dimensions if not (d.of == "batch" or d.stacked or d.experts))
        return [d for d in free if d.arguments and again.issuperset(m.path for m in d.arguments)]


def presets_of(
    mesh: DeviceMesh, arguments: Sequence[Argument], dimensions: Dimensions, roles: Roles
) -> Iterator[Preset]:
    """The presets, not tried yet. Raises ShardvizError if the mesh has no axis."""
    if not mesh.names:
        raise ShardvizError("presets(mesh): a mesh with one axis or more is needed, such as {'data': 8, 'model': 8}")
    more = {"optimizer": roles.optimizer, "mesh": mesh, "roles": roles}
    subject = _Subject(arguments=arguments, dimensions=dimensions, **more)
    none = Plan(mesh, edits={a.name: Spec() for a in arguments})
    every = (_by_batch, _by_products, _by_sequence, _by_experts, _in_two_ways)
    for name, plan, text, promises in itertools.chain.from_iterable(of(subject, none) for of in every):
        by = Counter(tuple(map(str, axes)) for m, axes in plan.cuts if m.role == "argument" and axes)
        cut = ", ".join(f"{plural(n, 'array dimension')} by {' and '.join(axes)}" for axes, n in by.items())
        yield Preset(name=name, plan=plan, text=text, cut=cut or "nothing divides", promises=tuple(promises))


_Made = Iterator[tuple[str, Plan, str, Sequence[Promise]]]
"""Name, plan, what it does in a sentence, what that promises. Of several of one name the one is kept that moves the
fewest bytes on this program."""


def _by_batch(subject: _Subject, none: Plan) -> _Made:
    """The batch sharded by all axes, and with it more and more of the state."""
    roles, state, axes = subject.roles, subject.state, subject.mesh.names
    copies, batch = subject.copies(none, axes), _batch(subject, axes)
    summed = "; gradients are all-reduced" if roles.differentiated else ""
    cache = " and its cache are" if subject.cached else " is"
    text = f"parameters are replicated, and the batch{cache} sharded {_along(subject, axes)}{summed}"
    yield "data parallel", copies, text, (_whole(state), batch)
    optimizer = _sharded("the optimizer state", [a for a in state if a.name in roles.optimizer], axes)
    updates = "each device updates its shard of the parameters, which are then gathered"
    if roles.optimizer:
        whole = none.with_spec(dict.fromkeys(sorted(roles.gradients), Spec()), output=True)
        text = f"parameters and gradients are replicated and the optimizer state is sharded: {updates} (ZeRO-1)"
        if not roles.gradients:
            text = (
                f"parameters are replicated and the optimizer state is sharded: {updates} (ZeRO-1); gradients are "
                "sharded as that state, as in ZeRO-2, unless the function keeps them replicated: "
                "jax.lax.with_sharding_constraint(grads, P())"
            )
        plan = _state_cut(subject, subject.copies(whole, axes), axes, roles.optimizer)
        yield "zero-1", plan, text, (_whole(subject.parameters), batch, optimizer)
    if roles.optimizer or roles.gradients:
        plan = _state_cut(subject, copies, axes, roles.optimizer, roles.gradients)
        text = f"parameters are replicated, optimizer state and gradients are sharded: {updates} (ZeRO-2)"
        gradients = _sharded("gradients", [o for o in roles.outputs if o.name in roles.gradients], axes)
        yield "zero-2", plan, text, (_whole(subject.parameters), batch, optimizer, gradients)
    what = "parameters and optimizer state" if roles.differentiated else "parameters"
    text = f"{what} are sharded over all devices, and gathered where they are used (ZeRO-3)"
    yield "fsdp", _state_cut(subject, copies, axes), text, (batch, _sharded(what, state, axes))


def _by_products(subject: _Subject, none: Plan) -> _Made:
    """What lies between the layers' products sharded by the last axis, and the batch by the others."""
    *others, _ = subject.mesh.names
    tensor, between = _tensor_cut(subject, none), _between(subject)
    text = f"{_products(subject, tensor)}, by d_ff, heads and the like, and their partial sums all-reduced"
    whole = _unsharded(subject.of("batch"))
    yield "tensor parallel", tensor, f"{text}; the batch is replicated", (between, whole, _multiplied(subject))
    if not others:
        return
    both, batch = subject.copies(tensor, others), _batch(subject, others)
    if not subject.roles.differentiated:
        text = f"the batch is sharded {_along(subject, others)}, and {_products(subject, both)}"
        yield "data + tensor parallel", both, text, (batch, between)
    plan = _state_cut(subject, both, others)
    text = f"fsdp over {' and '.join(others)}, and {_products(subject, plan)}"
    yield "fsdp + tensor parallel", plan, text, (batch, _sharded("parameters", subject.state, others), between)


def _by_sequence(subject: _Subject, none: Plan) -> _Made:
    """The sequence, or a cache's, sharded by the last axis, and the batch by the others."""
    *others, last = subject.mesh.names
    sequences, copies = subject.of("sequence"), subject.copies(none, others)
    if others and sequences:
        text = (
            f"parameters are replicated, every sequence is sharded along {last} and the batch "
            f"{_along(subject, others)} (context parallel); attention gathers keys and values"
        )
        promises = _whole(subject.state), _batch(subject, others), _every("sequence", sequences, last)
        yield "sequence parallel", _cut(subject, copies, sequences, (last,)), text, promises
    if subject.cached:
        batch = f", and the batch {_along(subject, others)}" if others else ""
        text = (
            f"the cache is sharded along {last} by its sequence{batch}: each device attends to its own keys and "
            f"values, and partial sums are all-reduced; parameters that no head has are sharded along {last} too"
        )
        promises = *([_batch(subject, others)] if others else ()), _every("cache's sequence", subject.cached, last)
        plan = _tensor_cut(subject, _cut(subject, copies, subject.cached, (last,)))
        yield "KV sequence parallel", plan, text, promises


def _by_experts(subject: _Subject, none: Plan) -> _Made:
    """The experts sharded by the last axis, and the batch by every axis, or by the others."""
    *others, last = subject.mesh.names
    experts = [d for d in subject.dimensions if d.experts]
    which = ", ".join(f"dimension {d.arguments[0].dimension} of {d.arguments[0].path}" for d in experts if d.arguments)
    for axes, how in (
        (subject.mesh.names, "an all-to-all sends rows to their experts and back"),
        (others, f"the batch is replicated along {last}, and the experts' results are all-reduced"),
    ):
        if experts:
            text = f"experts are sharded along {last} ({which}: each multiplies rows of its own); {how}"
            plan = _cut(subject, subject.copies(none, axes), experts, (last,))
            yield "expert parallel", plan, text, (_every("experts'", experts, last),)


def _in_two_ways(subject: _Subject, none: Plan) -> _Made:
    """Matrices sharded in both their dimensions; and copies of what is sharded by state and products."""
    *others, last = subject.mesh.names
    tensor = _tensor_cut(subject, none)
    if others and subject.through is not None:
        plan = _cut(subject, subject.copies(tensor, others[:-1]), [subject.through], others[-1:])
        dims = Counter(m.path for m, axes in plan.cuts if m.role == "argument" and set(axes) & {others[-1], last})
        weights = subject.weights
        both = sum(dims[a.name] > 1 for a in weights)
        text = (
            f"{both} of {len(weights)} matrices are sharded in two dimensions, along {others[-1]} and {last}, "
            "and stay where they are: the activations are communicated, which pays where tokens are few"
        )
        promises = _sharded("the matrices", weights, (others[-1], last), _MOST), _stay(weights)
        yield "2-D tensor parallel", plan, text, promises
    if len(others) > 1:
        first, *middle = others
        plan = _state_cut(subject, subject.copies(tensor, others), middle)
        text = (
            f"everything is replicated along {first}; within each replica fsdp over {' and '.join(middle)}, and "
            f"{_products(subject, plan)}"
        )
        held = _whole(subject.state, {first}), _batch(subject, others), _sharded("parameters", subject.state, middle)
        yield "data + fsdp + tensor parallel", plan, text, (*held, _between(subject))


# Words, and what they promise.

_NEARLY, _MOST = 0.9, 0.5
"""The share of the bytes that has to be sharded where a sentence says that they are; and of matrix products."""


def _promise(broken: Callable[Concatenate[Report, P], str]) -> Callable[P, Promise]:
    """What a report has to keep, of a function that says why one does not, or nothing."""
    return lambda *of, **more: lambda report: broken(report, *of, **more)


def _along(subject: _Subject, axes: Sequence[str]) -> str:
    """Along which of some axes the batch is sharded, in words."""
    batch = subject.of("batch")
    used = {a for d in batch for a in _dividing(d.size, axes, subject.mesh)}
    if used == set(subject.mesh.names):
        return "over all devices"
    left = [a for a in axes if a not in used]
    why = f" ({batch[0].size} do not divide by {' and '.join(left)})" if left and batch else ""
    return f"along {' and '.join(a for a in axes if a in used) or 'none'}{why}"


def _products(subject: _Subject, plan: Plan) -> str:
    """How much of the layers' matrix products is sharded along the last axis, in words."""
    cut = {m.path for m, axes in plan.cuts if subject.last in axes}
    weights = subject.weights
    whole = sum(map(nbytes, weights)) or 1.0
    share = sum(nbytes(a) for a in weights if a.name in cut) / whole
    which = "" if share > _NEARLY else f" ({share:.0%} of their bytes)"
    return f"each layer's matrix products are sharded along {subject.last}{which}"


def _axes_of(values: Iterable[Value]) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Tree path → the axes of each dimension."""
    specs = {v.name: v.spec for v in values}
    return {name: tuple(tuple(map(axis_name, d)) for d in spec.dims) for name, spec in specs.items() if spec}


@_promise
def _whole(report: Report, arrays: Sequence[Argument], axes: Set[str] | None = None) -> str:
    """That no array is sharded, by some axes or by any."""
    for name, dims in _axes_of(report.arguments).items():
        used = [a for dim in dims for a in dim if axes is None or a in axes]
        if used and any(a.name == name for a in arrays):
            return f"{name} is sharded along {' and '.join(used)}, and should be replicated"
    return ""


@_promise
def _unsharded(report: Report, dimensions: Sequence[Dimension]) -> str:
    """That nothing shards these dimensions."""
    dims = _axes_of(report.arguments)
    cut = (m.path for d in dimensions for m in d.arguments if m.path in dims and dims[m.path][m.dimension])
    return next((f"the {dimensions[0].of} of {path} is sharded" for path in cut), "")


@_promise
def _batch(report: Report, subject: _Subject, axes: Sequence[str]) -> str:
    """That the batch is sharded by as many of the axes as divide it, in every array that has it."""
    dims, some = _axes_of(report.arguments), False
    for batch in subject.of("batch"):
        wanted = _dividing(batch.size, axes, subject.mesh)
        for m in batch.chosen() if wanted else ():
            if m.role == "argument" and m.path in dims:
                if dims[m.path][m.dimension] != wanted:
                    return f"the batch of {m.path} is not sharded along {' and '.join(wanted)}"
                some = True
    if some:
        return ""
    sizes = {d.size for d in subject.of("batch")}
    none = f"no batch of {' or '.join(map(str, sorted(sizes)))} divides by {' or '.join(axes)}"
    return none if sizes else "the arguments have no batch dimension"


@_promise
def _sharded(report: Report, what: str, arrays: Sequence[Argument], axes: Sequence[str], least: float = _NEARLY) -> str:
    """That these arrays are sharded along all of the axes, by their bytes."""
    dims = _axes_of((*report.arguments, *report.outputs))
    cut = sum(nbytes(a) for a in arrays if {x for dim in dims.get(a.name, ()) for x in dim}.issuperset(axes))
    whole = sum(map(nbytes, arrays))
    if cut >= least * whole:
        return ""
    return f"{cut / whole:.0%} of {what} can be sharded along {' and '.join(axes)}"


def _between(subject: _Subject) -> Promise:
    """That most of the layers' matrix products are sharded along the last axis."""
    return _sharded("the matrices' bytes", subject.weights, (subject.last,), _MOST)


@_promise
def _stay(report: Report, arrays: Sequence[Argument]) -> str:
    """That none of the arrays is gathered."""
    gathered = _gathered(arrays, report)
    return _where_gathered(gathered[0]) if gathered else ""


@_promise
def _multiplied(report: Report, subject: _Subject) -> str:
    """That most of the matrices' bytes are multiplied as they are sharded along the last axis, and not gathered."""
    weights = [a for a in subject.weights if a.name not in subject.roles.optimizer]
    gathered = [c for c in _gathered(weights, report) if subject.last in map(axis_name, c.axes or ())]
    names = {c.operand for c in gathered}
    much = sum(nbytes(a) for a in weights if a.name in names) > _MOST * sum(map(nbytes, weights))
    return _where_gathered(gathered[0]) if much else ""


def _gathered(arrays: Sequence[Argument], report: Report) -> list[Collective]:
    names = {a.name for a in arrays}
    return [c for c in report.collectives if c.kind == "all-gather" and c.operand in names]


def _where_gathered(c: Collective) -> str:
    at = f" at {c.source.short}" if c.source else ""
    return f"{c.operand} is gathered{at}, where a constraint or another array has the axis"


@_promise
def _every(report: Report, what: str, dimensions: Sequence[Dimension], axis: str) -> str:
    """That these dimensions are sharded along an axis wherever they are."""
    dims = _axes_of(report.arguments)
    for m in (m for d in dimensions for m in d.chosen() if m.role == "argument"):
        if axis not in dims.get(m.path, ())[m.dimension]:
            return f"the {what} dimension of {m.path} is not sharded along {axis}"
    return ""


def _tensor_cut(subject: _Subject, plan: Plan) -> Plan:
    """The plan with what lies between the layers' products sharded along the last axis."""
    return _cut(subject, plan, subject.inner, (subject.last,), once=True)


def _cut(
    subject: _Subject, plan: Plan, dimensions: Sequence[Dimension], axes: Sequence[str], *, once: bool = False
) -> Plan:
    """The plan with dimensions cut by as many of the axes, the first first, as divide them; with `once` without those
    of which an array is sharded along one of the axes already."""
    for dimension in dimensions:
        taken = {m.path for m, by in plan.cuts if set(by) & set(axes)}
        if once and any(m.path in taken for m in dimension.arguments):
            continue
        fitting = _dividing(dimension.size, axes, subject.mesh)
        if fitting:
            plan = plan.with_dimension(dimension, fitting)
    return plan


def _dividing(size: int, axes: Sequence[str], mesh: DeviceMesh) -> tuple[str, ...]:
    """The axes, from the first on, whose product divides a size."""
    chosen: list[str] = []
    for axis in axes:
        if size % math.prod(mesh.shape[a] for a in (*chosen, axis)) == 0:
            chosen.append(axis)
    return tuple(chosen)


def _state_cut(
    subject: _Subject,
    plan: Plan,
    axes: Sequence[str],
    arguments: Set[str] | None = None,
    outputs: Set[str] = frozenset(),
) -> Plan:
    """Cuts arrays of the state by the axes, each along its largest dimension that nothing cuts and that divides; and
    these results. Of the state named by `arguments` the new values lie as the old ones do; of all of it the compiler
    places them."""
    cuts = dict(plan.cuts)
    state = subject.state
    for array in state if arguments is None else [a for a in state if a.name in arguments]:
        _cut_array(subject, cuts, "argument", array, axes)
    for array in subject.roles.outputs:
        if array.name in outputs:
            _cut_array(subject, cuts, "output", array, axes)
    if arguments is None:
        return Plan(plan.mesh, edits=plan.edits, cuts=cuts)
    becomes = subject.roles.becomes
    for member, by in list(cuts.items()):
        if member.role == "argument" and member.path in becomes:
            cuts[Member("output", becomes[member.path], member.dimension)] = by
    sharded = {*outputs, *(becomes[a.name] for a in state if a.name in becomes)}
    outs = dict(plan.out_edits) | dict.fromkeys(sorted(sharded), Spec())
    return Plan(plan.mesh, edits=plan.edits, out_edits=outs, cuts=cuts)


def _cut_array(
    subject: _Subject, cuts: dict[Member, tuple[Axis, ...]], role: str, array: Argument, axes: Sequence[str]
) -> None:
    members = (Member(role, array.name, d) for d in range(len(array.shape)))
    free = [m for m in members if m not in subject.stepped and not cuts.get(m)]
    free.sort(key=lambda m: -array.shape[m.dimension])
    for some in (axes, *((axis,) for axis in axes)):  # in one dimension; else axis by axis
        fits = (m for m in free if len(_dividing(array.shape[m.dimension], some, subject.mesh)) == len(some))
        if (member := next(fits, None)) is not None:
            cuts[member] = tuple(some)
            free.remove(member)
            if some is axes:
                break


def tried(program: Any, presets: Iterable[Preset], target: str | Machine | None, level: str = "propagated") -> Presets:
    """The presets propagated, and with a target timed, the shortest step first, which at level `partitioned` the
    partitioner has confirmed. Raises MeshError, TargetError as `sv.cost`."""
    rows: dict[str, Preset] = {}
    for preset in presets:
        row = _propagated(program, preset)
        other = rows.get(row.name)
        if other is None or other.report is None or (row.report is not None and _moved(row) < _moved(other)):
            rows[row.name] = row
    offers = list(merged(list(rows.values())))
    if target is not None:
        offers = [row if row.report is None else replace(row, cost=cost_of(row.report, target)) for row in offers]
    offers.sort(key=_order)
    while level != "propagated" and target is not None and offers and offers[0].predicted is None:
        if offers[0].report is None:
            break
        offers[0] = _confirmed(program, offers[0], target)
        offers.sort(key=_order)
    return Presets(offers)


def _propagated(program: Any, preset: Preset) -> Preset:
    """A preset with Shardy's report; with the reason where it is not offered."""
    try:
        report = program.propagate(preset.plan)
    except ShardvizError as error:
        return replace(preset, trouble=str(error))
    why = preset.broken(report)
    return replace(preset, trouble=f"not offered: {why}") if why else replace(preset, report=report)


def _confirmed(program: Any, row: Preset, target: str | Machine) -> Preset:
    """A preset with the partitioner's report, and its cost by that."""
    on = target if isinstance(target, str) else target.text
    try:
        report = program.partition(row.plan, on)
    except ShardvizError as error:
        return replace(row, report=None, trouble=f"not offered: {error}")
    return replace(row, report=report, cost=cost_of(report, target), predicted=row.cost)


def merged(rows: Sequence[Preset]) -> Iterator[Preset]:
    """The presets, of those that come out as the same step the first alone."""
    same = grouped((row.name if row.report is None else step_of(row.report), row) for row in rows)
    for first, *others in same.values():
        yield replace(first, also=tuple(other.name for other in others))


def step_of(report: Report) -> Any:
    """What two plans have in common that are one step: what each device holds, computes and moves."""
    held = sum(v.bytes_per_device or 0.0 for v in (*report.arguments, *report.outputs))
    flops = sum(row.dot_flops for row in report.cost.work) if report.cost is not None else 0.0
    return held, flops, tuple(sorted((c.kind, str(c.axes), c.assumed_bytes) for c in report.collectives))


def _moved(row: Preset) -> float:
    return 0.0 if row.report is None else sum(c.assumed_bytes for c in row.report.collectives)


def _order(row: Preset) -> tuple[bool, bool, float]:
    """Without a target, as they were made."""
    return (row.report is None, False, 0.0) if row.cost is None else rank(row.report, row.cost)


def rank(report: Report | None, cost: StepCost | None) -> tuple[bool, bool, float]:
    """The order of offers: what cannot be, and what does not fit, by an estimate too, comes last; then the shortest
    step first, or without a time what moves least."""
    if report is None:
        return True, True, 0.0
    if cost is None:
        return False, False, sum(c.assumed_bytes for c in report.collectives)
    return False, not cost.needs.may_fit, cost.lower if cost.seconds is None else cost.seconds
