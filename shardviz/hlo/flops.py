"""FLOPs of the matrix products that one device does: 2 x output size x contracted size, loops multiplied in.

>>> from shardviz.hlo.parse import parse
>>> dot_flops(parse('''HloModule m
... ENTRY %main (a: f32[4,8], b: f32[8,2]) -> f32[4,2] {
...   %a = f32[4,8]{1,0} parameter(0)
...   %b = f32[8,2]{1,0} parameter(1)
...   ROOT %dot = f32[4,2]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
... }'''))
(128.0, 0)
"""

from __future__ import annotations

import math
import re

from shardviz.errors import ParseError
from shardviz.hlo.loops import runs, trip_count
from shardviz.hlo.module import Computation, Instruction, Module
from shardviz.hlo.shape import Shape, element


def dot_flops(module: Module) -> tuple[float, int]:
    """FLOPs of a module's matrix products and convolutions on one device.

    Args:
        module: a partitioned module: its shapes are one device's.

    Returns:
        The FLOPs, and the number of loops whose trip count is not known, whose bodies are counted once. Branches of a
        conditional are all counted. Elementwise work is not.
    """
    total = 0.0
    found = runs(module)
    unknown = 0
    for name, run in found.items():
        computation = module.computations[name]
        for instruction in computation.instructions:
            if instruction.opcode == "dot":
                total += run.times * _dot(computation, instruction)
            elif instruction.opcode == "convolution":
                total += run.times * _convolution(computation, instruction)
            elif instruction.opcode == "while" and trip_count(module, computation, instruction) is None:
                unknown += 1
    return total, unknown


def _operand(computation: Computation, instruction: Instruction, index: int) -> Shape | None:
    if index >= len(instruction.operands):
        return None
    shape = element(computation.by_name[instruction.operands[index]].shape, instruction.operand_parts[index])
    return shape if isinstance(shape, Shape) else None


def _dot(computation: Computation, instruction: Instruction) -> float:
    left = _operand(computation, instruction, 0)
    if left is None:
        return 0.0
    contracted = [int(d) for d in re.findall(r"\d+", instruction.attributes.get("lhs_contracting_dims", ""))]
    if any(d >= len(left.dims) for d in contracted):
        raise ParseError(
            f"HLO instruction {instruction.name!r}: contracts dimensions {contracted} of shape {left.dims}"
        )
    return 2.0 * sum(s.size for s in instruction.shapes) * math.prod(left.dims[d] for d in contracted)


def _convolution(computation: Computation, instruction: Instruction) -> float:
    """2 x output size x the kernel's size for each output feature: window times input features (of one group).

    As XLA's window says it: an output element sums `window size x kernel's input features` products. Products with the
    padding and with the holes of a dilated input are counted too.
    """
    kernel = _operand(computation, instruction, 1)
    labels = instruction.attributes.get("dim_labels", "")
    parts = re.split(r"_|->", labels)
    if kernel is None or len(parts) != 3 or "o" not in parts[1]:
        return 0.0
    per_output = kernel.size / max(1, kernel.dims[parts[1].index("o")])
    return (
        2.0
        * sum(s.size for s in instruction.shapes)
        * per_output
        / int(instruction.attributes.get("batch_group_count", 1))
    )
