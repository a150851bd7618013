"""Many plans: searching among them, mending them, sweeping over programs; exercises and puzzles."""

from shardviz.study import lessons
from shardviz.study.answer import Search
from shardviz.study.costs import CostTable, cost_table
from shardviz.study.mending import mends
from shardviz.study.mends import Mend, Mends
from shardviz.study.search import search
from shardviz.study.sweep import Sweep, sweep

__all__ = [
    "CostTable",
    "Mend",
    "Mends",
    "Search",
    "Sweep",
    "cost_table",
    "lessons",
    "mends",
    "search",
    "sweep",
]
