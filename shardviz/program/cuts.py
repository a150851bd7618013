"""How the values of a propagated module are cut: each stands on the operation that makes it, or around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardviz.notation import Axis, Spec
from shardviz.notation.spec import axis_name
from shardviz.program.attributes import spec_of


def cut_of(value: Any, manual: Sequence[Axis] = ()) -> Spec | None:
    """The spec of any value; None for one that is whole on every device.

    Args:
        value: an operation's result, or an argument of a function, a loop or a manual computation.
        manual: the axes of the manual computations around it, which its spec leaves out.
    """
    owner = value.owner
    if isinstance(owner, ir.Block):
        return _of_argument(ir.BlockArgument(value), manual)
    attributes = owner.attributes
    if "out_sharding" in attributes:
        return spec_of(attributes["out_sharding"])
    for name in ("sdy.sharding", "out_shardings"):
        if name in attributes:
            return _nth(attributes[name], ir.OpResult(value).result_number)
    return None


def _of_argument(value: Any, manual: Sequence[Axis]) -> Spec | None:
    parent, place = value.owner.owner.operation, value.arg_number
    attributes = parent.attributes
    if parent.name == "func.func":
        if "arg_attrs" not in attributes:
            return None
        known = ir.DictAttr(ir.ArrayAttr(attributes["arg_attrs"])[place])
        return spec_of(known["sdy.sharding"]) if "sdy.sharding" in known else None
    if parent.name == "stablehlo.while":
        return _nth(attributes["sdy.sharding"], place) if "sdy.sharding" in attributes else None
    if parent.name not in ("sdy.manual_computation", "sdy.named_computation"):
        return None
    dims = _nth(attributes["in_shardings"], place).dims
    return Spec(tuple(tuple(a for a in dim if axis_name(a) not in manual) for dim in dims))


def _nth(attribute: Any, place: int) -> Spec:
    """The spec of one of several values."""
    return spec_of(sdy.TensorShardingPerValueAttr(attribute).shardings[place])
