"""What a person should look at, one rule a file. A rule is a function from what was found to `Diagnostic`s."""

from shardviz.diagnose.callbacks import callbacks_left_out
from shardviz.diagnose.levels import levels_differ
from shardviz.diagnose.loops import unknown_loops
from shardviz.diagnose.reshards import reshards_left
from shardviz.diagnose.warnings import compiler_warnings

__all__ = ["callbacks_left_out", "compiler_warnings", "levels_differ", "reshards_left", "unknown_loops"]
