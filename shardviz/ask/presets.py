"""Presets: the plans that people begin with, made for any program from its logical dimensions and its arrays' roles.

| preset | what is cut | where |
|---|---|---|
| `data parallel` | the batch | always |
| `zero-1` | the batch and optimizer state | a derivative, and such a state |
| `zero-2` | the batch, optimizer state and gradients | a derivative, and such a state or result |
| `fsdp` | the batch, optimizer state, gradients and parameters (ZeRO-3) | always |
| `tensor parallel` | what lies between the layers' own products: d_ff, heads, vocabulary | always |
| `fsdp + tensor parallel` | the state by all axes but the last, what lies between by the last | two axes |
| `sequence parallel` | the sequence by the last axis, the batch by the others | two axes, and a sequence |
| `expert parallel` | the experts by the last axis, the batch by every axis | experts |
| `2-D tensor parallel` | every matrix in both its dimensions, by the last axis and the one before | two axes |
| `data + fsdp + tensor parallel` | the state by the middle axes, what lies between by the last | three axes |

A ZeRO stage is told by what is cut besides the batch (Rajbhandari et al., 2020, "ZeRO"); which arguments are optimizer
state and which results gradients, `program/roles.py` reads off what is made of what, and which dimension is one of
experts, `seeding.py`. Gradients that come out of the function are whole at stage 1 and cut at stage 2. Those that
stay inside lie as the optimizer state does, because Shardy has them follow it: both stages are then one plan. No plan
can name them either, for no line makes them, but the derivative of one; so ZeRO-1's sentence says what to write in the
function to keep them whole. Simulated devices sum them whole either way; v5p's compiler, where that line is not there,
has each device sum its own part alone. A preset cuts what divides. None is recommended here: `presets` propagates
each, and with a target orders them by the modelled step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import StepCost, cost_of
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.layouts import itemsize
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.program.dimensions import Dimension, Dimensions, Member
from shardviz.program.plan import Plan
from shardviz.program.roles import Roles
from shardviz.program.trace import Argument
from shardviz.records.amounts import plural
from shardviz.visible import Visible


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A plan to begin with.

    Attributes:
        name: such as `fsdp + tensor parallel`.
        text: what it does, in a sentence.
        cut: how many dimensions of arguments are cut by what.
        plan: the plan.
        report: what Shardy makes of it; None where that failed.
        cost: what its step costs on the target; None without one.
        trouble: why it failed; empty where it did not.
    """

    name: str
    text: str
    plan: Plan
    cut: str = ""
    report: Report | None = None
    cost: StepCost | None = None
    trouble: str = ""


class Presets(dict[str, Plan], Visible):
    """Name → plan, the shortest modelled step first where a target was given; `rows` has what was found of each."""

    __repr__ = Visible.__repr__

    def __init__(self, rows: Sequence[Preset]):
        super().__init__({row.name: row.plan for row in rows})
        self.rows = tuple(rows)


@dataclass(frozen=True)
class _Subject:
    """What presets are made from."""

    mesh: DeviceMesh
    arguments: Sequence[Argument]
    dimensions: Dimensions
    roles: Roles

    @property
    def last(self) -> str:
        return self.mesh.names[-1]

    def of(self, what: str) -> list[Dimension]:
        return [d for d in self.dimensions if d.of == what]

    def state(self) -> list[Argument]:
        """The arguments that are no data: those of which no dimension is a batch or a sequence."""
        data = {m.path for d in self.dimensions if d.of for m in d.arguments}
        return [a for a in self.arguments if a.name not in data and a.shape]

    def copies(self, plan: Plan, axes: Sequence[str]) -> Plan:
        """The plan with every device group's own rows of the batch."""
        return _cut(self, plan, self.of("batch"), axes)

    def through(self) -> Dimension | None:
        """The dimension of matrices that runs through all layers, such as d_model: the one that most of them have."""
        matrices, own = self.matrices()
        if len(own) < 2:
            return None
        return max(own, key=lambda d: len({m.path for m in d.arguments if m.path in matrices}))

    def matrices(self) -> tuple[dict[str, float], list[Dimension]]:
        """The bytes of every matrix of the state; and the dimensions of these, but those of data and stacks."""
        found = {a.name: math.prod(a.shape) * itemsize(a.dtype) for a in self.state() if len(a.shape) > 1}
        own = [d for d in self.dimensions if not d.of and not d.stacked and any(m.path in found for m in d.arguments)]
        return found, own

    def between(self) -> list[Dimension]:
        """What lies between the layers' products: every dimension of matrices but the one that runs through all of
        them, the most bytes first.
        """
        matrices, own = self.matrices()
        kept = [d for d in own if d is not self.through()]
        return sorted(kept, key=lambda d: -sum(matrices.get(m.path, 0.0) for m in d.arguments))


def presets_of(
    mesh: DeviceMesh, arguments: Sequence[Argument], dimensions: Dimensions, roles: Roles
) -> Iterator[Preset]:
    """The presets, not tried yet.

    Raises:
        ShardvizError: if the mesh has no axis.
    """
    if not mesh.names:
        raise ShardvizError("presets(mesh): a mesh with one axis or more is needed, such as {'data': 8, 'model': 8}")
    subject = _Subject(mesh, arguments, dimensions, roles)
    for name, of in _ALL:
        made = of(subject, Plan(mesh, edits={a.name: Spec() for a in arguments}))
        if made is not None:
            plan, text = made
            by = Counter(tuple(map(str, axes)) for m, axes in plan.cuts if m.role == "argument" and axes)
            cut = ", ".join(f"{plural(n, 'array dimension')} by {' and '.join(axes)}" for axes, n in by.items())
            yield Preset(name=name, plan=plan, text=text, cut=cut or "nothing divides")


_Made = tuple[Plan, str] | None
"""A plan and what it does; None where the program or the mesh has nothing to make it of."""


def _data(subject: _Subject, none: Plan) -> _Made:
    summed = "; gradients are all-reduced" if subject.roles.differentiated else ""
    text = f"parameters are replicated, and the batch is sharded over all devices{summed}"
    return subject.copies(none, subject.mesh.names), text


def _zero1(subject: _Subject, none: Plan) -> _Made:
    roles, axes = subject.roles, subject.mesh.names
    if not roles.optimizer:
        return None
    whole = none.with_edits(out_edits={name: Spec() for name in sorted(roles.gradients)})
    plan = _state_cut(subject, subject.copies(whole, axes), axes, roles.optimizer)
    text = (
        "parameters and gradients are replicated and the optimizer state is sharded: each device updates its shard of "
        "the parameters, which are then gathered (ZeRO-1)"
    )
    if roles.gradients:
        return plan, text
    return plan, (
        "parameters are replicated and the optimizer state is sharded: each device updates its shard of the "
        "parameters, which are then gathered (ZeRO-1); gradients are sharded as that state, as in ZeRO-2, unless the "
        "function keeps them replicated: jax.lax.with_sharding_constraint(grads, P())"
    )


def _zero2(subject: _Subject, none: Plan) -> _Made:
    roles, axes = subject.roles, subject.mesh.names
    if not roles.optimizer and not roles.gradients:
        return None
    plan = _state_cut(subject, subject.copies(none, axes), axes, roles.optimizer, roles.gradients)
    return plan, (
        "parameters are replicated, optimizer state and gradients are sharded: each device updates its shard of the "
        "parameters, which are then gathered (ZeRO-2)"
    )


def _fsdp(subject: _Subject, none: Plan) -> _Made:
    axes = subject.mesh.names
    plan = _state_cut(subject, subject.copies(none, axes), axes)
    what = "parameters and optimizer state" if subject.roles.differentiated else "parameters"
    return plan, f"{what} are sharded over all devices, and gathered where they are used (ZeRO-3)"


def _tensor(subject: _Subject, none: Plan) -> _Made:
    plan = _cut(subject, none, subject.between(), (subject.last,), once=True)
    return plan, (
        f"each layer's matrix products are sharded along {subject.last}, by d_ff, heads and the like, and their "
        "partial sums all-reduced; the batch is replicated"
    )


def _fsdp_tensor(subject: _Subject, none: Plan) -> _Made:
    *others, last = subject.mesh.names
    if not others:
        return None
    tensor = _cut(subject, none, subject.between(), (last,), once=True)
    plan = _state_cut(subject, subject.copies(tensor, others), others)
    return plan, f"fsdp over {' and '.join(others)}, and each layer's matrix products sharded along {last}"


def _sequence(subject: _Subject, none: Plan) -> _Made:
    *others, last = subject.mesh.names
    if not others or not subject.of("sequence"):
        return None
    plan = _cut(subject, subject.copies(none, others), subject.of("sequence"), (last,))
    return plan, (
        f"parameters are replicated, every sequence is sharded along {last} and the batch along the other axes; "
        "attention gathers keys and values"
    )


def _expert(subject: _Subject, none: Plan) -> _Made:
    return _experts(subject, none, subject.mesh.names, "an all-to-all sends rows to their experts and back")


def _expert_whole(subject: _Subject, none: Plan) -> _Made:
    *others, last = subject.mesh.names
    return _experts(
        subject, none, others, f"the batch is replicated along {last}, and the experts' results are all-reduced"
    )


def _experts(subject: _Subject, none: Plan, data: Sequence[str], how: str) -> _Made:
    experts = [d for d in subject.dimensions if d.experts]
    if not experts:
        return None
    plan = _cut(subject, subject.copies(none, data), experts, (subject.last,))
    which = ", ".join(f"dimension {d.arguments[0].dimension} of {d.arguments[0].path}" for d in experts if d.arguments)
    return plan, f"experts are sharded along {subject.last} ({which}: each multiplies rows of its own); {how}"


def _two(subject: _Subject, none: Plan) -> _Made:
    *others, last = subject.mesh.names
    through = subject.through()
    if not others or through is None:
        return None
    plan = _cut(subject, none, subject.between(), (last,), once=True)
    plan = _cut(subject, subject.copies(plan, others[:-1]), [through], others[-1:])
    dims = Counter(m.path for m, axes in plan.cuts if m.role == "argument" and set(axes) & {others[-1], last})
    matrices, _ = subject.matrices()
    both = sum(dims[path] > 1 for path in matrices)
    return plan, (
        f"{both} of {len(matrices)} matrices are sharded in two dimensions, along {others[-1]} and {last}, "
        "and stay where they are: the activations are communicated, which pays where tokens are few"
    )


def _three(subject: _Subject, none: Plan) -> _Made:
    first, *middle, last = [*subject.mesh.names, ""][: max(len(subject.mesh.names), 2)]
    if not middle:
        return None
    tensor = _cut(subject, none, subject.between(), (last,), once=True)
    plan = _state_cut(subject, subject.copies(tensor, (first, *middle)), middle)
    return plan, (
        f"everything is replicated along {first}; within each replica fsdp over {' and '.join(middle)}, and the "
        f"layers' matrix products sharded along {last}"
    )


_ALL: Sequence[tuple[str, Callable[[_Subject, Plan], _Made]]] = (
    ("data parallel", _data),
    ("zero-1", _zero1),
    ("zero-2", _zero2),
    ("fsdp", _fsdp),
    ("tensor parallel", _tensor),
    ("fsdp + tensor parallel", _fsdp_tensor),
    ("sequence parallel", _sequence),
    ("expert parallel", _expert),
    ("expert parallel", _expert_whole),
    ("2-D tensor parallel", _two),
    ("data + fsdp + tensor parallel", _three),
)
"""Name → how it is made. Of several of one name the one is kept that moves the fewest bytes on this program."""


def _cut(
    subject: _Subject, plan: Plan, dimensions: Sequence[Dimension], axes: Sequence[str], *, once: bool = False
) -> Plan:
    """Cuts dimensions by as many of the axes as divide them.

    Args:
        subject: the program and the mesh.
        plan: what is cut already.
        dimensions: what to cut.
        axes: by which, major to minor.
        once: leave out a dimension of which an array is cut by one of the axes already.
    """
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
    found: list[str] = []
    for axis in axes:
        if size % math.prod(mesh.shape[a] for a in (*found, axis)) == 0:
            found.append(axis)
    return tuple(found)


def _state_cut(
    subject: _Subject,
    plan: Plan,
    axes: Sequence[str],
    arguments: Set[str] | None = None,
    outputs: Set[str] = frozenset(),
) -> Plan:
    """Cuts arrays of the state by the axes, each along its largest dimension that nothing cuts and that divides.

    Args:
        subject: the program and the mesh.
        plan: what is cut already.
        axes: by which.
        arguments: which of the state; then the new values of all of it lie as the old ones do. None for all of it, of
            which the compiler places the new values.
        outputs: which results are cut too.
    """
    cuts = dict(plan.cuts)
    state = subject.state()
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
    said = {*outputs, *(becomes[a.name] for a in state if a.name in becomes)}
    outs = dict(plan.out_edits) | dict.fromkeys(sorted(said), Spec())
    return Plan(plan.mesh, edits=plan.edits, out_edits=outs, cuts=cuts)


def _cut_array(
    subject: _Subject, cuts: dict[Member, tuple[Axis, ...]], role: str, array: Argument, axes: Sequence[str]
) -> None:
    free = [d for d in range(len(array.shape)) if Member(role, array.name, d) not in cuts]
    for dimension in sorted(free, key=lambda d: -array.shape[d]):
        fitting = _dividing(array.shape[dimension], axes, subject.mesh)
        if len(fitting) == len(axes):
            cuts[Member(role, array.name, dimension)] = fitting
            break


def tried(program: Any, presets: Iterable[Preset], target: str | Machine | None) -> Presets:
    """The presets propagated, and with a target timed, the shortest step first.

    Args:
        program: whose presets.
        presets: as `presets_of` makes them.
        target: the machine; None for none.

    Raises:
        MeshError, TargetError: as `sv.cost`: a target of another size or without a speed is nobody's plan's fault.
    """
    rows: dict[str, Preset] = {}
    for preset in presets:
        try:
            report = program.propagate(preset.plan)
        except ShardvizError as error:
            rows.setdefault(preset.name, replace(preset, trouble=str(error)))
            continue
        other = rows.get(preset.name)
        if other is None or other.report is None or _moved(report) < _moved(other.report):
            rows[preset.name] = replace(preset, report=report)
    timed = [
        row if row.report is None or target is None else replace(row, cost=cost_of(row.report, target))
        for row in rows.values()
    ]
    return Presets(sorted(timed, key=_order))


def _moved(report: Report) -> float:
    return sum(c.assumed_bytes for c in report.collectives)


def _order(row: Preset) -> tuple[bool, float]:
    """What cannot fit comes last; then the shortest step first; without a target, as they were made."""
    if row.cost is None or row.cost.seconds is None:
        return row.report is None, 0.0
    return row.cost.needs.fits is False, row.cost.seconds
