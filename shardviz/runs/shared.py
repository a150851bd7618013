"""The arrays that several programs share: by tree paths, by paths, shapes and types, or by identity in a run.

>>> from shardviz.tracing.trace import Argument
>>> train = Arrays("train", [Argument("params['w']", (4, 8), "float32"), Argument("x", (2, 4), "float32")], [])
>>> serve = Arrays("serve", [Argument("weights['w']", (4, 8), "float32"), Argument("x", (2, 4), "float32")], [])
>>> [[f"{m.program}: {m.path}" for m in each.members] for each in shared_arrays([train, serve], {"params": "weights"})]
[["train: params['w']", "serve: weights['w']"]]
>>> shared_arrays([train, serve]) == shared_arrays([train, serve], {"params": "weights"})
True
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shardviz.errors import ShardvizError, excerpt
from shardviz.records.amounts import first_names
from shardviz.records.groups import grouped
from shardviz.records.paths import segments
from shardviz.tracing.trace import Argument


class SharedPlace(NamedTuple):
    """An argument or an output (`role`) of a program, by its tree path."""

    program: str
    role: str
    path: str


@dataclass(frozen=True)
class SharedGroup:
    """An array that several programs share: its name, global shape, element type, and its place in each program."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    members: tuple[SharedPlace, ...]

    def of(self, program: str, role: str) -> tuple[str, ...]:
        """Return the tree paths of the members in a program."""
        return tuple(m.path for m in self.members if (m.program, m.role) == (program, role))

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that have the array."""
        return tuple(dict.fromkeys(m.program for m in self.members))


@dataclass(frozen=True)
class Arrays:
    """The arguments and outputs of a program, and argument → the output that is its new value."""

    program: str
    arguments: Sequence[Argument]
    outputs: Sequence[Argument]
    becomes: Mapping[str, str] = field(default_factory=dict)

    def places(self) -> Iterator[tuple[SharedPlace, Argument]]:
        """Yield every argument, then every output."""
        for role, arrays in (("argument", self.arguments), ("output", self.outputs)):
            yield from ((SharedPlace(self.program, role, array.name), array) for array in arrays)

    def below(self, path: str) -> dict[tuple[str, ...], tuple[SharedPlace, Argument]]:
        """Return the arrays at a tree path and below it by the rest of their paths.

        Raises:
            ShardvizError: if there is none.
        """
        head = segments(path)
        for role in ("argument", "output"):
            rows = {
                segments(array.name)[len(head) :]: (place, array)
                for place, array in self.places()
                if place.role == role and segments(array.name)[: len(head)] == head
            }
            if rows:
                return rows
        have = dict.fromkeys(segments(array.name)[0] for _, array in self.places())
        raise ShardvizError(
            f"shared: {self.program} has no array at {path!r}; its arguments and outputs are "
            f"{first_names(have, 6)}; give a tree path of one of them"
        )


def shared_arrays(programs: Sequence[Arrays], shared: Any = None) -> tuple[SharedGroup, ...]:
    """Return the arrays that programs share, with the outputs that are their new values.

    Args:
        programs: their arguments and outputs.
        shared: as `sv.together` takes it.

    Raises:
        ShardvizError: for a path that a program does not have, arrays of different shapes or types, an array in two
            entries, or if nothing is shared.
    """
    rows = _matching(programs) if shared is None else _at_paths(programs, shared)
    taken: dict[SharedPlace, str] = {}
    arrays: list[SharedGroup] = []
    for members in rows:
        first, array = members[0]
        for place, other in members[1:]:
            if (array.shape, array.dtype) != (other.shape, other.dtype):
                raise ShardvizError(
                    f"shared: {first.program}'s {first.path} is {_type(array)}, {place.program}'s {place.path} is "
                    f"{_type(other)}; shared arrays have one shape and type: trace the programs with equal arrays, or "
                    "leave this path out of shared"
                )
        places = dict.fromkeys(place for place, _ in members)
        for each in programs:
            for place in [p for p in places if p.program == each.program and p.role == "argument"]:
                if place.path in each.becomes:
                    places[SharedPlace(each.program, "output", each.becomes[place.path])] = None
        for place in places:
            if place in taken:
                raise ShardvizError(
                    f"shared: {place.program}'s {place.path} is shared as {taken[place]} and as {first.path}; give it "
                    "in one entry"
                )
            taken[place] = first.path
        arrays.append(SharedGroup(first.path, array.shape, array.dtype, tuple(places)))
    if not arrays:
        raise ShardvizError(
            f"shared: {' and '.join(each.program for each in programs)} have no tree path of one shape and type in "
            f"common; give shared={{path in {programs[0].program}: path in {programs[-1].program}}}"
        )
    return tuple(arrays)


def _type(array: Argument) -> str:
    return f"{array.dtype}{list(array.shape)}"


_Members = list[tuple[SharedPlace, Argument]]


def _at_paths(programs: Sequence[Arrays], shared: Any) -> Iterator[_Members]:
    by_name = {each.program: each for each in programs}
    for entry in _entries(by_name, shared):
        sides = [
            by_name[name].below(path)
            for name, paths in entry.items()
            for path in ((paths,) if isinstance(paths, str) else paths)
        ]
        common = [rest for rest in sides[0] if sum(rest in side for side in sides) > 1]
        if not common:
            names = [first_names((place.path for place, _ in side.values()), 6) for side in sides]
            raise ShardvizError(
                f"shared={excerpt(repr(entry))}: no path below these is in two of them: {'; '.join(names)}; give the "
                "paths of trees with equal keys"
            )
        for rest in common:
            yield [side[rest] for side in sides if rest in side]


def _entries(programs: Mapping[str, Arrays], shared: Any) -> Iterator[Mapping[str, Any]]:
    """Yield each entry as program → its tree path, or several."""
    names = list(programs)
    if isinstance(shared, str):
        shared = [shared]
    if isinstance(shared, Mapping):
        for path, other in shared.items():
            if isinstance(other, Mapping):
                yield from _entries(programs, [other])
            elif len(names) == 2 and isinstance(other, str):
                yield {names[0]: path, names[1]: other}
            else:
                raise ShardvizError(
                    f"shared[{path!r}]={excerpt(repr(other))}: with {len(names)} programs, give for each array a "
                    f"mapping such as {{{names[0]!r}: {path!r}, {names[-1]!r}: 'path'}}"
                )
        return
    if not isinstance(shared, Sequence):
        raise ShardvizError(
            f"shared={excerpt(repr(shared))}: expected {{path: path}}, a list of {{program: path}}, or tree paths"
        )
    for entry in shared:
        if isinstance(entry, str):
            having = {name: entry for name, each in programs.items() if _has(each, entry)}
            if len(having) < 2:
                programs[next(name for name in names if name not in having)].below(entry)
            yield having
            continue
        if not isinstance(entry, Mapping) or (len(entry) < 2 and all(isinstance(p, str) for p in entry.values())):
            raise ShardvizError(f"shared: {excerpt(repr(entry))}: expected {{program: path}} for two programs or more")
        for name in entry:
            if name not in programs:
                raise ShardvizError(f"shared: there is no program {name!r}; the programs are {', '.join(names)}")
        yield entry


def _has(arrays: Arrays, path: str) -> bool:
    head = segments(path)
    return any(segments(array.name)[: len(head)] == head for array in arrays.arguments)


def _matching(programs: Sequence[Arrays]) -> Iterator[_Members]:
    """Yield the arguments in trees with equal paths, shapes and types. Then yield arguments and outputs with equal last
    keys, shapes and types, once in each of several programs: a cache that one returns and another takes."""
    placed: set[SharedPlace] = set()
    arguments = [(p, a) for each in programs for p, a in each.places() if p.role == "argument"]
    in_trees = (((a.name, a.shape, a.dtype), (p, a)) for p, a in arguments if len(segments(a.name)) > 1 and a.shape)
    rows = [members for members in grouped(in_trees).values() if len(members) > 1]
    placed.update(place for members in rows for place, _ in members)
    new = {SharedPlace(each.program, "output", out) for each in programs for out in each.becomes.values()}
    left = [(p, a) for each in programs for p, a in each.places() if p not in placed | new and a.shape]
    by_tail: dict[Any, _Members] = {}
    for place, array in left:
        keys = segments(array.name)
        starts = range(1, len(keys) if place.role == "output" else min(2, len(keys)))
        for start in starts:  # an output's path has its place in the result before its keys
            by_tail.setdefault((keys[start:], array.shape, array.dtype), []).append((place, array))
    for members in by_tail.values():
        owners = [place.program for place, _ in members]
        free = placed.isdisjoint(place for place, _ in members)
        if free and len(set(owners)) == len(owners) > 1 and any(place.role == "argument" for place, _ in members):
            placed.update(place for place, _ in members)
            rows.append(sorted(members, key=lambda member: member[0].role))
    yield from rows


Seen = tuple[int, str, int]
"""A program's number, `argument` or `output`, and the place among its flat arguments or outputs."""


class Beside(NamedTuple):
    """An array that was alive during a call of a program that does not take it: its first place in the run, its global
    shape and type, and its bytes on a device."""

    first: Seen | None
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


class Identities:
    """Groups of places (arguments and outputs of programs) that had the same array in a run.

    Two arguments of one program are never in one group, nor are two outputs: an array that is passed twice, such as
    zeros for two caches, becomes two arrays.

    >>> import numpy as np
    >>> identities = Identities()
    >>> weights, cache, new = (np.zeros(2) for _ in range(3))
    >>> identities.called(0, [weights], [cache])          # prefill
    >>> identities.called(1, [weights, cache], [new])     # decode
    >>> identities.called(1, [weights, new], [])
    >>> sorted(sorted(group) for group in identities.groups())  # (program, role, place)
    [[(0, 'argument', 0), (1, 'argument', 0)], [(0, 'output', 0), (1, 'argument', 1), (1, 'output', 0)]]
    """

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[Any, Seen]] = {}  # id → a weak reference, and its first place
        self._group: dict[Seen, dict[tuple[int, str], int]] = {}
        self._copies: dict[int, Any] = {}  # id → a weak reference

    def called(self, program: int, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        """Add a call of a program."""
        for role, arrays in (("argument", arguments), ("output", results)):
            for place, array in enumerate(arrays):
                here = program, role, place
                self._group.setdefault(here, {(program, role): place})
                reference, first = self._arrays.get(id(array), (None, here))
                if reference is None or reference() is not array:
                    try:
                        self._arrays[id(array)] = weakref.ref(array), here
                    except TypeError:  # a Python number
                        continue
                else:
                    self._join(first, here)

    def _join(self, one: Seen, other: Seen) -> None:
        group, more = self._group[one], self._group[other]
        if group is more or any(more.get(of, place) != place for of, place in group.items()):
            return
        group.update(more)
        for (program, role), place in more.items():
            self._group[program, role, place] = group

    def place_of(self, array: Any) -> Seen | None:
        """Return the first place of an array in the run; None if no program has taken or returned it yet."""
        reference, first = self._arrays.get(id(array), (None, None))
        return first if reference is not None and reference() is array else None

    def copied(self, array: Any, copy: Any) -> None:
        """Add an array that was put to other devices or into another sharding."""
        if not self.is_new(array):
            self._copies[id(copy)] = weakref.ref(copy)

    def is_new(self, array: Any) -> bool:
        """Return whether no program has taken or returned an array, nor the array that it is a copy of."""
        copy = self._copies.get(id(array))
        return self.place_of(array) is None and (copy is None or copy() is not array)

    def groups(self) -> tuple[tuple[Seen, ...], ...]:
        """Return the groups of several places."""
        distinct = {id(group): group for group in self._group.values()}.values()
        return tuple(tuple((*of, place) for of, place in group.items()) for group in distinct if len(group) > 1)
