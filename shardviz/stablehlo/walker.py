"""A walk over a StableHLO graph in program order, which enters every call, loop, branch and manual computation in
place.

A `Walker` knows the context of the operation that it visits: how often it runs in a step, the manual mesh axes, the
calls that led to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from shardviz._jax.mlir import sdy
from shardviz.graph import KEEPS, Block, Flow, GraphValue, Origins, operations_in, trip_count
from shardviz.notation import Axis, Spec
from shardviz.notation.spec import axis_name
from shardviz.records.phases import phase
from shardviz.stablehlo.graph import MlirGraph, MlirOperation
from shardviz.stablehlo.module import Place, place_of, within


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The context of an operation."""

    count: int | None = 1  # how often it runs in a step; None where a loop around it has no known trip count
    times: int = 1  # the same, with loops of unknown trip count taken once
    trips: int | None = 1  # of the loop that was entered last
    calls: tuple[MlirOperation, ...] = ()  # those that led to it, the outermost first
    manual: tuple[Axis, ...] = ()  # the mesh axes of the manual computations around it
    # those of them along which all devices do the same, as nothing that enters is sharded so
    alike: tuple[Axis, ...] = ()
    conditional: bool = False  # it is in a branch
    place: Place | None = None  # the one that its own name stack continues; None in the main function


class Places:
    """The source places of a program's operations, each including those of the calls around it."""

    def __init__(self, locations: dict[Any, Any]):
        """Prepare to read locations. `locations` caches each source location, alone and inside each place; the
        locations are the same in all modules of a program."""
        self.locations = locations
        self._places: dict[tuple[Place | None, Any], Place] = locations.setdefault("places", {})

    def __call__(self, op: MlirOperation, around: Place | None) -> Place:
        """Return an operation's line and name stack inside the place `around`."""
        if op.place is None or op.around is not around:  # most are asked for several times in a row
            op.around, op.place = around, self.at(op.location, around)
        return op.place

    def at(self, location: Any, around: Place | None) -> Place:
        key = around, location.attr  # attributes hash by identity, locations do not
        if key not in self._places:
            self._places[key] = within(place_of(location, self.locations), around)
        return self._places[key]

    def phase_at(self, operation: MlirOperation, place: Place | None) -> str:
        """Return the pass of an operation, by its name stack."""
        return phase(self(operation, place).name_stack)

    def place_inside(self, operation: MlirOperation, place: Place | None) -> Place | None:
        """Return the place of the operations inside a call or a manual computation."""
        return self(operation, place) if operation.name in _NAMED else place


_NAMED = frozenset(("func.call", "sdy.manual_computation"))
"""Operations whose inner operations have their own name stack, as nested functions do."""


class Walker:
    """A walk over a graph with the context of the visited operation; it counts loops of unknown trip count."""

    def __init__(self, graph: MlirGraph, locations: dict[Any, Any]):
        self.graph = graph
        self.around = Around()
        self.unknown_loops = 0
        self._places, self._origins = Places(locations), Origins(KEEPS)

    @property
    def main(self) -> Block:
        return self.graph.entry

    def visit(self, op: MlirOperation) -> None:
        """Read an operation; a subclass enters its blocks with `inside`."""
        raise NotImplementedError

    def read(self, block: Block) -> tuple[GraphValue, ...]:
        """Visit a block's operations in order, and return the values that the block returns."""
        for op in block.operations:
            self.visit(op)
        return block.returned

    @contextmanager
    def inside(self, op: MlirOperation) -> Iterator[tuple[Block, ...]]:
        """Enter an operation, and yield its blocks (a loop's condition before its body), to be read inside the
        context."""
        around = self.around
        self.around = self._entered(op)
        try:
            yield op.blocks
        finally:
            self.around = around

    def _entered(self, op: MlirOperation) -> Around:
        around, name = self.around, op.name
        if name == "func.call":
            return replace(around, calls=(*around.calls, op), place=self.place(op))
        if name == "stablehlo.while":
            trips = trip_count(op, around.calls, self._origins)
            self.unknown_loops += trips is None
            count = None if trips is None or around.count is None else around.count * trips
            return replace(around, count=count, times=around.times * (1 if trips is None else trips), trips=trips)
        if name == "sdy.manual_computation":
            axes = (*sdy.ManualAxesAttr(op.attributes["manual_axes"]),)
            (block,) = op.blocks
            entering = {axis_name(a) for v in block.arguments for a in (self.graph.spec_of(v) or Spec()).axes}
            differs = set(axes) <= entering or any(inner.kind in _DIFFER for inner in operations_in(block))
            alike = () if differs else tuple(a for a in axes if a not in entering)
            manual, alike = (*around.manual, *axes), (*around.alike, *alike)
            return replace(around, manual=manual, alike=alike, place=self.place(op))
        return around if name == "sdy.named_computation" else replace(around, conditional=True)

    def place(self, op: MlirOperation) -> Place:
        """Return an operation's line and name stack, with those of the calls around it."""
        return self._places(op, self.around.place)


_DIFFER = frozenset(("partition-id", "reduce-scatter", "all-to-all", "collective-permute", "custom-call"))
"""Operations that may give devices different values although their inputs are equal."""


def flow_of(graph: MlirGraph, locations: dict[Any, Any]) -> Flow:
    """Return which values of a program are computed from which; those of a function once for each path of calls to
    it."""
    places = Places(locations)
    return Flow(graph, places.phase_at, places.place_inside)
