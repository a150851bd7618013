"""What a search chooses among: mesh shapes, which axes shard which logical dimension, and which shard the state.

A `Choice` is a mesh and what is decided on it:

    data=8,model=8 | batch: data | w1:2: model | parameters: data

`Space.plan` makes the plan of a choice, in the way a person would write it: every member of a dimension is sharded
alike, as far as its size divides; state that nothing else shards is sharded along its largest free dimension (FSDP:
ZeRO-3; of the optimizer's state alone: ZeRO-1); and what comes out in the place of an argument is sharded as that
argument is. Arrays that the person pinned, or that the given plan says and no decision touches, stay as they are.
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
from shardviz.program.dimensions import Dimension, Member
from shardviz.program.plan import Plan
from shardviz.program.trace import Argument

MOST_AXES = 3
_NAMES = ("data", "model", "fsdp", "expert", "tensor")
PARAMETERS, OPTIMIZER = "parameters", "optimizer state"
PARTS = (PARAMETERS, OPTIMIZER)


@dataclass(frozen=True)
class Choice:
    """A candidate.

    Attributes:
        mesh: (axis, size), major to minor.
        cuts: (logical dimension, the axes that shard it), in the order in which they were decided; then of `PARTS` of
            the state (the part, the axes that shard its arrays along their largest free dimension).
        based: what no decision touches is as in the plan that is to be improved.
    """

    mesh: tuple[tuple[str, int], ...]
    cuts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    based: bool = False

    @property
    def sizes(self) -> dict[str, int]:
        """Axis → size."""
        return dict(self.mesh)

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of more than one device."""
        return tuple(name for name, size in self.mesh if size > 1)

    def by(self, what: str) -> tuple[str, ...]:
        """The axes that shard a dimension, or a part of the state."""
        return dict(self.cuts).get(what, ())

    def cut(self, what: str, axes: Sequence[str]) -> Choice:
        """With a dimension, or a part of the state, sharded along these axes; none for none."""
        cuts = [*(pair for pair in self.cuts if pair[0] != what), *([(what, tuple(axes))] if axes else ())]
        cuts.sort(key=lambda pair: PARTS.index(pair[0]) if pair[0] in PARTS else -1)
        return replace(self, cuts=tuple(cuts))

    @property
    def text(self) -> str:
        """`data=8,model=8; batch by data; parameters by data`."""
        mesh = ",".join(f"{name}={size}" for name, size in self.mesh if size > 1) or "one device"
        sizes = self.sizes
        cuts = [(what, tuple(a for a in axes if sizes[a] > 1)) for what, axes in self.cuts]
        return "; ".join([mesh, *(f"{what} by {' and '.join(axes)}" for what, axes in cuts if axes)])


@dataclass(frozen=True, kw_only=True)
class Space(Parts):
    """What there is to choose among, for one program on so many devices.

    Attributes:
        machine: whose devices the meshes are of.
        required: axes that the program itself names, which every mesh has to have.
        follows: output → the argument whose place it takes.
        base: the plan that is to be improved; None to begin with nothing sharded.
        base_specs: its argument specs, full-rank.
        mesh: the one mesh that is wanted; None for any.
        specs: tree path → spec of an argument that must stay.
        cuts: dimension → axes that must stay.
        sizes: axis → size that must stay.
    """

    machine: Machine
    required: tuple[str, ...] = ()
    follows: Mapping[str, str] = field(default_factory=dict)
    base: Plan | None = None
    base_specs: Mapping[str, Spec] = field(default_factory=dict)
    mesh: DeviceMesh | None = None
    specs: Mapping[str, Spec] = field(default_factory=dict)
    cuts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The axes of the meshes that are tried, major to minor."""
        if self.mesh is not None:
            return self.mesh.names
        required = (*self.required, *self.sizes, *self.cutting)
        base = () if self.base is None else self.base.mesh.names
        candidates = tuple(dict.fromkeys((*required, *base, *_NAMES)))
        most = max(MOST_AXES, len(set(required)), len(base))
        chosen = set(candidates[:most])
        # of the usual names in their usual order: the last axis is the one that talks most
        order = {name: place for place, name in enumerate((*base, "data", "fsdp", "expert", "model", "tensor"))}
        return tuple(sorted(chosen, key=lambda n: (order.get(n, -1), n)))

    @cached_property
    def meshes(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """Every mesh shape: factorisations of the devices over the axes; see `_order`."""
        if self.mesh is not None:
            return (tuple(self.mesh.shape.items()),)
        sizes = _factorisations(self.machine.size, len(self.names))
        shapes = (tuple(zip(self.names, each, strict=True)) for each in sizes)
        return tuple(sorted((mesh for mesh in shapes if self._allowed(dict(mesh))), key=self._order))

    def _order(self, mesh: tuple[tuple[str, int], ...]) -> tuple[Any, ...]:
        """Few axes first; of as many, those that the program names; then what is most even; of names that mean the same
        the outer ones, so that one axis is `data` and two are `data` and `model`."""
        idle = sum(size == 1 for name, size in mesh if name in self.required)
        sizes = [size for _, size in mesh]
        wide = [size > 1 for size in sizes]
        return sum(wide), idle, max(sizes), sum(wide[1:-1]), [-size for size in sizes]

    def _allowed(self, shape: Mapping[str, int]) -> bool:
        """Whether a mesh has the pinned axes: of the pinned sizes, and of more than one device where they must
        shard."""
        cutting = all(shape[axis] > 1 for axis in self.cutting)
        return cutting and all(shape[axis] == size for axis, size in self.sizes.items())

    @cached_property
    def cutting(self) -> tuple[str, ...]:
        """The axes along which pins shard something."""
        by_cuts = [a for axes in self.cuts.values() for a in axes]
        return tuple(dict.fromkeys((*by_cuts, *(axis_name(a) for spec in self.specs.values() for a in spec.axes))))

    @cached_property
    def by_name(self) -> dict[str, Dimension]:
        return {d.name: d for d in self.dimensions}

    @cached_property
    def mapped(self) -> dict[str, tuple[str, ...]]:
        """The dimensions that the program's own `shard_map`s and `pmap`s shard into single elements, and by what."""
        return {d.name: d.mapped for d in self.dimensions if d.mapped and d.name not in self.cuts}

    @cached_property
    def taken(self) -> dict[str, tuple[str, ...]]:
        """The dimensions that the program's own `shard_map`s take sharded, and by what: then none moves on its way
        in."""
        free = (d for d in self.dimensions if d.taken and d.name not in self.cuts)
        return {d.name: d.taken for d in free if set(d.taken) <= set(self.names)}

    def part(self, name: str) -> tuple[Argument, ...]:
        """The arguments of a part of the state."""
        return tuple(a for a in self.state if (a.name in self.optimizer) == (name == OPTIMIZER))

    def starts(self) -> list[list[Choice]]:
        """What a person would try first on each mesh shape, the given plan and then the presets: what is most likely
        the best of one and two axes, then the rest of these, then what three axes have."""
        tiers: list[list[Choice]] = [[], [], []]
        if self.begun is not None:
            tiers[0] += [self.begun, replace(self.begun, based=False)]
        for mesh in self.meshes:
            choice = Choice(mesh)
            for name, axes in (*self.cuts.items(), *self.mapped.items()):
                choice = choice.cut(name, axes)
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
        """The presets on a mesh shape, what is most likely the best first."""
        free = [d for d in self.dimensions if d.name not in self.cuts]
        batch = next((d.name for d in free if d.of == "batch"), None)
        sequence = next((d.name for d in free if d.of == "sequence"), None)
        axes = choice.axes
        last, rest = axes[-1:], axes[:-1]

        def data(made: Choice, by: Sequence[str]) -> Choice:
            return made if batch is None else made.cut(batch, by)

        if not axes:
            return
        if self.taken:
            own = choice
            for name, by in self.taken.items():
                own = own.cut(name, tuple(a for a in by if a in axes))
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
            yield self._sharded(data(choice, rest).cut(sequence, last), axes)

    @cached_property
    def given(self) -> Choice:
        """The plan that is to be improved, as a choice: each dimension with the axes that most of its members have."""
        assert self.base is not None
        mesh = self.base.mesh.shape
        others = ((name, 1) for name in self.names if name not in mesh)
        choice = Choice((*mesh.items(), *others), based=True)
        for dimension in self.dimensions:
            dims = (self.base_specs[m.path].dims[m.dimension] for m in dimension.arguments)
            members = Counter(tuple(map(axis_name, axes)) for axes in dims)
            choice = choice.cut(dimension.name, max(members, key=lambda axes: (members[axes], axes), default=()))
        return choice

    @cached_property
    def begun(self) -> Choice | None:
        """The plan that is to be improved, with what is pinned; None where there is none, or its mesh is not wanted."""
        if self.base is None or (self.mesh is not None and self.mesh.shape != self.base.mesh.shape):
            return None
        choice = self.given
        for name, axes in self.cuts.items():
            choice = choice.cut(name, axes)
        return choice if self._allowed(choice.sizes) else None

    def _sharded(self, choice: Choice, axes: Sequence[str], parts: Sequence[str] = PARTS) -> Choice:
        for part in parts:
            if self.part(part):
                choice = choice.cut(part, axes)
        return choice

    def _tensor(self, choice: Choice, axes: Sequence[str]) -> Choice:
        """What lies between the layers' products sharded along these axes, once in an array."""
        taken: set[str] = set()
        size = math.prod(choice.sizes[a] for a in axes)
        for dimension in self.inner:
            paths = {m.path for m in dimension.arguments}
            if dimension.name not in self.cuts and dimension.size % size == 0 and taken.isdisjoint(paths):
                taken |= paths
                choice = choice.cut(dimension.name, axes)
        return choice

    def moves(self, choice: Choice) -> Iterator[tuple[str, Choice]]:
        """What may be decided otherwise, one thing at a time: what is decided, and the other choice."""
        free = [d for d in self.dimensions if d.name not in self.cuts]
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
        """Whether a dimension can be sharded by one axis more, in one array at least; none that a loop or a window goes
        along, unless a `shard_map` takes it so."""
        if dimension.undivided and not (dimension.mapped or dimension.taken):
            return False
        by = math.prod(choice.sizes[a] for a in (*choice.by(dimension.name), axis))
        return any(size % by == 0 for size in dimension.sizes)

    def key(self, plan: Plan) -> Any:
        """What two plans have in common that cost the same: axes that the program does not name are known by their
        places among those of more than one device."""
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
        """The choice with the axes that the search has invented called by what they shard: `data` the batch, `model`
        what lies between the layers' products, `fsdp` the state alone where there is a `data`."""
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
        cuts = tuple((what, tuple(new[a] for a in axes)) for what, axes in choice.cuts)
        return replace(choice, mesh=tuple((new[axis], size) for axis, size in choice.mesh), cuts=cuts)

    def _shapes(self, choice: Choice) -> Iterator[Choice]:
        """The same decisions on meshes of which two axes have other sizes, or have changed places."""
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
        if self.required:  # without, axes are known by their places alone, and the sizes have all orders
            for one, two in itertools.combinations(range(len(choice.mesh)), 2):
                if choice.mesh[one][1] > 1 and choice.mesh[two][1] > 1:
                    order = list(choice.mesh)
                    order[one], order[two] = order[two], order[one]
                    yield replace(choice, mesh=tuple(order))

    def _mesh(self, choice: Choice, bare: bool) -> DeviceMesh:
        """The mesh of a choice; see `plan`."""
        if self.mesh is not None:
            return self.mesh
        shape = {n: size for n, size in choice.sizes.items() if not bare or size > 1 or n in self.required}
        mesh = DeviceMesh.of(shape or dict(choice.mesh[:1]))
        wide = lambda mesh: [axis for axis in mesh.shape.items() if axis[1] > 1]  # noqa: E731
        base = None if self.base is None or not choice.based else self.base.mesh
        if base is None or wide(base) != wide(mesh):
            return mesh
        return replace(mesh, device_ids=base.device_ids, slice_ids=base.slice_ids, in_order=base.in_order)

    def plan(self, choice: Choice, *, bare: bool = False) -> Plan:
        """The plan of a choice; `bare`: without axes of one device that the program does not ask for. With them all
        meshes have the same names, and the program need not be traced anew."""
        sizes = choice.sizes
        cuts: dict[str, list[tuple[str, ...]]] = {a.name: [()] * len(a.shape) for a in self.arguments}
        decided = {what: axes for what, axes in choice.cuts if what not in PARTS}
        if choice.based and self.base is not None:
            if choice == self.given and all(self.base_specs[name] == spec for name, spec in self.specs.items()):
                return self.base
            decided = self._based(choice, decided, cuts)
        for name, axes in decided.items():
            for member in self.by_name[name].chosen():
                if member.role == "argument" and member.path not in self.specs:
                    _cut(cuts[member.path], self.shapes[member.path][member.dimension], member.dimension, axes, sizes)
        for part in PARTS:
            axes = choice.by(part)
            for argument in self.part(part):
                if argument.name not in self.specs:
                    _cut_free(cuts[argument.name], argument.shape, axes, sizes, self.kept.get(argument.name, ()))
        specs = {name: Spec(tuple(dims)) for name, dims in cuts.items()} | dict(self.specs)
        outs = {out: specs[argument] for out, argument in self.follows.items()}
        mesh = self._mesh(choice, bare)
        if self.base is not None:  # memories, and outputs that follow no argument
            return self.base.with_mesh(mesh).with_spec(specs).with_spec(outs, output=True)
        return Plan(mesh, edits=specs, out_edits=outs)

    def _based(
        self, choice: Choice, now: dict[str, tuple[str, ...]], cuts: dict[str, list[tuple[str, ...]]]
    ) -> dict[str, tuple[str, ...]]:
        """Writes what the given plan shards, but for the dimensions of which something else is decided; what is
        decided."""
        was = dict(self.given.cuts)
        changed = {name for name in was.keys() | now.keys() if was.get(name, ()) != now.get(name, ())}
        other = {m for name in changed for m in self.by_name[name].members}
        for name, spec in self.base_specs.items():
            for d, axes in enumerate(spec.dims):
                if Member("argument", name, d) not in other:
                    _cut(cuts[name], self.shapes[name][d], d, tuple(map(axis_name, axes)), choice.sizes)
        return {name: now[name] for name in now if name in changed}

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Tree path → shape, of the arguments."""
        return {a.name: tuple(a.shape) for a in self.arguments}

    @cached_property
    def kept(self) -> dict[str, tuple[int, ...]]:
        """Tree path → dimensions of which it is pinned what shards them, or along which a loop or a window goes."""
        kept: dict[str, tuple[int, ...]] = {}
        stepped = (d.name for d in self.dimensions if d.undivided)
        for name in dict.fromkeys((*self.cuts, *stepped)):
            for m in self.by_name[name].arguments:
                kept[m.path] = (*kept.get(m.path, ()), m.dimension)
        return kept


def _cut(dims: list[tuple[str, ...]], size: int, place: int, axes: Sequence[str], sizes: Mapping[str, int]) -> None:
    """Cuts an array's dimension by the axes that nothing else in it has, as far as they divide."""
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
    """Shards an array along its largest dimension that nothing shards and that divides, by the axes that it has not
    yet."""
    taken = {a for dim in dims for a in dim}
    left = tuple(a for a in axes if a not in taken and sizes[a] > 1)
    by = math.prod(sizes[a] for a in left)
    places = sorted((d for d in range(len(shape)) if d not in kept), key=lambda d: (-shape[d], d))
    for place in places:
        if left and not dims[place] and shape[place] % by == 0:
            dims[place] = left
            return
    for place in places:  # behind what shards it already
        whole = by * math.prod(sizes[a] for a in dims[place])
        if left and shape[place] % whole == 0:
            dims[place] = (*dims[place], *left)
            return


def _toggled(choice: Choice, axis: str, *whats: str) -> Choice:
    """The choice with an axis more on dimensions or parts of the state; without it, where the first has it."""
    gone = axis in choice.by(whats[0])
    for what in whats:
        axes = tuple(a for a in choice.by(what) if a != axis)
        choice = choice.cut(what, axes if gone else (*axes, axis))
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
    """The prime factors of a number, each once."""
    divisors = [n for n in range(2, number + 1) if number % n == 0]
    return [n for n in divisors if all(n % smaller for smaller in divisors if smaller < n)]
