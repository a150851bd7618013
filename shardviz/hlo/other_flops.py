"""FLOPs of what is no matrix product, as XLA's `HloCostAnalysis` counts them.

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
"""

from __future__ import annotations

import math
import re

from shardviz.hlo.flops import array_operand, dot_flops_of
from shardviz.hlo.module import Computation, Instruction, Module

_ELEMENTWISE = frozenset(
    ("abs", "add", "and", "bitcast-convert", "ceil", "clamp", "compare", "complex", "convert", "count-leading-zeros",
     "divide", "floor", "imag", "is-finite", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "real",
     "reduce-precision", "remainder", "round-nearest-afz", "round-nearest-even", "select", "shift-left",
     "shift-right-arithmetic", "shift-right-logical", "sign", "stochastic-convert", "subtract", "xor")
)  # fmt: skip
_SIZE = re.compile(r"size=([\dx]+)")
_NUMBER = re.compile(r"\d+")


class OtherFlops:
    """Counts the instructions of one module.

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


def _window(instruction: Instruction) -> int:
    size = _SIZE.search(instruction.attributes.get("window", ""))
    return math.prod(map(int, size[1].split("x"))) if size else 1


def _reduce_window(count: OtherFlops, _: Computation, instruction: Instruction) -> float:
    return count.applied(instruction) * (_window(instruction) - 1) * instruction.shapes[0].size


def _select_and_scatter(count: OtherFlops, computation: Computation, instruction: Instruction) -> float:
    source = array_operand(computation, instruction, 1).size
    selects = count.applied(instruction, "select") * (_window(instruction) - 1)
    return source * (selects + count.applied(instruction, "scatter"))


def _map(count: OtherFlops, _: Computation, instruction: Instruction) -> float:
    return count.applied(instruction) * instruction.shapes[0].size


def _scatter(count: OtherFlops, computation: Computation, instruction: Instruction) -> float:
    updates = array_operand(computation, instruction, len(instruction.operands) // 2 + 1)
    return count.applied(instruction) * updates.size


def _all_reduce(_count: OtherFlops, _: Computation, instruction: Instruction) -> float:
    return float(_elements(instruction))


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
