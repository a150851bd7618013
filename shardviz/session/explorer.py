"""The explorer's state: a plan, what follows from it, and every change that a person can make. It knows no view.

Each change goes the same way: the new plan is checked against the program; if it is wrong, `error` says what and where,
and everything else stays as it was. If it is right, the `propagated` report follows at once, and a moment later, when
no newer change has come, a compile is started whose answers (`partitioned`, then `compiled`) replace the report.

>>> state = ExplorerState(program, plan)                                    # doctest: +SKIP
>>> state.set_dim("params['w1']", 1, ["model"])                             # doctest: +SKIP
True
>>> state.level, state.report.value("params['w1']").shard_shape             # doctest: +SKIP
('propagated', (1024, 512))
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import traitlets

from shardviz.costs.orders import exchanged, reordered
from shardviz.errors import ShardvizError, SpecError
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.session import aiming, edits
from shardviz.session import rule_edits as ruling
from shardviz.session.names import segments
from shardviz.session.selecting import Selecting

if TYPE_CHECKING:
    from shardviz.costs import Machine
    from shardviz.program.plan import Plan
    from shardviz.session.program import Program


class Step(NamedTuple):
    """What `undo` goes back to: a plan, and the machine that it was for."""

    plan: Plan
    machine: Machine


class ExplorerState(Selecting):
    """A program under a plan that can be changed, undone and compiled. Made like `Following`, whose traits it has too,
    and those of `Selecting`.

    Attributes:
        past, ahead: the plans, each with its machine, that `undo` and `redo` go to: `Step`s.
    """

    past = traitlets.Tuple()
    ahead = traitlets.Tuple()

    def __init__(self, program: Program, plan: Plan, **options: Any):
        super().__init__(program, plan, **options)
        if self.report.arguments:
            self.select(max(self.report.arguments, key=lambda v: v.bytes_per_device or 0).name)

    # What a person changes. Each returns whether the change was taken.

    def set_plan(self, plan: Plan) -> bool:
        """Takes another plan as a whole."""
        return self._change(lambda: plan, "plan")

    def set_spec(self, name: str, spec: Any, twins: bool = False) -> bool:
        """Sets the spec of an argument: a `Spec`, a PartitionSpec, a tuple, None, or text such as `P('data', None)`.

        Args:
            name: the argument's tree path.
            spec: how it shall be cut.
            twins: give the same to its `twins`.
        """
        return self._set(name, lambda: self._read(spec, name) or Spec(), twins)

    def set_dim(self, name: str, dimension: int, axes: Iterable[Axis], twins: bool = False) -> bool:
        """Sets the mesh axes that cut one dimension of an argument, major to minor."""
        axes = tuple(axes)
        return self._set(name, lambda: edits.with_dim(self._spec(name, dimension), dimension, axes), twins, dimension)

    def move_axis(self, name: str, axis: str, dimension: int, place: int | None = None, twins: bool = False) -> bool:
        """Moves or adds a mesh axis to a dimension of an argument, last or at a place among that dimension's axes."""
        spec = lambda: edits.moved(self._spec(name, dimension), axis, dimension, place)  # noqa: E731
        return self._set(name, spec, twins, dimension)

    def _set(self, name: str, build: Callable[[], Spec], twins: bool, dimension: int | None = None) -> bool:
        def plan() -> Plan:
            spec = build()
            changed = self.plan.with_spec(name, spec)
            for place, twin in self.twins(name) if twins else ():
                changed = changed.with_spec(twin, spec) if place == "argument" else changed.with_out_spec(twin, spec)
            return changed

        return self._change(plan, "argument", name, dimension)

    def set_out_spec(self, name: str, spec: Any) -> bool:
        """Sets the spec of an output, as `set_spec` does; None leaves it to the compiler."""
        return self._change(lambda: self.plan.with_out_spec(name, self._read(spec, name)), "output", name)

    def set_out_dim(self, name: str, dimension: int, axes: Iterable[Axis]) -> bool:
        """Sets the axes on one dimension of an output; the others keep what they have, or what the compiler chose."""
        axes = tuple(axes)
        return self._change(
            lambda: self.plan.with_out_spec(name, edits.with_dim(self._out_spec(name, dimension), dimension, axes)),
            "output",
            name,
            dimension,
        )

    def move_out_axis(self, name: str, axis: str, dimension: int, place: int | None = None) -> bool:
        """Moves or adds a mesh axis to a dimension of an output."""
        return self._change(
            lambda: self.plan.with_out_spec(name, edits.moved(self._out_spec(name, dimension), axis, dimension, place)),
            "output",
            name,
            dimension,
        )

    def add_axis(self, name: str, size: int) -> bool:
        """Adds a mesh axis, the minor one."""
        return self._change(lambda: self.plan.with_mesh(edits.mesh_with_axis(self.plan.mesh, name, size)), "mesh", name)

    def remove_axis(self, name: str) -> bool:
        """Removes a mesh axis, from every spec too."""
        return self._change(lambda: self.plan.without_axis(name), "mesh", name)

    def rename_axis(self, old: str, new: str) -> bool:
        """Renames a mesh axis, in every spec too."""
        return self._change(lambda: self.plan.rename_axis(old, new), "mesh", old)

    def resize_axis(self, name: str, size: int) -> bool:
        """Sets the number of devices along a mesh axis."""
        return self._change(lambda: self.plan.with_mesh(edits.mesh_with_size(self.plan.mesh, name, size)), "mesh", name)

    def set_mesh(self, mesh: Any) -> bool:
        """Sets the whole mesh: anything that `DeviceMesh.of` reads, such as `"data=8,model=4"`."""
        return self._change(lambda: self.plan.with_mesh(DeviceMesh.of(mesh)), "mesh")

    def set_order(self, order: str | Iterable[int]) -> bool:
        """Sets the order of the mesh's devices on a machine: `mesh_utils` (as JAX would choose), `row-major` (device i
        at place i), or the devices' ids, as numbers or as text such as `0,1,3,2` or `[2,4]T(1,0)`."""
        return self._change(lambda: self.plan.with_mesh(reordered(self.plan.mesh, order)), "order")

    def exchange_axes(self, one: str, other: str) -> bool:
        """Puts the devices in the order that JAX would choose if two mesh axes stood in each other's place."""
        change = lambda: self.plan.with_mesh(exchanged(self.plan.mesh, self.machine, one, other))  # noqa: E731
        return self._change(change, "order")

    def add_rule(self, pattern: str, spec: str) -> bool:
        """Adds a rule, the last: a pattern of the tree path, and the spec of every argument that it catches."""
        return self._change(lambda: ruling.added(self.plan, pattern, spec), "rule", always=True)

    def set_rule(self, place: int, pattern: str | None = None, spec: str | None = None) -> bool:
        """Gives the rule at a place (from 0) another pattern or spec."""
        return self._change(lambda: ruling.changed(self.plan, place, pattern, spec), "rule", always=True)

    def move_rule(self, place: int, to: int) -> bool:
        """Moves a rule to another place: the first that catches an argument wins."""
        return self._change(lambda: ruling.moved(self.plan, place, to), "rule", always=True)

    def remove_rule(self, place: int) -> bool:
        """Removes a rule."""
        return self._change(lambda: ruling.removed(self.plan, place), "rule", always=True)

    def set_target(self, target: str | Machine) -> bool:
        """Chooses the machine: `tpu v5p:4x4x4`, `gpu h100:8x8`, `cpu`, a chip (`v5p`), `attached`, or a `Machine`.

        It must have as many devices as the mesh; see `aiming.read`.
        """
        return self._change(lambda: self.plan, "target", aim=lambda: aiming.read(target, self.report.mesh))

    def undo(self) -> bool:
        """Goes back to the plan and the target before the last change."""
        if not self.past:
            return False
        back, history = self.past[-1], (self.past[:-1], (self._here, *self.ahead))
        return self._change(lambda: back.plan, "plan", history=history, always=True, aim=lambda: back.machine)

    def redo(self) -> bool:
        """Goes forward to the plan and the target that `undo` left."""
        if not self.ahead:
            return False
        on, history = self.ahead[0], ((*self.past, self._here), self.ahead[1:])
        return self._change(lambda: on.plan, "plan", history=history, always=True, aim=lambda: on.machine)

    @property
    def _here(self) -> Step:
        return Step(self.plan, self.machine)

    # What a person asks.

    def twins(self, name: str) -> tuple[tuple[str, str], ...]:
        """What stands at the same place of other trees, alike in shape and spec, as (`argument` or `output`, name).

        A weight's twins are its momentum and its new value, which had better be cut as it is.
        """
        value, bound = self._argument(name), self.bound
        place = segments(name)[1:]
        if not place:
            return ()
        trees = [("argument", v, bound.in_specs) for v in self.report.arguments if v is not value]
        trees += [("output", v, bound.out_specs) for v in self.report.outputs]
        return tuple(
            (what, v.name)
            for what, v, specs in trees
            if v.shape == value.shape
            and segments(v.name)[-len(place) :] == place
            and specs.get(v.name) == bound.in_specs[name]
        )

    def legal_axes(self, name: str, dimension: int) -> tuple[edits.Choice, ...]:
        """For each mesh axis, whether it may be added to a dimension of an argument, and why not."""
        value = self._argument(name)
        return edits.choices(value.shape, self._spec(name, dimension), self.plan.mesh, dimension)

    def legal_out_axes(self, name: str, dimension: int) -> tuple[edits.Choice, ...]:
        """The same for an output."""
        spec = self._out_spec(name, dimension)
        return edits.choices(self._output(name).shape, spec, self.plan.mesh, dimension)

    def summary(self) -> str:
        """The plan and the headline numbers as text that is the same on every run; what tests and diffs read."""
        from shardviz.widgets.summary import summary  # the words stand beside the view's data, not in the state

        return summary(self)

    # How a change is taken.

    def _change(
        self,
        build: Callable[[], Plan],
        place: str,
        argument: str | None = None,
        dimension: int | None = None,
        history: tuple[tuple[Any, ...], tuple[Any, ...]] | None = None,
        always: bool = False,
        aim: Callable[[], Machine] | None = None,
    ) -> bool:
        with self._inbox.owned(), self._shown():
            try:
                plan, bound, before = build(), None, self._here
                machine = self.machine if aim is None else aim()
                if plan != self.plan:
                    bound = self.program.bind(plan)
                if bound is not None and (always or not _same(bound, self.bound)):
                    self._take(plan, bound, machine)
                elif machine != self.machine:
                    self._retarget(machine)
                else:
                    self.error = None
                    return True
            except ShardvizError as error:
                self.refuse(error, place, argument, dimension)
                return False
            self.past, self.ahead = history or ((*self.past, before), ())
            self._later()
            return True

    def refuse(
        self, error: ShardvizError, place: str, argument: str | None = None, dimension: int | None = None
    ) -> None:
        """Shows why something was not done, at its place; everything else stays as it is."""
        named = getattr(error, "argument", None)
        where = getattr(error, "dimension", None)
        self.error = {
            "message": str(error),
            "place": place,
            "argument": named or argument,
            "kind": type(error).__name__,
            "axis": argument if place == "mesh" else None,
            "dimension": where if named else dimension,
            "detail": "".join(traceback.format_exception(error.__cause__)) if error.__cause__ else "",
        }

    # Names and specs.

    def _argument(self, name: str) -> Any:
        return _named(self.report.arguments, name, "argument")

    def _output(self, name: str) -> Any:
        return _named(self.report.outputs, name, "output")

    def _spec(self, name: str, dimension: int) -> Spec:
        value = self._argument(name)
        return _checked(Spec.of(self.bound.in_specs[name], len(value.shape)), name, dimension)

    def _out_spec(self, name: str, dimension: int) -> Spec:
        value = self._output(name)
        spec = self.bound.out_specs.get(name)
        return _checked(Spec.of(value.spec if spec is None else spec, len(value.shape)), name, dimension)

    def _read(self, spec: Any, name: str) -> Spec | None:
        if isinstance(spec, str):
            return edits.parse_spec(spec, name)
        return None if spec is None else Spec.of(spec)


def _named(values: Iterable[Any], name: str, what: str) -> Any:
    for value in values:
        if value.name == name:
            return value
    raise SpecError(f"the program has no {what} {name!r}", argument=name)


def _checked(spec: Spec, name: str, dimension: int) -> Spec:
    if not 0 <= dimension < len(spec.dims):
        raise SpecError(f"{name!r} has no dimension {dimension}; it has {len(spec.dims)}", argument=name)
    return spec


def _same(one: Any, other: Any) -> bool:
    key = lambda bound: (bound.mesh, dict(bound.in_specs), dict(bound.out_specs))  # noqa: E731
    return key(one) == key(other)
