"""How often each computation runs when the program runs once.

A scan over 80 layers is one `while` whose body stands in the text once. `runs(module)` multiplies the trip counts of
all enclosing loops:

    ENTRY main          1
      while layers      80 trips (known_trip_count, or counted from the condition)
        body            80
          while heads   4 trips
            body        320

The partitioner's snapshots mostly have no `known_trip_count`; the count then follows from the loop's arithmetic: it
begins at a constant, steps by a constant, and ends by a comparison with a constant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shardviz.compiler.dataflow import KEEPS, Origin, integer
from shardviz.compiler.module import CALLERS, Computation, Instruction, Module, number
from shardviz.records.counting import trips_of

_KNOWN = re.compile(r'"?known_trip_count"?\s*:\s*\{\s*"?n"?\s*:\s*"?(\d+)')
_MOST_ADDED = 32
_FLIPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE", "EQ": "EQ"}
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
        The number in `known_trip_count`, or the one that follows from the loop's counter; None where neither does.
    """
    if known := _KNOWN.search(loop.attributes.get("backend_config", "")):
        return int(known[1])
    values = values or Origin(module, KEEPS)
    condition = module.computations[loop.called["condition"][0]]
    body = module.computations[loop.called["body"][0]]
    end = values(condition, condition.root.name)
    compare = end.instruction
    if compare.opcode != "compare" or len(compare.operands) != 2 or not loop.operands:
        return None
    direction = compare.attributes.get("direction", "")
    for counter, limit, sense in ((0, 1, direction), (1, 0, _FLIPPED.get(direction, ""))):
        path = _counter(values, end.computation, compare, counter, condition)
        if path is None or values.passes_on(body, path):
            continue
        bound = integer(values, end.computation, compare.operands[limit], compare.operand_parts[limit])
        begin = integer(values, computation, loop.operands[0], loop.operand_parts[0] + path)
        step = _step(values, body, path)
        if bound is not None and begin is not None and step:
            return trips_of(begin, bound, step, sense)
    return None


def _counter(
    values: Origin, computation: Computation, compare: Instruction, index: int, condition: Computation
) -> tuple[int, ...] | None:
    """Which element of the loop's tuple an operand of the comparison is; None where it is none."""
    place = values.operand(computation, compare, index, inside=True)
    if place.instruction.opcode == "parameter" and computation is not condition:  # the comparison is fused
        call = module_call(values.module, computation, condition)
        if call is None:
            return None
        place = values.operand(condition, call, number(place.instruction.operands_text, place.instruction), inside=True)
    return place.path if place.instruction.opcode == "parameter" and place.path else None


def module_call(module: Module, callee: Computation, within: Computation) -> Instruction | None:
    """The one instruction of `within` that calls `callee`; None where there is none, or more than one."""
    calls = [c.instruction for c in module.callers.get(callee.name, ()) if c.computation is within]
    return calls[0] if len(calls) == 1 else None


def _step(values: Origin, body: Computation, path: tuple[int, ...]) -> int | None:
    """What a trip adds to an element of the loop's tuple; None where it is not a constant.

    A loop whose body was written out several times adds as often.
    """
    place = values(body, body.root.name, path, inside=True)
    total = 0
    for _ in range(_MOST_ADDED):
        made, inside = place.instruction, place.computation
        if made.opcode == "parameter" and place.path == path and inside is body:
            return total
        if made.opcode not in ("add", "subtract") or len(made.operands) != 2:
            return None
        steps = [
            integer(values, inside, name, part) for name, part in zip(made.operands, made.operand_parts, strict=True)
        ]
        if steps[1] is not None:
            total += steps[1] if made.opcode == "add" else -steps[1]
            place = values.operand(inside, made, 0, inside=True)
        elif steps[0] is not None and made.opcode == "add":
            total += steps[0]
            place = values.operand(inside, made, 1, inside=True)
        else:
            return None
    return None


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
        for instruction in module.computations[name].instructions:
            if instruction.opcode in CALLERS and instruction.opcode not in skipped:
                stack.extend((callee, False) for _, _, callee in _executed(instruction) if callee not in seen)
    return order[::-1]


def _both(one: Runs | None, other: Runs) -> Runs:
    if one is None:
        return other
    return Runs(
        one.times + other.times, max(one.unknown_loops, other.unknown_loops), one.conditional and other.conditional
    )
