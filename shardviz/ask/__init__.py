"""The `Program`, and what can be asked of it: propagate, partition, compile, why, presets."""

from shardviz.ask.calls import analyze, trace
from shardviz.ask.program import Program
from shardviz.ask.submitting import ReportFuture

__all__ = ["Program", "ReportFuture", "analyze", "trace"]
