"""In which pass of a train step an operation of a propagated module stands, where its name stack does not tell.

What stands outside of a derivative is told by the values, as `shardviz.hlo.phases` does for HLO: an operation that a
gradient reaches is the optimizer's part, `update`; one that the forward pass reaches, or that reaches a derivative, is
`forward`. Only operations outside are looked at, from the one in question to the nearest inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jax.extend.mlir import ir

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
