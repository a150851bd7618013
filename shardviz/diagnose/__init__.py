"""What a person should look at, one rule a file. A rule is a function from what was found to `Diagnostic`s."""

from shardviz.diagnose.callbacks import callbacks_left_out
from shardviz.diagnose.finishing import not_finished, not_stated
from shardviz.diagnose.fit import does_not_fit
from shardviz.diagnose.levels import levels_differ
from shardviz.diagnose.loops import unknown_loops
from shardviz.diagnose.reshards import reshards_left
from shardviz.diagnose.simulated import simulated
from shardviz.diagnose.warnings import compiler_warnings

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
