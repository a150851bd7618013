"""The main function of a module that JAX lowered, given the arguments that a person thinks of.

JAX leaves out arguments that nothing uses, adds one for the platform where a program is for several, and leaves
dimensions open where they are symbolic. Here each argument of the flat program is an argument of the module again, of
fixed shape, in order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardviz import _jax
from shardviz.errors import TraceError
from shardviz.notation.scan import unescaped

_NAMED = re.compile(r'^loc\("((?:[^"\\]|\\.)*)"')
_INNER = "_wrapped_jax_export_main"
_PLATFORM = "_platform_index"


def main_of(module: Any) -> ir.Operation:
    """The module's main function.

    Raises:
        TraceError: if it has none.
    """
    return _function(module, "main") or _missing()


def _missing() -> ir.Operation:
    raise TraceError("the module has no function 'main'; expected StableHLO as JAX lowers it")


def _function(module: Any, name: str) -> ir.Operation | None:
    for op in module.operation.regions[0].blocks[0].operations:
        if op.operation.name == "func.func" and ir.StringAttr(op.attributes["sym_name"]).value == name:
            return op.operation
    return None


def argument_names(module: Any, count: int) -> list[str | None]:
    """The names that the last `count` arguments of the module were lowered with, where their locations tell."""
    function = _function(module, _INNER) or main_of(module)
    arguments = list(function.regions[0].blocks[0].arguments)[-count:] if count else []
    found = [_NAMED.match(str(a.location)) for a in arguments]
    return [unescaped(m[1]) if m else None for m in found]


def attributes_of(function: ir.Operation, which: str, count: int) -> list[dict[str, Any]]:
    """The attributes of a function's arguments (`arg_attrs`) or results (`res_attrs`)."""
    if which not in function.attributes:
        return [{} for _ in range(count)]
    return [{n.name: n.attr for n in ir.DictAttr(entry)} for entry in ir.ArrayAttr(function.attributes[which])]


def complete(module: Any, avals: Sequence[Any], kept: Sequence[int], platform: int = 0) -> bool:
    """Makes the main function take exactly `avals`, in place.

    Args:
        module: the module; its context is entered.
        avals: an abstract value of fixed shape for each flat argument.
        kept: which of them the module still has, in its own order.
        platform: which of the platforms that the module is for to settle on.

    Returns:
        Whether shapes inside the module have still to follow from those of the arguments.

    Raises:
        TraceError: if the module takes something else besides.
    """
    main = main_of(module)
    block = main.regions[0].blocks[0]
    old = list(block.arguments)
    attributes = attributes_of(main, "arg_attrs", len(old))
    settled = _settle_platform(block, old, attributes, platform)
    old, attributes = old[settled:], attributes[settled:]
    if any("token" in str(a.type) for a in old):
        raise TraceError(
            "the program has ordered effects (a callback with ordered=True, say), which chain it to the host; "
            "explore it without them"
        )
    if len(old) != len(kept):
        raise TraceError(f"the module takes {len(old)} arguments where {len(kept)} were expected")
    place = {flat: i for i, flat in enumerate(kept)}
    given: list[dict[str, Any]] = []
    reshaped = False
    for flat, aval in enumerate(avals):
        kind = _jax.ir_type(aval)
        i = place.get(flat)
        location = ir.Location.unknown() if i is None else old[i].location
        new = block.add_argument(kind, location)
        given.append({} if i is None else attributes[i])
        if i is None:
            continue
        value = new
        if old[i].type != kind:
            reshaped = True
            with ir.InsertionPoint.at_block_begin(block):
                value = stablehlo.convert(old[i].type, new)
        old[i].replace_all_uses_with(value)
    for _ in range(len(old) + settled):
        block.erase_argument(0)
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    main.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get([a.type for a in block.arguments], kind.results)
    )
    main.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(a) for a in given])
    uses = "jax.uses_shape_polymorphism"
    open_shapes = uses in module.operation.attributes and ir.BoolAttr(module.operation.attributes[uses]).value
    return reshaped or bool(settled) or open_shapes


def _settle_platform(block: Any, arguments: list[Any], attributes: list[dict[str, Any]], platform: int) -> int:
    """Puts a constant in the place of the argument that says which platform this is; 1 if there was one, else 0."""
    if not attributes or str(attributes[0].get("jax.global_constant")) != f'"{_PLATFORM}"':
        return 0
    with ir.InsertionPoint.at_block_begin(block):
        value: Any = np.array(platform, np.int32)
        chosen = stablehlo.constant(ir.DenseElementsAttr.get(value))
    arguments[0].replace_all_uses_with(chosen)
    return 1
