"""What a person should look at: a function a rule, from what was found to `Finding`s; a file a theme."""

from shardviz.diagnose.arguments import large_constants, one_memory, unused_arguments
from shardviz.diagnose.compiled import compiler_warnings, does_not_fit, not_finished, not_stated
from shardviz.diagnose.findings import RULES, findings
from shardviz.diagnose.levels import (
    callbacks_left_out,
    level_differences,
    levels_differ,
    lowered_elsewhere,
    ragged_as_plain,
    reshards_left,
    simulated,
    unforeseen,
    unknown_flops,
    unknown_loops,
    without_options,
)
from shardviz.diagnose.program import own_partitioning

__all__ = [
    "RULES",
    "callbacks_left_out",
    "compiler_warnings",
    "does_not_fit",
    "findings",
    "large_constants",
    "level_differences",
    "levels_differ",
    "lowered_elsewhere",
    "not_finished",
    "not_stated",
    "one_memory",
    "own_partitioning",
    "ragged_as_plain",
    "reshards_left",
    "simulated",
    "unforeseen",
    "unknown_flops",
    "unknown_loops",
    "unused_arguments",
    "without_options",
]
