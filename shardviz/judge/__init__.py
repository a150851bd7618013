"""Judgements of a report: findings, contracts, golden files, and comparison with another report."""

from shardviz.judge.comparison import Comparison
from shardviz.judge.report import Report
from shardviz.judge.runs import RunComparison, compare

__all__ = ["Comparison", "Report", "RunComparison", "compare"]
