"""Where the bytes are: which device holds which slice of an array, what it costs, and how it moves."""

from shardviz.layout.bytes import ArrayBytes, Leaf, LessSharded, TreeBytes, add_up, array_bytes, tree_bytes
from shardviz.layout.dtypes import itemsize
from shardviz.layout.layout import Layout, layout
from shardviz.layout.moves import Moves, moves, moves_between
from shardviz.layout.processes import ProcessLayout, by_process
from shardviz.layout.reshard import Step
from shardviz.layout.uneven import SilentCopies, Uneven, silent_copies, uneven

__all__ = [
    "ArrayBytes",
    "Layout",
    "Leaf",
    "LessSharded",
    "Moves",
    "ProcessLayout",
    "SilentCopies",
    "Step",
    "TreeBytes",
    "Uneven",
    "add_up",
    "array_bytes",
    "by_process",
    "itemsize",
    "layout",
    "moves",
    "moves_between",
    "silent_copies",
    "tree_bytes",
    "uneven",
]
