"""Logical dimensions: which dimensions of which arrays belong together, found out from the program itself.

A dimension of an argument is sharded along an axis of its own. Every other dimension of every argument and result is
left open, every constraint is taken out, and Shardy propagates. The dimensions to which the axis spreads belong
together, since they are multiplied, added or stored along each other. A dimension that is in no group yet seeds the
next one. So presets, edits by dimension and the search work on any function, without annotations.

The dimension of a stacked array over which a scan runs meets no other array's; those of one size below one parent in
the tree form a group. So do dimensions whose paths differ in a number only: those of unrolled layers.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardviz import _jax
from shardviz.caching import cached_property
from shardviz.display import Displayed
from shardviz.errors import ShardvizError
from shardviz.propagate.lower import Lowered
from shardviz.propagate.propagate import PROPAGATION, passed_elsewhere
from shardviz.propagate.seeding import BATCHED, KEPT, SCANNED, WINDOW, Group, Member, Opened
from shardviz.records.groups import grouped
from shardviz.records.paths import label, segments
from shardviz.tracing.trace import Argument

_NUMBERS = re.compile(r"\d+")
_ANY_LAYERS = frozenset(("kernel", "bias", "weight", "scale", "embedding", "w", "b"))  # what each layer has


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """Dimensions of several arrays that are one logical dimension of the program."""

    name: str  # `batch`, `sequence` (of token ids), `layers`, `experts`, a letter of an einsum, or a member, `w1:1`
    # the members', the most frequent first; several where a program slices, joins or repeats along it (heads)
    sizes: tuple[int, ...]
    members: tuple[Member, ...]  # which dimensions of which arguments and outputs
    stacked: bool = False  # its arrays are stacked along it, and a scan runs over them
    # weights are experts along it: each slice multiplies rows of its own; see `propagate/seeding.py`
    experts: bool = False
    window: bool = False  # it is the height or width of a convolution's kernel
    of: str = ""  # `batch` or `sequence` where it is the first or second dimension of data; else empty
    mapped: tuple[str, ...] = ()  # the mesh axes that a `shard_map` or `pmap` inside shards it by into single elements
    taken: tuple[str, ...] = ()  # the mesh axes by which a `shard_map` inside takes most arrays that have it

    @cached_property
    def conflicts(self) -> dict[str, tuple[int, ...]]:
        """Tree path → its dimensions that are members, for arrays with more than one: an axis can shard only one of
        them."""
        several = grouped((m.path, m.dimension) for m in self.members)
        return {path: tuple(dims) for path, dims in several.items() if len(dims) > 1}

    @property
    def undivided(self) -> bool:
        """Whether it is better not sharded: a loop steps along it, or a convolution's window moves over it. XLA (at the
        oldest and the newest JAX) computes wrong gradients of some kernels that are sharded by height or width."""
        return self.stacked or self.window

    @property
    def size(self) -> int:
        """The size that an axis must divide: the greatest common divisor of the members' sizes."""
        return int(np.gcd.reduce(self.sizes)) if self.sizes else 1

    @property
    def arguments(self) -> tuple[Member, ...]:
        """The members that are dimensions of arguments."""
        return tuple(m for m in self.members if m.role == "argument")

    def chosen(self, prefer: Mapping[str, int] | None = None) -> tuple[Member, ...]:
        """Return one dimension for each array: the first member, or the preferred one (tree path → dimension). Raises
        ShardvizError if a preferred dimension is no member."""
        prefer = dict(prefer or {})
        members: dict[tuple[str, str], Member] = {}
        for member in self.members:
            if member.dimension == prefer.get(member.path, member.dimension):
                members.setdefault((member.role, member.path), member)
        for path, wanted in prefer.items():
            if not any(m.path == path for m in members.values()):
                raise ShardvizError(f"dimension {self.name!r} has no member {path}:{wanted}")
        return tuple(members.values())


class Dimensions(tuple[Dimension, ...], Displayed):
    """A program's logical dimensions, the one with the most members first; found by name or by position."""

    __slots__ = ()
    __repr__ = Displayed.__repr__

    def named(self, name: str) -> Dimension:
        """Return the dimension with this name, or with this member (`w1:1`).

        Raises:
            ShardvizError: if there is none; the message lists those that there are.
        """
        for each in self:
            if name == each.name or name in map(str, each.members):
                return each
        have = ", ".join(repr(each.name) for each in self)
        raise ShardvizError(f"there is no dimension {name!r}; there are {have or 'none'}")

    def renamed(self, names: Mapping[str, str]) -> Dimensions:
        """Return the dimensions with other names (name or member → new name). Raises ShardvizError as `named`, or if
        two would have the same name."""
        new = {self.named(old).name: name for old, name in names.items()}
        dimensions = [replace(each, name=new.get(each.name, each.name)) for each in self]
        twice = [name for name, count in Counter(each.name for each in dimensions).items() if count > 1]
        if twice:
            raise ShardvizError(f"two dimensions would be called {twice[0]!r}")
        return Dimensions(dimensions)


_Arrays = Mapping[tuple[str, str], Argument]
"""A program's arrays, by role and tree path."""


def dimensions(lowered: Lowered, tell: Callable[[float], None] = lambda share: None) -> Dimensions:
    """Return the logical dimensions of a lowered program, found as described at the top of this module. `tell` is
    called with the share of the arguments' dimensions that belong to a group so far. Raises CompileError if Shardy
    crashes on the program; it runs in a separate process first."""
    traced = lowered.traced
    arrays = {("argument", a.name): a for a in traced.arguments} | {("output", o.name): o for o in traced.outputs}
    sizes = {Member(*at, d): size for at, array in arrays.items() for d, size in enumerate(array.shape)}
    with lowered.entered():
        opened = Opened(lowered)
        trial = _jax.bytecode(opened.seeded({}))
    passed_elsewhere(trial, PROPAGATION)
    with lowered.entered():
        opened.begin()
        uses = opened.uses()
    groups = _groups(lowered, opened, sizes, tell)
    for group in groups:
        group.stacked = any(m.dimension == 0 for m in group.members & uses[SCANNED])
    state = _state(arrays, groups, _hidden(groups), traced.differentiated)
    for group in groups:  # along another dimension than the first, data have a sequence where parameters have layers
        group.stacked = group.stacked or any(_head(m.path) in state for m in group.members & uses[SCANNED])
    groups = _joined(groups, lambda group: _stack(group, sizes))
    groups = _joined(groups, lambda group: _repeated(group, sizes))
    mapped = {m for group in groups if group.mapped for m in group.members}
    hidden = _hidden(groups)
    state = _state(arrays, groups, hidden, traced.differentiated)
    for group in groups:
        weights = {m for m in group.members if _head(m.path) in state}
        router = {m for m in weights if len(arrays[m[:2]].shape) < 3}
        batched = not group.stacked and not weights.isdisjoint(uses[BATCHED])
        group.experts = batched and (weights - router).isdisjoint(uses[KEPT])
        if not (group.mapped or group.stacked or group.experts):
            group.of = _data(group.members, arrays, state, hidden) or _data(group.members, arrays, state, mapped)
        group.window = not weights.isdisjoint(uses[WINDOW])
        group.taken = opened.taken(group.members)
    return Dimensions(_named(groups, sizes, arrays))


def _hidden(groups: Iterable[Group]) -> set[Member]:
    """Return the dimensions that are not visible inside: a `shard_map` shards them into single elements, or a loop
    steps along them."""
    return {m for group in groups if group.mapped or group.stacked for m in group.members}


def _groups(
    lowered: Lowered, opened: Opened, sizes: Mapping[Member, int], tell: Callable[[float], None]
) -> list[Group]:
    """Return a group for each seed that is in no group yet.

    The seeds of unrolled layers have paths that differ only in numbers. One of these seeds is tried alone. Its group,
    with other numbers, is what the other seeds should find; one axis along all of them confirms it. If the axis spreads
    otherwise, each of these seeds is tried with its own axis.
    """
    groups = [Group(members, Counter(axes), mapped=axes) for axes, members in opened.used_up(sizes).items()]
    placed = {m for group in groups for m in group.members}
    free = [seed for seed in sizes if seed.role == "argument" and sizes[seed] > 1 and seed not in placed]
    kinds = [*grouped(((_NUMBERS.sub("#", s.path), s.dimension, sizes[s]), s) for s in free).values()]

    def caught(seeds: Sequence[Sequence[Member]]) -> list[Group]:
        with lowered.entered():  # each time anew: who edits meanwhile waits for one pass, not for all of them
            found = opened.caught(seeds, sizes)
        for group, some in zip(found, seeds, strict=True):
            group.members = {m for m in group.members if sizes.get(m, 0) > 1} | {*some}
        return found

    def add(found: Iterable[Group]) -> None:
        """Add groups. Groups that share a dimension are merged."""
        for group in found:
            for other in [g for g in groups if not g.members.isdisjoint(group.members)]:
                group.take(other)
                groups.remove(other)
            groups.append(group)
            placed.update(group.members)
        tell(len(placed.intersection(free)) / len(free))

    expected: dict[Member, tuple[list[Member], list[Group]]] = {}  # by the first of the seeds: all, and their groups
    likely = set[Member]()
    for of_a_kind in kinds:
        left = [seed for seed in of_a_kind if seed not in placed and seed not in likely]
        if not left:
            continue
        tried = max(left, key=lambda seed: [*map(int, _NUMBERS.findall(seed.path))])
        (group,) = caught([[tried]])
        add([group])
        others = [seed for seed in left if seed not in placed]
        layers = [_of_layer(group, tried, seed) for seed in others]
        if others and all(layer.members <= sizes.keys() for layer in layers):
            expected[others[0]] = others, layers
            likely.update(*(layer.members for layer in layers))
    for firsts in opened.batches([*expected], sizes):
        found = caught([expected[first][0] for first in firsts])
        for group, first in zip(found, firsts, strict=True):
            layers = expected[first][1]
            if group.members == set[Member]().union(*(layer.members for layer in layers)):
                add(layers)
    for of_a_kind in kinds:
        for some in _batches(of_a_kind, groups, opened, sizes):
            if left := [[seed] for seed in some if seed not in placed]:
                add(caught(left))
    return groups


def _of_layer(group: Group, seed: Member, other: Member) -> Group:
    """Return the group that another layer's seed should find: the numbers in which the seeds' paths differ are replaced
    in all paths."""
    ours, theirs = (_NUMBERS.findall(each.path) for each in (seed, other))
    numbers = {was: now for was, now in zip(ours, theirs, strict=True) if was != now}

    def renamed(path: str) -> str:
        return _NUMBERS.sub(lambda number: numbers.get(number[0], number[0]), path)

    return Group({m._replace(path=renamed(m.path)) for m in group.members}, Counter(group.letters))


def _batches(
    of_a_kind: Sequence[Member], groups: Sequence[Group], opened: Opened, sizes: Mapping[Member, int]
) -> Iterator[Sequence[Member]]:
    """Return the seeds that can be tried together: the first alone; then those that differ from each other in no number
    in which the first group's members differ. A parameter and its momentum in one tuple do, and their axes would block
    each other."""
    first, *others = of_a_kind
    yield [first]
    own = next((g.members & {*of_a_kind} for g in groups if first in g.members), {first})

    def numbers(seed):
        return _NUMBERS.findall(seed.path)

    shared = [place for place, at in enumerate(zip(*map(numbers, own), strict=True)) if len(set(at)) > 1]
    for apart in grouped((tuple(numbers(seed)[n] for n in shared), seed) for seed in others).values():
        yield from opened.batches(apart, sizes)


def _joined(groups: Iterable[Group], key: Callable[[Group], Any]) -> list[Group]:
    """Return the groups with those of equal keys merged, unless an array would be in one twice. A key of None merges
    nothing."""
    joined: list[Group] = []
    alike: dict[Any, Group] = {}
    for group in groups:
        of = key(group)
        if of is not None and of in alike and _arrays(group).isdisjoint(_arrays(alike[of])):
            alike[of].take(group)
        else:
            joined.append(group)
            alike[of] = group
    return joined


def _arrays(group: Group) -> set[tuple[str, str]]:
    return {(m.role, m.path) for m in group.members}


def _stack(group: Group, sizes: Mapping[Member, int]) -> Any:
    """Return the size and the parent path (`layers` of `params['layers']['wq']`) of the dimension that a scan runs
    over; None for another dimension."""
    first = min(group.members)
    return (sizes[first], ".".join(_keys(first.path)[1:-1])) if group.stacked else None


def _repeated(group: Group, sizes: Mapping[Member, int]) -> Any:
    """Return the members without the numbers of layers in their paths; None if no path has one. A number above an
    array's own name is a layer's. A number inside the name is one only if all members have the same: `c2` and `c3` of
    one block are two weights."""
    parts = [(m, m.path.removesuffix(key), key) for m in group.members for key in ("".join(segments(m.path)[1:][-1:]),)]
    own = {number for *_, key in parts for number in _NUMBERS.findall(key)}

    def name(key):
        return _NUMBERS.sub("#", key) if len(own) == 1 else key

    plain = frozenset((m.role, _NUMBERS.sub("#", above) + name(key), m.dimension, sizes[m]) for m, above, key in parts)
    return plain if any("#" in path for _, path, *_ in plain) else None


def _keys(path: str) -> list[str]:
    """Return the keys of a tree path, an index also without its brackets: `params`, `layers`, `0` of
    `params['layers'][0]`."""
    return [label(segment).strip("[]") for segment in segments(path)]


def _leaf(path: str) -> str:
    return _keys(path)[-1]


def _named(groups: Sequence[Group], sizes: Mapping[Member, int], arrays: _Arrays) -> Iterator[Dimension]:
    """Return the groups with their names, the one with the most members first."""
    taken: set[str] = set()

    def order(group):
        return (-len(group.members), min(group.members))

    for group in sorted(groups, key=order):
        members = sorted(group.members, key=lambda m: (m.role, len(_keys(m.path)), m.path, m.dimension))
        proposed = itertools.chain(_roles(group), _own_names(members, arrays))
        name = next(name for name in proposed if name not in taken)
        taken.add(name)
        yield Dimension(
            name=name,
            sizes=tuple(size for size, _ in Counter(sizes[m] for m in members).most_common()),
            members=tuple(members),
            stacked=group.stacked,
            experts=group.experts,
            window=group.window,
            of=group.of,
            mapped=group.mapped,
            taken=group.taken,
        )


def _state(arrays: _Arrays, groups: Sequence[Group], hidden: Set[Member], differentiated: bool) -> set[str]:
    """Return the arguments that are parameters or optimizer state, not data. An array that is not in a tree is data. A
    tree that is also returned is state if the program has a derivative; otherwise it is a cache, which is data. If the
    program takes token ids, trees that share no dimension with them are parameters; otherwise the tree with the largest
    array is, and a tree with names before one with numbers only, such as `args[0]` of `apply(variables, *args)`."""
    arguments = [a for (role, _), a in arrays.items() if role == "argument" and a.shape]
    outputs = {(_leaf(path), a.shape) for (role, path), a in arrays.items() if role == "output"}
    returned = {_head(a.name) for a in arguments if (_leaf(a.name), a.shape) in outputs}
    trees = [a for a in arguments if len(segments(a.name)) > 1] or arguments
    batches = (g.members for g in groups if not g.members & hidden and _of_ids(g.members, arrays, hidden, 0))
    with_ids = {_head(m.path) for members in batches for m in members if m.role == "argument"}
    others = [a for a in trees if _head(a.name) not in with_ids and (differentiated or _head(a.name) not in returned)]
    without_ids = {_head(a.name) for a in others} if with_ids else set()
    state = returned | without_ids if differentiated else without_ids
    if state or not trees:
        return state
    candidates = trees if differentiated else others or trees
    candidates = [a for a in candidates if not all(map(str.isdecimal, _keys(a.name)[1:]))] or candidates
    return {_head(max(candidates, key=lambda a: math.prod(a.shape)).name)}


def _roles(group: Group) -> Iterator[str]:
    """Return a dimension's name by its role: `batch`, `layers`, `experts`, or its letter in einsums."""
    if group.of:
        yield group.of
    if group.stacked:
        yield "layers"
    if group.experts:
        yield "experts"
    if group.letters:
        yield min(group.letters, key=lambda letter: (-group.letters[letter], letter))


def _data(members: Set[Member], arrays: _Arrays, state: Set[str], hidden: Set[Member]) -> str:
    """Return `batch` or `sequence` for a dimension of data (not of an argument in `state`); empty for another
    dimension. `hidden` dimensions are not visible inside, as of `_hidden`."""
    arguments = [m for m in members if m.role == "argument"]
    data = bool(arguments) and state.isdisjoint(_head(m.path) for m in arguments)
    for place, name, ranks in ((0, "batch", range(1, 65)), (1, "sequence", (3,))):  # images have heights there
        seen = (_seen(m, arrays, hidden) for m in arguments)
        if _of_ids(members, arrays, hidden, place) or (data and all(d == place and r in ranks for d, r in seen)):
            return name
    return ""


def _of_ids(members: Set[Member], arrays: _Arrays, hidden: Set[Member], place: int) -> bool:
    """Return whether token ids, labels or the like have a dimension at this position."""
    ids = (m for m in members if m.role == "argument" and "int" in arrays[m[:2]].dtype)
    return any(d == place and rank <= 2 for d, rank in (_seen(m, arrays, hidden) for m in ids))


def _seen(member: Member, arrays: _Arrays, hidden: Set[Member]) -> tuple[int, int]:
    """Return the position of a dimension among those of its array that are not hidden, and how many these are."""
    shown = [d for d in range(len(arrays[member[:2]].shape)) if member._replace(dimension=d) not in hidden]
    return sum(d < member.dimension for d in shown), len(shown)


def _own_names(members: Sequence[Member], arrays: _Arrays) -> Iterator[str]:
    """Return names by a member, a matrix before others: `w1:1`, then with more and more of its path: `layers.w1:1`. A
    position in a list, or a word that all layers of a library have, is no name: `params.0:1`, `down.kernel:0`."""
    ranked = sorted(members, key=lambda m: (len(arrays[m[:2]].shape) < 2, len(_keys(m.path)), len(_leaf(m.path)), m))
    for length in itertools.count(1):
        for m in ranked:
            keys = _keys(m.path)
            plain = [place for place, key in enumerate(reversed(keys)) if not key.isdecimal()]
            telling = (place for place in plain if place + 1 < len(keys) and keys[-place - 1] not in _ANY_LAYERS)
            named = next(telling, min(plain, default=0))
            yield f"{'.'.join(keys[-max(length, named + 1) :])}:{m.dimension}"


def _head(path: str) -> str:
    return segments(path)[0]
