"""A StableHLO module read in program order: every call, loop, branch and manual computation entered where it stands.

A `Walker` knows what stands around the operation that it visits: how often it runs in a step, the mesh axes that are
manual there, the calls that led to it. How often a `stablehlo.while` runs can be told of the loops that `lax.scan` and
`fori_loop` make: a counter that starts at a constant, grows by a constant, and is compared with a constant.

In which pass of a train step an operation outside of any derivative stands, its values tell, as `compiler.phases` has
it for HLO: what a gradient reaches is the optimizer's part, `update`; what the forward pass reaches, or what reaches a
derivative, is `forward`. Only operations outside are looked at, from the one in question to the nearest inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from jax.extend.mlir import ir

from shardviz.notation import Axis
from shardviz.program.module import Place, axes_of, place_of, within
from shardviz.records.counting import trips_of

RETURNS = frozenset(("stablehlo.return", "func.return", "sdy.return"))
"""What ends a block."""

ENTERED = frozenset(
    (
        *("func.call", "stablehlo.while", "stablehlo.case", "stablehlo.if"),
        *("sdy.manual_computation", "sdy.named_computation"),
    )
)
"""What a `Walker` goes into; of other operations the regions, such as a reduction's, are no part of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What stands around an operation.

    Attributes:
        count: how often it runs in a step; None where a loop around it has no known trip count.
        times: the same, with loops of unknown trip count taken once.
        trips: the trip count of the loop that was entered last.
        calls: the calls that led to it, the outermost first.
        manual: the mesh axes of the manual computations around it.
        conditional: whether it is in a branch.
        place: where the call or manual computation is whose name stack its own continues; None in the main function.
    """

    count: int | None = 1
    times: int = 1
    trips: int | None = 1
    calls: tuple[ir.Operation, ...] = ()
    manual: tuple[Axis, ...] = ()
    conditional: bool = False
    place: Place | None = None


class Walker:
    """One reading of a module.

    Attributes:
        functions: symbol → function.
        around: what stands around the operation that is visited.
        unknown_loops: how many loops were entered whose trip count could not be found.
    """

    def __init__(self, module: ir.Operation, locations: dict[Any, Place]):
        """Reads nothing yet.

        Args:
            module: the module.
            locations: what is known of each source location, filled as they are met.
        """
        self.functions = {
            ir.StringAttr(op.attributes["sym_name"]).value: op.operation
            for op in module.regions[0].blocks[0].operations
            if op.operation.name == "func.func"
        }
        self.around = Around()
        self.unknown_loops = 0
        self._locations = locations
        self._places: dict[Place | None, dict[Any, Place]] = {}
        self._here = self._places.setdefault(None, {})

    @property
    def main(self) -> Any:
        """The main function's block."""
        return self.functions["main"].regions[0].blocks[0]

    def callee(self, call: ir.Operation) -> Any:
        """The block of the function that a `func.call` calls."""
        return self.functions[ir.FlatSymbolRefAttr(call.attributes["callee"]).value].regions[0].blocks[0]

    def visit(self, op: ir.Operation) -> None:
        """Reads an operation; what is in `ENTERED` goes on with `inside`."""
        raise NotImplementedError

    def read(self, block: Any) -> list[Any]:
        """Visits a block's operations in order; the values that it returns."""
        for op in block.operations:
            op = op.operation
            if op.name in RETURNS:
                return list(op.operands)
            self.visit(op)
        return []

    @contextmanager
    def inside(self, op: ir.Operation) -> Iterator[list[Any]]:
        """Goes into an operation: its blocks (a loop's condition before its body), to be read while this is entered."""
        around, here = self.around, self._here
        blocks = [self.callee(op)] if op.name == "func.call" else [region.blocks[0] for region in op.regions]
        self.around = entered = self._entered(op)
        if entered.place is not around.place:
            self._here = self._places.setdefault(entered.place, {})
        try:
            yield blocks
        finally:
            self.around, self._here = around, here

    def _entered(self, op: ir.Operation) -> Around:
        around, name = self.around, op.name
        if name == "func.call":
            return replace(around, calls=(*around.calls, op), place=self.caller(op))
        if name == "stablehlo.while":
            trips = trip_count(op)
            self.unknown_loops += trips is None
            count = None if trips is None or around.count is None else around.count * trips
            return replace(around, count=count, times=around.times * (1 if trips is None else trips), trips=trips)
        if name == "sdy.manual_computation":  # JAX names what is inside as it names a nested function's
            manual = (*around.manual, *axes_of(str(op.attributes["manual_axes"])))
            return replace(around, manual=manual, place=self.caller(op))
        return around if name == "sdy.named_computation" else replace(around, conditional=True)

    def caller(self, op: ir.Operation) -> Place | None:
        """The place that what is inside a call or a manual computation continues."""
        return self.place(op)

    def place(self, op: ir.Operation) -> Place:
        """An operation's line and name stack, those of the calls around it in front."""
        key = op.location.attr  # attributes hash by identity, locations do not
        found = self._here.get(key)
        if found is None:
            found = self._here[key] = within(place_of(op.location, self._locations), self.around.place)
        return found


_MOST = 4096
_CARRIES = ("stablehlo.while", "sdy.manual_computation", "sdy.named_computation")
"""What hands its operands into its last region, and what that returns out of it."""


def pass_of(op: ir.Operation, named: Callable[[ir.Operation], str]) -> str:
    """`update` or `forward`, for an operation outside of any derivative.

    Args:
        op: the operation.
        named: gives an operation's phase by its name stack; `update` for those outside.
    """
    behind = _met(op.operands, _makers, named)
    if "backward" in behind:
        return "update"
    return "forward" if behind or _met(op.results, _users, named) else "update"


def _met(values: Iterable[Any], step: Callable[[Any], Iterable[Any]], named: Callable[[ir.Operation], str]) -> set[str]:
    """The phases of the nearest operations inside of a derivative."""
    met: set[str] = set()
    seen: set[Any] = set()
    waiting = list(values)
    while waiting and len(seen) < _MOST:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        for near in step(value):
            if not isinstance(near, ir.Operation):
                waiting.append(near)
            elif (said := named(near)) != "update":
                met.add(said)
            else:
                waiting.extend(near.operands if step is _makers else near.results)
    return met


def _makers(value: Any) -> Iterable[Any]:
    """The operation that makes a value; of one that a loop or a manual computation hands on, the value inside."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        parent = owner.owner.operation
        return [parent.operands[value.arg_number]] if parent.name in _CARRIES else []
    op = owner.operation
    if op.name not in _CARRIES:
        return [op]
    block = op.regions[len(op.regions) - 1].blocks[0]
    return [block.operations[len(block.operations) - 1].operands[ir.OpResult(value).result_number]]


def _users(value: Any) -> list[Any]:
    """The operations that use a value; for those that hand it into a region or out of it, the value there."""
    found = []
    for use in value.uses:
        op, at = use.owner.operation, use.operand_number
        if op.name in ("stablehlo.return", "sdy.return"):
            parent = op.parent.operation
            last = parent.regions[len(parent.regions) - 1].blocks[0]
            found += [parent.results[at]] if parent.name in _CARRIES and op.block == last else []
        elif op.name in _CARRIES:
            found.append(op.regions[len(op.regions) - 1].blocks[0].arguments[at])
        else:
            found.append(op)
    return found


def trip_count(loop: ir.Operation) -> int | None:
    """The number of times that the body of a `stablehlo.while` runs; None if it cannot be told."""
    condition, body = (region.blocks[0] for region in loop.regions)
    test = _definer(condition.operations[len(condition.operations) - 1].operands[0])
    if test is None or test.name != "stablehlo.compare":
        return None
    place, limit = _argument(test.operands[0], condition), _constant(test.operands[1], loop, condition)
    if place is None or limit is None:
        return None
    start = _constant(loop.operands[place], None, None)
    step = _step(body, place, loop)
    if start is None or not step:
        return None
    return trips_of(start, limit, step, str(test.attributes["comparison_direction"]).strip("<>")[-2:])


def _definer(value: Any) -> ir.Operation | None:
    owner = value.owner
    if isinstance(owner, ir.Block):
        return None
    owner = getattr(owner, "operation", owner)
    return _definer(owner.operands[0]) if owner.name in ("stablehlo.convert", "stablehlo.reshape") else owner


def _argument(value: Any, block: Any) -> int | None:
    owner = value.owner
    return ir.BlockArgument(value).arg_number if isinstance(owner, ir.Block) and owner == block else None


def _constant(value: Any, loop: ir.Operation | None, block: Any) -> int | None:
    """The whole number that a value is, through a loop's own operands where the loop passes it along unchanged."""
    if loop is not None and (place := _argument(value, block)) is not None:
        body = loop.regions[1].blocks[0]
        passed = body.operations[len(body.operations) - 1].operands[place]
        return _constant(loop.operands[place], None, None) if _argument(passed, body) == place else None
    definer = _definer(value)
    if definer is None or definer.name not in ("stablehlo.constant", "sdy.constant"):
        return None
    try:
        dense = ir.DenseIntElementsAttr(definer.attributes["value"])
    except ValueError:
        return None
    return int(dense[0]) if len(dense) == 1 else None


def _step(body: Any, place: int, loop: ir.Operation) -> int | None:
    definer = _definer(body.operations[len(body.operations) - 1].operands[place])
    if definer is None or definer.name not in ("stablehlo.add", "stablehlo.subtract"):
        return None
    left, right = definer.operands
    sign = -1 if definer.name.endswith("subtract") else 1
    if _argument(left, body) == place:
        step = _constant(right, loop, body)
    elif sign > 0 and _argument(right, body) == place:
        step = _constant(left, loop, body)
    else:
        return None
    return None if step is None else sign * step
