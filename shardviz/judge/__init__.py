"""Is a report what it must be, and how does it differ from another? Findings, contracts, goldens, comparison."""

from shardviz.judge.comparison import Comparison, compare
from shardviz.judge.report import Report

__all__ = ["Comparison", "Report", "compare"]
