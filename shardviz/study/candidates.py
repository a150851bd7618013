"""The candidates of a search: mesh shapes, and the axes that shard each logical dimension and the state.

A `Choice` is a mesh and the decisions on it:

    data=8,model=8 | batch: data | w1:2: model | parameters: data

`Space.plan` turns a choice into the plan that a person would write. All members of a dimension are sharded alike, as
far as their sizes divide. State that no decision shards is sharded along its largest free dimension (FSDP: ZeRO-3; for
the optimizer's state alone: ZeRO-1). An output that replaces an argument is sharded like the argument. Pinned arrays,
and arrays that no decision touches, keep their specs.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardviz.ask.parts import Parts
from shardviz.caching import cached_property
from shardviz.costs.machine import Machine
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import axis_name
from shardviz.plan.plan import Plan
from shardviz.propagate.dimensions import Dimension, Member
from shardviz.tracing.trace import Argument

MOST_AXES = 3
_NAMES = ("data", "model", "fsdp", "expert", "tensor")
PARAMETERS, OPTIMIZER = "parameters", "optimizer state"
PARTS = (PARAMETERS, OPTIMIZER)


@dataclass(frozen=True)
class Choice:
    """A candidate.

    Attributes:
        mesh: (axis, size), major to minor.
        decisions: (logical dimension, the axes that shard it), in order. Then (part of `PARTS`, the
            axes that shard its arrays along their largest free dimension).
        based: whether everything that no decision touches is as in the plan to improve.
    """

    mesh: tuple[tuple[str, int], ...]
    decisions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    based: bool = False

    @property
    def sizes(self) -> dict[str, int]:
        return dict(self.mesh)

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of size above 1."""
        return tuple(name for name, size in self.mesh if size > 1)

    def by(self, what: str) -> tuple[str, ...]:
        """Return the axes that shard a dimension or a part of the state."""
        return dict(self.decisions).get(what, ())

    def with_axes(self, what: str, axes: Sequence[str]) -> Choice:
        """Return the choice with a dimension, or a part of the state, sharded along these axes; empty replicates it."""
        decisions = [*(pair for pair in self.decisions if pair[0] != what), *([(what, tuple(axes))] if axes else ())]
        decisions.sort(key=lambda pair: PARTS.index(pair[0]) if pair[0] in PARTS else -1)
        return replace(self, decisions=tuple(decisions))

    @property
    def text(self) -> str:
        """The choice in one line: `data=8,model=8; batch by data; parameters by data`."""
        mesh = ",".join(f"{name}={size}" for name, size in self.mesh if size > 1) or "one device"
        sizes = self.sizes
        decisions = [(what, tuple(a for a in axes if sizes[a] > 1)) for what, axes in self.decisions]
        return "; ".join([mesh, *(f"{what} by {' and '.join(axes)}" for what, axes in decisions if axes)])


@dataclass(frozen=True, kw_only=True)
class Space(Parts):
    """All choices for one program on a number of devices.

    Attributes:
        machine: the machine of the devices.
        required: axes that the program names; every mesh has them.
        follows: output → the argument that it replaces.
        base: the plan to improve; None to begin with nothing sharded.
        base_specs: the argument specs of `base`, full-rank.
        mesh: the only mesh to use; None for any.
        specs: tree path → pinned spec of an argument.
        cuts: dimension → pinned axes.
        sizes: axis → pinned size.
    """

    machine: Machine
    required: tuple[str, ...] = ()
    follows: Mapping[str, str] = field(default_factory=dict)
    base: Plan | None = None
    base_specs: Mapping[str, Spec] = field(default_factory=dict)
    mesh: DeviceMesh | None = None
    specs: Mapping[str, Spec] = field(default_factory=dict)
    decisions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The axes of the candidate meshes, major to minor."""
        if self.mesh is not None:
            return self.mesh.names
        required = (*self.required, *self.sizes, *self.cutting)
        base = () if self.base is None else self.base.mesh.names
        candidates = tuple(dict.fromkeys((*required, *base, *_NAMES)))
        most = max(MOST_AXES, len(set(required)), len(base))
        chosen = set(candidates[:most])
        # the usual order of names: the last axis communicates most
        order = {name: place for place, name in enumerate((*base, "data", "fsdp", "expert", "model", "tensor"))}
        return tuple(sorted(chosen, key=lambda n: (order.get(n, -1), n)))

    @cached_property
    def meshes(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """Every mesh shape: factorisations of the number of devices over the axes, in the order of `_order`."""
        if self.mesh is not None:
            return (tuple(self.mesh.shape.items()),)
        sizes = _factorisations(self.machine.size, len(self.names))
        shapes = (tuple(zip(self.names, each, strict=True)) for each in sizes)
        return tuple(sorted((mesh for mesh in shapes if self._allowed(dict(mesh))), key=self._order))

    def _order(self, mesh: tuple[tuple[str, int], ...]) -> tuple[Any, ...]:
        """Return a sort key for meshes: few axes first, then axes that the program names, then even sizes, then outer
        names."""
        idle = sum(size == 1 for name, size in mesh if name in self.required)
        sizes = [size for _, size in mesh]
        wide = [size > 1 for size in sizes]
        return sum(wide), idle, max(sizes), sum(wide[1:-1]), [-size for size in sizes]

    def _allowed(self, shape: Mapping[str, int]) -> bool:
        """Return whether a mesh has the pinned sizes, and more than one device along each axis that a pin shards by."""
        cutting = all(shape[axis] > 1 for axis in self.cutting)
        return cutting and all(shape[axis] == size for axis, size in self.sizes.items())

    @cached_property
    def cutting(self) -> tuple[str, ...]:
        """The axes that pins shard something along."""
        by_decisions = [a for axes in self.decisions.values() for a in axes]
        return tuple(dict.fromkeys((*by_decisions, *(axis_name(a) for spec in self.specs.values() for a in spec.axes))))

    @cached_property
    def by_name(self) -> dict[str, Dimension]:
        return {d.name: d for d in self.dimensions}

    @cached_property
    def mapped(self) -> dict[str, tuple[str, ...]]:
        """Dimension → axes by which the program's own `shard_map`s and `pmap`s shard it into single elements."""
        return {d.name: d.mapped for d in self.dimensions if d.mapped and d.name not in self.decisions}

    @cached_property
    def taken(self) -> dict[str, tuple[str, ...]]:
        """Dimension → axes by which the program's `shard_map`s take it sharded; inputs sharded like this need no
        resharding."""
        free = (d for d in self.dimensions if d.taken and d.name not in self.decisions)
        return {d.name: d.taken for d in free if set(d.taken) <= set(self.names)}

    def part(self, name: str) -> tuple[Argument, ...]:
        """Return the arguments of a part of the state."""
        return tuple(a for a in self.state if (a.name in self.optimizer) == (name == OPTIMIZER))

    def starts(self) -> list[list[Choice]]:
        """Return the starting choices for each mesh shape, in three tiers.

        First come the given plan and the best preset of one and two axes, then their other presets, then the presets of
        three axes.
        """
        tiers: list[list[Choice]] = [[], [], []]
        if self.begun is not None:
            tiers[0] += [self.begun, replace(self.begun, based=False)]
        for mesh in self.meshes:
            choice = Choice(mesh)
            for name, axes in (*self.decisions.items(), *self.mapped.items()):
                choice = choice.with_axes(name, axes)
            if mesh == self.meshes[0]:
                tiers[1].append(choice)
            presets, many = list(self._presets(choice)), len(choice.axes)
            if many > 2:
                tiers[2] += presets
            else:
                first = len(presets) if many == 1 else 2 if self.taken else 1
                tiers[0] += presets[:first]
                tiers[1] += presets[first:]
        return [tier for tier in tiers if tier]

    def _presets(self, choice: Choice) -> Iterator[Choice]:
        """Yield the presets on a mesh shape, the most promising first."""
        free = [d for d in self.dimensions if d.name not in self.decisions]
        batch = next((d.name for d in free if d.of == "batch"), None)
        sequence = next((d.name for d in free if d.of == "sequence"), None)
        axes = choice.axes
        last, rest = axes[-1:], axes[:-1]

        def data(choice: Choice, by: Sequence[str]) -> Choice:
            return choice if batch is None else choice.with_axes(batch, by)

        if not axes:
            return
        if self.taken:
            own = choice
            for name, by in self.taken.items():
                own = own.with_axes(name, tuple(a for a in by if a in axes))
            yield own
        whole = data(choice, axes)
        if not rest:
            yield self._sharded(whole, axes)
            yield whole
            yield self._sharded(whole, axes, (OPTIMIZER,))
            yield self._tensor(choice, last)
            return
        tensor = self._tensor(data(choice, rest), last)
        yield self._sharded(tensor, rest)
        yield self._sharded(whole, last)
        yield self._sharded(tensor, rest[-1:])
        if sequence is not None:
            yield self._sharded(data(choice, rest).with_axes(sequence, last), axes)

    @cached_property
    def given(self) -> Choice:
        """The plan to improve as a choice: each dimension has the axes that most of its members have."""
        assert self.base is not None
        mesh = self.base.mesh.shape
        others = ((name, 1) for name in self.names if name not in mesh)
        choice = Choice((*mesh.items(), *others), based=True)
        for dimension in self.dimensions:
            dims = (self.base_specs[m.path].dims[m.dimension] for m in dimension.arguments)
            members = Counter(tuple(map(axis_name, axes)) for axes in dims)
            choice = choice.with_axes(dimension.name, max(members, key=lambda axes: (members[axes], axes), default=()))
        return choice

    @cached_property
    def begun(self) -> Choice | None:
        """The plan to improve with the pins applied; None if there is no such plan, or its mesh is excluded."""
        if self.base is None or (self.mesh is not None and self.mesh.shape != self.base.mesh.shape):
            return None
        choice = self.given
        for name, axes in self.decisions.items():
            choice = choice.with_axes(name, axes)
        return choice if self._allowed(choice.sizes) else None

    def _sharded(self, choice: Choice, axes: Sequence[str], parts: Sequence[str] = PARTS) -> Choice:
        for part in parts:
            if self.part(part):
                choice = choice.with_axes(part, axes)
        return choice

    def _tensor(self, choice: Choice, axes: Sequence[str]) -> Choice:
        """Return the choice with the dimensions between the layers' products sharded along these axes, once per
        array."""
        taken: set[str] = set()
        size = math.prod(choice.sizes[a] for a in axes)
        for dimension in self.inner:
            paths = {m.path for m in dimension.arguments}
            if dimension.name not in self.decisions and dimension.size % size == 0 and taken.isdisjoint(paths):
                taken |= paths
                choice = choice.with_axes(dimension.name, axes)
        return choice

    def moves(self, choice: Choice) -> Iterator[tuple[str, Choice]]:
        """Yield the choices that differ in one decision, each with the decision's name."""
        free = [d for d in self.dimensions if d.name not in self.decisions]
        for axis in choice.axes:
            parts = [part for part in PARTS if self.part(part)]
            if len(parts) == 2 and (axis in choice.by(PARAMETERS)) == (axis in choice.by(OPTIMIZER)):
                yield "state", _toggled(choice, axis, *parts)
            for part in parts:
                yield part, _toggled(choice, axis, part)
            for dimension in free:
                if axis in choice.by(dimension.name) or self.divides(dimension, choice, axis):
                    yield dimension.name, _toggled(choice, axis, dimension.name)
        yield from (("mesh", each) for each in self._shapes(choice))
        for axis in choice.axes:
            holds = [d for d in free if axis in choice.by(d.name)]
            for old, new in itertools.product(holds, free):
                if old is not new and axis not in choice.by(new.name) and self.divides(new, choice, axis):
                    yield old.name, _toggled(_toggled(choice, axis, old.name), axis, new.name)

    def divides(self, dimension: Dimension, choice: Choice, axis: str) -> bool:
        """Whether one more axis can shard a dimension in at least one array.

        A dimension that a loop or a window steps along is excluded, unless a `shard_map` takes it sharded.
        """
        if dimension.undivided and not (dimension.mapped or dimension.taken):
            return False
        by = math.prod(choice.sizes[a] for a in (*choice.by(dimension.name), axis))
        return any(size % by == 0 for size in dimension.sizes)

    def key(self, plan: Plan) -> Any:
        """Return a key that plans of equal cost share: axes that the program does not name are numbered by position."""
        axes = [name for name, size in plan.mesh.shape.items() if size > 1]
        renamed = {name: name if name in self.required else str(place) for place, name in enumerate(axes)}
        specs = tuple(
            tuple(
                tuple(renamed[a] for a in dim if a in renamed) if isinstance(dim, tuple) else dim for dim in spec.dims
            )
            for _, spec in (*plan.edits, *((n, s) for n, s in plan.out_edits if s is not None))
        )
        return (
            tuple((renamed[name], plan.mesh.shape[name]) for name in axes),
            specs,
            plan.mesh.device_ids,
            plan.mesh.in_order,
        )

    def named(self, choice: Choice) -> Choice:
        """Return the choice with the invented axes named by their use.

        `data` shards the batch, `model` the dimensions between the layers' products, and `fsdp` the state alone.
        """
        if self.mesh is not None or self.required or self.sizes or self.cutting or choice.based:
            return choice
        if self.base is not None:
            return choice
        batch = {a for d in self.dimensions if d.of == "batch" for a in choice.by(d.name)}
        inner = {a for d in self.dimensions if not d.of for a in choice.by(d.name)} - batch
        wanted = {a: "data" if a in batch else "model" if a in inner else "" for a in choice.axes}
        left = sorted(self.names, key=("data", "fsdp", "model").index)
        new: dict[str, str] = {}
        for axis in choice.axes:
            if wanted[axis] in left:
                new[axis] = wanted[axis]
                left.remove(wanted[axis])
        for axis in (a for a, _ in choice.mesh if a not in new):
            new[axis] = left.pop(0)
        decisions = tuple((what, tuple(new[a] for a in axes)) for what, axes in choice.decisions)
        return replace(choice, mesh=tuple((new[axis], size) for axis, size in choice.mesh), decisions=decisions)

    def _shapes(self, choice: Choice) -> Iterator[Choice]:
        """Yield the same decisions on meshes with two axes resized or swapped."""
        if self.mesh is not None:
            return
        sizes = choice.sizes
        for give, take in itertools.permutations(self.names, 2):
            if give in self.sizes or take in self.sizes:
                continue
            for prime in _primes(sizes[give]):
                new = sizes | {give: sizes[give] // prime, take: sizes[take] * prime}
                if self._allowed(new):
                    yield replace(choice, mesh=tuple((n, new[n]) for n, _ in choice.mesh))
        if self.required:  # otherwise `key` ignores names, and `meshes` already has all orders of sizes
            for one, two in itertools.combinations(range(len(choice.mesh)), 2):
                if choice.mesh[one][1] > 1 and choice.mesh[two][1] > 1:
                    order = list(choice.mesh)
                    order[one], order[two] = order[two], order[one]
                    yield replace(choice, mesh=tuple(order))

    def _mesh(self, choice: Choice, bare: bool) -> DeviceMesh:
        if self.mesh is not None:
            return self.mesh
        shape = {n: size for n, size in choice.sizes.items() if not bare or size > 1 or n in self.required}
        mesh = DeviceMesh.of(shape or dict(choice.mesh[:1]))

        def wide(mesh):
            return [axis for axis in mesh.shape.items() if axis[1] > 1]

        base = None if self.base is None or not choice.based else self.base.mesh
        if base is None or wide(base) != wide(mesh):
            return mesh
        return replace(mesh, device_ids=base.device_ids, slice_ids=base.slice_ids, in_order=base.in_order)

    def plan(self, choice: Choice, *, bare: bool = False) -> Plan:
        """Return the plan of a choice.

        With `bare`, axes of size 1 that the program does not name are dropped. Otherwise all meshes have the same axis
        names, so that the program need not be traced anew.
        """
        sizes = choice.sizes
        decisions: dict[str, list[tuple[str, ...]]] = {a.name: [()] * len(a.shape) for a in self.arguments}
        decided = {what: axes for what, axes in choice.decisions if what not in PARTS}
        if choice.based and self.base is not None:
            if choice == self.given and all(self.base_specs[name] == spec for name, spec in self.specs.items()):
                return self.base
            decided = self._based(choice, decided, decisions)
        for name, axes in decided.items():
            for member in self.by_name[name].chosen():
                if member.role == "argument" and member.path not in self.specs:
                    _cut(
                        decisions[member.path],
                        self.shapes[member.path][member.dimension],
                        member.dimension,
                        axes,
                        sizes,
                    )
        for part in PARTS:
            axes = choice.by(part)
            for argument in self.part(part):
                if argument.name not in self.specs:
                    _cut_free(decisions[argument.name], argument.shape, axes, sizes, self.kept.get(argument.name, ()))
        specs = {name: Spec(tuple(dims)) for name, dims in decisions.items()} | dict(self.specs)
        outs = {out: specs[argument] for out, argument in self.follows.items()}
        mesh = self._mesh(choice, bare)
        if self.base is not None:  # memories, and outputs that follow no argument
            return self.base.with_mesh(mesh).with_spec(specs).with_spec(outs, output=True)
        return Plan(mesh, edits=specs, out_edits=outs)

    def _based(
        self, choice: Choice, now: dict[str, tuple[str, ...]], decisions: dict[str, list[tuple[str, ...]]]
    ) -> dict[str, tuple[str, ...]]:
        """Write the given plan's sharding into `cuts`, except for changed dimensions, and return the changed
        decisions."""
        was = dict(self.given.decisions)
        changed = {name for name in was.keys() | now.keys() if was.get(name, ()) != now.get(name, ())}
        other = {m for name in changed for m in self.by_name[name].members}
        for name, spec in self.base_specs.items():
            for d, axes in enumerate(spec.dims):
                if Member("argument", name, d) not in other:
                    _cut(decisions[name], self.shapes[name][d], d, tuple(map(axis_name, axes)), choice.sizes)
        return {name: now[name] for name in now if name in changed}

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {a.name: tuple(a.shape) for a in self.arguments}

    @cached_property
    def kept(self) -> dict[str, tuple[int, ...]]:
        """Tree path → dimensions that are pinned, or that a loop or a window steps along."""
        kept: dict[str, tuple[int, ...]] = {}
        stepped = (d.name for d in self.dimensions if d.undivided)
        for name in dict.fromkeys((*self.decisions, *stepped)):
            for m in self.by_name[name].arguments:
                kept[m.path] = (*kept.get(m.path, ()), m.dimension)
        return kept


def _cut(dims: list[tuple[str, ...]], size: int, place: int, axes: Sequence[str], sizes: Mapping[str, int]) -> None:
    """Shard an array's dimension by the axes that the array does not use yet, as far as they divide its size."""
    taken = {a for dim in dims for a in dim}
    for axis in axes:
        longer = (*dims[place], axis)
        if axis not in taken and sizes[axis] > 1 and size % math.prod(sizes[a] for a in longer) == 0:
            dims[place] = longer


def _cut_free(
    dims: list[tuple[str, ...]],
    shape: Sequence[int],
    axes: Sequence[str],
    sizes: Mapping[str, int],
    kept: Sequence[int] = (),
) -> None:
    """Shard an array by the axes it does not use yet, along its largest unsharded dimension that they divide."""
    taken = {a for dim in dims for a in dim}
    left = tuple(a for a in axes if a not in taken and sizes[a] > 1)
    by = math.prod(sizes[a] for a in left)
    places = sorted((d for d in range(len(shape)) if d not in kept), key=lambda d: (-shape[d], d))
    for place in places:
        if left and not dims[place] and shape[place] % by == 0:
            dims[place] = left
            return
    for place in places:  # minor to the axes that shard the dimension already
        whole = by * math.prod(sizes[a] for a in dims[place])
        if left and shape[place] % whole == 0:
            dims[place] = (*dims[place], *left)
            return


def _toggled(choice: Choice, axis: str, *whats: str) -> Choice:
    """Return the choice with an axis added to dimensions or parts of the state; removed if the first has it."""
    gone = axis in choice.by(whats[0])
    for what in whats:
        axes = tuple(a for a in choice.by(what) if a != axis)
        choice = choice.with_axes(what, axes if gone else (*axes, axis))
    return choice


def _factorisations(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            yield from ((first, *rest) for rest in _factorisations(number // first, parts - 1))


@functools.cache
def _primes(number: int) -> list[int]:
    divisors = [n for n in range(2, number + 1) if number % n == 0]
    return [n for n in divisors if all(n % smaller for smaller in divisors if smaller < n)]
