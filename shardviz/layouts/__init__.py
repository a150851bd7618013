"""The layout of bytes: the slice of an array on each device, its size, and its moves."""

from shardviz.layouts.bytes import TreeBytes, TreeLeaf, add_up
from shardviz.layouts.layout import Layout, Local, itemsize, layout
from shardviz.layouts.moves import Moves, MoveStep, shares
from shardviz.layouts.uneven import Uneven, fallback, indivisible, uneven
