"""What the compiler made, from its HLO: instructions, collectives, loops, shardings, FLOPs, bytes, memory. No JAX."""

from shardviz.hlo.collectives import collectives
from shardviz.hlo.dataflow import Origin
from shardviz.hlo.frames import FrameTable
from shardviz.hlo.groups import axes_of, axes_of_pairs, parse_groups, parse_pairs
from shardviz.hlo.live import Buffers
from shardviz.hlo.loops import Runs, runs, trip_count
from shardviz.hlo.matching import as_run
from shardviz.hlo.memory import alive_at_peak, memory
from shardviz.hlo.module import Computation, Instruction, Module
from shardviz.hlo.parse import parse
from shardviz.hlo.phases import Phases
from shardviz.hlo.shape import Shape, parse_shape
from shardviz.hlo.shardings import cut, output_shardings, parameter_shardings, values
from shardviz.hlo.target_runs import algorithms
from shardviz.hlo.work import ByteCount, FlopCount, count_bytes, count_flops, joined

__all__ = [
    "Buffers",
    "ByteCount",
    "Computation",
    "FlopCount",
    "FrameTable",
    "Instruction",
    "Module",
    "Origin",
    "Phases",
    "Runs",
    "Shape",
    "algorithms",
    "alive_at_peak",
    "as_run",
    "axes_of",
    "axes_of_pairs",
    "collectives",
    "count_bytes",
    "count_flops",
    "cut",
    "joined",
    "memory",
    "output_shardings",
    "parameter_shardings",
    "parse",
    "parse_groups",
    "parse_pairs",
    "parse_shape",
    "runs",
    "trip_count",
    "values",
]
