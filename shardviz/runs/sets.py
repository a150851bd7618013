"""A set of programs that share arrays: each program's plan and cost under an assignment of specs to these arrays.

Each program has its own plan. Its spec for a shared array is the program's wish. An assignment edits the plans: the
specs of the arguments that are shared, and of the outputs that are their new values.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import jax

from shardviz.ask import Program
from shardviz.ask.program import arrays, result_specs, sketch
from shardviz.ask.targeting import resolve_target
from shardviz.caching import Memo, cached_property
from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import cost_of, memory_parts
from shardviz.display import Displayed
from shardviz.errors import ShardvizError
from shardviz.layouts import itemsize, layout
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.hlo import read_spec
from shardviz.notation.read import sharding
from shardviz.plan.plan import Plan
from shardviz.propagate.lower import CPU, LowerFor
from shardviz.records import PlanRecord
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.records.findings import Finding
from shardviz.records.groups import grouped
from shardviz.records.paths import without_numbers
from shardviz.records.resharding import Resharding
from shardviz.records.together import (
    OWN,
    Assignment,
    Conflict,
    ProgramCost,
    SharedArray,
    SharedMember,
    TogetherRecord,
    Wish,
    WishCost,
    WishMove,
)
from shardviz.runs.reshard import reshard
from shardviz.runs.shared import SharedGroup

_MOST_PRICED = 16
"""Conflicts, most bytes first, whose cost in each program is computed."""


@dataclass(frozen=True, eq=False)
class SetMember:
    """A program of a set, with its own plan, and how often it is called (None if not known)."""

    name: str
    program: Program
    plan: Plan
    calls: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class ProgramSet(Displayed):
    """Several programs that share arrays.

    Attributes:
        sides: the programs, each with its own plan.
        shared: the arrays that they share.
        machine: the target; None if not known.
    """

    sides: tuple[SetMember, ...]
    shared: tuple[SharedGroup, ...]
    machine: Machine | None = None
    _memo: Memo = field(default_factory=Memo)  # shared by sets of the same programs under other plans

    def __getitem__(self, name: str) -> SetMember:
        """Return a program by its name. Raises ShardvizError if there is none."""
        for side in self.sides:
            if side.name == name:
                return side
        names = ", ".join(side.name for side in self.sides)
        raise ShardvizError(f"there is no program {name!r}; the programs are {names}")

    @cached_property
    def record(self) -> TogetherRecord:
        """All answers as plain data; computed when this is first read."""
        wishes = self.wishes
        disputed = [array for array, each in wishes.items() if len(each) > 1]
        pairs = dict.fromkeys(
            (names[0], other[0])
            for array in disputed
            for (_, names), (_, other) in itertools.permutations(wishes[array], 2)
        )
        moves = [self._moved(disputed, *pair) for pair in pairs]
        timed = self.machine is not None
        assignments = [
            Assignment(
                name=OWN,
                costs=tuple(self.cost(side, side.plan) for side in self.sides),
                moved_bytes=sum(move.moved_bytes for move in moves),
                move_seconds=sum(move.seconds or 0.0 for move in moves) if timed else None,
            )
        ]
        for name in self.leaders():
            costs = tuple(self.cost_as(side, name) for side in self.sides)
            assignments.append(Assignment(name=f"as {name} has them", costs=costs, move_seconds=0.0 if timed else None))
        return TogetherRecord(
            mesh=self.sides[0].plan.mesh,
            target="" if self.machine is None else self.machine.text,
            calls={side.name: side.calls for side in self.sides if side.calls is not None},
            usable=self.usable,
            shared=tuple(self._shared(array) for array in self.shared),
            assignments=tuple(assignments),
            conflicts=tuple(self._conflicts()),
            findings=tuple(self._findings()),
            notes=("Seconds and bytes are of one device, at level propagated.",),
        )

    @property
    def usable(self) -> float | None:
        """Bytes of one device that a program may use; None if not known."""
        return None if self.machine is None else self.machine.usable_bytes

    def require(self) -> None:
        """Raise ContractError if a program reads an array with another sharding than a program writes it."""
        self.record.require()

    def to_json(self, indent: int | None = None) -> str:
        """Return the record as JSON; `TogetherRecord.from_json` reads it."""
        return self.record.to_json(indent)

    def under(self, name: str) -> Self:
        """Return the set with the shared arrays sharded as a program's plan has them, in all programs.

        Raises:
            ShardvizError: if there is no such program, or a program cannot take an array so.
        """
        self[name]
        plans = {side.name: self.plan_as(side, name) for side in self.sides}
        return replace(self, sides=tuple(replace(side, plan=plans[side.name]) for side in self.sides))

    def with_plan(self, name: str, plan: Plan) -> Self:
        """Return the set with another plan of one program."""
        return replace(self, sides=tuple(replace(s, plan=plan) if s.name == name else s for s in self.sides))

    def on(self, machine: Machine | None) -> Self:
        """Return the set on another machine."""
        return self if machine == self.machine else replace(self, machine=machine, _memo=Memo())

    # --- Shardings --------------------------------------------------------------------------------------------------

    def wish(self, array: SharedGroup, name: str) -> Spec | None:
        """Return the spec that a program's own plan has for an array: as an argument, else as an output. None if the
        plan has none."""
        bound = self._bound(self[name])
        for path in array.of(name, "argument"):
            return bound.in_specs[path]
        return next((bound.out_specs[path] for path in array.of(name, "output")), None)

    def _bound(self, side: SetMember) -> PlanRecord:
        return self._memo.once(("bound", side.name, side.plan), lambda: side.program.bind(side.plan))

    def plan_as(self, side: SetMember, name: str, only: tuple[SharedGroup, ...] | None = None) -> Plan:
        """Return a program's plan with shared arrays (`only` these, or all) sharded as in program `name`. An array for
        which that plan has no spec is sharded as in the first program whose plan has one.

        Raises:
            ShardvizError: if no axes of the program's mesh express such a sharding.
        """
        specs: dict[SharedGroup, Spec] = {}
        for array in self.shared if only is None else only:
            if side.name not in array.programs or (side.name == name and self.wish(array, name) is not None):
                continue
            for other in dict.fromkeys((name, *array.programs)):
                spec = self.wish(array, other) if other in array.programs else None
                if spec is not None:
                    specs[array] = on_mesh(spec, self[other].plan.mesh, side.plan.mesh, len(array.shape))
                    break
        return assigned(side, specs)

    # --- Answers ----------------------------------------------------------------------------------------------------

    def cost(self, side: SetMember, plan: Plan) -> ProgramCost:
        """Return a program's seconds and memory under a plan."""
        return self._memo.once(("cost", side.name, plan), lambda: self._cost(side, plan))

    def _cost(self, side: SetMember, plan: Plan) -> ProgramCost:
        try:
            report = sketch(side.program, plan, self.lowered_for(side))
            if self.machine is None:
                return ProgramCost(program=side.name, needs_bytes=sum(memory_parts(report).values()))
            cost = cost_of(report, self.machine, tokens=False)
            return ProgramCost(program=side.name, seconds=cost.step.seconds, needs_bytes=cost.needs.total)
        except ShardvizError as error:
            return ProgramCost(program=side.name, why_not=str(error))

    def lowered_for(self, side: SetMember) -> LowerFor:
        """Return the platform that a program is lowered for."""
        return CPU if self.machine is None else resolve_target(self.machine, side.plan.mesh).lowered_for

    def cost_as(self, side: SetMember, name: str, only: tuple[SharedGroup, ...] | None = None) -> ProgramCost:
        """Return a program's cost with shared arrays (`only` these, or all) sharded as in program `name`."""
        try:
            return self.cost(side, self.plan_as(side, name, only))
        except ShardvizError as error:  # the other mesh has no axes for it
            return ProgramCost(program=side.name, why_not=str(error))

    def leaders(self) -> list[str]:
        """Return the programs whose plans shard a shared array differently; of programs that agree, the first."""
        return list(dict.fromkeys(names[0] for each in self.wishes.values() if len(each) > 1 for _, names in each))

    def _shared(self, array: SharedGroup) -> SharedArray:
        members = []
        for member in array.members:
            side = self[member.program]
            spec = self._spec_at(side, member.role, member.path)
            shard = 0.0 if spec is None else layout(array.shape, spec, side.plan.mesh).bytes_per_device(array.dtype)
            text = "" if spec is None else str(spec.canonical())
            members.append(SharedMember(**member._asdict(), spec=text, bytes_per_device=shard))
        return SharedArray(name=array.name, shape=array.shape, dtype=array.dtype, members=tuple(members))

    def _spec_at(self, side: SetMember, role: str, path: str) -> Spec | None:
        if role == "argument":
            return self._bound(side).in_specs[path]
        return self._written(side).get(path)

    def _written(self, side: SetMember) -> Mapping[str, Spec]:
        """Return output → its spec: the plan's, or Shardy's. Empty if Shardy fails on the program."""

        def specs() -> dict[str, Spec]:
            with contextlib.suppress(ShardvizError):
                results = result_specs(side.program, side.plan, self.lowered_for(side))
                return dict(zip((o.name for o in arrays(side.program, side.plan)[1]), results, strict=True))
            return {}

        return self._memo.once(("written", side.name, side.plan), specs)

    @cached_property
    def wishes(self) -> Mapping[SharedGroup, list[tuple[Spec, list[str]]]]:
        """Shared array → the different shardings that programs' plans give it, each with the programs."""
        return {array: self._wishes(array) for array in self.shared}

    def _wishes(self, array: SharedGroup) -> list[tuple[Spec, list[str]]]:
        wishes: list[tuple[Spec, list[str]]] = []
        for name in array.programs:
            spec = self.wish(array, name)
            if spec is None:
                continue
            for other, names in wishes:
                if same(spec, self[name].plan.mesh, other, self[names[0]].plan.mesh, array.shape):
                    names.append(name)
                    break
            else:
                wishes.append((spec, [name]))
        return wishes

    def conflict(self, array: SharedGroup) -> Conflict | None:
        """Return the conflict that an array is in, with its costs; None if all plans shard the array alike."""
        group = next((group for group in self._disputed() if array in group), None)
        return None if group is None else self._priced(group)

    def _conflicts(self) -> Iterator[Conflict]:
        for number, group in enumerate(self._disputed()):
            yield self._priced(group) if number < _MOST_PRICED else _conflict(group, self.wishes[group[0]])

    def _disputed(self) -> list[list[SharedGroup]]:
        """Return the arrays that plans shard differently, most bytes first. Arrays with equal shapes and wishes are one
        group."""

        def key(array: SharedGroup) -> Any:
            specs = tuple((str(spec.canonical()), *names) for spec, names in self.wishes[array])
            return without_numbers(array.name), array.shape, array.dtype, specs

        groups = grouped((key(array), array) for array, each in self.wishes.items() if len(each) > 1).values()
        return sorted(groups, key=lambda group: -len(group) * math.prod(group[0].shape) * itemsize(group[0].dtype))

    def _priced(self, group: list[SharedGroup]) -> Conflict:
        conflict = _conflict(group, self.wishes[group[0]])
        pairs = list(itertools.permutations(conflict.wishes, 2))
        costs = (self._added(self[p], tuple(group), wish) for wish, other in pairs for p in other.programs)
        moves = (self._moved(group, wish.programs[0], other.programs[0]) for wish, other in pairs)
        return replace(conflict, costs=tuple(costs), moves=tuple(moves))

    def _added(self, side: SetMember, group: tuple[SharedGroup, ...], wish: Wish) -> WishCost:
        own, new = self.cost(side, side.plan), self.cost_as(side, wish.programs[0], group)

        def difference(one, two):
            return None if one is None or two is None else two - one

        seconds, needs = difference(own.seconds, new.seconds), difference(own.needs_bytes, new.needs_bytes)
        return WishCost(program=side.name, spec=wish.spec, seconds=seconds, needs_bytes=needs, why_not=new.why_not)

    def _moved(self, group: Sequence[SharedGroup], name: str, other: str) -> WishMove:
        """Return the cost of resharding arrays from one program's sharding to another's."""
        pairs = {array.name: (self.wish(array, name), self.wish(array, other)) for array in group}
        wished = [array for array in group if None not in pairs[array.name]]
        moved = self._reshard(wished, pairs, name, other) if wished else None
        before, after = ("" if spec is None else str(spec.canonical()) for spec in pairs[group[0].name])
        if moved is None:
            return WishMove(before=before, after=after, moved_bytes=0.0, seconds=0.0)
        return WishMove(before=before, after=after, moved_bytes=moved.moved_bytes, seconds=moved.seconds)

    def _reshard(
        self, group: Sequence[SharedGroup], specs: Mapping[str, Sequence[Any]], name: str, other: str
    ) -> Resharding:
        """Return the resharding of arrays from their first to their second specs, on the meshes of two programs."""
        tree = {array.name: jax.ShapeDtypeStruct(array.shape, array.dtype) for array in group}
        before, after = ({path: specs[path][side] for path in tree} for side in (0, 1))
        meshes = self[name].plan.mesh, self[other].plan.mesh
        return reshard(tree, before, after, mesh=meshes[0], to_mesh=meshes[1], target=self.machine)

    def _findings(self) -> Iterator[Finding]:
        """Yield an error for each array that one program writes with one sharding, and another reads with another."""
        for array in self.shared:
            for writer, role, path in array.members:
                if role != "output":
                    continue
                written = self._spec_at(self[writer], "output", path)
                for reader, its_role, argument in array.members:
                    if its_role != "argument" or reader == writer or written is None:
                        continue
                    read = self._spec_at(self[reader], "argument", argument)
                    meshes = self[writer].plan.mesh, self[reader].plan.mesh
                    if read is not None and not same(written, meshes[0], read, meshes[1], array.shape):
                        yield self._broken(array, (writer, path, written), (reader, argument, read))

    def _broken(self, array: SharedGroup, written: tuple[str, str, Spec], read: tuple[str, str, Spec]) -> Finding:
        (writer, path, before), (reader, argument, after) = written, read
        moved = self._reshard([array], {array.name: (before, after)}, writer, reader)
        numbers, timed = {"bytes": moved.received_bytes}, ""
        if moved.seconds is not None:
            numbers["seconds"], timed = moved.seconds, f" in {format_seconds(moved.seconds)}"
        return Finding(
            f"written-otherwise:{reader}:{argument}:{writer}:{path}",
            "error",
            f"{argument}, which {reader} reads as {after.canonical()}, is {path} of {writer}, which writes it as "
            f"{before.canonical()}: resharding it between the calls moves {format_bytes(moved.moved_bytes)}{timed}; "
            "give both one spec",
            value=argument,
            numbers=numbers,
        )


def _conflict(group: Sequence[SharedGroup], wishes: Sequence[tuple[Spec, list[str]]]) -> Conflict:
    return Conflict(
        names=tuple(array.name for array in group),
        shape=group[0].shape,
        dtype=group[0].dtype,
        wishes=tuple(Wish(spec=str(spec.canonical()), programs=tuple(names)) for spec, names in wishes),
    )


def check_calls(option: str, calls: Mapping[str, Any], names: Sequence[str]) -> None:
    """Check numbers of calls by program.

    Raises:
        ShardvizError: for the name of no program, or a number that is not 0 or more.
    """
    for name, count in calls.items():
        if name not in names or isinstance(count, bool) or not isinstance(count, int | float) or not count >= 0:
            raise ShardvizError(
                f"{option}={{{name!r}: {count!r}}}: expected calls an hour, 0 or more, of {', '.join(map(repr, names))}"
            )


def assigned(side: SetMember, specs: Mapping[SharedGroup, Spec]) -> Plan:
    """Return a program's plan with these specs of shared arrays, for its arguments and outputs that are such arrays."""
    ins = {path: spec for array, spec in specs.items() for path in array.of(side.name, "argument")}
    outs = {path: spec for array, spec in specs.items() for path in array.of(side.name, "output")}
    plan = side.plan.with_spec(ins) if ins else side.plan
    return plan.with_spec(outs, output=True) if outs else plan


def on_mesh(spec: Spec, mesh: DeviceMesh, other: DeviceMesh, rank: int) -> Spec:
    """Return a spec on another mesh of the same devices.

    Raises:
        ShardvizError: if no axes of the other mesh express the sharding.
    """
    if mesh.shape == other.shape and mesh.ids().tolist() == other.ids().tolist():
        return spec
    return read_spec(sharding(spec, mesh, rank).to("hlo-v2"), other, rank)


def same(spec: Spec, mesh: DeviceMesh, other: Spec, other_mesh: DeviceMesh, shape: tuple[int, ...]) -> bool:
    """Return whether two shardings put the same slice of an array on each device."""
    if mesh == other_mesh:
        return spec.same_as(other, mesh)
    sides = [layout(shape, s, m) for s, m in ((spec, mesh), (other, other_mesh))]
    one, two = ({d: side.index(d) for d in side.device_ids.tolist()} for side in sides)
    return one == two
