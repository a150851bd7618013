"""Which dimensions catch an axis that cuts one of them, in a copy of a program in which nothing else is decided."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy
from jax.extend.mlir.passmanager import PassManager

from shardviz import _jax
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.bounds import MOST_DEVICES
from shardviz.notation.spec import axis_name, axis_size
from shardviz.program.along import along_of
from shardviz.program.lower import Lowered, sdy_spec
from shardviz.program.module import (
    MESH,
    leave_out_constraints,
    main_of,
    mesh_in,
    place_of,
    set_mesh,
    spec_of,
    symbol_of,
    walk,
)
from shardviz.program.moved import moved_along, taken_whole
from shardviz.program.propagate import PIPELINE

_SEED = "_seed"
_MOST_SEEDED = 12  # axes that are tried together
_EINSUM = re.compile(r"[A-Za-z.]{1,32}(?:,[A-Za-z.]{1,32}){0,7}->([A-Za-z]{0,16})")


class Member(NamedTuple):
    """A dimension of an array.

    Attributes:
        role: `argument` or `output`.
        path: the array's tree path.
        dimension: which of its dimensions, from 0.
    """

    role: str
    path: str
    dimension: int

    def __str__(self) -> str:
        return f"{self.path}:{self.dimension}"


class Opened:
    """A copy of a module with nothing decided: every argument and result open, no constraint left."""

    def __init__(self, lowered: Lowered):
        self._lowered = lowered
        self._module = lowered.module.operation.clone()
        own = mesh_in(lowered.module) or DeviceMesh((), ())
        manual = any(self._manual_computations())
        self._mesh = own if manual else replace(own, sizes=(1,) * len(own.sizes))  # where no shape depends on them
        leave_out_constraints(self._module)
        self._whole = taken_whole(self._module)
        for op in list(self._manual_computations()):
            for name in ("in_shardings", "out_shardings"):
                cut = sdy.TensorShardingPerValueAttr(op.attributes[name]).shardings
                text = ", ".join(f"<@{MESH}, {_open(spec_of(each))}>" for each in cut)
                op.attributes[name] = ir.Attribute.parse(f"#sdy.sharding_per_value<[{text}]>")
        self._passes = PassManager.parse(PIPELINE)
        self._passes.enable_verifier(False)
        self._manual: dict[Member, tuple[Axis, ...]] = {}

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Holds the module's lock, and enters its context."""
        with self._lowered.entered(), ir.Location.unknown():
            yield

    def bytecode(self) -> bytes:
        """The module with nothing seeded, to be tried elsewhere."""
        return _jax.bytecode(self._seeded({})[0])

    def begin(self) -> None:
        """Finds out what the `shard_map`s inside cut."""
        self._manual = self._cut_by_manual() if any(self._manual_computations()) else {}

    def _manual_computations(self) -> Iterator[ir.Operation]:
        return (op for op in walk(self._module) if op.name == "sdy.manual_computation")

    def batches(self, seeds: Sequence[Member], sizes: Mapping[Member, int]) -> Iterator[Sequence[Member]]:
        """Seeds that can be tried together: the mesh that has an axis for each must not grow too large."""
        some: list[Member] = []
        devices = self._mesh.size
        for seed in seeds:
            factor = _smallest_factor(sizes[seed])
            if some and (devices * factor > MOST_DEVICES or len(some) == _MOST_SEEDED):
                yield some
                some, devices = [], self._mesh.size
            some.append(seed)
            devices *= factor
        if some:
            yield some

    def _cut_by_manual(self) -> dict[Member, tuple[Axis, ...]]:
        """The dimensions that the `shard_map`s inside cut → the axes that they cut them by."""
        module, main, traced = self._seeded({})
        self._passes.run(module)
        return {
            Member(role, name, d): axes
            for role, which, arrays in (
                ("argument", "arg_attrs", traced.arguments),
                ("output", "res_attrs", traced.outputs),
            )
            for name, spec in _shardings(main, which, [a.name for a in arrays])
            for d, axes in enumerate(spec.dims)
            if axes
        }

    def uses(self) -> Mapping[str, set[Member]]:
        """What is done along which dimensions of arguments; see `along_of`."""
        main = main_of(_Holder(self._module))
        functions = {symbol_of(op): op.operation for op in self._module.regions[0].blocks[0].operations}
        found: defaultdict[str, set[Member]] = defaultdict(set)
        arguments = zip(self._lowered.traced.arguments, main.regions[0].blocks[0].arguments, strict=True)
        for argument, value in arguments:
            for dimension, use in along_of(value, functions) if argument.shape else ():
                found[use].add(Member("argument", argument.name, dimension))
        return found

    def used_up(self, sizes: Mapping[Member, int]) -> dict[tuple[str, ...], set[Member]]:
        """Axes → the dimensions that they cut into single elements, where a `shard_map` or `pmap` says so."""
        found: dict[tuple[str, ...], set[Member]] = {}
        for member, axes in self._manual.items():
            if math.prod(axis_size(a, self._mesh) for a in axes) == sizes[member] > 1:
                found.setdefault(tuple(map(axis_name, axes)), set()).add(member)
        return found

    def taken(self, members: Set[Member]) -> tuple[str, ...]:
        """The axes by which a `shard_map` takes most of these dimensions that any takes; nothing where none does."""
        cut = Counter(tuple(map(axis_name, self._manual[m])) for m in members if m in self._manual)
        return max(cut, key=lambda axes: (cut[axes], axes), default=())

    def _seeded(self, axes: Mapping[Member, str], factors: Sequence[int] = ()) -> tuple[Any, Any, Any]:
        """A copy of the module with an axis for each seed, its main function, and its trace."""
        module = self._module.clone()
        body = module.regions[0].blocks[0]
        set_mesh(module, body, DeviceMesh((*self._mesh.names, *axes.values()), (*self._mesh.sizes, *factors)))
        main = main_of(_Holder(module))
        traced = self._lowered.traced
        kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        ranks = [[ir.RankedTensorType(t).rank for t in types] for types in (kind.inputs, kind.results)]
        cut = {s[1:]: (*self._manual.get(s, ()), axis) for s, axis in axes.items()}
        ins = [
            Spec(tuple(cut.get((a.name, d), ()) for d in range(rank)))
            for a, rank in zip(traced.arguments, ranks[0], strict=True)
        ]
        _write(main, "arg_attrs", ins)
        _write(main, "res_attrs", [Spec(((),) * rank) for rank in ranks[1]])
        module.verify()  # Shardy ends the process when it is given what the verifier would have refused
        return module, main, traced

    def caught(
        self, seeds: Sequence[Member], sizes: Mapping[Member, int]
    ) -> Iterator[tuple[Member, set[Member], Counter[str], set[str]]]:
        """For each seed, which dimensions catch the axis that cuts it, as which letters of einsums, and where arrays
        that it cuts are moved.

        Args:
            seeds: dimensions of arguments.
            sizes: of all dimensions; an axis is as large as the smallest factor of its seed's.
        """
        axes = {seed: f"{_SEED}{number}" for number, seed in enumerate(seeds)}
        module, main, traced = self._seeded(axes, [_smallest_factor(sizes[seed]) for seed in seeds])
        self._passes.run(module)
        members = {axis: set[Member]() for axis in axes.values()}
        for role, which, arrays in (
            ("argument", "arg_attrs", traced.arguments),
            ("output", "res_attrs", traced.outputs),
        ):
            for name, spec in _shardings(main, which, [a.name for a in arrays]):
                for d, axis in _caught(spec):
                    members[axis].add(Member(role, name, d))
        letters, moved = self._letters(module), moved_along(module, self._whole, self._lowered.locations)
        for seed, axis in axes.items():
            yield seed, members[axis], letters.get(axis, Counter()), moved.get(axis, set())

    def _letters(self, module: Any) -> dict[str, Counter[str]]:
        """Axis → the letters that einsums' results have at dimensions which caught it."""
        ends: dict[Any, tuple[str, Spec]] = {}
        for op in walk(module):
            if op.name not in ("stablehlo.dot_general", "stablehlo.transpose") or "sdy.sharding" not in op.attributes:
                continue
            stack = place_of(op.location, self._lowered.locations).name_stack
            einsum = _EINSUM.search(stack) if "->" in stack and "transpose(" not in stack else None
            if einsum is not None:
                spec = spec_of(sdy.TensorShardingPerValueAttr(op.attributes["sdy.sharding"]).shardings[0])
                ends.pop(op.operands[0], None)  # the product, which this brings into the einsum's order
                ends[op.results[0]] = einsum[1], spec
        found: dict[str, Counter[str]] = {}
        for letters, spec in ends.values():
            if len(spec.dims) == len(letters):
                for d, axis in _caught(spec):
                    found.setdefault(axis, Counter())[letters[d]] += 1
        return found


class _Holder:
    """What `main_of` reads: a module, by its operation."""

    def __init__(self, operation: Any):
        self.operation = operation


def _smallest_factor(size: int) -> int:
    return next((n for n in range(2, int(size**0.5) + 1) if size % n == 0), size)


def _shardings(main: Any, which: str, names: Sequence[str]) -> Iterator[tuple[str, Spec]]:
    """Name → spec, of the arguments or results that have one."""
    for name, entry in zip(names, ir.ArrayAttr(main.attributes[which]) if names else (), strict=True):
        known = ir.DictAttr(entry)
        if "sdy.sharding" in known:
            yield name, spec_of(known["sdy.sharding"])


def _caught(spec: Spec) -> list[tuple[int, str]]:
    """The dimensions that caught axes of seeds, and which."""
    return [(d, axis_name(a)) for d, axes in enumerate(spec.dims) for a in axes if axis_name(a).startswith(_SEED)]


def _open(spec: Spec) -> str:
    """A spec as Shardy writes it, with every dimension open behind its axes."""
    return re.sub(r'"\}', '", ?}', sdy_spec(spec, len(spec.dims), "?"))


def _write(main: ir.Operation, which: str, specs: Iterable[Spec]) -> None:
    """Open shardings in place of those of the arguments or results."""
    specs = list(specs)
    if not specs:
        return
    old = ir.ArrayAttr(main.attributes[which]) if which in main.attributes else [ir.DictAttr.get({})] * len(specs)
    new = []
    for entry, spec in zip(old, specs, strict=True):
        kept = {named.name: named.attr for named in ir.DictAttr(entry)}
        kept["sdy.sharding"] = ir.Attribute.parse(f"#sdy.sharding<@{MESH}, {_open(spec)}>")
        new.append(ir.DictAttr.get(kept))
    main.attributes[which] = ir.ArrayAttr.get(new)
