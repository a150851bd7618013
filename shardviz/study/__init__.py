"""Many reports: comparing them, searching among plans, contracts for tests."""

from shardviz.study.costs import CostTable, compare_costs

__all__ = ["CostTable", "compare_costs"]
