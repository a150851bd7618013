"""Findings about a report: one function per rule, one file per theme."""

from shardviz.diagnose.compiled import compiler_warnings, does_not_fit
from shardviz.diagnose.findings import RULES, findings
from shardviz.diagnose.levels import (
    callbacks_left_out,
    flops_at_most,
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
