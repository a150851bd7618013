"""In which pass of a train step an operation of a propagated module stands, where its name stack does not tell.

What stands outside of a derivative is told by the values, as `shardviz.compiler.phases` does for HLO: an operation
that a gradient reaches is the optimizer's part, `update`; one that the forward pass reaches, or that reaches a
derivative, is `forward`. Only operations outside are looked at, from the one in question to the nearest inside.

How often a StableHLO `while` runs, where that can be told from the program.

It can for the loops that `lax.scan` and `fori_loop` make: a counter that starts at a constant, grows by a constant, and
is compared with a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jax.extend.mlir import ir

from shardviz.records.counting import trips_of

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
