"""Where the bytes are: which device holds which slice of an array, what it costs, and how it moves."""

from shardviz.layouts.bytes import TreeBytes, TreeLeaf, add_up
from shardviz.layouts.layout import Layout, itemsize, layout
from shardviz.layouts.moves import Moves, MoveStep, shares
from shardviz.layouts.uneven import Uneven, fallback, indivisible, uneven
