"""One program explored: it drives tracing, Shardy, the compile server and the HLO walk, and writes the Report."""

from shardviz.session.calls import analyze, trace
from shardviz.session.program import Program
from shardviz.session.submitting import ReportFuture

__all__ = ["Program", "ReportFuture", "analyze", "trace"]
