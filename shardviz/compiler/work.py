"""What one device computes, and what it reads and writes, in a step: counted instruction by instruction, with loops.

FLOPs are those of the partitioned program, the same for every target; bytes are those of the program as the target runs
it, whose products may be calls of a library that say no FLOPs. Each is summed by the place that it stems from:

    dot in a scan's body, 80 trips, jit(step)/transpose(jvp(block))/while/body/dot_general, model.py:31
    → Work(phase="backward", source=model.py:31, module="block", dtype="bfloat16", dot_flops=80 x 2 x ...)

A conditional counts the branch that costs most. A loop whose trip count is not known counts once. A matrix product or a
convolution counts 2 for every product of two numbers; all else counts as in XLA's `HloCostAnalysis`:

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

import dataclasses
import math
import re
from dataclasses import dataclass

from shardviz.compiler.loops import heaviest_runs, trip_counts
from shardviz.compiler.module import Computation, Instruction, Module, Shape, element
from shardviz.compiler.phases import Phases, full_name, teller
from shardviz.compiler.traffic import Traffic
from shardviz.errors import ParseError
from shardviz.layouts.layout import itemsize
from shardviz.records import Cost, Frame, Work, WorkTally
from shardviz.records.counting import Window, convolution_flops
from shardviz.records.counting import dot_flops as product_flops
from shardviz.records.source import module_of
from shardviz.records.work import joined


@dataclass(frozen=True)
class ByteCount:
    """What a module's instructions read from and write to main memory, on one device.

    Attributes:
        bytes: loops multiplied in.
        once: each loop's body counted once.
        work: the bytes by phase, line, module and element type, the most first; without FLOPs.
    """

    bytes: float
    once: float
    work: tuple[Work, ...]


def count_flops(module: Module, phases: Phases | None = None) -> Cost:
    """Counts the FLOPs of a module on one device.

    Args:
        module: the partitioned module, whose shapes are one device's, or any other.
        phases: of this module, where they are there already.

    Raises:
        ParseError: if an instruction cannot be read; the message names it.
    """
    other_of = OtherFlops(module)
    found = {
        name: [
            (instruction, dot, other)
            for instruction in computation.instructions
            if (dot := dot_flops_of(computation, instruction)) + (other := other_of(computation, instruction))
        ]
        for name, computation in module.computations.items()
    }
    own = {name: sum(dot + other for _, dot, other in rows) for name, rows in found.items()}
    trips = trip_counts(module)
    once = heaviest_runs(module, own.__getitem__, {})
    place_of, tally = _Places(module, phases or Phases(module)), WorkTally()
    for name, times in heaviest_runs(module, own.__getitem__, trips).items():
        computation = module.computations[name]
        for instruction, dot, other in found[name] if times else ():
            dtype = _factors(computation, instruction) if dot else instruction.shapes[0].dtype
            tally.add(*place_of(computation, instruction), dtype, times * dot, times * other)
    rows = tally.rows
    return Cost(
        dot_flops=sum(row.dot_flops for row in rows),
        unknown_loops=sum(trip is None for trip in trips.values()),
        other_flops=sum(row.other_flops for row in rows),
        once_flops=float(sum(times * own[name] for name, times in once.items())),
        work=rows,
    )


def count_bytes(module: Module, phases: Phases | None = None) -> ByteCount:
    """Counts the bytes that a module's instructions read from and write to main memory; see `traffic`.

    Args:
        module: a module as a target runs it: optimised, with its fusions.
        phases: of this module, where they are there already.

    Raises:
        ParseError: if an instruction cannot be read; the message names it.
    """
    bytes_of = Traffic(module)
    found: dict[str, list[tuple[Instruction, float]]] = {}

    def own(name: str) -> float:
        if name not in found:
            computation = module.computations[name]
            sizes = ((instruction, bytes_of(computation, instruction)) for instruction in computation.instructions)
            found[name] = [(instruction, size) for instruction, size in sizes if size]
        return sum(size for _, size in found[name])

    place_of, tally = _Places(module, phases or Phases(module)), WorkTally()
    for name, times in heaviest_runs(module, own, trip_counts(module), fused=False).items():
        computation = module.computations[name]
        for instruction, size in found[name] if times else ():
            tally.add(*place_of(computation, instruction), _largest_dtype(instruction), hbm_bytes=times * size)
    rows = tally.rows
    once = heaviest_runs(module, own, {}, fused=False)
    return ByteCount(
        sum(row.hbm_bytes or 0.0 for row in rows), float(sum(times * own(name) for name, times in once.items())), rows
    )


def with_bytes(cost: Cost, moved: ByteCount) -> Cost:
    """FLOPs and bytes in one, which may be of two programs: as partitioned, and as the target runs it."""
    work = joined(cost.work, moved.work)
    return dataclasses.replace(cost, hbm_bytes=moved.bytes, once_hbm_bytes=moved.once, work=work)


class _Places:
    """Says where in the person's program an instruction stems from: phase, line and module."""

    def __init__(self, module: Module, phases: Phases):
        self.module, self.phases = module, phases
        self.known: dict[tuple[str, int], tuple[Frame | None, str]] = {}

    def __call__(self, computation: Computation, instruction: Instruction) -> tuple[str, Frame | None, str]:
        where, told = teller(self.module, computation, instruction)
        name_stack = full_name(self.module, where, told, self.phases.prefixes)
        phase = self.phases(computation, instruction, name_stack)
        frame_id = told.stack_frame_id
        if (name_stack, frame_id) not in self.known or not frame_id:
            source = self.module.source(told)
            self.known[name_stack, frame_id] = source, module_of(name_stack, source)
        return phase, *self.known[name_stack, frame_id]


def _factors(computation: Computation, instruction: Instruction) -> str:
    """The element type in which a product's factors are multiplied: the wider of the two."""
    return max((array_operand(computation, instruction, n).dtype for n in (0, 1)), key=itemsize)


def _largest_dtype(instruction: Instruction) -> str:
    """The element type of most elements of a result; empty where it gives none."""
    largest = max(instruction.shapes, key=lambda shape: shape.size, default=None)
    return "" if largest is None else largest.dtype


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
        steps = _window_steps(instruction.attributes.get("window", ""), len(spatial))
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


def _window_steps(text: str, dimensions: int) -> dict[str, list[int]]:
    """Stride, low padding, and dilation of input (`lhs`) and kernel (`rhs`) along each spatial dimension."""
    said = {key: value.split("x") for key, value in _WINDOW.findall(text)}
    ones, zeros = ["1"] * dimensions, ["0_0"] * dimensions
    return {
        "stride": [int(v) for v in said.get("stride", ones)],
        "pad": [int(v.split("_")[0]) for v in said.get("pad", zeros)],
        "lhs": [int(v) for v in said.get("lhs_dilate", ones)],
        "rhs": [int(v) for v in said.get("rhs_dilate", ones)],
    }


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


def _window_size(instruction: Instruction) -> int:
    size = _SIZE.search(instruction.attributes.get("window", ""))
    return math.prod(map(int, size[1].split("x"))) if size else 1


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
