"""What stands around a call, kept for the traces that are made of it later.

A function may ask whether a mesh stands around it: `nn.with_logical_constraint` of flax does nothing where none does.
So a program is traced under what held where `sv.trace`, `sv.analyze` or `sv.explore` was called: JAX's settings, flax's
logical axis rules, and the plan's mesh in those places where a mesh stood (`jax.set_mesh`, `with mesh:`). Where none
stood, a mesh that a person gives, as `mesh=` or in a `Plan`, means "run under this mesh" and stands in both; one that
only the arguments' or the function's own shardings bring stands in neither, as in the run.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shardviz import _jax
from shardviz.notation import Spec
from shardviz.records import Frame


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
        """Set the recorded settings and rules on this thread inside the context; for meshes see `_jax.tracing_on`."""
        flax = _flax()
        rules = contextlib.nullcontext() if flax is None else flax.logical_axis_rules(self.rules)
        with _jax.under_settings(self.settings), rules:
            yield


def _flax() -> Any:
    """Return the module with flax's logical axis rules, if the user's program has imported it."""
    modules = (sys.modules.get(name) for name in ("flax.core.spmd", "flax.linen.spmd"))
    return next((m for m in modules if hasattr(m, "logical_axis_rules")), None)


@dataclass(frozen=True)
class Constraint:
    """A `with_sharding_constraint` of the program: the shape and spec that it asks for, and its line."""

    shape: tuple[int, ...]
    spec: Spec
    source: Frame | None
