"""How often each computation runs when the program runs once.

A scan over 80 layers is one `while` whose body stands in the text once. `runs(module)` multiplies the trip counts of
all enclosing loops:

    ENTRY main          1
      while layers      80 trips (known_trip_count, or counted from the condition)
        body            80
          while heads   4 trips
            body        320

The partitioner's snapshots mostly have no `known_trip_count`; the count then follows from the arithmetic of the loop's
counters, where they begin at constants (see `shardviz.records.trips`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from shardviz.compiler.dataflow import KEEPS, Origin
from shardviz.compiler.module import CALLERS, Computation, Instruction, Module, number
from shardviz.compiler.shapes import Shape, element
from shardviz.errors import ParseError, excerpt
from shardviz.notation.bounds import MOST_CALLS
from shardviz.records.trips import Scalar, trips_of

_KNOWN = re.compile(r'"?known_trip_count"?\s*:\s*\{\s*"?n"?\s*:\s*"?(\d{1,18})(?!\d)', re.ASCII)
_MOST_RUNS = 1 << 63
BRANCHES = ("branch_computations", "true_computation", "false_computation")
_EXECUTED = ("calls", "condition", "body", "called_computations", *BRANCHES)


@dataclass(frozen=True)
class Runs:
    """How often a computation runs in one run of the program.

    Attributes:
        times: the number, each loop of unknown trip count taken as one trip, each branch as taken.
        unknown_loops: how many loops of unknown trip count enclose it (on the way with the most).
        conditional: whether it stands in a branch that may not run.
    """

    times: int
    unknown_loops: int = 0
    conditional: bool = False

    @property
    def count(self) -> int | None:
        """`times`, or None where a loop's trip count is not known."""
        return None if self.unknown_loops else self.times


Trips = Mapping[tuple[str, str], int | None]
"""How many trips each loop makes: (computation, name of the `while`) → number, None where it is not known."""


def trip_counts(module: Module) -> Trips:
    """How many trips each loop makes that the entry reaches."""
    values = Origin(module, KEEPS)
    return {
        (name, loop.name): trip_count(module, module.computations[name], loop, values)
        for name in _callers_first(module)
        for loop in module.computations[name].instructions
        if loop.opcode == "while"
    }


def runs(module: Module, trips: Trips | None = None) -> dict[str, Runs]:
    """How often each computation of a module runs per run of its entry.

    Args:
        module: the module.
        trips: `trip_counts(module)`, where it is known already.

    Returns:
        Computation name → `Runs`. Computations that are applied to single elements (a reduction's adder) are left out,
        and so are those that nothing calls.
    """
    trips = trip_counts(module) if trips is None else trips
    found: dict[str, Runs] = {module.entry.name: Runs(1)}
    for name in _callers_first(module):
        outer = found.get(name)
        if outer is None:
            continue
        for instruction in module.computations[name].instructions:
            for role, _index, callee in _executed(instruction):
                times, unknown = 1, 0
                if role in ("body", "condition"):
                    many = trips[name, instruction.name]
                    times, unknown = (1, 1) if many is None else (many + (role == "condition"), 0)
                if outer.times * times > _MOST_RUNS:
                    times, unknown = 1, unknown + 1
                inner = Runs(outer.times * times, outer.unknown_loops + unknown, outer.conditional or role in BRANCHES)
                found[callee] = _both(found.get(callee), inner)
    return found


def heaviest_runs(module: Module, cost: Callable[[str], float], trips: Trips, *, fused: bool = True) -> dict[str, int]:
    """How often each computation runs per run of the entry, where every conditional takes the branch that costs most.

    Args:
        module: the module.
        cost: computation name → what its own instructions cost in one run.
        trips: how many trips each loop makes; a loop that is not in it, or is not known, makes one, and its condition
            is asked once.
        fused: count what stands in fusions as run; else they are left out.

    Returns:
        Computation name → runs; 0 for what stands in a branch that is not taken.
    """
    order = _callers_first(module, frozenset() if fused else frozenset(("fusion",)))
    reached = frozenset(order)
    calls: dict[str, list[tuple[int, str]]] = {}
    total: dict[str, float] = {}
    for name in reversed(order):
        calls[name], total[name] = [], cost(name)
        for instruction in module.computations[name].instructions:
            made = [(role, callee) for role, _, callee in _executed(instruction) if callee in reached]
            branches = [callee for role, callee in made if role in BRANCHES]
            if branches:
                made = [("branch", max(branches, key=total.__getitem__))]
            many = trips.get((name, instruction.name))
            times = {} if many is None else {"body": many, "condition": many + 1}
            for role, callee in made:
                calls[name].append((times.get(role, 1), callee))
                total[name] += times.get(role, 1) * total[callee]
    found = dict.fromkeys(order, 0)
    found[module.entry.name] = 1
    for name in order:
        for many, callee in calls[name]:
            found[callee] += found[name] * many
    return found


def trip_count(module: Module, computation: Computation, loop: Instruction, values: Origin | None = None) -> int | None:
    """How many trips a `while` makes.

    Args:
        module: the module.
        computation: where the loop stands.
        loop: the `while`.
        values: `Origin(module, KEEPS)`, to share what it has found out already.

    Returns:
        The number in `known_trip_count`, or the one that follows from the loop's counters; None where neither does.
    """
    if known := _KNOWN.search(loop.attributes.get("backend_config", "")):
        return int(known[1])
    condition, body = (module.computations[loop.called[role][0]] for role in ("condition", "body"))
    return trips_of(
        _Scalars(values or Origin(module, KEEPS), (condition, body)),
        _Value(condition.name, condition.root.name),
        lambda path: _Value(body.name, body.root.name, path),
        lambda path: _Value(computation.name, loop.operands[0], loop.operand_parts[0] + path),
    )


class _Value(NamedTuple):
    """A scalar: which result it is, and of which calls, from the loop's own body or condition inwards."""

    computation: str
    instruction: str
    path: tuple[int, ...] = ()
    calls: tuple[tuple[str, Instruction], ...] = ()


class _Scalars:
    """Of what the scalars are made by which a loop ends, its fusions and calls entered."""

    def __init__(self, values: Origin, loop: tuple[Computation, Computation]):
        self._values, self._loop = values, loop

    def __call__(self, value: _Value) -> Scalar | None:
        computations = self._values.module.computations
        while True:
            computation = computations[value.computation]
            own = bool(value.calls) or computation in self._loop
            place = self._values(computation, value.instruction, value.path, inside=own)
            made, name = place.instruction, place.computation.name
            if made.opcode in ("fusion", "call"):
                callee = computations[next(iter(made.called.values()))[0]]
                value = _Value(callee.name, callee.root.name, place.path, (*value.calls, (name, made)))
            elif made.opcode == "parameter" and value.calls:
                *outer, (name, call) = value.calls
                index = number(made.operands_text, made)
                if index >= len(call.operands):
                    return None
                value = _Value(name, call.operands[index], call.operand_parts[index] + place.path, tuple(outer))
            else:
                break
        shape = element(made.shape, place.path)
        if not isinstance(shape, Shape) or shape.size != 1 or (made.opcode == "parameter" and not own):
            return None
        if made.opcode == "parameter":
            return Scalar("element", shape.dtype, detail=place.path)
        if made.opcode == "constant":
            return Scalar("constant", shape.dtype, detail=made.operands_text.strip())
        operands = zip(made.operands, made.operand_parts, strict=True)
        return Scalar(
            made.opcode,
            shape.dtype,
            tuple(_Value(name, operand, part, value.calls) for operand, part in operands),
            made.attributes.get("direction"),
        )


def _executed(instruction: Instruction) -> list[tuple[str, int, str]]:
    """What an instruction runs as a whole: (role, place, computation)."""
    if instruction.opcode not in CALLERS:
        return []
    roles = (*_EXECUTED, "to_apply") if instruction.opcode == "call" else _EXECUTED
    return [
        (role, index, name)
        for role, names in instruction.called.items()
        if role in roles
        for index, name in enumerate(names)
    ]


def _callers_first(module: Module, skipped: frozenset[str] = frozenset()) -> list[str]:
    """The computations that the entry reaches, each after all that call it; not through the opcodes `skipped`."""
    order: list[str] = []
    called: dict[str, list[str]] = {}
    seen: set[str] = set()
    stack: list[tuple[str, bool]] = [(module.entry.name, False)]
    while stack:
        name, done = stack.pop()
        if done:
            order.append(name)
            continue
        if name in seen:
            continue
        seen.add(name)
        stack.append((name, True))
        called[name] = [
            callee
            for instruction in module.computations[name].instructions
            if instruction.opcode in CALLERS and instruction.opcode not in skipped
            for _, _, callee in _executed(instruction)
        ]
        stack.extend((callee, False) for callee in called[name] if callee not in seen)
    depth = dict.fromkeys(order, 0)
    for name in reversed(order):
        for callee in called[name]:
            depth[callee] = max(depth[callee], depth[name] + 1)
    if max(depth.values()) > MOST_CALLS:
        raise ParseError(f"HLO module {excerpt(module.name)!r}: calls within calls more than {MOST_CALLS} deep")
    return order[::-1]


def _both(one: Runs | None, other: Runs) -> Runs:
    if one is None:
        return other
    return Runs(
        one.times + other.times, max(one.unknown_loops, other.unknown_loops), one.conditional and other.conditional
    )
