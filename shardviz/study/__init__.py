"""Many plans: searching among them, mending them, sweeping over programs; exercises and puzzles."""

from shardviz.study.answer import Search
from shardviz.study.costs import CostTable, cost_table
from shardviz.study.exercise import Exercise, exercise, scores
from shardviz.study.mending import mends
from shardviz.study.mends import Mend, Mends
from shardviz.study.puzzle import Puzzle, puzzle
from shardviz.study.search import search
from shardviz.study.sweep import Sweep, sweep

__all__ = [
    "CostTable",
    "Exercise",
    "Mend",
    "Mends",
    "Puzzle",
    "Search",
    "Sweep",
    "cost_table",
    "exercise",
    "mends",
    "puzzle",
    "scores",
    "search",
    "sweep",
]
