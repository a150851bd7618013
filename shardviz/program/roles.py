"""What a train step's arrays are for, read off what is made of what.

    parameters         the derivative uses them
    optimizer state    only the update uses it, past the derivative: momenta, moments, a moving average
    gradients          results that the backward pass makes
    new values         results of an argument's shape at its place in the tree, that are no gradients

Nothing is taken from names like `opt_state`; but which result is which argument's new value, the tree paths say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from shardviz.graph import Value
from shardviz.program.graph import MlirGraph
from shardviz.program.lower import Lowered
from shardviz.program.module import Place, place_of
from shardviz.program.stablehlo import flow_of
from shardviz.program.trace import Argument
from shardviz.records.phases import phase

_GRADIENTS: WeakKeyDictionary[Lowered, frozenset[str]] = WeakKeyDictionary()
_KEY = re.compile(r"\[[^\]]*\]|\.\w+")
_HANDED_ON = frozenset(("stablehlo.convert", "stablehlo.optimization_barrier", "sdy.sharding_constraint"))


@dataclass(frozen=True)
class Roles:
    """What the arrays of a program are for.

    Attributes:
        differentiated: whether the program takes a derivative; without one there are neither state nor gradients.
        outputs: all results.
        optimizer: arguments that only the update uses, scalars left out.
        gradients: results that the backward pass makes.
        becomes: argument → the result that is its new value.
    """

    differentiated: bool
    outputs: Sequence[Argument]
    optimizer: frozenset[str]
    gradients: frozenset[str]
    becomes: Mapping[str, str]


def roles(lowered: Lowered) -> Roles:
    """The roles of a lowered program's arguments and results."""
    traced = lowered.traced
    arguments = [a for a in traced.arguments if a.shape]
    if not traced.differentiated:
        return Roles(False, traced.outputs, frozenset(), frozenset(), _new_values(arguments, traced.outputs))
    with lowered.entered():
        graph = MlirGraph(lowered.module.operation)
        flow, values = flow_of(graph, lowered.locations), zip(traced.arguments, graph.entry.arguments, strict=True)
        optimizer = {a.name for a, v in values if a.shape and list(v.native.uses) and not flow.is_used_inside(v)}
    backward = gradients(lowered)
    news = _new_values(arguments, [o for o in traced.outputs if o.name not in backward])
    updates = {u.argument: u.output for u in traced.updates if u.argument}
    return Roles(True, traced.outputs, frozenset(optimizer), backward, news | updates)


def gradients(lowered: Lowered) -> frozenset[str]:
    """The names of the results that the backward pass makes; found once for a lowered program."""
    if not lowered.traced.differentiated:
        return frozenset()
    if (names := _GRADIENTS.get(lowered)) is None:
        with lowered.entered():
            made = zip(lowered.traced.outputs, MlirGraph(lowered.module.operation).entry.returned, strict=True)
            backward = (o.name for o, value in made if o.shape and _is_backward(value, lowered.locations))
            names = _GRADIENTS[lowered] = frozenset(backward)
    return names


def _is_backward(value: Value, locations: dict[Any, Place]) -> bool:
    """Whether the backward pass makes a value, which loops and functions may hand on."""
    while (op := value.maker) is not None:
        if phase(place_of(op.native.location, locations).name_stack) == "backward":
            return True
        if op.blocks and op.kind != "conditional":
            value = op.blocks[-1].returned[value.index]  # of a loop's blocks the last is its body
        elif op.native.name in _HANDED_ON:
            value = op.operands[value.index]
        else:
            return False
    return False


def _new_values(arguments: Iterable[Argument], outputs: Sequence[Argument]) -> dict[str, str]:
    """Argument → the result that stands where it does in its tree, and has its shape and type; of several, in order."""
    at: dict[tuple[Any, ...], list[str]] = {}
    for output in outputs:
        for tail in _tails(output.name):
            at.setdefault((tail, output.shape, output.dtype), []).append(output.name)
    found: dict[str, str] = {}
    taken: set[str] = set()
    for argument in arguments:
        alike = (at.get((tail, argument.shape, argument.dtype), ()) for tail in _tails(argument.name))
        best = next((name for names in alike for name in names if name not in taken), None)
        if best is not None:
            found[argument.name] = best
            taken.add(best)
    return found


def _tails(path: str) -> list[str]:
    """A tree path from its first key on, from its second, ...; itself where it has none.

    >>> _tails("result[0]['layers']['w1']")
    ["[0]['layers']['w1']", "['layers']['w1']", "['w1']"]
    """
    return [path[key.start() :] for key in _KEY.finditer(path)] or [path]
