"""Program, and what it is asked: propagate, partition, compile, why, presets."""

from shardviz.ask.calls import analyze, trace
from shardviz.ask.program import Program
from shardviz.ask.submitting import ReportFuture

__all__ = ["Program", "ReportFuture", "analyze", "trace"]
