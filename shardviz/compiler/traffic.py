"""Bytes that each instruction reads from and writes to main memory, by the conventions of XLA's `HloCostAnalysis`.

Every operand is read once and every result written once, by each instruction:

| instruction | bytes |
|---|---|
| fusion | its operands and results; what goes on inside stays in registers |
| ... of an operand that it only slices or gathers from | the slices |
| ... that updates a slice of an operand in place | the slice, not the array |
| slice, dynamic-slice, gather | the result, read and written, and the indices |
| dynamic-update-slice, scatter | the update, read and written (and what is there, for a scatter), and the indices |
| asynchronous: begun and ended by two instructions | once, where it begins |
| bitcast, tuple, parameter, loop, call, ... | none: they move nothing, or what they call is counted |

Values in a chip's own memories (`S(1)`: a TPU's VMEM) and in the host's (`S(5)`) are not in main memory: a copy between
the two counts its one end. A tiled layout (`T(8,128)`) is counted with its padding. A custom call, which is opaque,
counts its operands and results.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache

from shardviz.compiler.asynchronous import goes_on
from shardviz.compiler.module import Computation, Instruction, Module
from shardviz.compiler.shapes import Shape, ShapeTree, parse_shape
from shardviz.layouts.layout import itemsize

_LEAF = re.compile(r"[a-z][a-z0-9]*\[[^\]]*\](?:\{([^}]*)\})?")
_LAYOUT = re.compile(r"^([\d,]*)(?::T\(([\d,]+)\))?")
_SPACE = re.compile(r"S\((\d+)\)")
_ALIAS = re.compile(r"\{([\d,]*)\}: \(\d+, \{")
_FREE = frozenset(
    ("bitcast", "tuple", "get-tuple-element", "parameter", "constant", "after-all", "add-dependency", "domain",
     "opt-barrier", "while", "conditional", "call", "async-start", "async-update")
)  # fmt: skip
_BEGUN = frozenset(("copy-start", "all-gather-start", "collective-permute-start"))
_FREE_CALLS = frozenset(("AllocateBuffer", "ConcatBitcast", "AssumeGatherIndicesInBound"))
_LARGE_CONSTANT = 8

Sizes = float | tuple["Sizes", ...]
"""Bytes in main memory, of an array or of a tuple's elements."""


class Traffic:
    """Counts the instructions of one module.

    Args:
        module: a module as a target runs it: optimised, with its fusions.
    """

    def __init__(self, module: Module):
        self.module = module

    def __call__(self, computation: Computation, instruction: Instruction) -> float:
        """Bytes read and written by one run of an instruction; of those it runs as a whole, none but a fusion's.

        Args:
            computation: where it stands; not inside a fusion.
            instruction: any instruction.
        """
        opcode = instruction.opcode
        if opcode in _FREE or opcode.endswith("-done"):
            return 0.0
        if opcode == "fusion":
            fused = self.module.computations[instruction.called["calls"][0]]
            return _Fusion(self.module, fused, instruction).bytes
        operands, result = _operands(computation, instruction), sizes(instruction.shape_text)
        if opcode in ("slice", "dynamic-slice"):
            return _held(operands[0], _size(instruction)) + _total(result) + sum(map(_total, operands[1:2]))
        if opcode == "gather":
            return _held(operands[0], _size(instruction)) + _total(result) + _total(operands[1])
        if opcode == "dynamic-update-slice":
            written = _held(result, _size(computation.by_name[instruction.operands[1]]))
            return written + sum(map(_total, operands[1:3]))
        if opcode == "scatter":
            many = len(operands) // 2
            return 3 * sum(map(_total, operands[many + 1 :])) + _total(operands[many])
        if opcode in _BEGUN and isinstance(result, tuple):
            made = result[0] if opcode == "copy-start" else result[1]
            return sum(map(_total, operands)) + _total(made)
        if opcode == "send":
            return _total(operands[0])
        if opcode == "recv" and isinstance(result, tuple):
            return _total(result[0])
        if opcode == "custom-call" and instruction.attributes["custom_call_target"].strip('"') in _FREE_CALLS:
            return 0.0
        return sum(map(_total, operands)) + _total(result)


class _Fusion:
    """What a fusion reads and writes at its boundary."""

    def __init__(self, module: Module, fused: Computation, instruction: Instruction):
        self.module, self.fused, self.instruction = module, fused, instruction
        aliased = "output_to_operand_aliasing" in instruction.attributes_text
        self.aliased = set(_ALIAS.findall(instruction.attributes["output_to_operand_aliasing"])) if aliased else set()

    @property
    def bytes(self) -> float:
        read = math.fsum(self._read(parameter) for parameter in self.fused.parameters.values())
        constants = (i for i in self.fused.instructions if i.opcode == "constant")
        return read + self._written() + sum(_size(i) for i in constants if i.shapes[0].size > _LARGE_CONSTANT)

    def _read(self, parameter: Instruction) -> float:
        whole = _total(sizes(parameter.shape_text))
        if not whole:
            return 0.0
        full, parts = self._uses(self.fused, parameter.name)
        return whole if full else min(whole, parts)

    def _uses(self, fused: Computation, name: str) -> tuple[bool, float]:
        """Whether all of a value is read, and the bytes that are read of its parts."""
        full, parts = False, 0.0
        for user in fused.users.get(name, ()):
            opcode, first = user.opcode, user.operands[0] == name
            if opcode == "bitcast":
                found = self._uses(fused, user.name) if not user.is_root else (True, 0.0)
            elif opcode in ("slice", "dynamic-slice", "gather") and first:
                found = False, _size(user)
            elif opcode == "dynamic-update-slice" and first and self._in_place(fused, user):
                found = False, 0.0
            elif opcode == "fusion":
                found = self._used_inside(fused, user, name)
            elif user.is_root and opcode == "tuple" and fused is self.fused:
                found = not self._passes(user.operands.index(name)), 0.0
            elif goes_on(fused, user):  # it moves once, where it begins
                found = False, 0.0
            else:
                found = True, 0.0
            full, parts = full or found[0], parts + found[1]
        return full, parts

    def _used_inside(self, fused: Computation, user: Instruction, name: str) -> tuple[bool, float]:
        inner = self.module.computations[user.called["calls"][0]]
        full, parts = False, 0.0
        for at, operand in enumerate(user.operands):
            if operand == name:
                parameter = inner.parameters[at].name
                passed = _behind_bitcasts(inner, inner.root).name == parameter
                found = self._uses(fused, user.name) if passed else self._uses(inner, parameter)
                full, parts = full or found[0], parts + found[1]
        return full, parts

    def _in_place(self, fused: Computation, update: Instruction) -> bool:
        """Whether an updated array is what the fusion gives, so that it is written where it was."""
        users = fused.users.get(update.name, ())
        return not users or all(
            (u.opcode == "tuple" and u.is_root) or (u.opcode == "bitcast" and self._in_place(fused, u)) for u in users
        )

    def _passes(self, index: int) -> bool:
        """Whether a result is an operand handed on in its place."""
        return str(index) in self.aliased

    def _written(self) -> float:
        root, result = self.fused.root, sizes(self.instruction.shape_text)
        if not isinstance(result, tuple):
            return self._result(root, "", result)
        if root.opcode != "tuple":
            return math.fsum(_total(size) for i, size in enumerate(result) if str(i) not in self.aliased)
        made = (self.fused.by_name[name] for name in root.operands)
        return math.fsum(
            self._result(each, str(i), _total(size)) for i, (each, size) in enumerate(zip(made, result, strict=True))
        )

    def _result(self, root: Instruction, index: str, size: float) -> float:
        if not size:
            return 0.0
        made = _behind_bitcasts(self.fused, root)
        if made.opcode == "dynamic-update-slice":
            return _size(self.fused.by_name[made.operands[1]])
        handed_on = made.opcode == "parameter" or goes_on(self.fused, made)
        return 0.0 if handed_on and index in self.aliased else size


def _behind_bitcasts(computation: Computation, instruction: Instruction) -> Instruction:
    while instruction.opcode == "bitcast":
        instruction = computation.by_name[instruction.operands[0]]
    return instruction


@lru_cache(maxsize=8192)
def sizes(text: str) -> Sizes:
    """Bytes in main memory of a shape, its tiles' padding included; 0 for what is in another memory."""
    layouts = iter([found[1] or "" for found in _LEAF.finditer(text)])
    return _sizes(parse_shape(text), layouts)


def _sizes(shape: ShapeTree, layouts: Iterable[str]) -> Sizes:
    if not isinstance(shape, Shape):
        return tuple(_sizes(part, layouts) for part in shape)
    layout = next(iter(layouts), "")
    space = _SPACE.search(layout)
    if space and space[1] != "0":
        return 0.0
    return math.prod(_padded(shape.dims, layout)) * itemsize(shape.dtype) if "T(" in layout else shape.nbytes


def _padded(dims: tuple[int, ...], layout: str) -> list[int]:
    """The dimensions as they are stored: the minor ones rounded up to whole tiles."""
    padded = list(dims)
    found = _LAYOUT.match(layout)
    if found is None or not found[1] or not found[2]:
        return padded
    tile = [int(n) for n in found[2].split(",")]
    minor = [int(n) for n in found[1].split(",")]
    for size, dimension in zip(reversed(tile), minor, strict=False):
        padded[dimension] = -(-padded[dimension] // size) * size
    return padded


def _size(instruction: Instruction) -> float:
    """Bytes of an instruction's result, wherever it is."""
    return _total(sizes(_SPACE.sub("", instruction.shape_text)))


def _total(size: Sizes) -> float:
    return math.fsum(map(_total, size)) if isinstance(size, tuple) else size


def _held(size: Sizes, part: float) -> float:
    """`part` of an array that is in main memory; 0 where it is not."""
    return part if _total(size) else 0.0


def _operands(computation: Computation, instruction: Instruction) -> list[Sizes]:
    found = []
    for name, path in zip(instruction.operands, instruction.operand_parts, strict=True):
        size = sizes(computation.by_name[name].shape_text)
        for index in path:
            size = size[index] if isinstance(size, tuple) else size
        found.append(size)
    return found
