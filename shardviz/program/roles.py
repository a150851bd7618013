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

from jax.extend.mlir import ir

from shardviz.program.graph import RETURNS, MlirGraph, functions_of
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
        module = lowered.module.operation
        graph = MlirGraph(module)
        flow, given = flow_of(graph, lowered.locations), zip(traced.arguments, graph.entry.arguments, strict=True)
        optimizer = {
            a.name for a, value in given if a.shape and list(value.native.uses) and not flow.is_used_inside(value)
        }
        made = zip(traced.outputs, graph.entry.returned, strict=True)
        gradients = {o.name for o, v in made if _backward(v.native, graph.functions, lowered.locations)}
    news = _new_values(arguments, [o for o in traced.outputs if o.name not in gradients])
    updates = {u.argument: u.output for u in traced.updates if u.argument}
    return Roles(True, traced.outputs, frozenset(optimizer), frozenset(gradients), news | updates)


def gradients(lowered: Lowered) -> frozenset[str]:
    """The names of the results that the backward pass makes; found once for a lowered program."""
    if not lowered.traced.differentiated:
        return frozenset()
    if (known := _GRADIENTS.get(lowered)) is None:
        with lowered.entered():
            functions = functions_of(lowered.module.operation)
            made = zip(lowered.traced.outputs, _returned(functions["main"].regions[0].blocks[0]), strict=True)
            named = (o.name for o, value in made if o.shape and _backward(value, functions, lowered.locations))
            known = _GRADIENTS[lowered] = frozenset(named)
    return known


def _backward(value: Any, functions: Mapping[str, Any], locations: dict[Any, Place]) -> bool:
    """Whether the backward pass makes a value, which loops and functions may hand on."""
    while not isinstance(value.owner, ir.Block):
        op, number = value.owner.operation, ir.OpResult(value).result_number
        if phase(place_of(op.location, locations).name_stack) == "backward":
            return True
        if op.name == "func.call":
            value = _returned(functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value].regions[0].blocks[0])[
                number
            ]
        elif op.name in ("stablehlo.while", "sdy.manual_computation", "sdy.named_computation"):
            value = _returned(op.regions[len(op.regions) - 1].blocks[0])[number]
        elif op.name in _HANDED_ON:
            value = op.operands[number]
        else:
            return False
    return False


def _returned(block: Any) -> list[Any]:
    last = block.operations[len(block.operations) - 1]
    return list(last.operands) if last.operation.name in RETURNS else []


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
