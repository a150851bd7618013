"""Program, and what an explorer and a script share: a plan and its history, the compile loop, the selection."""

from shardviz.session.calls import analyze, trace
from shardviz.session.program import Program
from shardviz.session.submitting import ReportFuture

__all__ = ["Program", "ReportFuture", "analyze", "trace"]
