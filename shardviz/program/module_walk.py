"""Every operation of a module, and what its operations say: custom calls, and checks of its arguments' shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from jax.extend.mlir import ir


def walk(operation: ir.Operation) -> Iterator[ir.Operation]:
    """Every operation inside another, itself first."""
    yield operation
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                yield from walk(op.operation)


def items(operation: ir.Operation) -> list[tuple[str, Any]]:
    """An operation's attributes by name, but for a constant's value: no sharding is in it, and MLIR's Python has no
    words for complex ones. What iterating over attributes gives differs between versions.
    """
    names = [n if isinstance(n, str) else n.name for n in operation.attributes]
    constant = operation.name in ("stablehlo.constant", "sdy.constant")
    return [(name, operation.attributes[name]) for name in names if not (constant and name == "value")]


def custom_calls(module: Any) -> Counter[str]:
    """How often each target of a custom call stands in a module."""
    found: Counter[str] = Counter()
    for op in walk(module.operation):
        if op.name == "stablehlo.custom_call":
            found[ir.StringAttr(op.attributes["call_target_name"]).value] += 1
    return found


def assertions(module: Any) -> list[str]:
    """The messages of the checks that a module makes of its arguments' shapes."""
    found = []
    for op in walk(module.operation):
        if op.name == "stablehlo.custom_call" and "error_message" in op.attributes:
            found.append(ir.StringAttr(op.attributes["error_message"]).value)
    return found
