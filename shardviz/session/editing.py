"""Every change of a plan that a person can make by hand, each a method that says whether it was taken.

A change is a pure function of the plan, from `edits.py`; whoever extends `Editing` takes it: checks the new plan
against the program, propagates it, or says at its place why it was refused. `widgets/door.py` lists what a page may
ask for.

>>> [name for name in vars(Editing) if name.endswith("_axis")]
['move_axis', 'move_out_axis', 'add_axis', 'remove_axis', 'rename_axis', 'resize_axis']
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from shardviz.costs.machine import Machine
from shardviz.costs.orders import exchanged, reordered
from shardviz.errors import ShardvizError, SpecError
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.program.intermediates import as_propagated
from shardviz.records.report import PlanRecord, Report
from shardviz.session import edits
from shardviz.session.kin import Role, kin
from shardviz.session.logical import Logical, standing
from shardviz.session.ways import Way

if TYPE_CHECKING:
    from shardviz.program.plan import Plan
    from shardviz.records import Value
    from shardviz.session.program import Program


class Editing(ABC):
    """What can be changed of a plan.

    Attributes:
        program: what the plan is for.
        plan, bound: the plan, and the same checked against the program.
        report: what is known of it.
        machine: the machine that it is for.
        logical: what is known of the program's logical dimensions.
        ways: the ways on from the change that was refused last.
    """

    program: Program
    plan: Plan
    bound: PlanRecord
    report: Report
    machine: Machine
    logical: Logical
    ways: tuple[Way, ...]

    @abstractmethod
    def _edit(
        self, build: Callable[[], Plan], place: str, argument: str | None = None, dimension: int | None = None
    ) -> bool:
        """Takes the plan that `build` gives, or says at its place why not."""

    @abstractmethod
    def refuse(self, error: ShardvizError, place: str, argument: str | None = None) -> None:
        """Says at its place why something was not done."""

    @abstractmethod
    def _put(self, **parts: Any) -> None:
        """Replaces parts of what is known."""

    # Specs. Each change returns whether it was taken.

    def set_spec(self, name: str, spec: Any, twins: bool = False, layers: bool = False) -> bool:
        """Sets the spec of an argument: a `Spec`, a PartitionSpec, a tuple, None, or text such as `P('data', None)`.

        Args:
            name: the argument's tree path.
            spec: how it shall be cut.
            twins: give the same to its `twins`.
            layers: give the same to its twins of other layers, also without `twins`.
        """
        return self._cut("argument", name, lambda: _read_spec(spec, name) or Spec(), None, twins, layers)

    def set_dim(
        self, name: str, dimension: int, axes: Iterable[Axis], twins: bool = False, layers: bool = False
    ) -> bool:
        """Sets the mesh axes that cut one dimension of an argument, major to minor; `twins` as `set_spec`."""
        change = lambda spec: edits.with_dim(spec, dimension, axes)  # noqa: E731
        return self._cut_dim("argument", name, dimension, change, twins, layers)

    def move_axis(
        self,
        name: str,
        axis: str,
        dimension: int,
        place: int | None = None,
        twins: bool = False,
        layers: bool = False,
    ) -> bool:
        """Moves or adds a mesh axis to a dimension of an argument, last or at a place among that dimension's axes."""
        change = lambda spec: edits.moved(spec, axis, dimension, place)  # noqa: E731
        return self._cut_dim("argument", name, dimension, change, twins, layers)

    def set_out_spec(self, name: str, spec: Any) -> bool:
        """Sets the spec of an output, as `set_spec` does; None leaves it to the compiler."""
        return self._cut("output", name, lambda: _read_spec(spec, name))

    def set_out_dim(self, name: str, dimension: int, axes: Iterable[Axis]) -> bool:
        """Sets the axes on one dimension of an output; the others keep what they have, or what the compiler chose."""
        return self._cut_dim("output", name, dimension, lambda s: edits.with_dim(s, dimension, axes))

    def move_out_axis(self, name: str, axis: str, dimension: int, place: int | None = None) -> bool:
        """Moves or adds a mesh axis to a dimension of an output."""
        return self._cut_dim("output", name, dimension, lambda s: edits.moved(s, axis, dimension, place))

    def set_memory(self, name: str, kind: str) -> bool:
        """Puts an argument into another memory: `device`, or its host's, `pinned_host` or `unpinned_host`."""
        return self._edit(lambda: self.plan.with_memory(name, kind), "argument", name)

    def set_out_memory(self, name: str, kind: str) -> bool:
        """Puts an output into another memory."""
        return self._edit(lambda: self.plan.with_out_memory(name, kind), "output", name)

    def constrain(self, name: str, spec: Any, line: str | None = None, occurrence: int | None = None) -> bool:
        """Puts a sharding constraint on a value inside the function, or takes it away again.

        Args:
            name: an intermediate of the report, a variable, or an expression of the source.
            spec: how it shall be cut there, as `set_spec` takes it; None takes the constraint away.
            line: where, as `model.py:64`; None where the name is enough.
            occurrence: which time that Python runs the line; None for every time.
        """

        def plan() -> Plan:
            what, at = self._inside(name, line), line or ""
            if spec is None:
                return self.plan.unconstrain(what, line=at, occurrence=occurrence)
            return self.plan.constrain(what, _read_spec(spec, name) or Spec(), line=at, occurrence=occurrence)

        return self._edit(plan, "value", name)

    def _inside(self, name: str, line: str | None) -> Any:
        """The value of the report that has this name, as Shardy's level has it, which knows its columns; else the name.

        A constraint that the plan has already is known by what it is called there.
        """
        if line is not None or any(each.value.name == name for each in self.plan.constraints):
            return name or None
        known = lambda: self.program.propagate(self.plan).intermediates  # noqa: E731
        return as_propagated(name, self.report.intermediates, known) or name

    def twins(self, name: str, layers: bool = False) -> tuple[Role, ...]:
        """An argument's twins that are cut alike, as (`argument` or `output`, name); see `session/kin.py`.

        Args:
            name: the argument's tree path.
            layers: only those of other layers.
        """
        return tuple(kin(self.report, self.logical.found).twins(name, self.bound, layers))

    def legal_axes(self, name: str, dimension: int) -> tuple[edits.Choice, ...]:
        """For each mesh axis, whether it may be added to a dimension of an argument, and why not."""
        return self._choices("argument", name, dimension)

    def legal_out_axes(self, name: str, dimension: int) -> tuple[edits.Choice, ...]:
        """The same for an output."""
        return self._choices("output", name, dimension)

    def _choices(self, place: str, name: str, dimension: int) -> tuple[edits.Choice, ...]:
        spec, value = self._spec(place, name, dimension), self._value(place, name)
        return edits.choices(value.shape, spec, self.plan.mesh, dimension)

    def _cut_dim(
        self,
        place: str,
        name: str,
        dimension: int,
        change: Callable[[Spec], Spec],
        twins: bool = False,
        layers: bool = False,
    ) -> bool:
        return self._cut(place, name, lambda: change(self._spec(place, name, dimension)), dimension, twins, layers)

    def _cut(
        self,
        place: str,
        name: str,
        build: Callable[[], Spec | None],
        dimension: int | None = None,
        twins: bool = False,
        layers: bool = False,
    ) -> bool:
        def plan() -> Plan:
            spec = build()
            others = self.twins(name, layers=not twins) if twins or layers else ()
            cut = {(place, name): spec} | dict.fromkeys(others, spec)
            of = lambda role: {which: spec for (where, which), spec in cut.items() if where == role}  # noqa: E731
            return self.plan.with_edits(of("argument"), of("output"))

        return self._edit(plan, place, name, dimension)

    def _spec(self, place: str, name: str, dimension: int) -> Spec:
        """The spec of an argument or output as it is now, an entry a dimension, of which there must be this one."""
        value = self._value(place, name)
        given = (self.bound.in_specs if place == "argument" else self.bound.out_specs).get(name)
        spec = Spec.of(value.spec if given is None else given, len(value.shape))
        if not 0 <= dimension < len(spec.dims):
            raise SpecError(f"{name!r} has no dimension {dimension}; it has {len(spec.dims)}", argument=name)
        return spec

    def _value(self, place: str, name: str) -> Value:
        return edits.named(self.report.arguments if place == "argument" else self.report.outputs, name, place)

    # The logical dimensions.

    def cut_dimension(self, name: str, axes: Iterable[Axis]) -> bool:
        """Cuts a logical dimension, wherever it occurs, by these mesh axes and no others; see `Plan.with_dimension`."""

        def plan() -> Plan:
            found = self.logical.found
            if found is None:
                raise ShardvizError("the logical dimensions are not known yet")
            dimension = found.named(name)
            return self.plan.with_dimension(dimension, tuple(axes), prefer=standing(dimension, self.bound))

        return self._edit(plan, "dimension", name)

    def rename_dimension(self, old: str, new: str) -> bool:
        """Calls a logical dimension otherwise. The plan stays as it is, so there is nothing to undo."""
        try:
            self._put(logical=self.logical.renamed(old, new), error=None)
        except ShardvizError as error:
            self.refuse(error, "dimension", old)
            return False
        return True

    # Refused changes.

    def dismiss(self) -> None:
        """Takes away what was said of a refused change."""
        self._put(error=None, ways=())

    # The mesh and the machine.

    def add_axis(self, name: str, size: int) -> bool:
        """Adds a mesh axis, the minor one."""
        return self._edit(lambda: self.plan.with_mesh(edits.mesh_with_axis(self.plan.mesh, name, size)), "mesh", name)

    def remove_axis(self, name: str) -> bool:
        """Removes a mesh axis, from every spec too."""
        return self._edit(lambda: self.plan.without_axis(name), "mesh", name)

    def rename_axis(self, old: str, new: str) -> bool:
        """Renames a mesh axis, in every spec too."""
        return self._edit(lambda: self.plan.rename_axis(old, new), "mesh", old)

    def resize_axis(self, name: str, size: int) -> bool:
        """Sets the number of devices along a mesh axis."""
        return self._edit(lambda: self.plan.with_mesh(edits.mesh_with_size(self.plan.mesh, name, size)), "mesh", name)

    def set_mesh(self, mesh: Any) -> bool:
        """Sets the whole mesh: anything that `DeviceMesh.of` reads, such as `"data=8,model=4"`."""
        return self._edit(lambda: self.plan.with_mesh(DeviceMesh.of(mesh)), "mesh")

    def set_order(self, order: str | Iterable[int]) -> bool:
        """Sets the order of the mesh's devices on a machine: `mesh_utils` (as JAX would choose), `row-major` (device i
        at place i), or the devices' ids, as numbers or as text such as `0,1,3,2` or `[2,4]T(1,0)`."""
        return self._edit(lambda: self.plan.with_mesh(reordered(self.plan.mesh, order)), "order")

    def exchange_axes(self, one: str, other: str) -> bool:
        """Puts the devices in the order that JAX would choose if two mesh axes stood in each other's place."""
        return self._edit(lambda: self.plan.with_mesh(exchanged(self.plan.mesh, self.machine, one, other)), "order")

    # The rules, and the plan as a whole.

    def add_rule(self, pattern: str, spec: str) -> bool:
        """Adds a rule, the last: a pattern of the tree path, and the spec of every argument that it catches."""
        return self._edit(lambda: edits.with_rule_added(self.plan, pattern, spec), "rule")

    def caught(self, pattern: str) -> tuple[str, ...]:
        """The tree paths of the arguments that a rule of this pattern would catch."""
        return self.program.rules_table(self.plan.with_rules([(pattern, None)])).rows[0].wins

    def make_rule(self, pattern: str, name: str) -> bool:
        """Adds a rule, the first, with the spec that an argument has now; what it catches loses edits of its own."""

        def plan() -> Plan:
            spec = self.bound.in_specs[edits.named(self.report.arguments, name, "argument").name]
            return edits.with_rule_for(self.plan, pattern, spec, self.caught(pattern))

        return self._edit(plan, "rule")

    def set_rule(self, place: int, pattern: str | None = None, spec: str | None = None) -> bool:
        """Gives the rule at a place (from 0) another pattern or spec."""
        return self._edit(lambda: edits.with_rule_changed(self.plan, place, pattern, spec), "rule")

    def move_rule(self, place: int, to: int) -> bool:
        """Moves a rule to another place: the first that catches an argument wins."""
        return self._edit(lambda: edits.with_rule_moved(self.plan, place, to), "rule")

    def remove_rule(self, place: int) -> bool:
        """Removes a rule."""
        return self._edit(lambda: edits.with_rule_removed(self.plan, place), "rule")

    def set_plan(self, plan: Plan) -> bool:
        """Takes another plan as a whole."""
        return self._edit(lambda: self.program.settled(plan), "plan")


def _read_spec(spec: Any, name: str) -> Spec | None:
    if isinstance(spec, str):
        return edits.parse_spec(spec, name)
    return None if spec is None else Spec.of(spec)
