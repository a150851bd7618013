"""The record of a dry run: its programs in their order, each with its `Program` and `Plan`; transfers; live memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from shardviz import _jax
from shardviz.ask import Program
from shardviz.ask.program import arrays, result_specs, sketch
from shardviz.ask.targeting import resolve_target
from shardviz.caching import Memo, cached_property
from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import StepCost, cost_of
from shardviz.display import Displayed
from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh, Spec
from shardviz.plan.plan import Plan
from shardviz.propagate.lower import CPU, LowerFor
from shardviz.records.budget import OPTIMIZER, STATE, WEIGHTS
from shardviz.records.groups import grouped
from shardviz.records.runs import (
    BATCHES,
    CACHES,
    OTHERS,
    OWN,
    RunCall,
    RunHeld,
    RunNote,
    RunProgram,
    RunRecord,
    Transfer,
)
from shardviz.runs.budget import kinds_of
from shardviz.runs.recorded import Recording
from shardviz.runs.sets import SetMember
from shardviz.runs.shared import Beside, Seen, SharedGroup, SharedPlace
from shardviz.runs.together import Together, together_of
from shardviz.tracing.call import Call
from shardviz.tracing.trace import Argument


@dataclass(eq=False)
class RunStep:
    """A program of a run. It is read, and its cost is estimated, on first use.

    Attributes:
        recorded: its arguments, results and calls, as plain data, without estimates.
        call: the program as JAX traced it; None if shardviz cannot read it.
        mesh: its mesh; `device=1` on one device.
        machine: the run's machine, where the mesh has all of it.
        target: the run's machine in words, where the program is on all of it; else empty.
        refused: why Shardy could not say how its results are sharded, or why there is no call.
        like: the same function, called with other shardings before.
        eager: whether it is a single operation that the script called outside `jax.jit`.
        new: the places of the arguments that at a later call were arrays which no program had taken or given before.
    """

    recorded: RunProgram
    call: Call | None = field(repr=False)
    mesh: DeviceMesh
    machine: Machine | None
    target: str = ""
    refused: str = ""
    like: RunStep | None = field(default=None, repr=False)
    eager: bool = False
    new: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        """The function's name."""
        return self.recorded.name

    @cached_property
    def paths(self) -> dict[tuple[str, int], Argument]:
        """Return (role, place) → the array, without scalars; nothing if shardviz cannot read it."""
        try:
            arguments, outputs = arrays(*self.made)
        except ShardvizError:
            return {}
        both = ("argument", arguments), ("output", outputs)
        return {(role, place): array for role, of in both for place, array in enumerate(of) if array.shape}

    @property
    def written(self) -> set[int]:
        """The places of the arguments that it updates in part, such as a cache."""
        recording = self.call and self.call.fn
        if not isinstance(recording, Recording):
            return set()
        skipped = len(recording.dispatched.constants)
        return {at - skipped for at in _jax.written(recording.dispatched.closed.jaxpr)}

    @cached_property
    def function(self) -> tuple[object, ...]:
        """Its name and its arguments' shapes: equal for the same function with other shardings."""
        return self.name, *((array.shape, array.dtype) for array in self.recorded.arguments)

    @property
    def record(self) -> RunProgram:
        """Its arguments, results and calls, and the seconds and bytes of a call on the run's machine."""
        return self._with(self._cost[0])

    def record_on(self, machine: Machine | None) -> RunProgram:
        """Return its arguments, results and calls, and the seconds and bytes of a call on another machine. The seconds
        are left out unless the mesh covers the whole machine."""
        known = machine is not None and machine.size == self.mesh.size
        return self._with(self._cost_on(machine)[0] if known else None)

    def _with(self, cost: StepCost | None) -> RunProgram:
        if cost is None:
            return self.recorded
        return replace(self.recorded, seconds=cost.step.seconds, needs_bytes=cost.needs.total)

    @property
    def program(self) -> Program | None:
        """The program as shardviz explores it; None if shardviz cannot read it."""
        return self._made[0]

    @property
    def plan(self) -> Plan | None:
        """The shardings that the program had in the run."""
        return self._made[1]

    @property
    def made(self) -> tuple[Program, Plan]:
        """The program and its plan. Raises ShardvizError if shardviz cannot read it."""
        program, plan, why_not = self._made
        if program is None or plan is None:
            raise ShardvizError(why_not)
        return program, plan

    @property
    def why_not(self) -> str:
        """Why there is no program, or no estimate; else empty."""
        return self._made[2] or self.refused or self._cost[1]

    def own_bytes(self, kinds: Mapping[str, str]) -> dict[str, float]:
        """Return the bytes per device that it needs, by kind: its arguments by their kinds, and `OWN` for its
        temporaries."""
        cost, record = self._cost[0], self.recorded
        sizes: Counter[str] = Counter()
        for array in record.arguments:
            if not array.unused:
                sizes[kinds.get(array.name, OTHERS)] += array.bytes_per_device
        taken = sum(sizes.values())
        total = record.bytes_per_device if cost is None else cost.needs.total
        if taken > total:  # some are on the host
            return {OTHERS: total}
        return sizes | {OWN: total - taken}

    def result_specs(self) -> tuple[Spec, ...]:
        """Return how Shardy shards its results. Raises ShardvizError if it cannot."""
        return result_specs(*self.made, self._lowered_for(self.machine))

    def _lowered_for(self, machine: Machine | None) -> LowerFor:
        return CPU if machine is None else resolve_target(machine.text, self.mesh).lowered_for

    @cached_property
    def _made(self) -> tuple[Program | None, Plan | None, str]:
        if self.call is None:
            return None, None, self.refused
        try:
            program = Program(self.call, self.mesh, like=None if self.like is None else self.like.program)
            return program, program.plan(), ""
        except ShardvizError as error:
            return None, None, str(error)

    @cached_property
    def _cost(self) -> tuple[StepCost | None, str]:
        return self._cost_on(self.machine)

    def _cost_on(self, machine: Machine | None) -> tuple[StepCost | None, str]:
        program, plan, _ = self._made if machine is not None and not self.refused else (None, None, "")
        if program is None or plan is None or machine is None:
            return None, ""
        try:
            return cost_of(sketch(program, plan, self._lowered_for(machine)), machine), ""
        except ShardvizError as error:
            return None, str(error)


@dataclass(eq=False, repr=False)
class Run(Displayed, Memo):
    """A dry run of a script or a notebook cell. Made by `sv.dry_run`.

    Attributes:
        recorded: the plain data, see `RunRecord`, without estimates.
        steps: the programs in the order of their first calls.
        same: for each shared array, its places: (program, `argument` or `output`, place among the flat arguments or
            outputs).
        beside: for each program, the arrays that were alive during a call and that it does not take, at the call where
            these had most bytes; empty until the run has ended.

    Examples:
        >>> import jax, jax.numpy as jnp, shardviz as sv
        >>> with sv.dry_run() as run:
        ...     total = jax.jit(lambda x: x.sum())(jnp.zeros((100_000, 10_000)))
        >>> [step.name for step in run.steps][-1]
        '<lambda>'
    """

    recorded: RunRecord
    steps: tuple[RunStep, ...] = field(default=())
    same: tuple[tuple[Seen, ...], ...] = ()
    beside: tuple[tuple[Beside, ...], ...] = ()

    @property
    def record(self) -> RunRecord:
        """The plain data. The cost of each program is estimated when this is first read."""
        record = replace(self.recorded, programs=tuple(step.record for step in self.steps))
        if (peak := record.peak) is None or not self.beside:  # it has not ended
            return record
        return replace(record, held=self.once("held", lambda: self._held(peak)))

    def _held(self, peak: RunCall) -> tuple[RunHeld, ...]:
        """Return what holds the memory at a call: the arguments of its program, its temporaries, and other live
        arrays."""
        step, kinds = self.steps[peak.program], self._kinds(peak.program)
        sizes = Counter(step.own_bytes(kinds))
        taken = (a for a in step.recorded.arguments if kinds.get(a.name) == BATCHES)
        batches = {(a.shape, a.dtype, a.bytes_per_device) for a in taken}
        left = peak.beside_bytes
        for first, shape, dtype, nbytes in self.beside[peak.program]:
            kind = self._kind_of(first) if first else BATCHES if (shape, dtype, nbytes) in batches else OTHERS
            sizes[kind] += min(nbytes, left)
            left -= min(nbytes, left)
        sizes[OTHERS] += left
        order = (WEIGHTS, OPTIMIZER, CACHES, BATCHES, OWN, OTHERS)
        return tuple(RunHeld(kind, sizes[kind]) for kind in order if sizes[kind] > 0)

    def _kind_of(self, first: Seen) -> str:
        """Return the kind of an array by the programs that take it. A single operation takes arrays of any kind."""
        places = next((seen for seen in self.same if first in seen), (first,))
        kinds = set[str]()
        for number, role, place in places:
            step = self.steps[number]
            if role == "argument" and not step.eager and (array := step.paths.get((role, place))) is not None:
                kinds.add(self._kinds(number).get(array.name, OTHERS))
        return next((kind for kind in (WEIGHTS, OPTIMIZER, CACHES, BATCHES) if kind in kinds), OTHERS)

    def _kinds(self, number: int) -> dict[str, str]:
        """Return the kind of each argument of a program; nothing if shardviz cannot read it."""
        return self.once(("kinds", number), lambda: self._kinds_now(number))

    def _kinds_now(self, number: int) -> dict[str, str]:
        step, paths = self.steps[number], self.steps[number].paths
        taken = {place: array.name for (role, place), array in paths.items() if role == "argument"}
        if step.eager:
            return {name: self._kind_of((number, "argument", place)) for place, name in taken.items()}
        if not paths:
            return {}
        of, own = [other.function for other in self.steps], step.function
        written = step.written
        shared, carried, new = set[str](), set[str](), {taken[place] for place in step.new & taken.keys()}
        for seen in self.same:
            takers = {of[n] for n, role, _ in seen if role == "argument" and not self.steps[n].eager}
            givers = {of[n] for n, role, _ in seen if role == "output" and not self.steps[n].eager}
            back = own in givers
            updated = {taken[at] for n, role, at in seen if n == number and role == "argument" and at in written}
            is_new = any(role == "argument" and place in self.steps[n].new for n, role, place in seen)
            names = {taken[at] for n, role, at in seen if role == "argument" and of[n] == own and at in taken}
            for among, where in ((shared, len(takers) > 1), (carried, back), (new, is_new and not back)):
                among |= names if where else set()
            carried |= updated if givers else set()  # nothing is written into a batch
        try:
            kinds = kinds_of(SetMember(step.name, *step.made), shared, carried)
        except ShardvizError:  # it cannot be lowered here
            return {}
        told = {a.name: BATCHES for a in step.recorded.arguments if a.shape and a.name != "constant"}
        told |= {name: CACHES if kind == STATE else kind for name, kind in kinds.items()}
        return told | dict.fromkeys(new, BATCHES)

    @property
    def ended(self) -> str:
        """How the run ended, as `RunRecord.ended`."""
        return self.recorded.ended

    def __getitem__(self, name: str | int) -> RunStep:
        """Return a program by its name (see `named`) or its place in the run; the largest if several have the name.

        Raises:
            ShardvizError: if there is no program of the name.
        """
        if isinstance(name, int):
            return self.steps[name]
        if (step := self.named.get(name)) is None:
            names = ", ".join(dict.fromkeys(step.name for step in self.steps)) or "none"
            raise ShardvizError(f"run[{name!r}]: no program of the run has this name; it has {names}")
        return step

    @property
    def named(self) -> dict[str, RunStep]:
        """The programs by name, in the order of their first calls. If several are called `step`, the largest is `step`,
        the next `step 2`."""
        largest = sorted(self.steps, key=lambda step: -step.recorded.bytes_per_device)
        groups = grouped((step.name, step) for step in largest)
        names = {s: name if n == 1 else f"{name} {n}" for name, each in groups.items() for n, s in enumerate(each, 1)}
        return {names[step]: step for step in self.steps}

    @property
    def longest(self) -> RunStep:
        """The program whose calls take longest; the largest, if their seconds are not known. Programs on one device
        only count if there are no others.

        Raises:
            ShardvizError: if there is none that shardviz can read.
        """
        there = [step for step in self.steps if step.program is not None]
        if not there:
            raise ShardvizError("this run has no program that shardviz can read")

        def seconds_of(step):
            return (step.record.seconds or 0) * step.record.calls

        return max(there, key=lambda step: (step.record.devices > 1, seconds_of(step), step.record.bytes_per_device))

    def __iter__(self) -> Iterator[RunStep]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def programs(self) -> tuple[RunProgram, ...]:
        return self.record.programs

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        return self.recorded.transfers

    @property
    def calls(self) -> tuple[RunCall, ...]:
        return self.recorded.calls

    @property
    def notes(self) -> tuple[RunNote, ...]:
        return self.recorded.notes

    def together(self, *names: str | int) -> Together:
        """Return the programs that share arrays: they took the same arrays, or one took another's results.

        Args:
            names: programs, as for `run[name]`. Without names: of the programs on the largest number of devices, all
                that share an array with at least one dimension; single operations are left out.

        Returns:
            A `Together`. Programs of one name are numbered (`decode`, `decode 2`), and each counts the run's calls.

        Raises:
            ShardvizError: if there is no such program, or no two of them share an array.
            MeshError: if they are on different devices.
        """
        chosen = {id(self[name]) for name in names}
        steps = {n: s for n, s in enumerate(self.steps) if s.program is not None and (not names or id(s) in chosen)}
        if not names:  # single operations, and programs of fewer devices, make arrays that others take
            most = max((step.recorded.devices for step in steps.values()), default=0)
            steps = {n: step for n, step in steps.items() if step.recorded.devices == most and not step.eager}
        paths = {number: step.paths for number, step in steps.items()}
        groups: list[dict[Seen, Argument]] = []
        for seen in self.same:
            places = (each for each in seen if each[1:] in paths.get(each[0], {}))
            here = {e: paths[e[0]][e[1:]] for e in sorted(places, key=lambda e: (e[1], e[0], e[2]))}  # arguments first
            if len({number for number, _, _ in here}) > 1:
                groups.append(here)
        used = [number for number in steps if any(each[0] == number for group in groups for each in group)]
        if not used:
            of = " and ".join(map(repr, names)) or "the run's programs"
            raise ShardvizError(
                f"run.together: no array goes into two of {of}; give programs that take the same arrays, or "
                "sv.together(..., shared={path: path}) the paths"
            )
        counted, called = Counter[str](), dict[int, str]()
        for number in used:
            name = steps[number].name
            counted[name] += 1
            called[number] = name if counted[name] == 1 else f"{name} {counted[name]}"
        sides = [SetMember(called[n], *steps[n].made, float(steps[n].recorded.calls)) for n in used]
        shared = []
        for group in groups:
            first = next(iter(group.values()))
            places = tuple(SharedPlace(called[number], role, array.name) for (number, role, _), array in group.items())
            shared.append(SharedGroup(first.name, first.shape, first.dtype, places))
        return together_of(sides, tuple(shared), self.recorded.target or None)

    def to_json(self, indent: int | None = None) -> str:
        """Return the record as JSON; `RunRecord.from_json` reads it."""
        return self.record.to_json(indent)
