"""What stands around a call, kept for the traces that are made of it later, and what of the program depends on it.

A function may ask whether a mesh stands around it: `nn.with_logical_constraint` of flax does nothing where none does.
So a program is traced under what held where `sv.trace`, `sv.analyze` or `sv.explore` was called: JAX's settings, flax's
logical axis rules, and the plan's mesh in those places where a mesh stood (`jax.set_mesh`, `with mesh:`). Where none
stood, a mesh that a person gives, as `mesh=` or in a `Plan`, means "run under this mesh" and stands in both; one that
only the arguments' or the function's own shardings bring stands in neither, as in the run.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shardviz import _jax
from shardviz.notation import Spec
from shardviz.records import Frame
from shardviz.records.groups import grouped


@dataclass(frozen=True, eq=False)
class Contexts:
    """What held around a call: where a mesh stood (`_jax.PLACES`), JAX's settings, flax's logical axis rules."""

    places: frozenset[str] = frozenset()
    settings: Mapping[str, Any] = field(default_factory=dict)
    rules: Any = ()

    @classmethod
    def here(cls) -> Contexts:
        flax = _flax()
        return cls(_jax.filled_places(), _jax.settings(), () if flax is None else flax.get_logical_axis_rules())

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Under it, the settings and the rules hold, on this thread; of meshes see `_jax.tracing_on`."""
        flax = _flax()
        rules = contextlib.nullcontext() if flax is None else flax.logical_axis_rules(self.rules)
        with _jax.under_settings(self.settings), rules:
            yield


def _flax() -> Any:
    """Where flax keeps its logical axis rules, if the person's program has imported it."""
    modules = (sys.modules.get(name) for name in ("flax.core.spmd", "flax.linen.spmd"))
    return next((m for m in modules if hasattr(m, "logical_axis_rules")), None)


@dataclass(frozen=True)
class Constraint:
    """A `with_sharding_constraint` of the program: the shape and spec that it asks for, and its line."""

    shape: tuple[int, ...]
    spec: Spec
    source: Frame | None


@dataclass(frozen=True)
class MeshAsked:
    """A line that does one thing where a mesh stands around the call, and another where none does: the specs of the
    constraints that it makes only under one (none for another difference), the places of which each is enough for that,
    and those that the explored program has a mesh in."""

    source: Frame | None
    specs: tuple[Spec, ...]
    places: frozenset[str]
    explored: frozenset[str]


Found = tuple[Counter[Constraint], Counter[tuple[str, Frame | None]]]


def mesh_asked(
    explored: frozenset[str], own: Found, other: Found, under: Callable[[frozenset[str]], Found | None]
) -> tuple[MeshAsked, ...]:
    """The lines in which a program traced under a mesh in the places `explored` differs from itself in others. `own` is
    what it has there (`Found`), `other` the same in no place, or where `explored` is not all of them, in all; `under`
    gives the same of any places, None where it cannot be traced."""
    if own == other or (own[0] == other[0] and _named(own) == _named(other)):
        return ()  # JAX keeps the lines of a function that it has traced for another caller
    bare, full = (other, own) if explored == _jax.PLACES else (own, other)
    lines = grouped((constraint.source, constraint.spec) for constraint in full[0] - bare[0])
    if not lines:
        lines = {frame: [] for _, frame in [*(full[1] - bare[1]), *(bare[1] - full[1])][:1]}
    alone = {place: under(frozenset({place})) for place in sorted(_jax.PLACES)}
    enough = frozenset(place for place, seen in alone.items() if seen is not None and seen[0] == full[0])
    return tuple(
        MeshAsked(source, tuple(dict.fromkeys(specs)), enough or _jax.PLACES, explored)
        for source, specs in lines.items()
    )


def _named(trace: Found) -> Counter[str]:
    """How many operations there are of each name."""
    return Counter(name for name, _ in trace[1].elements())
