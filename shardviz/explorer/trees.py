"""Arguments and outputs as the rows of a tree.

A program has the same paths under every plan, so a tree is made once and looked up after each change.

>>> [(b.label, b.depth, b.leaves) for b in tree(("p['a']['x']", "p['a']['y']", "t"))]
[('p', 0, 2), ('a', 1, 2), ('x', 2, 0), ('y', 2, 0), ('t', 0, 0)]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from shardviz.records.paths import label, segments

_KEPT = 16  # programs, and their traces on other meshes, whose trees are kept


@dataclass(frozen=True)
class Branch:
    """A row of the tree: a branch, or a leaf.

    Attributes:
        path: the path up to here; a leaf's name.
        segment: the path's last part.
        depth: how many branches are above it.
        inside: of a branch the places of its leaves among the names; none of a leaf.
    """

    path: str
    segment: str
    depth: int
    inside: Sequence[int] = ()

    @property
    def label(self) -> str:
        """What a person calls it."""
        return label(self.segment)

    @property
    def leaves(self) -> int:
        """How many leaves are below it; 0 for a leaf."""
        return len(self.inside)


@lru_cache(maxsize=_KEPT)
def tree(names: tuple[str, ...]) -> tuple[Branch, ...]:
    """The rows of a tree of paths, depth first, in the order given."""
    inside: dict[str, list[int]] = {}
    parted: list[tuple[str, ...]] = []
    for place, name in enumerate(names):
        parts, path = segments(name), ""
        parted.append(parts)
        for part in parts[:-1]:
            path += part
            inside.setdefault(path, []).append(place)
    rows: list[Branch] = []
    open_paths: list[str] = []
    for name, parts in zip(names, parted, strict=True):
        path = ""
        for depth, part in enumerate(parts[:-1]):
            path += part
            if open_paths[depth : depth + 1] != [path]:
                open_paths[depth:] = [path]
                rows.append(Branch(path, part, depth, inside[path]))
        del open_paths[len(parts) - 1 :]
        rows.append(Branch(name, parts[-1] if parts else name, max(0, len(parts) - 1)))
    return tuple(rows)
