"""FLOPs of one run of one HLO instruction.

A matrix product or a convolution counts 2 for every product of two numbers (`dot_flops_of`); all else counts as in
XLA's `HloCostAnalysis` (`OtherFlops`):

| operation | FLOPs |
|---|---|
| elementwise (add, select, convert, compare, ...) | 1 for each element of the result |
| transcendental (exp, tanh, rsqrt, power, ...), random bits | 0: XLA counts them apart, as `transcendentals` |
| reduce | what its function does x (elements that go in - elements that come out) |
| reduce-window | what its function does x (window size - 1) x elements that come out |
| map, scatter | what its function does x elements of the result, of the updates |
| all-reduce | 1 for each element |
| sort | elements x log2 of their number, rounded up |
| what only moves or makes values | 0 |

>>> from shardviz.compiler.module import parse
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

import math
import re
from dataclasses import dataclass

from shardviz.compiler.asynchronous import goes_on
from shardviz.compiler.module import Computation, Instruction, Module
from shardviz.compiler.shapes import Shape, element, leaves
from shardviz.errors import ParseError
from shardviz.records import Frame
from shardviz.records.counting import Window, convolution_flops, dot_flops, ragged_dot_flops
from shardviz.records.kernels import Array, Known, factor_dtype, kernel_name

_LABELS = re.compile(r"(\w+)_(\w+)->(\w+)")
_WINDOW = re.compile(r"(\w+)=([\dx_\-]+)")
_ELEMENTWISE = frozenset(
    ("abs", "add", "and", "bitcast-convert", "ceil", "clamp", "compare", "complex", "convert", "count-leading-zeros",
     "divide", "floor", "imag", "is-finite", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "real",
     "reduce-precision", "remainder", "round-nearest-afz", "round-nearest-even", "select", "shift-left",
     "shift-right-arithmetic", "shift-right-logical", "sign", "stochastic-convert", "subtract", "xor")
)  # fmt: skip
_NUMBER = re.compile(r"\d+")


def dot_flops_of(computation: Computation, instruction: Instruction) -> float:
    """FLOPs of one run of an instruction, if it is a matrix product or a convolution; 0 for any other.

    Args:
        computation: where the instruction stands.
        instruction: any instruction; what a fusion or a loop calls is not looked at.

    Raises:
        ParseError: if its dimensions, labels or window do not fit its operands; the message names it.
    """
    if instruction.opcode in ("dot", "scaled-dot"):
        return _dot(computation, instruction)
    if instruction.opcode == "ragged-dot":
        return _ragged_dot(computation, instruction)
    if instruction.opcode == "convolution":
        return _convolution(computation, instruction)
    return 0.0


def _dot(computation: Computation, instruction: Instruction) -> float:
    left = array_operand(computation, instruction, 0)
    contracted = [int(d) for d in re.findall(r"\d+", instruction.attributes.get("lhs_contracting_dims", ""))]
    if any(d >= len(left.dims) for d in contracted):
        raise ParseError(
            f"HLO instruction {instruction.name!r}: contracts dimensions {contracted} of shape {left.dims}"
        )
    return dot_flops(_result(instruction).dims, (left.dims[d] for d in contracted))


def _ragged_dot(computation: Computation, instruction: Instruction) -> float:
    """By the shapes of its factors: as if the groups filled the ragged dimension, however they share it."""
    left, right = (array_operand(computation, instruction, n).dims for n in (0, 1))
    met = "".join(instruction.attributes.get(f"rhs_{name}_dims", "") for name in ("contracting", "batch", "group"))
    return ragged_dot_flops(left, right, map(int, _NUMBER.findall(met)))


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
        steps = _window_steps(instruction, len(spatial))
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


def _window(instruction: Instruction) -> dict[str, list[str]]:
    """An instruction's window by field: `window={size=3x3 pad=0_1x0_1}` is `size` 3, 3 and `pad` 0_1, 0_1."""
    return {key: value.split("x") for key, value in _WINDOW.findall(instruction.attributes.get("window", ""))}


def _window_steps(instruction: Instruction, dimensions: int) -> dict[str, list[int]]:
    """Stride, low padding, and dilation of input (`lhs`) and kernel (`rhs`) along each spatial dimension."""
    window = _window(instruction)
    ones, zeros = ["1"] * dimensions, ["0_0"] * dimensions
    return {
        "stride": [int(v) for v in window.get("stride", ones)],
        "pad": [int(v.split("_")[0]) for v in window.get("pad", zeros)],
        "lhs": [int(v) for v in window.get("lhs_dilate", ones)],
        "rhs": [int(v) for v in window.get("rhs_dilate", ones)],
    }


@dataclass(frozen=True)
class Call:
    """A call of a kernel or a library, with what is known of it.

    Attributes:
        name: its kernel's name, or its target.
        flops: of one run on one device; None where nobody says.
        dtype: the element type that it computes in.
    """

    name: str
    flops: float | None
    dtype: str


def call_of(module: Module, computation: Computation, instruction: Instruction, known: Known) -> Call | None:
    """What is known of the FLOPs of a `custom-call`; None for any other instruction, and for one that computes nothing.

    Args:
        module, computation, instruction: the instruction and where it stands.
        known: what a person and the kernels' authors say.
    """
    if instruction.opcode != "custom-call":
        return None
    target = instruction.attributes["custom_call_target"].strip('"')
    pairs = zip(instruction.operands, instruction.operand_parts, strict=True)
    ins = [leaf for n, part in pairs for leaf in leaves(element(computation.by_name[n].shape, part))]
    operands, results = ([Array(s.dims, s.dtype) for s in shapes] for shapes in (ins, instruction.shapes))
    name, config = kernel_name(target, instruction.op_name), instruction.attributes.get("backend_config", "")
    count = known.flops(name, target, operands, results, config, source_of_call(module, computation, instruction))
    return None if count == 0 else Call(name, count, factor_dtype(operands, results))


def source_of_call(module: Module, computation: Computation, instruction: Instruction) -> Frame | None:
    """The person's line of a kernel's call; that of the functions around it, where all of the kernel is a library's."""
    at, source = computation, module.source(instruction)
    while source is None and (calls := module.callers.get(at.name, ())):
        at, source = calls[0].computation, module.source(calls[0].instruction)
    return source


class OtherFlops:
    """Counts FLOPs of the instructions of one module that are no matrix products.

    Args:
        module: the module, whose computations reductions apply.
    """

    def __init__(self, module: Module):
        self.module = module
        self._applied: dict[str, float] = {}

    def __call__(self, computation: Computation, instruction: Instruction) -> float:
        """FLOPs of one run of an instruction that is no matrix product; of those it calls as a whole, none.

        Args:
            computation: where it stands.
            instruction: any instruction.
        """
        opcode = instruction.opcode
        if opcode in _ELEMENTWISE:
            return float(_elements(instruction))
        count = _COUNTS.get(opcode)
        return 0.0 if count is None else count(self, computation, instruction)

    def applied(self, instruction: Instruction, role: str = "to_apply") -> float:
        """FLOPs of one application of the function that a reduction has; 0 where it has none."""
        if role not in instruction.attributes:
            return 0.0
        name = instruction.attributes[role].lstrip("%")
        if name not in self._applied:
            inner = self.module.computations[name]
            self._applied[name] = 0.0  # no function applies itself
            self._applied[name] = math.fsum(
                self(inner, each) + dot_flops_of(inner, each) + (self.applied(each) if each.opcode == "call" else 0.0)
                for each in inner.instructions
            )
        return self._applied[name]


def _elements(instruction: Instruction) -> int:
    return sum(shape.size for shape in instruction.shapes)


def _reduce(count: OtherFlops, computation: Computation, instruction: Instruction) -> float:
    steps = array_operand(computation, instruction, 0).size - instruction.shapes[0].size
    return count.applied(instruction) * steps


def _window_size(instruction: Instruction) -> int:
    return math.prod(int(size) for size in _window(instruction).get("size", ()))


def _reduce_window(count: OtherFlops, _: Computation, instruction: Instruction) -> float:
    return count.applied(instruction) * (_window_size(instruction) - 1) * instruction.shapes[0].size


def _select_and_scatter(count: OtherFlops, computation: Computation, instruction: Instruction) -> float:
    source = array_operand(computation, instruction, 1).size
    selects = count.applied(instruction, "select") * (_window_size(instruction) - 1)
    return source * (selects + count.applied(instruction, "scatter"))


def _map(count: OtherFlops, _: Computation, instruction: Instruction) -> float:
    return count.applied(instruction) * instruction.shapes[0].size


def _scatter(count: OtherFlops, computation: Computation, instruction: Instruction) -> float:
    updates = array_operand(computation, instruction, len(instruction.operands) // 2 + 1)
    return count.applied(instruction) * updates.size


def _all_reduce(_count: OtherFlops, computation: Computation, instruction: Instruction) -> float:
    return 0.0 if goes_on(computation, instruction) else float(_elements(instruction))


def _sort(_count: OtherFlops, computation: Computation, instruction: Instruction) -> float:
    size = array_operand(computation, instruction, 0).size
    return float(size * math.ceil(math.log2(size))) if size > 1 else 0.0


def _fft(_count: OtherFlops, computation: Computation, instruction: Instruction) -> float:
    lengths = [int(n) for n in _NUMBER.findall(instruction.attributes.get("fft_length", ""))]
    steps = math.prod(max(n, 1).bit_length() - 1 for n in lengths)
    return 8.0 * steps * array_operand(computation, instruction, 0).size


def _triangular_solve(_count: OtherFlops, computation: Computation, instruction: Instruction) -> float:
    return 2.0 * array_operand(computation, instruction, 0).dims[-1] * array_operand(computation, instruction, 1).size


def _cholesky(_count: OtherFlops, computation: Computation, instruction: Instruction) -> float:
    matrix = array_operand(computation, instruction, 0)
    return matrix.dims[-1] * matrix.size / 3


_COUNTS = {
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "select-and-scatter": _select_and_scatter,
    "map": _map,
    "scatter": _scatter,
    "all-reduce": _all_reduce,
    "all-reduce-start": _all_reduce,
    "sort": _sort,
    "fft": _fft,
    "triangular-solve": _triangular_solve,
    "cholesky": _cholesky,
}
