"""The two sides that `matching` matches: a collective as the partitioner made it, and one as the target runs it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Hashable, Sequence

import numpy as np

from shardviz.hlo.groups import axes_of, axes_of_pairs, parse_groups, parse_pairs
from shardviz.hlo.module import Computation, Instruction, Module
from shardviz.hlo.shape import element, leaves
from shardviz.layout.layout import itemsize
from shardviz.notation.mesh import DeviceMesh
from shardviz.records import KINDS, Collective

_CHANNEL = re.compile(r"\bchannel_id=(\d+)")
_ALGORITHM = re.compile(r'"(?:strategy|algorithm|kernel_strategy|collective_algorithm|backend)"\s*:\s*"(\w+)"')
_TPU_ALGORITHM = re.compile(r'"collective_algorithm_config"\s*:\s*\{([^}]*)')
_TPU_WORDS = re.compile(r'"(?:emitter|strategy)"\s*:\s*"(\w+)"')
_TOGETHER = re.compile(r'"is_sync"\s*:\s*true')
REDUCES = frozenset(("all-reduce", "reduce-scatter"))


def is_collective(instruction: Instruction) -> bool:
    """Whether an instruction is a collective, or begins one."""
    return instruction.opcode.removesuffix("-start") in KINDS


class Made:
    """A collective of the partitioner.

    Attributes:
        collective: it.
        whole: the elements of the whole array on one device: what a gather gives, what a reduction takes.
        channel, place: what may stay on the way to the target.
    """

    def __init__(self, collective: Collective, instruction: Instruction, module: Module):
        self.collective = collective
        self.name = collective.name
        self.family = family(collective.kind)
        self.channel = _channel(instruction)
        self.place = _place(instruction, collective, module)
        self.whole = max(collective.operand_bytes, collective.result_bytes) / itemsize(collective.dtype)


class Run:
    """A collective of the optimised module.

    Attributes:
        shown: it, as it is to be reported.
        parts: for each array that goes in the family and, as `Made.whole`, the size: several, where several
            collectives are combined in it. A sum of shards that were padded with zeros is a gather.
        dtypes: the element types of these.
        apart: whether it is begun and ended apart.
        fused: whether it is inside a kernel.
        algorithm: what the compiler says of how it goes.
        stands_for: what it carries out of the partitioner's, by name; filled by `matching`.
    """

    def __init__(self, found: Collective, computation: Computation, instruction: Instruction, module: Module):
        self.stands_for: list[str] = []
        callers = module.callers.get(computation.name, ())
        caller = callers[0].instruction if callers else None
        self.algorithm = _words(instruction, caller)
        self.fused = caller is not None and caller.opcode == "fusion"
        apart = instruction.opcode.endswith("-start") or (caller is not None and caller.opcode == "async-start")
        self.apart = apart and not _TOGETHER.search(instruction.attributes_text)
        self.shown = _scattered(found, computation, caller) if self.fused and caller is not None else found
        self.family = family(self.shown.kind)
        self.channel = _channel(instruction)
        self.place = _place(instruction, found, module)
        given = zip(instruction.operands, instruction.operand_parts, strict=True)
        shapes = [element(computation.by_name[name].shape, part) for name, part in given]
        arrays = [leaf for shape in shapes for leaf in leaves(shape)]
        times = (found.group_size or 1) if found.kind == "all-gather" else 1
        padded = _padded(computation, instruction, module) if self.family == "reduce" else frozenset()
        families = ["all-gather" if i in padded else self.family for i in range(len(arrays))]
        self.parts = [(part, float(array.size * times)) for part, array in zip(families, arrays, strict=True)]
        self.dtypes = {array.dtype for array in arrays}

    @property
    def whole(self) -> float:
        """The elements of all parts together."""
        return sum(size for _, size in self.parts)


def algorithms(module: Module) -> dict[str, str]:
    """What a compiler says of how each collective goes, by the collective's name; without those it says nothing of.

    A TPU's says so in the program that it has made machine code of, and for what is inside a kernel with the kernel.
    """
    found = {}
    for computation, instruction in module:
        if is_collective(instruction):
            callers = module.callers.get(computation.name, ())
            found[instruction.name] = _words(instruction, callers[0].instruction if callers else None)
    return {name: words for name, words in found.items() if words}


def _words(instruction: Instruction, caller: Instruction | None) -> str:
    kernel = caller is not None and caller.opcode in ("fusion", "async-start")
    return _said(instruction) or (_said(caller) if caller is not None and kernel else "")


def _said(instruction: Instruction) -> str:
    """The words for an algorithm in a `backend_config`; those of a TPU: what emits the code, and its strategy."""
    text = instruction.attributes_text
    if config := _TPU_ALGORITHM.search(text):
        return " ".join(_TPU_WORDS.findall(config[1]))
    return next((found[1] for found in _ALGORITHM.finditer(text) if not found[1].endswith("DEFAULT")), "")


def family(kind: str) -> str:
    """A reduction of which each device keeps a part is a reduction."""
    return "reduce" if kind in REDUCES else kind


def on_slices(found: Collective, mesh: DeviceMesh, slices: Sequence[int], devices: int) -> Collective:
    """A collective within one slice, with the mesh axes that its groups span on all slices.

    Args:
        found: the collective, whose groups count the devices of one slice from 0.
        mesh: the whole mesh.
        slices: the slice of the device at each place of the mesh.
        devices: how many devices the program is for.
    """
    places = [np.flatnonzero(np.asarray(slices) == s) for s in sorted(set(slices))]
    if len(places) < 2 or {len(p) for p in places} != {devices}:
        return found
    if found.kind == "collective-permute":
        pairs = parse_pairs(found.groups)
        return dataclasses.replace(found, axes=axes_of_pairs(np.concatenate([p[pairs] for p in places]), mesh))
    groups = parse_groups(found.groups, devices)
    if groups.min() < 0:
        return found
    return dataclasses.replace(found, axes=axes_of(np.concatenate([p[groups] for p in places]), mesh))


def _scattered(found: Collective, computation: Computation, caller: Instruction) -> Collective:
    """A fusion of an all-reduce and the slice that each device keeps is a reduce-scatter."""
    kept = max(caller.shapes, key=lambda shape: shape.nbytes)
    nbytes = sum(shape.nbytes for shape in caller.shapes)
    if found.kind != "all-reduce" or nbytes >= found.result_bytes:
        return found
    if not any(i.opcode == "dynamic-slice" for i in computation.instructions):
        return found
    return dataclasses.replace(found, kind="reduce-scatter", shape=kept.dims, result_bytes=nbytes)


def _padded(computation: Computation, instruction: Instruction, module: Module) -> frozenset[int]:
    """Which operands are a shard written into an empty array."""
    found = set()
    for i, name in enumerate(instruction.operands):
        maker = computation.by_name[name]
        if maker.opcode == "fusion":
            maker = module.computations[next(iter(maker.called.values()))[0]].root
        if maker.opcode == "dynamic-update-slice":
            found.add(i)
    return frozenset(found)


def _channel(instruction: Instruction) -> str:
    found = _CHANNEL.search(instruction.attributes_text)
    return found[1] if found else ""


def _place(instruction: Instruction, collective: Collective, module: Module) -> Hashable:
    """The name stack and line that the instruction itself has, and its axes; None where it has no name stack."""
    if not instruction.op_name:
        return None
    return instruction.op_name, module.source(instruction), collective.axes
