"""Tree paths taken apart, so that arguments can be shown as a tree.

>>> segments("params['layers']['wq']"), segments("state.opt[0].mu")
(('params', "['layers']", "['wq']"), ('state', '.opt', '[0]', '.mu'))
>>> label("['wq']"), label(".mu"), label("[0]")
('wq', 'mu', '[0]')
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

_SEGMENT = re.compile(r"""\['(?:[^'\\]|\\.)*'\]|\["(?:[^"\\]|\\.)*"\]|\[[^\]]*\]|\.?[^.\[]+|.""", re.DOTALL)


@lru_cache(maxsize=4096)
def segments(name: str) -> tuple[str, ...]:
    """The parts of a tree path as JAX spells it; put together again they are the path."""
    return tuple(_SEGMENT.findall(name))


def label(segment: str) -> str:
    """What a person calls a part of a path: the key without its brackets, an index with them."""
    if segment.startswith(("['", '["')):
        try:
            return str(ast.literal_eval(segment[1:-1])) or segment
        except (ValueError, SyntaxError):
            return segment
    return segment.removeprefix(".") or segment


@dataclass(frozen=True)
class Branch:
    """A row of the tree: a branch (with the number of its leaves) or a leaf (0)."""

    path: str
    label: str
    depth: int
    leaves: int = 0


def tree(names: Iterable[str]) -> list[Branch]:
    """The rows of a tree of paths, depth first, in the order given.

    >>> [(b.label, b.depth, b.leaves) for b in tree(["p['a']['x']", "p['a']['y']", "t"])]
    [('p', 0, 2), ('a', 1, 2), ('x', 2, 0), ('y', 2, 0), ('t', 0, 0)]
    """
    names = list(names)
    counts: dict[str, int] = {}
    for name in names:
        path = ""
        for part in segments(name)[:-1]:
            path += part
            counts[path] = counts.get(path, 0) + 1
    rows, open_paths = [], []
    for name in names:
        parts, path = segments(name), ""
        for depth, part in enumerate(parts[:-1]):
            path += part
            if open_paths[depth : depth + 1] != [path]:
                open_paths[depth:] = [path]
                rows.append(Branch(path, label(part), depth, counts[path]))
        del open_paths[len(parts) - 1 :]
        rows.append(Branch(name, label(parts[-1]) if parts else name, max(0, len(parts) - 1)))
    return rows
