"""The arrays before a move that become arrays after it, by tree paths and patterns of paths.

A `*` in a pattern stands for one key. With a `*` on one side only, the arrays on that side are layers of one stacked
array. Two paths in place of one are an array of small numbers, such as int8, and its scales.

>>> old = ["['norm']", "['blocks'][0]['w']", "['blocks'][1]['w']"]
>>> [each.text for each in paired(old, {"['blocks'][*]['w']": "['layers']['w']"}, lambda pattern, path: ())]
["['blocks'][*]['w'] → ['layers']['w']", "['norm']"]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from shardviz.errors import ShardvizError, excerpt
from shardviz.records.amounts import first_names


class ArrayPaths(NamedTuple):
    """The path of an array, or the pattern and the paths of its layers."""

    name: str
    layers: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the tree's arrays."""
        return self.layers or (self.name,)


class Pair(NamedTuple):
    """An array before and after; two entries on one side are an array of small numbers and its scales."""

    old: tuple[ArrayPaths, ...]
    new: tuple[ArrayPaths, ...]

    @property
    def text(self) -> str:
        """Both sides, for people."""
        old, new = (", ".join(each.name or "array" for each in side) for side in self)
        return old if old == new else f"{old} → {new}"

    def paths(self, side: int) -> list[str]:
        """Return the tree's paths before (0) or after (1)."""
        return [path for each in self[side] for path in each.paths]


def paired(
    old: Iterable[str],
    rename: Mapping[Any, Any] | Callable[[str], str] | None,
    layers: Callable[[str, str], Iterable[str]],
) -> list[Pair]:
    """Return what each array before becomes.

    Args:
        old: the paths before.
        rename: as `sv.reshard` takes it.
        layers: the paths after of the layers of a pattern, given the path of the stacked array before.

    Raises:
        ShardvizError: for a path or pattern that no array before has, or if two arrays become one.
    """
    old = list(old)
    if callable(rename):
        pairs = [_single(name, rename(name)) for name in old]
    else:
        pairs = [pair for key, value in (rename or {}).items() for pair in _of_entry(key, value, old, layers)]
        taken = {path for pair in pairs for path in pair.paths(0)}
        pairs += [_single(name, name) for name in old if name not in taken]
    for side, words in ((0, "{!r} becomes two arrays"), (1, "two arrays become {!r}; give each its own path")):
        seen: set[str] = set()
        for path in (path for pair in pairs for path in pair.paths(side)):
            if path in seen:
                raise ShardvizError(f"rename: {words.format(path)}")
            seen.add(path)
    return pairs


def _single(name: str, to: str) -> Pair:
    return Pair((ArrayPaths(name),), (ArrayPaths(to),))


def _of_entry(key: Any, value: Any, old: list[str], layers: Callable[[str, str], Iterable[str]]) -> Iterator[Pair]:
    sides = [(side,) if isinstance(side, str) else tuple(side) for side in (key, value)]
    entry = f"rename: {excerpt(repr(key))} → {excerpt(repr(value))}"
    if tuple(map(len, sides)) not in ((1, 1), (1, 2), (2, 1)):
        raise ShardvizError(f"{entry}: expected a path on each side, or two on one: an int8 array's and its scales'")
    stars = [{pattern.count("*") for pattern in side} for side in sides]
    if any(len(counts) > 1 for counts in stars) or (stars[0] != stars[1] and stars not in ([{1}, {0}], [{0}, {1}])):
        raise ShardvizError(
            f"{entry}: expected as many * on both sides, or one * on the side that has the layers of a stacked array"
        )
    (olds, news), ((first, *_), (last, *_)) = sides, sides
    found = _matches(first, old)
    if not found:
        raise ShardvizError(f"rename: no array before has the path {first!r}; it has {first_names(old, 4)}")
    if stars[0] == stars[1]:
        for keys in found:
            yield Pair(*(tuple(ArrayPaths(_filled(pattern, keys)) for pattern in side) for side in (olds, news)))
        return
    if "*" in first:
        numbers = _numbers(first, found)
    else:
        numbers = _numbers(last, _matches(last, layers(last, first)))
        if not numbers:
            raise ShardvizError(f"rename: no array after has the path {last!r}")
    sides = [
        tuple(ArrayPaths(p, tuple(_filled(p, keys) for keys in numbers) if "*" in p else ()) for p in side)
        for side in (olds, news)
    ]
    lost = next((path for each in sides[0] for path in each.paths if path not in old), None)
    if lost is not None:
        raise ShardvizError(f"rename: no array before has the path {lost!r}; it has {first_names(old, 4)}")
    yield Pair(*sides)


def _matches(pattern: str, names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the keys that stand for each `*` of a pattern, for each path that it matches."""
    if "*" not in pattern:
        return [()] if pattern in names else []
    like = re.compile(r"([^\[\]'\".]+)".join(map(re.escape, pattern.split("*"))))
    return [match.groups() for name in names if (match := like.fullmatch(name))]


def _filled(pattern: str, keys: Iterable[str]) -> str:
    keys = iter(keys)
    return re.sub(r"\*", lambda _: next(keys), pattern)


def _numbers(pattern: str, found: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the layers' keys in the order of their numbers."""
    if odd := next((key for (key,) in found if not key.isdecimal()), None):
        raise ShardvizError(f"rename: {pattern!r} also matches {odd!r}, which is no number; layers have numbers")
    return sorted(found, key=lambda keys: int(keys[0]))
