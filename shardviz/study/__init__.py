"""Questions about many plans: search, fixes for findings, sweeps."""

from shardviz.study.answer import Search
from shardviz.study.costs import CostTable, cost_table
from shardviz.study.fixes import Fix, Fixes
from shardviz.study.fixing import fixes
from shardviz.study.search import search
from shardviz.study.sweep import Sweep, sweep

__all__ = ["CostTable", "Fix", "Fixes", "Search", "Sweep", "cost_table", "fixes", "search", "sweep"]
