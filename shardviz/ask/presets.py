"""Presets: named starting plans, made for any program from its logical dimensions and its arrays' roles.

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

A ZeRO stage is defined by what is sharded besides the batch (Rajbhandari et al., 2020, "ZeRO"). `propagate/roles.py`
finds which arguments are optimizer state and which results are gradients, and `seeding.py` finds the dimension of
experts. Gradients that the function returns are replicated at stage 1 and sharded at stage 2. Gradients inside the
function are sharded as the optimizer state, because Shardy propagates its sharding to them; both stages are then one
plan. A plan cannot constrain these gradients, because no source line makes them. So ZeRO-1's text says what to write in
the function to keep them replicated. Simulated devices sum them replicated in any case; without that line, v5p's
compiler lets each device sum only its own shard. Dimensions that a loop steps along, and the height and width of a
convolution's kernel, are never sharded.

Each preset has promises (`promises.py`): what its text says about shardings and communication, checked against the
report. A preset that breaks a promise is not offered, and its row says why. Presets with the same step are merged. No
preset is recommended here: with a target they are ordered by the modelled step, which is *predicted* until the
partitioner confirms it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from shardviz.ask.parts import nbytes
from shardviz.ask.promises import (
    MOST,
    NEARLY,
    Promise,
    Subject,
    all_stay,
    are_multiplied,
    are_sharded,
    batch_is_sharded,
    between_is_sharded,
    dividing,
    each_is_sharded,
    is_communicated,
    is_replicated,
    is_unsharded,
)
from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import StepCost, cost_of
from shardviz.display import Displayed
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.plan.plan import Plan
from shardviz.propagate.dimensions import Dimension, Dimensions, Member
from shardviz.propagate.roles import Roles
from shardviz.records.amounts import plural
from shardviz.records.groups import grouped
from shardviz.tracing.trace import Argument


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A starting plan.

    Attributes:
        name: such as `fsdp + tensor parallel`.
        text: its description, a sentence.
        cut: the number of argument dimensions sharded along each axis.
        plan: the plan.
        report: the report of Shardy or of the partitioner; None if the preset is not offered.
        cost: the cost of its step on the target, by the report; None without a target.
        predicted: the cost by Shardy's report, if `report` is the partitioner's.
        also: other presets with the same step.
        trouble: why it is not offered; empty if it is.
        promises: checks of its description; each returns why a report breaks it, or nothing.
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
        """Return why a report breaks the preset's promises; empty if it keeps them."""
        return next((why for promise in self.promises if (why := promise(report))), "")

    @property
    def words(self) -> str:
        """The preset's text, and the names of presets with the same step."""
        return self.text + (f" ({' and '.join(self.also)}: the same step here)" if self.also else "")


class Presets(dict[str, Plan], Displayed):
    """Name → plan; with a target, the shortest modelled step first. `rows` has each preset's results; those that are
    not offered come last, with the reason. Presets with the same step share a row, which names the others in `also`."""

    __repr__ = Displayed.__repr__

    def __init__(self, rows: Sequence[Preset]):
        offered = [row for row in rows if row.report is not None]
        super().__init__({name: row.plan for row in offered for name in (row.name, *row.also)})
        self.rows = tuple(rows)


def presets_of(
    mesh: DeviceMesh, arguments: Sequence[Argument], dimensions: Dimensions, roles: Roles
) -> Iterator[Preset]:
    """Yield the presets, untried. Raises ShardvizError if the mesh has no axis."""
    if not mesh.names:
        raise ShardvizError("presets(mesh): a mesh with one axis or more is needed, such as {'data': 8, 'model': 8}")
    arrays = {"arguments": arguments, "dimensions": dimensions, "roles": roles, "optimizer": roles.optimizer}
    subject = Subject(mesh=mesh.larger, **arrays)  # an axis of size 1 shards nothing
    none = Plan(mesh, edits={a.name: Spec() for a in arguments})
    for name, of in _ALL:  # each gives a plan, what it does, and promises; or None
        if (preset := of(subject, none)) is not None:
            plan, text, *promises = preset
            by = Counter(tuple(map(str, axes)) for m, axes in plan.dim_edits if m.role == "argument" and axes)
            cut = ", ".join(f"{plural(n, 'array dimension')} by {' and '.join(axes)}" for axes, n in by.items())
            cut = cut or "nothing divides"
            yield Preset(name=name, plan=plan, text=text, cut=cut, promises=tuple(promises))


def _data(subject: Subject, none: Plan) -> Any:
    axes = subject.mesh.names
    summed = "; gradients are all-reduced" if subject.roles.differentiated else ""
    cache = " and its cache are" if subject.cached else " is"
    text = f"parameters are replicated, and the batch{cache} sharded {_along(subject, axes)}{summed}"
    promises = [is_communicated("all-reduce", (), "backward", "gradients")] if summed else []
    return _copies(subject, none, axes), text, is_replicated(subject.state), batch_is_sharded(subject, axes), *promises


def _zero1(subject: Subject, none: Plan) -> Any:
    roles, axes = subject.roles, subject.mesh.names
    if not roles.optimizer:
        return None
    whole = none.with_spec(dict.fromkeys(sorted(roles.gradients), Spec()), output=True)
    plan = _state(subject, _copies(subject, whole, axes), axes, roles.optimizer)
    which, inside = ("parameters and gradients are", "") if roles.gradients else ("parameters are", _INSIDE)
    return plan, f"{which} replicated and the optimizer state is sharded: {_UPDATE} (ZeRO-1){inside}", *_zero(subject)


def _zero2(subject: Subject, none: Plan) -> Any:
    roles, axes = subject.roles, subject.mesh.names
    if not roles.optimizer and not roles.gradients:
        return None
    plan = _state(subject, _copies(subject, none, axes), axes, roles.optimizer, roles.gradients)
    text = f"parameters are replicated, optimizer state and gradients are sharded: {_UPDATE} (ZeRO-2)"
    gradients = [o for o in roles.outputs if o.name in roles.gradients]
    return plan, text, *_zero(subject), are_sharded("gradients", gradients, axes)


_UPDATE = "each device updates its shard of the parameters, which are then gathered"
_INSIDE = (
    "; gradients are sharded as that state, as in ZeRO-2, unless the function keeps them replicated: "
    "jax.lax.with_sharding_constraint(grads, P())"
)


def _zero(subject: Subject) -> tuple[Promise, ...]:
    """Return the promises of both ZeRO stages."""
    axes, optimizer = subject.mesh.names, [a for a in subject.state if a.name in subject.roles.optimizer]
    whole, batch = is_replicated(subject.parameters), batch_is_sharded(subject, axes)
    new = [is_communicated("all-gather", (), "update", "new parameters")] if optimizer else []
    return whole, batch, are_sharded("the optimizer state", optimizer, axes), *new


def _fsdp(subject: Subject, none: Plan) -> Any:
    axes = subject.mesh.names
    plan = _state(subject, _copies(subject, none, axes), axes)
    trains = subject.roles.differentiated
    what = "parameters and optimizer state" if trains else "parameters"
    text = f"{what} are sharded over all devices" + ", as in ZeRO-3" * trains
    return plan, text, batch_is_sharded(subject, axes), are_sharded(what, subject.state, axes)


def _tensor(subject: Subject, none: Plan) -> Any:
    plan = _tensor_sharded(subject, none)
    text = (
        f"{_products(subject, plan)}, by d_ff, heads and the like, and their partial sums all-reduced; the batch is "
        "replicated"
    )
    summed = is_communicated("all-reduce", (subject.last,), "", "partial sums")
    return plan, text, between_is_sharded(subject), is_unsharded(subject.of("batch")), are_multiplied(subject), summed


def _data_tensor(subject: Subject, none: Plan) -> Any:
    *others, _ = subject.mesh.names
    if not others or subject.roles.differentiated:
        return None
    plan = _copies(subject, _tensor_sharded(subject, none), others)
    text = f"the batch is sharded {_along(subject, others)}, and {_products(subject, plan)}"
    return plan, text, batch_is_sharded(subject, others), between_is_sharded(subject)


def _fsdp_tensor(subject: Subject, none: Plan) -> Any:
    *others, _ = subject.mesh.names
    if not others:
        return None
    plan = _state(subject, _copies(subject, _tensor_sharded(subject, none), others), others)
    text = f"{_products(subject, plan)}, and fsdp over {' and '.join(others)}: parameters are sharded along them too"
    promises = (
        batch_is_sharded(subject, others),
        are_sharded("parameters", subject.state, others),
        between_is_sharded(subject),
    )
    return plan, text, *promises


def _sequence(subject: Subject, none: Plan) -> Any:
    *others, last = subject.mesh.names
    sequences = subject.of("sequence")
    if not others or not sequences:
        return None
    plan = _sharded(subject, _copies(subject, none, others), sequences, (last,))
    text = (
        f"parameters are replicated, every sequence is sharded along {last} and the batch {_along(subject, others)} "
        "(context parallel)"
    )
    promises = (
        is_replicated(subject.state),
        batch_is_sharded(subject, others),
        each_is_sharded("sequence", sequences, last),
    )
    return plan, text, *promises


def _kv_sequence(subject: Subject, none: Plan) -> Any:
    *others, last = subject.mesh.names
    if not subject.cached:
        return None
    plan = _tensor_sharded(subject, _sharded(subject, _copies(subject, none, others), subject.cached, (last,)))
    batch = f", and the batch {_along(subject, others)}" if others else ""
    text = (
        f"the cache is sharded along {last} by its sequence{batch}: each device attends to its own keys and values, "
        f"and partial sums are all-reduced; parameters that no head has are sharded along {last} too"
    )
    promises = [batch_is_sharded(subject, others)] if others else []
    promises += [is_communicated("all-reduce", (last,), "", "partial sums")]
    return plan, text, *promises, each_is_sharded("cache's sequence", subject.cached, last)


def _expert(subject: Subject, none: Plan) -> Any:
    sent = is_communicated("all-to-all", (subject.last,), "", "rows")
    return _experts(subject, none, subject.mesh.names, "an all-to-all sends rows to their experts and back", sent)


def _expert_whole(subject: Subject, none: Plan) -> Any:
    *others, last = subject.mesh.names
    text = f"the batch is replicated along {last}, and the experts' results are all-reduced"
    return _experts(subject, none, others, text, is_communicated("all-reduce", (last,), "", "experts' results"))


def _experts(subject: Subject, none: Plan, data: Sequence[str], more: str, sent: Promise) -> Any:
    experts = [d for d in subject.dimensions if d.experts]
    if not experts:
        return None
    plan = _sharded(subject, _copies(subject, none, data), experts, (subject.last,))
    which = ", ".join(f"dimension {d.arguments[0].dimension} of {d.arguments[0].path}" for d in experts if d.arguments)
    text = f"experts are sharded along {subject.last} ({which}: each multiplies rows of its own); {more}"
    return plan, text, each_is_sharded("experts'", experts, subject.last), sent


def _two(subject: Subject, none: Plan) -> Any:
    *others, last = subject.mesh.names
    through = subject.through
    if not others or through is None:
        return None
    plan = _tensor_sharded(subject, none)
    plan = _sharded(subject, _copies(subject, plan, others[:-1]), [through], others[-1:])
    dims = Counter(m.path for m, axes in plan.dim_edits if m.role == "argument" and set(axes) & {others[-1], last})
    weights = subject.weights
    both = sum(dims[a.name] > 1 for a in weights)
    text = (
        f"{both} of {len(weights)} matrices are sharded in two dimensions, along {others[-1]} and {last}, "
        "and stay where they are: the activations are communicated, which pays where tokens are few"
    )
    return plan, text, are_sharded("the matrices", weights, (others[-1], last), MOST), all_stay(weights)


def _three(subject: Subject, none: Plan) -> Any:
    first, *middle, _ = [*subject.mesh.names, ""][: max(len(subject.mesh.names), 2)]
    if not middle:
        return None
    plan = _state(subject, _copies(subject, _tensor_sharded(subject, none), (first, *middle)), middle)
    text = (
        f"everything is replicated along {first}; within each replica {_products(subject, plan)}, and fsdp over "
        f"{' and '.join(middle)}: parameters are sharded along them too"
    )
    replicas, batch = is_replicated(subject.state, {first}), batch_is_sharded(subject, (first, *middle))
    parameters = are_sharded("parameters", subject.state, middle)
    return plan, text, replicas, batch, parameters, between_is_sharded(subject)


_ALL: Sequence[tuple[str, Callable[[Subject, Plan], Any]]] = (
    ("data parallel", _data),
    ("zero-1", _zero1),
    ("zero-2", _zero2),
    ("fsdp", _fsdp),
    ("tensor parallel", _tensor),
    ("data + tensor parallel", _data_tensor),
    ("fsdp + tensor parallel", _fsdp_tensor),
    ("sequence parallel", _sequence),
    ("KV sequence parallel", _kv_sequence),
    ("expert parallel", _expert),
    ("expert parallel", _expert_whole),
    ("2-D tensor parallel", _two),
    ("data + fsdp + tensor parallel", _three),
)
"""Name → its maker. If several have one name, the one that moves the fewest bytes in this program is used."""


def _along(subject: Subject, axes: Sequence[str]) -> str:
    """Return in words along which of some axes the batch is sharded."""
    batch = subject.of("batch")
    used = {a for d in batch for a in dividing(d.size, axes, subject.mesh)}
    if used == set(subject.mesh.names):
        return "over all devices"
    skipped = [a for a in axes if a not in used]
    why = f" ({batch[0].size} do not divide by {' and '.join(skipped)})" if skipped and batch else ""
    return f"along {' and '.join(a for a in axes if a in used) or 'none'}{why}"


def _products(subject: Subject, plan: Plan) -> str:
    """Return in words how much of the layers' matrix products is sharded along the last axis."""
    cut = {m.path for m, axes in plan.dim_edits if subject.last in axes}
    weights = subject.weights
    whole = sum(map(nbytes, weights)) or 1.0
    share = sum(nbytes(a) for a in weights if a.name in cut) / whole
    which = "" if share > NEARLY else f" ({share:.0%} of their bytes)"
    return f"each layer's matrix products are sharded along {subject.last}{which}"


def _tensor_sharded(subject: Subject, plan: Plan) -> Plan:
    """Return the plan with the dimensions between the layers' products sharded along the last axis."""
    return _sharded(subject, plan, subject.inner, (subject.last,), once=True)


def _copies(subject: Subject, plan: Plan, axes: Sequence[str]) -> Plan:
    """Return the plan with the batch sharded, so that every group of devices has its own rows."""
    return _sharded(subject, plan, subject.of("batch"), axes)


def _sharded(
    subject: Subject, plan: Plan, dimensions: Sequence[Dimension], axes: Sequence[str], *, once: bool = False
) -> Plan:
    """Return the plan with dimensions sharded along as many of the axes, in order, as divide them. `once` skips
    dimensions that have an array already sharded along one of the axes."""
    for dimension in dimensions:
        taken = {m.path for m, by in plan.dim_edits if set(by) & set(axes)}
        if once and any(m.path in taken for m in dimension.arguments):
            continue
        fitting = dividing(dimension.size, axes, subject.mesh)
        if fitting:
            plan = plan.with_dimension(dimension, fitting)
    return plan


def _state(
    subject: Subject,
    plan: Plan,
    axes: Sequence[str],
    arguments: Set[str] | None = None,
    outputs: Set[str] = frozenset(),
) -> Plan:
    """Return the plan with arrays of the state sharded along the axes, each along its largest unsharded dimension that
    divides, and with these outputs sharded. If only some `arguments` are named, their new values are sharded as they
    are; otherwise the compiler decides."""
    dim_edits = dict(plan.dim_edits)
    state = subject.state
    for array in state if arguments is None else [a for a in state if a.name in arguments]:
        _shard_array(subject, dim_edits, "argument", array, axes)
    for array in subject.roles.outputs:
        if array.name in outputs:
            _shard_array(subject, dim_edits, "output", array, axes)
    if arguments is None:
        return Plan(plan.mesh, edits=plan.edits, dim_edits=dim_edits)
    becomes = subject.roles.becomes
    for member, by in list(dim_edits.items()):
        if member.role == "argument" and member.path in becomes:
            dim_edits[Member("output", becomes[member.path], member.dimension)] = by
    sharded = {*outputs, *(becomes[a.name] for a in state if a.name in becomes)}
    outs = dict(plan.out_edits) | dict.fromkeys(sorted(sharded), Spec())
    return Plan(plan.mesh, edits=plan.edits, out_edits=outs, dim_edits=dim_edits)


def _shard_array(
    subject: Subject, dim_edits: dict[Member, tuple[Axis, ...]], role: str, array: Argument, axes: Sequence[str]
) -> None:
    members = (Member(role, array.name, d) for d in range(len(array.shape)))
    free = [m for m in members if m not in subject.stepped and not dim_edits.get(m)]
    free.sort(key=lambda m: -array.shape[m.dimension])
    for some in (axes, *((axis,) for axis in axes)):  # in one dimension; else axis by axis
        fits = (m for m in free if len(dividing(array.shape[m.dimension], some, subject.mesh)) == len(some))
        if (member := next(fits, None)) is not None:
            dim_edits[member] = tuple(some)
            free.remove(member)
            if some is axes:
                break


def tried(program: Any, presets: Iterable[Preset], target: str | Machine | None, level: str = "propagated") -> Presets:
    """Return the presets propagated, and with a target timed and ordered by their step, shortest first. At level
    `partitioned` the partitioner has confirmed the first one. Raises MeshError, TargetError as `sv.cost`."""
    rows: dict[str, Preset] = {}
    for preset in presets:
        row = _propagated(program, preset)
        other = rows.get(row.name)
        if other is None or other.report is None or rank(row.report, None) < rank(other.report, None):
            rows[row.name] = row
    same = grouped((row.name if row.report is None else step_of(row.report), row) for row in rows.values())
    offers = [replace(first, also=tuple(other.name for other in others)) for first, *others in same.values()]
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
    """Return a preset with Shardy's report, or with the reason why it is not offered."""
    try:
        report = program.propagate(preset.plan)
    except ShardvizError as error:
        return replace(preset, trouble=str(error))
    if why := preset.broken(report):
        return replace(preset, trouble=f"not offered: {why}")
    return replace(preset, report=report)


def _confirmed(program: Any, row: Preset, target: str | Machine) -> Preset:
    """Return a preset with the partitioner's report and its cost."""
    try:
        report = program.partition(row.plan, target if isinstance(target, str) else target.text)
    except ShardvizError as error:
        return replace(row, report=None, trouble=f"not offered: {error}")
    return replace(row, report=report, cost=cost_of(report, target), predicted=row.cost)


def step_of(report: Report) -> Any:
    """Return a key that is equal for plans with the same step: the bytes held, the FLOPs, and the collectives."""
    held = sum(v.bytes_per_device or 0.0 for v in (*report.arguments, *report.outputs))
    flops = sum(row.dot_flops for row in report.cost.work) if report.cost is not None else 0.0
    return held, flops, tuple(sorted((c.kind, str(c.axes), c.assumed_bytes) for c in report.collectives))


def _order(row: Preset) -> tuple[bool, bool, float]:
    """Return a preset's sort key; without a cost, presets keep their order."""
    return (row.report is None, False, 0.0) if row.cost is None else rank(row.report, row.cost)


def rank(report: Report | None, cost: StepCost | None) -> tuple[bool, bool, float]:
    """Return a sort key for plans: impossible plans and plans that do not fit come last, estimates included; the others
    by their step's time, or without times by the bytes of their collectives."""
    if report is None:
        return True, True, 0.0
    if cost is None:
        return False, False, sum(c.assumed_bytes for c in report.collectives)
    return False, not cost.needs.may_fit, cost.lower if cost.seconds is None else cost.seconds
