"""The compiler's results, from its HLO: instructions, collectives, loops, shardings, FLOPs, bytes, memory. No JAX."""

from shardviz.compiler.collectives import collectives
from shardviz.compiler.frames import FrameTable
from shardviz.compiler.graph import graph_of
from shardviz.compiler.matching import target_collectives
from shardviz.compiler.memory import Buffers, alive_at_peak, memory
from shardviz.compiler.module import Computation, Instruction, Module, parse
from shardviz.compiler.phases import Phases
from shardviz.compiler.schedule import is_scheduled, schedule_of
from shardviz.compiler.shapes import HloShape, parse_shape
from shardviz.compiler.shardings import output_shardings, spec_and_shard, values
from shardviz.compiler.uses import with_shardys
from shardviz.compiler.work import count_bytes, count_flops, with_bytes
