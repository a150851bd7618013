"""Tree paths as segments, and the arguments and outputs at equal positions of different trees."""

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
_NUMBER = re.compile(r"\d+")
_KEPT = 16  # the number of traced programs whose families are cached


@lru_cache(maxsize=1 << 15)
def segments(name: str) -> tuple[str, ...]:
    """Return the segments of a tree path in JAX's spelling; joined, they are the path.

    >>> segments("params['layers']['wq']"), segments("state.opt[0].mu")
    (('params', "['layers']", "['wq']"), ('state', '.opt', '[0]', '.mu'))
    """
    return tuple(_SEGMENT.findall(name))


def common_path(names: Sequence[str]) -> str:
    """Return the longest common beginning of the paths of several arrays, in full segments.

    >>> common_path(["opt['mu']['w']", "opt['nu']['w']"])
    'opt'
    """
    levels = zip(*map(segments, names), strict=False)
    return "".join(level[0] for level in itertools.takewhile(lambda level: len(set(level)) == 1, levels)) or "the step"


def without_numbers(path: str) -> str:
    """Return a path with `#` for each number, which is equal for the same array of several layers.

    >>> without_numbers("params['layers'][12]['wq']")
    "params['layers'][#]['wq']"
    """
    return _NUMBER.sub("#", path)


@lru_cache(maxsize=4096)
def label(segment: str) -> str:
    """Return a segment's name for people: a key without its brackets, an index with them.

    >>> label("['wq']"), label(".mu"), label("[0]")
    ('wq', 'mu', '[0]')
    """
    if segment.startswith(("['", '["')):
        try:
            return str(ast.literal_eval(segment[1:-1])) or segment
        except (ValueError, SyntaxError):
            return segment
    return segment.removeprefix(".") or segment


def short_name(path: str) -> str:
    """Return an array's name for people: the last name in its path, and the indices after it.

    >>> short_name("params['layers'][0]['up']"), short_name("momentum[0]"), short_name("opt.mu['w'][1]")
    ('up', 'momentum[0]', 'w[1]')
    """
    labels = [label(segment) for segment in segments(path)]
    named = max((n for n, text in enumerate(labels) if not text.startswith("[")), default=0)
    return "".join(labels[named:])


@dataclass(frozen=True, eq=False)
class Family:
    """Arguments and outputs of equal shape at equal positions of different trees, which should have equal shardings. An
    example is a weight, its momentum and its new value. `place` maps each argument to its position below its tree's
    name, and its shape; an argument that is a tree of its own has no place. `at` maps each place to its members, as
    (`argument` or `output`, name), in program order."""

    place: Mapping[str, tuple[str, tuple[int, ...]]]
    at: Mapping[tuple[str, tuple[int, ...]], Sequence[tuple[str, str]]]

    @classmethod
    def of(cls, report: ReportRecord) -> Family:
        """Return the family of a report's arguments and outputs."""
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
