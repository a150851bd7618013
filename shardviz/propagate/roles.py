"""The roles of a train step's arrays, found by which array is computed from which.

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
from functools import lru_cache
from typing import Any

from shardviz.graph import GraphValue
from shardviz.notation import Spec
from shardviz.propagate.lower import Lowered
from shardviz.records.groups import grouped
from shardviz.records.paths import segments
from shardviz.records.phases import phase
from shardviz.stablehlo.graph import MlirGraph
from shardviz.stablehlo.module import Place, place_of
from shardviz.stablehlo.walker import flow_of
from shardviz.tracing.trace import Argument

_PLACES = re.compile(r"(\[\d+\])+")
_HANDED_ON = frozenset(("stablehlo.convert", "stablehlo.optimization_barrier", "sdy.sharding_constraint"))


@dataclass(frozen=True)
class Roles:
    """The roles of a program's arrays; without a derivative there are neither state nor gradients."""

    differentiated: bool
    outputs: Sequence[Argument]
    optimizer: frozenset[str]  # arguments that only the update uses, scalars left out
    gradients: frozenset[str]  # results that the backward pass makes
    becomes: Mapping[str, str]  # argument → the result that is its new value


@lru_cache(maxsize=8)
def roles(lowered: Lowered) -> Roles:
    """Return the roles of a lowered program's arguments and results."""
    traced = lowered.traced
    optimizer, backward = frozenset[str](), frozenset[str]()
    if traced.differentiated:
        with lowered.entered():
            graph = MlirGraph(lowered.module.operation)
            flow, values = flow_of(graph, lowered.locations), zip(traced.arguments, graph.entry.arguments, strict=True)
            results = zip(traced.outputs, graph.entry.returned, strict=True)
            optimizer = frozenset(
                a.name for a, v in values if a.shape and list(v.native.uses) and not flow.is_used_inside(v)
            )
            backward = frozenset(o.name for o, v in results if o.shape and _is_backward(v, lowered.locations))
    news = new_values(traced.arguments, [o for o in traced.outputs if o.name not in backward])
    updates = {u.argument: u.output for u in traced.updates if u.argument} if traced.differentiated else {}
    return Roles(traced.differentiated, traced.outputs, optimizer, backward, news | updates)


def _is_backward(value: GraphValue, locations: dict[Any, Place]) -> bool:
    """Return whether the backward pass computes a value, which loops and functions may pass on."""
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


def new_values(arguments: Iterable[Argument], outputs: Sequence[Argument], *, alone: bool = False) -> dict[str, str]:
    """Return argument → the result that is its new value: it has the same position in its tree, or takes its memory,
    and has its shape and type; of several, the first that is left. A position in a list counts only if the whole list
    is returned. `alone`: arguments that are in no tree are matched by shape and type only, donated or not."""
    arguments = [a for a in arguments if a.shape]
    at = grouped(((tail, o.shape, o.dtype), o.name) for o in outputs for tail in (*_tails(o.name), None))
    pairs: dict[str, str] = {}
    listed: dict[str, set[str]] = {}  # head of the tree path → arguments that a place in a list pairs
    for argument in arguments:
        free = argument.donated or (alone and len(segments(argument.name)) == 1)
        for tail in (*_tails(argument.name), *([None] if free else [])):
            names = at.get((tail, argument.shape, argument.dtype), ())
            best = next((name for name in names if name not in pairs.values()), None)
            if best is not None:
                pairs[argument.name] = best
                if tail is not None and _PLACES.fullmatch(tail):
                    listed.setdefault(segments(argument.name)[0], set()).add(argument.name)
                break
    for head, names in listed.items():
        if any(segments(a.name)[0] == head and a.name not in pairs for a in arguments):
            pairs = {name: new for name, new in pairs.items() if name not in names}
    return pairs


def resharded(
    becomes: Mapping[str, str], ins: Mapping[str, Spec | None], outs: Mapping[str, Spec | None]
) -> dict[str, tuple[Spec, Spec]]:
    """Return the arguments whose new values are sharded differently, so that the next call compiles again: argument →
    its spec, and that of its new value. `becomes`: argument → the result that is its new value."""
    pairs = ((name, ins.get(name), outs.get(new)) for name, new in becomes.items())
    both_known = ((name, before, after) for name, before, after in pairs if before is not None and after is not None)
    return {name: (before, after) for name, before, after in both_known if before.canonical() != after.canonical()}


def _tails(path: str) -> list[str]:
    """Return a tree path from its first key on, from its second, and so on; the path itself if it has none.

    >>> _tails("result[0]['layers']['w1']")
    ["[0]['layers']['w1']", "['layers']['w1']", "['w1']"]
    """
    parts = segments(path)
    return ["".join(parts[n:]) for n in range(1, len(parts))] or [path]
