"""What the compiler made, read from its HLO: instructions, collectives, loops, shardings, FLOPs, memory. No JAX."""

from shardviz.hlo.collectives import collectives
from shardviz.hlo.dataflow import Origin, trace_operand
from shardviz.hlo.flops import dot_flops
from shardviz.hlo.frames import FrameTable
from shardviz.hlo.groups import axes_of, axes_of_pairs, parse_groups, parse_pairs
from shardviz.hlo.loops import Runs, runs, trip_count
from shardviz.hlo.matching import as_run
from shardviz.hlo.memory import alive_at_peak, memory
from shardviz.hlo.module import Computation, Instruction, Module
from shardviz.hlo.parse import parse
from shardviz.hlo.shape import Shape, parse_shape
from shardviz.hlo.shardings import cut, output_shardings, parameter_shardings, values

__all__ = [
    "Computation",
    "FrameTable",
    "Instruction",
    "Module",
    "Origin",
    "Runs",
    "Shape",
    "alive_at_peak",
    "as_run",
    "axes_of",
    "axes_of_pairs",
    "collectives",
    "cut",
    "dot_flops",
    "memory",
    "output_shardings",
    "parameter_shardings",
    "parse",
    "parse_groups",
    "parse_pairs",
    "parse_shape",
    "runs",
    "trace_operand",
    "trip_count",
    "values",
]
