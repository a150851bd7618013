"""The arrays of a program: the rows of their tree, and their twins, which should be sharded alike.

Two arrays are twins if they have the same shape and the same path below similar trees, ignoring layer numbers. Similar
trees are, for example, `params` and `momentum`, `state.params` and `state.opt[0].mu`, or a step's arguments and its
result. If logical dimensions are known, twins also have the same ones. Paths do not depend on the plan, so the results
are cached.

>>> [(b.label, b.depth, b.leaves) for b in tree(("p['a']['x']", "p['a']['y']", "t"))]
[('p', 0, 2), ('a', 1, 2), ('x', 2, 0), ('y', 2, 0), ('t', 0, 0)]
>>> layers = [f"params['layers'][{i}]['wq']" for i in range(2)] + [f"mu['layers'][{i}]['wq']" for i in range(2)]
>>> found = twins_of(tuple((name, (8, 8)) for name in layers), ())
>>> [name for _, name in found.twins("params['layers'][0]['wq']")]
["params['layers'][1]['wq']", "mu['layers'][0]['wq']", "mu['layers'][1]['wq']"]
>>> [name for _, name in found.twins("params['layers'][0]['wq']", layers=True)]
["params['layers'][1]['wq']"]
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, combinations
from typing import TYPE_CHECKING, Any

from shardviz.errors import SpecError
from shardviz.records.paths import label, segments, without_numbers

if TYPE_CHECKING:
    from shardviz.judge.report import Report
    from shardviz.propagate.dimensions import Dimensions, Member
    from shardviz.records import Value
    from shardviz.records.report import PlanRecord

_KEPT = 16  # cached programs (and traces on other meshes)


@dataclass(frozen=True)
class Branch:
    """A row of the tree: a branch, or a leaf if `inside` is empty.

    Attributes:
        segment: the last part of the path.
        inside: the positions of its leaves among the names.
    """

    path: str
    segment: str
    depth: int
    inside: Sequence[int] = ()

    @property
    def label(self) -> str:
        """The segment in the user's notation."""
        return label(self.segment)

    @property
    def leaves(self) -> int:
        """Number of leaves below it; 0 for a leaf."""
        return len(self.inside)


@lru_cache(maxsize=_KEPT)
def tree(names: tuple[str, ...]) -> tuple[Branch, ...]:
    """Return the rows of a tree of paths, depth first, in the given order."""
    branches = [list(accumulate(segments(name)[:-1])) for name in names]  # the paths of each leaf's ancestors
    inside: dict[str, list[int]] = defaultdict(list)
    for place, paths in enumerate(branches):
        for path in paths:
            inside[path].append(place)
    rows: list[Branch] = []
    above: list[str] = []  # the branches that are open
    for name, paths in zip(names, branches, strict=True):
        for depth, path in enumerate(paths):
            if above[depth : depth + 1] != [path]:
                above[depth:] = [path]
                rows.append(Branch(path, segments(path)[-1], depth, inside[path]))
        del above[len(paths) :]
        rows.append(Branch(name, (segments(name) or (name,))[-1], len(paths)))
    return tuple(rows)


_SHARE = 0.3  # of the largest argument's arrays: parameters and two moments are almost a third each
_BLOCK = 3  # a key with a number is a layer if it has at least this many arrays, unlike `w1` and `w2`
_INDEX = re.compile(r"\[\d+\]|\['\d+'\]|\.\d+")

Role = tuple[str, str]
"""`argument` or `output`, and the tree path."""
Arrays = tuple[tuple[str, tuple[int, ...]], ...]
"""(Tree path, shape) of each array."""
Named = tuple[tuple[str, tuple["Member", ...]], ...]
"""(Name, members) of each logical dimension."""
_Path = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Twins:
    """Groups of twins.

    Attributes:
        group: array → the index of its group, if it has a twin.
        groups: the groups, in the program's order.
        own: array → its path without layer numbers, which is equal for the same leaf of every layer.
    """

    group: Mapping[Role, int]
    groups: Sequence[Sequence[Role]]
    own: Mapping[Role, str]

    def twins(self, name: str, bound: PlanRecord | None = None, layers: bool = False) -> Iterator[Role]:
        """Yield an argument's twins.

        Args:
            bound: yield only twins that this plan shards like the argument.
            layers: yield only the same leaf of other layers.

        Raises SpecError if the plan has no such argument.
        """
        own: Role = ("argument", name)
        if bound is not None and name not in bound.in_specs:
            raise SpecError(f"the program has no argument {name!r}", argument=name)
        if (place := self.group.get(own)) is None:
            return
        for twin in self.groups[place]:
            if twin == own or (layers and self.own[twin] != self.own[own]):
                continue
            specs = {} if bound is None else bound.in_specs if twin[0] == "argument" else bound.out_specs
            if bound is None or specs.get(twin[1]) == bound.in_specs[name]:
                yield twin


def twins_in(report: Report, dimensions: Dimensions | None = None) -> Twins:
    """Return the twins among a report's arguments and outputs; known logical dimensions must match."""
    arguments, outputs = (arrays_of(values) for values in (report.arguments, report.outputs))
    return twins_of(arguments, outputs, tuple((each.name, each.members) for each in dimensions or ()))


def arrays_of(values: Iterable[Value]) -> Arrays:
    """Return the tree path and shape of each value."""
    return tuple((value.name, value.shape) for value in values)


@lru_cache(maxsize=_KEPT)
def twins_of(arguments: Arrays, outputs: Arrays, dimensions: Named = ()) -> Twins:
    """Return the twins among arrays; cached, because paths do not depend on the plan."""
    roles: list[Role] = [("argument", name) for name, _ in arguments] + [("output", name) for name, _ in outputs]
    shapes = [shape for _, shape in (*arguments, *outputs)]
    paths = list(_layered(arguments, 1))
    paths += ((f"={path[0]}", *path[1:]) if path else () for path in _layered(outputs, 2))
    parent = list(range(len(roles)))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    def join(places: Sequence[int]) -> None:
        for other in places[1:]:
            parent[find(other)] = find(places[0])

    by_path: dict[tuple[_Path, tuple[int, ...]], list[int]] = defaultdict(list)
    for i, (path, shape) in enumerate(zip(paths, shapes, strict=True)):
        by_path[path, shape].append(i)
    for places in by_path.values():  # the layers
        join(places)
    for one, other in _alike(by_path):
        for key in one.keys() & other.keys():
            join([one[key], other[key]])
    of = {tuple(member): name for name, members in dimensions for member in members}
    by_group: dict[tuple[int, tuple[str, ...]], list[int]] = defaultdict(list)
    for i, (role, shape) in enumerate(zip(roles, shapes, strict=True)):
        by_group[find(i), tuple(of.get((*role, d), "") for d in range(len(shape)))].append(i)
    groups = [[roles[i] for i in places] for places in by_group.values() if len(places) > 1]
    number = {role: n for n, members in enumerate(groups) for role in members}
    return Twins(number, groups, {role: "".join(path) for role, path in zip(roles, paths, strict=True)})


@lru_cache(maxsize=_KEPT)
def layers_of(arrays: Arrays, deepest: int = 1) -> Mapping[_Path, int]:
    """Return branch → number for branches that are layers; similar layers have the same number.

    A layer has siblings with the same leaves whose path differs only by a number. The first `deepest` segments (an
    argument's name, a result's position) are never layers.
    """
    paths = [segments(name) for name, _ in arrays]
    inside: dict[_Path, list[int]] = defaultdict(list)
    for i, path in enumerate(paths):
        for depth in range(1, len(path)):
            inside[path[:depth]].append(i)
    alike: dict[Any, list[_Path]] = defaultdict(list)
    for branch, places in inside.items():
        block = len(places) >= _BLOCK or _INDEX.fullmatch(branch[-1])
        if len(branch) > deepest and block and without_numbers(branch[-1]) != branch[-1]:
            below = tuple((paths[i][len(branch) :], arrays[i][1]) for i in places)
            alike[branch[:-1], without_numbers(branch[-1]), below].append(branch)
    several = [branches for branches in alike.values() if len(branches) > 1]
    return {branch: number for number, branches in enumerate(several) for branch in branches}


def _layered(arrays: Arrays, deepest: int) -> Iterator[_Path]:
    """Yield the segments of each path, with `#` for the number of a layer."""
    layers = layers_of(arrays, deepest)
    for name, _ in arrays:
        path = segments(name)
        yield tuple(without_numbers(part) if path[: depth + 1] in layers else part for depth, part in enumerate(path))


_Leaves = dict[tuple[_Path, tuple[int, ...]], int]


def _alike(leaves: Mapping[tuple[_Path, tuple[int, ...]], Sequence[int]]) -> Iterator[tuple[_Leaves, _Leaves]]:
    """Yield pairs of similar trees, each as (path, shape) → array.

    A tree is below an argument, a result, or a branch with a large share of the arrays. Half of the smaller tree's
    leaves must be in the other.
    """
    below: dict[_Path, _Leaves] = defaultdict(dict)
    for (path, shape), places in leaves.items():
        for depth in range(1, len(path)):
            below[path[:depth]][path[depth:], shape] = places[0]
    arrays = {root: sum(1 for _, shape in shapes if shape) for root, shapes in below.items()}
    most = max((n for root, n in arrays.items() if len(root) == 1), default=0)
    roots = [r for r in below if arrays[r] and (len(r) == 1 or arrays[r] >= _SHARE * most)]
    for one, other in combinations(roots, 2):
        if one != other[: len(one)] and other != one[: len(other)]:
            shared = sum(1 for key in below[one].keys() & below[other].keys() if key[1])
            if shared and 2 * shared >= min(arrays[one], arrays[other]):
                yield below[one], below[other]
