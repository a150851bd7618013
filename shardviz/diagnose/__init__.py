"""What a person should look at: a function a rule, from what was found to `Finding`s; a file a theme."""

from shardviz.diagnose.compiled import compiler_warnings, does_not_fit
from shardviz.diagnose.findings import RULES, findings
from shardviz.diagnose.levels import (
    callbacks_left_out,
    level_differences,
    lowered_elsewhere,
    ragged_as_plain,
    reshards_left,
    simulated,
    unforeseen,
    unknown_flops,
    unknown_loops,
    without_options,
)
from shardviz.diagnose.program import large_constants, own_partitioning

__all__ = [
    "RULES",
    "callbacks_left_out",
    "compiler_warnings",
    "does_not_fit",
    "findings",
    "large_constants",
    "level_differences",
    "lowered_elsewhere",
    "own_partitioning",
    "ragged_as_plain",
    "reshards_left",
    "simulated",
    "unforeseen",
    "unknown_flops",
    "unknown_loops",
    "without_options",
]
