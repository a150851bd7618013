"""Which operations of a module are collectives, which only hand a value on, and which are no values to show."""

from __future__ import annotations

KINDS = {
    "sdy.all_gather": ("all-gather", "gathering_axes"),
    "sdy.all_reduce": ("all-reduce", "reduction_axes"),
    "sdy.reduce_scatter": ("reduce-scatter", "reduce_scatter_axes"),
    "sdy.all_to_all": ("all-to-all", "params"),
    "sdy.collective_permute": ("collective-permute", ""),
}
USER_KINDS = {
    "stablehlo.all_gather": "all-gather",
    "stablehlo.all_reduce": "all-reduce",
    "stablehlo.reduce_scatter": "reduce-scatter",
    "stablehlo.all_to_all": "all-to-all",
    "stablehlo.collective_permute": "collective-permute",
    "stablehlo.collective_broadcast": "collective-broadcast",
    "ragged_all_to_all": "ragged-all-to-all",
}
"""What a program says itself, in a `shard_map`; the last is the target of a custom call."""

SKIPPED = {
    "sdy.constant",
    "stablehlo.constant",
    "stablehlo.iota",
    "stablehlo.while",
    "stablehlo.return",
    "func.return",
    "func.call",
    "func.func",
    "sdy.mesh",
    "stablehlo.case",
    "stablehlo.optimization_barrier",
    "sdy.all_slice",
    "sdy.return",
    "sdy.manual_computation",
}
"""Operations that make nothing to show: constants, loops and branches, whose insides are read, and ends."""

TRIVIAL = {
    "stablehlo.convert",
    "stablehlo.reshape",
    "stablehlo.transpose",
    "stablehlo.dynamic_slice",
    "stablehlo.slice",
    "stablehlo.broadcast_in_dim",
    "sdy.sharding_constraint",
    "sdy.all_slice",
    "sdy.all_gather",
    "sdy.all_to_all",
    "sdy.collective_permute",
    "sdy.reshard",
}
"""Operations whose result is their operand, moved or a part of it."""
