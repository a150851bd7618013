"""Many reports: comparing them, what they must be, searching among plans."""

from shardviz.study.answer import Search
from shardviz.study.comparison import Comparison, compare
from shardviz.study.contracts import require
from shardviz.study.costs import CostTable, compare_costs
from shardviz.study.costs import compare_costs as cost_table
from shardviz.study.exercise import Exercise, exercise, scores
from shardviz.study.goldens import check_golden
from shardviz.study.mending import mending, mends
from shardviz.study.mends import Mend, Mends
from shardviz.study.search import search, searching
from shardviz.study.sweep import Sweep, sweep

__all__ = [
    "Comparison",
    "CostTable",
    "Exercise",
    "Mend",
    "Mends",
    "Search",
    "Sweep",
    "check_golden",
    "compare",
    "compare_costs",
    "cost_table",
    "exercise",
    "mending",
    "mends",
    "require",
    "scores",
    "search",
    "searching",
    "sweep",
]
