"""Many reports: comparing them, searching among plans, contracts for tests."""

from shardviz.study.costs import CostTable, compare_costs
from shardviz.study.costs import compare_costs as cost_table

__all__ = ["CostTable", "compare_costs", "cost_table"]
