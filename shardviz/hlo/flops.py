"""FLOPs of one matrix product or convolution: 2 for every product of two numbers that it does.

>>> from shardviz.hlo.parse import parse
>>> entry = parse('''HloModule m
... ENTRY %main (a: f32[4,8], b: f32[8,2]) -> f32[4,2] {
...   %a = f32[4,8]{1,0} parameter(0)
...   %b = f32[8,2]{1,0} parameter(1)
...   ROOT %dot = f32[4,2]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
... }''').entry
>>> dot_flops_of(entry, entry.root)
128.0
"""

from __future__ import annotations

import re

from shardviz.errors import ParseError
from shardviz.hlo.module import Computation, Instruction
from shardviz.hlo.shape import Shape, element
from shardviz.products import Window, convolution_flops
from shardviz.products import dot_flops as product_flops

_LABELS = re.compile(r"(\w+)_(\w+)->(\w+)")
_WINDOW = re.compile(r"(\w+)=([\dx_\-]+)")


def dot_flops_of(computation: Computation, instruction: Instruction) -> float:
    """FLOPs of one run of an instruction, if it is a matrix product or a convolution; 0 for any other.

    Args:
        computation: where the instruction stands.
        instruction: any instruction; what a fusion or a loop calls is not looked at.

    Raises:
        ParseError: if its dimensions, labels or window do not fit its operands; the message names it.
    """
    if instruction.opcode == "dot":
        return _dot(computation, instruction)
    if instruction.opcode == "convolution":
        return _convolution(computation, instruction)
    return 0.0


def array_operand(computation: Computation, instruction: Instruction, index: int) -> Shape:
    """The shape of an operand.

    Raises:
        ParseError: if it is missing or no array; the message names the instruction.
    """
    if index < len(instruction.operands):
        shape = element(computation.by_name[instruction.operands[index]].shape, instruction.operand_parts[index])
        if isinstance(shape, Shape):
            return shape
    raise ParseError(
        f"HLO instruction {instruction.name!r} ({instruction.opcode}): operand {index} is missing or no array"
    )


def _result(instruction: Instruction) -> Shape:
    if isinstance(instruction.shape, Shape):
        return instruction.shape
    raise ParseError(f"HLO instruction {instruction.name!r} ({instruction.opcode}): its result is no array")


def _dot(computation: Computation, instruction: Instruction) -> float:
    left = array_operand(computation, instruction, 0)
    contracted = [int(d) for d in re.findall(r"\d+", instruction.attributes.get("lhs_contracting_dims", ""))]
    if any(d >= len(left.dims) for d in contracted):
        raise ParseError(
            f"HLO instruction {instruction.name!r}: contracts dimensions {contracted} of shape {left.dims}"
        )
    return product_flops(_result(instruction).dims, (left.dims[d] for d in contracted))


def _convolution(computation: Computation, instruction: Instruction) -> float:
    """By its `dim_labels` (such as `b01f_01io->b01f`) and its `window` (`size=3x3 stride=2x2 pad=0_1x0_1`)."""
    labels = _LABELS.fullmatch(text := instruction.attributes["dim_labels"])
    shapes = (
        array_operand(computation, instruction, 0),
        array_operand(computation, instruction, 1),
        _result(instruction),
    )
    if labels is None or any(len(s.dims) != len(part) for s, part in zip(shapes, labels.groups(), strict=True)):
        raise ParseError(
            f"HLO instruction {instruction.name!r}: dim_labels {text!r} do not fit the shapes "
            f"{', '.join(str(s.dims) for s in shapes)}"
        )
    left, kernel, out = (
        dict(zip(part, shape.dims, strict=True)) for part, shape in zip(labels.groups(), shapes, strict=True)
    )
    spatial = [label for label in labels[3] if label.isdecimal()]
    try:
        steps = _window(instruction.attributes.get("window", ""), len(spatial))
        windows = [
            Window(left[d], out[d], kernel[d], *(steps[name][int(d)] for name in ("stride", "pad", "lhs", "rhs")))
            for d in spatial
        ]
        return convolution_flops(
            batch=left["b"],
            input_features=left["f"],
            output_features=out["f"],
            windows=windows,
            feature_group_count=int(instruction.attributes.get("feature_group_count", 1)),
            batch_group_count=int(instruction.attributes.get("batch_group_count", 1)),
        )
    except (KeyError, IndexError, ValueError) as error:
        raise ParseError(
            f"HLO instruction {instruction.name!r}: dim_labels {text!r} and window "
            f"{instruction.attributes.get('window', '')!r} do not fit each other"
        ) from error


def _window(text: str, dimensions: int) -> dict[str, list[int]]:
    """Stride, low padding, and dilation of input (`lhs`) and kernel (`rhs`) along each spatial dimension."""
    said = {key: value.split("x") for key, value in _WINDOW.findall(text)}
    ones, zeros = ["1"] * dimensions, ["0_0"] * dimensions
    return {
        "stride": [int(v) for v in said.get("stride", ones)],
        "pad": [int(v.split("_")[0]) for v in said.get("pad", zeros)],
        "lhs": [int(v) for v in said.get("lhs_dilate", ones)],
        "rhs": [int(v) for v in said.get("rhs_dilate", ones)],
    }
