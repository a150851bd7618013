"""One program explored: it drives tracing, Shardy, the compile server and the HLO walk, and writes the Report."""

from shardviz.analysis.calls import analyze, trace
from shardviz.analysis.future import ReportFuture
from shardviz.analysis.program import Program

__all__ = ["Program", "ReportFuture", "analyze", "trace"]
