"""How often a StableHLO `while` runs, where that can be told from the program.

It can for the loops that `lax.scan` and `fori_loop` make: a counter that starts at a constant, grows by a constant, and
is compared with a constant.
"""

from __future__ import annotations

from typing import Any

from jax.extend.mlir import ir


def trip_count(loop: ir.Operation) -> int | None:
    """The number of times that the body of a `stablehlo.while` runs; None if it cannot be told."""
    condition, body = (region.blocks[0] for region in loop.regions)
    test = _definer(condition.operations[len(condition.operations) - 1].operands[0])
    if test is None or test.name != "stablehlo.compare":
        return None
    place, limit = _argument(test.operands[0], condition), _constant(test.operands[1], loop, condition)
    if place is None or limit is None:
        return None
    direction = str(test.attributes["comparison_direction"])
    start = _constant(loop.operands[place], None, None)
    step = _step(body, place, loop)
    if start is None or not step:
        return None
    if "LT" in direction or "NE" in direction:
        return max(0, -(-(limit - start) // step)) if step > 0 else None
    if "LE" in direction:
        return max(0, (limit - start) // step + 1) if step > 0 else None
    if "GT" in direction:
        return max(0, -(-(start - limit) // -step)) if step < 0 else None
    if "GE" in direction:
        return max(0, (start - limit) // -step + 1) if step < 0 else None
    return None


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
