"""Which plan an edit asks for, from what is known now; and what may be asked of an argument or output.

>>> plan_after(now, SetDim("params['w1']", 1, ("model",)), program).edits           # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardviz.costs.orders import exchanged, reordered
from shardviz.errors import ShardvizError, SpecError
from shardviz.explorer import changes
from shardviz.explorer import edits as e
from shardviz.explorer.kin import Role, kin
from shardviz.explorer.logical import standing
from shardviz.explorer.snapshot import Snapshot
from shardviz.notation import DeviceMesh, Spec
from shardviz.program.intermediates import as_propagated

if TYPE_CHECKING:
    from shardviz.ask.program import Program
    from shardviz.program.plan import Plan
    from shardviz.records import Value


def plan_after(now: Snapshot, edit: e.PlanEdit, program: Program) -> Plan:
    """The plan that an edit asks for; it is not checked against the program.

    Raises:
        ShardvizError: if the edit makes no sense, as of an argument that there is not.
    """
    plan, mesh = now.plan, now.plan.mesh
    match edit:
        case e.SetSpec(name, spec):
            return _sharded(now, edit, read_spec(spec, name) or Spec())
        case e.SetDim(name, dimension, axes):
            return _sharded(now, edit, changes.with_dim(spec_of(now, "argument", name, dimension), dimension, axes))
        case e.MoveAxis(name, axis, dimension, place):
            spec = changes.moved(spec_of(now, "argument", name, dimension), axis, dimension, place)
            return _sharded(now, edit, spec)
        case e.SetOutSpec(name, spec):
            return plan.with_edits({}, {name: read_spec(spec, name)})
        case e.SetOutDim(name, dimension, axes):
            spec = changes.with_dim(spec_of(now, "output", name, dimension), dimension, axes)
            return plan.with_edits({}, {name: spec})
        case e.MoveOutAxis(name, axis, dimension, place):
            spec = changes.moved(spec_of(now, "output", name, dimension), axis, dimension, place)
            return plan.with_edits({}, {name: spec})
        case e.SetMemory(name, kind):
            return plan.with_memory(name, kind)
        case e.SetOutMemory(name, kind):
            return plan.with_out_memory(name, kind)
        case e.Constrain(name, spec, line, occurrence):
            what, at = _inside(now, name, line, program), line or ""
            if spec is None:
                return plan.unconstrain(what, line=at, occurrence=occurrence)
            return plan.constrain(what, read_spec(spec, name) or Spec(), line=at, occurrence=occurrence)
        case e.CutDimension(name, axes):
            if now.logical.found is None:
                raise ShardvizError("the logical dimensions are not known yet")
            dimension = now.logical.found.named(name)
            return plan.with_dimension(dimension, tuple(axes), prefer=standing(dimension, now.bound))
        case e.AddAxis(name, size):
            return plan.with_mesh(changes.mesh_with_axis(mesh, name, size))  # type: ignore[arg-type] - it says why not
        case e.RemoveAxis(name):
            return plan.without_axis(name)
        case e.RenameAxis(old, new):
            return plan.rename_axis(old, new)
        case e.ResizeAxis(name, size):
            return plan.with_mesh(changes.mesh_with_size(mesh, name, size))  # type: ignore[arg-type] - it says why not
        case e.SetMesh(wanted):
            return plan.with_mesh(DeviceMesh.of(wanted))
        case e.SetOrder(order):
            return plan.with_mesh(reordered(mesh, order))
        case e.ExchangeAxes(one, other):
            return plan.with_mesh(exchanged(mesh, now.machine.machine, one, other))
        case e.AddRule(pattern, spec):
            return changes.with_rule_added(plan, pattern, spec)
        case e.MakeRule(pattern, name):
            spec = now.bound.in_specs[changes.named(now.report.arguments, name, "argument").name]
            return changes.with_rule_for(plan, pattern, spec, caught(plan, pattern, program))
        case e.SetRule(place, pattern, spec):
            return changes.with_rule_changed(plan, place, pattern, spec)
        case e.MoveRule(place, to):
            return changes.with_rule_moved(plan, place, to)
        case e.RemoveRule(place):
            return changes.with_rule_removed(plan, place)
        case e.SetPlan(wanted):
            return program.settled(wanted)
    raise TypeError(f"{edit} is no edit of the plan")


def _sharded(now: Snapshot, edit: e.SetSpec | e.SetDim | e.MoveAxis, spec: Spec) -> Plan:
    """The plan with a spec for an argument, and for its twins where the edit is for these too."""
    others = twins(now, edit.name, layers=not edit.twins) if edit.twins or edit.layers else ()
    specs = {("argument", edit.name): spec} | dict.fromkeys(others, spec)
    of = lambda role: {name: spec for (where, name), spec in specs.items() if where == role}  # noqa: E731
    return now.plan.with_edits(of("argument"), of("output"))


def _inside(now: Snapshot, name: str, line: str | None, program: Program) -> Any:
    """The value of the report that has this name, as Shardy's level has it, which knows its columns; else the name.

    A constraint that the plan has already is known by what it is called there.
    """
    if line is not None or any(each.value.name == name for each in now.plan.constraints):
        return name or None
    propagated = lambda: program.propagate(now.plan).intermediates  # noqa: E731
    return as_propagated(name, now.report.intermediates, propagated) or name


def read_spec(spec: Any, name: str) -> Spec | None:
    """A spec from text, a PartitionSpec, a tuple or None, for an argument or output of this name."""
    if isinstance(spec, str):
        return changes.parse_spec(spec, name)
    return None if spec is None else Spec.of(spec)


def spec_of(now: Snapshot, role: str, name: str, dimension: int) -> Spec:
    """The spec of an `argument` or `output` as it is now, an entry a dimension, of which there must be this one."""
    value = value_of(now, role, name)
    given = (now.bound.in_specs if role == "argument" else now.bound.out_specs).get(name)
    spec = Spec.of(value.spec if given is None else given, len(value.shape))
    if not 0 <= dimension < len(spec.dims):
        raise SpecError(f"{name!r} has no dimension {dimension}; it has {len(spec.dims)}", argument=name)
    return spec


def value_of(now: Snapshot, role: str, name: str) -> Value:
    """The `argument` or `output` of a name."""
    return changes.named(now.report.arguments if role == "argument" else now.report.outputs, name, role)


def legal_axes(now: Snapshot, role: str, name: str, dimension: int) -> tuple[changes.Choice, ...]:
    """For each mesh axis, whether it may be added to a dimension of an `argument` or `output`, and why not."""
    spec, value = spec_of(now, role, name, dimension), value_of(now, role, name)
    return changes.choices(value.shape, spec, now.plan.mesh, dimension)


def twins(now: Snapshot, name: str, layers: bool = False) -> tuple[Role, ...]:
    """An argument's twins that are sharded alike, as (`argument` or `output`, name); see `kin.py`.

    Args:
        now: what is known.
        name: the argument's tree path.
        layers: only those of other layers.
    """
    return tuple(kin(now.report, now.logical.found).twins(name, now.bound, layers))


def caught(plan: Plan, pattern: str, program: Program) -> tuple[str, ...]:
    """The tree paths of the arguments that a rule of this pattern would catch."""
    return program.rules_table(plan.with_rules([(pattern, None)])).rows[0].wins
