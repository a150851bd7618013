"""One memory budget for programs that share arrays: each array once, the program that needs most, and what is left.

held = weights + optimizer state + cache            (every shared array once)
total of a program = its own memory plan + held arrays that it does not take + other programs' constants
left = usable - the largest total                   (programs do not run at once)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor

from shardviz.ask.parts import Parts, nbytes
from shardviz.ask.program import arrays, is_differentiated, sketch, update_arguments
from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import Needs, cost_of, memory_parts
from shardviz.errors import ShardvizError
from shardviz.notation.spec import axes_size
from shardviz.records.amounts import format_bytes
from shardviz.records.budget import (
    CACHE,
    KINDS,
    OPTIMIZER,
    STATE,
    WEIGHTS,
    Budget,
    CacheRoom,
    HeldArrays,
    ProgramMemory,
)
from shardviz.records.findings import Finding, Suggestion
from shardviz.records.groups import grouped
from shardviz.records.paths import segments
from shardviz.records.report import ReportRecord
from shardviz.records.values import Value, on_device
from shardviz.runs.sets import ProgramSet, SetMember

_SMALL = 0.02
"""Arguments with at most this share of a program's argument bytes are taken as its batch."""


@dataclass(frozen=True, eq=False)
class _Read:
    """A program with its report, and its arguments that stay on the devices between calls."""

    side: SetMember
    report: ReportRecord
    needs: Needs | None
    held: dict[str, str]  # tree path → the array's name in the whole set
    kinds: dict[str, str]  # tree path → its kind, without caches

    @property
    def arguments(self) -> tuple[Value, ...]:
        return on_device(self.report.arguments)

    def copied(self, caches: set[str]) -> list[Value]:
        """Return the arguments that are caches, not donated, and also returned: a device holds them twice."""
        returned = {(output.shape, output.dtype) for output in self.report.outputs}
        return [
            v
            for v in self.arguments
            if self.held.get(v.name) in caches and not v.donated and (v.shape, v.dtype) in returned
        ]


def _nbytes(values: Iterable[Value]) -> float:
    """Return the bytes of arrays on one device."""
    return sum(value.bytes_per_device or 0.0 for value in values)


def budget_of(
    together: ProgramSet, cache: str | Sequence[str] = (), dimension: int = 0, unit: str = "sequence",
    level: str = "propagated", batches: int = 1, timeout: float | None = None, *,
    compiled: Mapping[str, ReportRecord] | None = None,
) -> Budget:  # fmt: skip
    """Return the budget. Arguments and errors as `Together.memory`.

    Args:
        compiled: program → its compiled report. Other programs are compiled at that level.
    """
    if level not in ("propagated", "compiled"):
        raise ShardvizError(f"memory(level={level!r}): the level is 'propagated' or 'compiled'")
    if isinstance(batches, bool) or not isinstance(batches, int) or batches < 1:
        raise ShardvizError(f"memory(batches={batches!r}): expected how many batches are on the devices, 1 or more")
    wanted = (cache,) if isinstance(cache, str) else tuple(cache)
    known = compiled or {}
    read = [_read(together, side, level, timeout, known.get(side.name)) for side in together.sides]
    caches = _caches(read, wanted)
    kinds = _kinds(read, caches)
    sizes: dict[str, float] = {}
    users: dict[str, list[str]] = {}
    for each in read:
        for value in each.report.arguments:  # those that a program does not use are held too
            if value.name in each.held and not value.on_host:
                key = each.held[value.name]
                sizes[key] = max(sizes.get(key, 0.0), value.bytes_per_device or 0.0)
                users.setdefault(key, []).append(each.side.name)
    written = {
        name: {array.name for array in together.shared if array.of(name, "output")} & sizes.keys()
        for name in (each.side.name for each in read)
    }
    for name, keys in written.items():
        for key in keys:
            if name not in users[key]:
                users[key].append(name)
    programs = [_program(each, batches) for each in read]
    constants = sum(each.constants for each in programs)
    for number, (each, own) in enumerate(zip(read, programs, strict=True)):
        here = {each.held[v.name] for v in each.arguments if v.name in each.held} | written[each.side.name]
        others = sum(size for key, size in sizes.items() if key not in here)
        programs[number] = replace(own, beside=others + constants - own.constants)
    programs.sort(key=lambda each: -each.total)
    groups = grouped(((kinds[key], tuple(users[key])), key) for key in sizes)
    held = [
        HeldArrays(kind=kind, names=tuple(keys), programs=names, nbytes=sum(sizes[key] for key in keys))
        for (kind, names), keys in groups.items()
    ]
    needs = read[0].needs
    budget = Budget(
        mesh=together.sides[0].plan.mesh,
        target="cpu" if together.machine is None else together.machine.text,
        level=level,
        usable=None if needs is None else needs.usable,
        usable_from="" if needs is None else needs.source,
        held=tuple(sorted(held, key=lambda each: (KINDS.index(each.kind), -each.nbytes))),
        programs=tuple(programs),
        batches=batches,
        findings=tuple(_findings(read, caches)),
        notes=tuple(_notes(level, sizes, read, caches)),
    )
    return replace(budget, cache=_room(budget, read, caches, dimension, unit)) if caches else budget


def _read(
    together: ProgramSet, side: SetMember, level: str, timeout: float | None, compiled: ReportRecord | None
) -> _Read:
    machine: Machine | None = together.machine
    if level == "compiled":
        target = "cpu" if machine is None else machine.text
        report = compiled or side.program.compile(side.plan, target, timeout=timeout)
        if report.memory is None:
            raise ShardvizError(f"{side.name}: the compiler for {target} planned no memory; give level='propagated'")
    else:
        report = sketch(side.program, side.plan, together.lowered_for(side))
    needs = None if machine is None else cost_of(report, machine, tokens=False).needs
    shared = {p: array.name for array in together.shared for p in array.of(side.name, "argument")}
    kinds = kinds_of(side, shared)
    return _Read(side, report, needs, {name: f"{side.name}: {name}" for name in kinds} | shared, kinds)


def kinds_of(side: SetMember, shared: Collection[str], carried: Collection[str] = ()) -> dict[str, str]:
    """Return the kinds of a program's arguments that stay on the devices between calls: shared arrays, donated
    arguments with a new value, those `carried` from one call into the next, and parameters. Parameters are looked up
    only among large arguments, because that needs the logical dimensions, which takes seconds."""
    arguments, outputs = arrays(side.program, side.plan)
    optimizer, trains = update_arguments(side.program), is_differentiated(side.program)
    returned = {(output.shape, output.dtype) for output in outputs}
    kinds: dict[str, str] = {}
    for array in arguments:
        renewed = array.name in carried or (array.donated and (array.shape, array.dtype) in returned)
        if array.name in optimizer:
            kinds[array.name] = OPTIMIZER
        elif array.shape and (array.name in shared or renewed):
            is_weight = not (renewed and not trains) and not array.dtype.startswith(("int32", "uint", "bool"))
            kinds[array.name] = WEIGHTS if is_weight else STATE
    if sum(nbytes(a) for a in arguments if a.name not in kinds) > _SMALL * sum(map(nbytes, arguments)):
        state = Parts(arguments=arguments, dimensions=side.program.dimensions).state
        kinds = {array.name: WEIGHTS for array in state} | kinds
    return kinds


def _caches(read: Sequence[_Read], wanted: Sequence[str]) -> set[str]:
    """Return the names of the arrays at these tree paths and below, in any program, and add them to the held arrays."""
    caches: set[str] = set()
    for path in wanted:
        head, before = segments(path), len(caches)
        for each in read:
            for value in each.report.arguments:
                if value.shape and segments(value.name)[: len(head)] == head:
                    caches.add(each.held.setdefault(value.name, f"{each.side.name}: {value.name}"))
        if len(caches) == before:
            have = dict.fromkeys(segments(v.name)[0] for each in read for v in each.report.arguments)
            raise ShardvizError(
                f"memory(cache={path!r}): no program has an argument at this path; the arguments are {', '.join(have)}"
            )
    return caches


def _kinds(read: Sequence[_Read], caches: set[str]) -> dict[str, str]:
    """Return the kind of each array; if programs have different kinds for it, the first of these in `KINDS`."""
    kinds: dict[str, str] = {}
    for each in read:
        for name, key in each.held.items():
            kind = each.kinds.get(name, STATE)
            kinds[key] = CACHE if key in caches else min(kinds.get(key, kind), kind, key=KINDS.index)
    return kinds


def _program(each: _Read, batches: int) -> ProgramMemory:
    held = _nbytes(v for v in each.arguments if v.name in each.held)
    batch = _nbytes(v for v in each.arguments if v.name not in each.held)
    plan = each.report.memory
    if plan is not None:
        arguments, outputs = float(plan.arguments), float(plan.outputs - plan.aliased)
        temporaries, constants = float(plan.temporaries), float(max(0, plan.takes - plan.set_aside))
    else:
        parts = dict(memory_parts(each.report) if each.needs is None else each.needs.parts)
        arguments, outputs, constants = parts.pop("arguments", 0.0), parts.pop("outputs", 0.0), 0.0
        temporaries = sum(parts.values())
    return ProgramMemory(
        program=each.side.name,
        level=each.report.level,
        held=held,
        batch=batch,
        padding=arguments - held - batch,
        outputs=outputs,
        temporaries=temporaries,
        constants=constants,
        more_batches=(batches - 1) * batch,
        beside=0.0,
    )


def _room(budget: Budget, read: Sequence[_Read], caches: set[str], dimension: int, unit: str) -> CacheRoom:
    """Return how large the cache can be. In a program that returns a copy of it, the cache counts twice."""
    one: dict[str, tuple[Value, int]] = {}
    for each in read:
        for value in each.report.arguments:
            if each.held.get(value.name) in caches and -len(value.shape) <= dimension < len(value.shape):
                spec = value.spec
                devices = 1 if spec is None else axes_size(spec.dims[dimension], each.side.plan.mesh)
                one.setdefault(each.held[value.name], (value, devices))
    if not one:
        name, shape = next((v.name, v.shape) for e in read for v in e.report.arguments if e.held.get(v.name) in caches)
        raise ShardvizError(
            f"memory(dimension={dimension}): {name} has the shape {shape}; give the dimension that counts its {unit}s"
        )
    room: list[float] = []
    per_unit = 0.0
    memory = {each.program: each for each in budget.programs}
    largest, devices = max(one.values(), key=lambda each: each[0].bytes_per_device or 0.0)
    count = largest.shape[dimension]
    caches = {key for key, (value, _) in one.items() if value.shape[dimension] == count}  # others keep their size
    one = {key: one[key] for key in caches}
    held = _nbytes(value for value, _ in one.values())
    step = held / (count / devices)
    for each in read:
        copies = 1 + _nbytes(each.copied(caches)) / max(held, 1.0)
        per_unit = max(per_unit, step * copies)
        if budget.usable is not None:
            without = memory[each.side.name].total - held * copies
            room.append((budget.usable - without) / (step * copies))
    most = None if not room else max(0, floor(min(room))) * devices
    names = tuple(sorted(value.name for value, _ in one.values()))
    return CacheRoom(names=names, unit=unit, count=count, devices=devices, unit_bytes=per_unit, most=most)


def _findings(read: Sequence[_Read], caches: set[str]) -> Iterator[Finding]:
    for each in read:
        for value in each.copied(caches):
            size = value.bytes_per_device or 0.0
            yield Finding(
                f"cache-not-donated:{each.side.name}:{value.name}",
                "warning",
                f"{each.side.name} returns {value.name} without donating it: a device holds {format_bytes(size)} "
                "twice while it runs; donate the argument",
                value=value.name,
                numbers={"bytes": size},
                suggestions=(Suggestion(kind="donate", target=value.name),),
            )


def _notes(level: str, sizes: dict[str, float], read: Sequence[_Read], caches: set[str]) -> Iterator[str]:
    yield f"Bytes are those of one device, at level {level}" + (
        ", by the plan of the target's compiler." if level == "compiled" else "; level='compiled' asks the compiler."
    )
    unlike = [
        v.name
        for each in read
        for v in each.report.arguments
        if v.name in each.held and (v.bytes_per_device or 0.0) < sizes[each.held[v.name]]
    ]
    if unlike:
        yield f"Arrays that programs shard differently, such as {unlike[0]}, count with their largest shard."
    if caches:
        yield "Temporaries are those of the traced batch; a larger cache may need more."
