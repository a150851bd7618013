"""Tree paths taken apart, and which arguments and outputs stand at the same place of different trees.

>>> segments("params['layers']['wq']"), segments("state.opt[0].mu")
(('params', "['layers']", "['wq']"), ('state', '.opt', '[0]', '.mu'))
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardviz.records.report import ReportRecord

_SEGMENT = re.compile(r"""\['(?:[^'\\]|\\.)*'\]|\["(?:[^"\\]|\\.)*"\]|\[[^\]]*+(?:\]|\Z)|\.?[^.\[]+|.""", re.DOTALL)
_KEPT = 16  # programs, and their traces on other meshes, whose trees are kept


@lru_cache(maxsize=1 << 15)
def segments(name: str) -> tuple[str, ...]:
    """The parts of a tree path as JAX spells it; put together again they are the path.

    >>> segments("params['layers']['wq']"), segments("state.opt[0].mu")
    (('params', "['layers']", "['wq']"), ('state', '.opt', '[0]', '.mu'))
    """
    return tuple(_SEGMENT.findall(name))


def common_path(names: Sequence[str]) -> str:
    """The tree that several arrays are of, by the parts that all paths begin with.

    >>> common_path(["opt['mu']['w']", "opt['nu']['w']"])
    'opt'
    """
    levels = zip(*map(segments, names), strict=False)
    return "".join(level[0] for level in itertools.takewhile(lambda level: len(set(level)) == 1, levels)) or "the step"


def label(segment: str) -> str:
    """What a person calls a part of a path: the key without its brackets, an index with them.

    >>> label("['wq']"), label(".mu"), label("[0]")
    ('wq', 'mu', '[0]')
    """
    if segment.startswith(("['", '["')):
        try:
            return str(ast.literal_eval(segment[1:-1])) or segment
        except (ValueError, SyntaxError):
            return segment
    return segment.removeprefix(".") or segment


@dataclass(frozen=True, eq=False)
class Family:
    """Which arguments and outputs of one shape stand at the same place of different trees, as a weight's momentum and
    new value, which had better be sharded as it is: each argument's place below its own name (unless a tree of its
    own), and what stands at each place, as (`argument` or `output`, name), in the program's order."""

    place: Mapping[str, tuple[str, tuple[int, ...]]]
    at: Mapping[tuple[str, tuple[int, ...]], Sequence[tuple[str, str]]]

    @classmethod
    def of(cls, report: ReportRecord) -> Family:
        """The family of a report's arguments and outputs."""
        return _family(*(tuple((v.name, v.shape) for v in values) for values in (report.arguments, report.outputs)))


_Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@lru_cache(maxsize=_KEPT)
def _family(arguments: _Shapes, outputs: _Shapes) -> Family:
    below = ((name, "".join(segments(name)[1:]), shape) for name, shape in arguments)
    place = {name: (path, shape) for name, path, shape in below if path}
    at: dict[tuple[str, tuple[int, ...]], list[tuple[str, str]]] = {key: [] for key in place.values()}
    for what, values in (("argument", arguments), ("output", outputs)):
        for name, shape in values:
            start = len(name)
            for part in reversed(segments(name)):
                start -= len(part)
                if (members := at.get((name[start:], shape))) is not None:
                    members.append((what, name))
    return Family(place, at)
