"""A program as one graph of operations, from HLO or StableHLO, and what is asked of it at every level."""

from shardviz.graph.flow import Flow
from shardviz.graph.loops import heaviest_runs, runs, trip_counts
from shardviz.graph.operations import Block, Contraction, Convolution, Dims, Graph, GraphValue, Operation, operations_in
from shardviz.graph.origins import KEEPS, At, Origins
from shardviz.graph.trips import trip_count
