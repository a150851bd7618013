"""Under Explicit mesh axes: the sharding in a value's JAX type, carried through Shardy's passes.

JAX writes a `sdy.sharding_constraint` behind every operation whose type has a sharding. Shardy's passes take it away,
so that it is noted on the operation first.
"""

from __future__ import annotations

from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardviz.notation import Spec
from shardviz.program.attributes import spec_of

_NOTE = "type_sharding"


def mark_types(module: ir.Operation) -> None:
    """Notes on every operation the sharding that its result's type has."""

    def visit(op: ir.Operation) -> Any:
        if op.name == "sdy.sharding_constraint":
            maker = op.operands[0].owner
            if not isinstance(maker, ir.Block) and maker.location.attr == op.location.attr:
                maker.attributes[_NOTE] = op.attributes["sharding"]
        return ir.WalkResult.ADVANCE

    module.walk(visit)


def type_of(op: ir.Operation) -> Spec | None:
    """What was noted on an operation."""
    return spec_of(sdy.TensorShardingAttr(op.attributes[_NOTE])) if _NOTE in op.attributes else None
