"""What a person should look at: a function a rule, from what was found to `Diagnostic`s; a file a theme."""

from shardviz.diagnose.compiled import compiler_warnings, does_not_fit, not_finished, not_stated
from shardviz.diagnose.levels import callbacks_left_out, levels_differ, reshards_left, simulated, unknown_loops

__all__ = [
    "callbacks_left_out",
    "compiler_warnings",
    "does_not_fit",
    "levels_differ",
    "not_finished",
    "not_stated",
    "reshards_left",
    "simulated",
    "unknown_loops",
]
