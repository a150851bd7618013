"""The context of a call, recorded for the traces that are made of it later.

A function may ask whether there is a mesh around it: `nn.with_logical_constraint` of flax does nothing without one. So
a program is traced in the context in which `sv.trace`, `sv.analyze` or `sv.explore` was called: JAX's settings, flax's
logical axis rules, and the plan's mesh in the places that held a mesh (`jax.set_mesh`, `with mesh:`). If none held a
mesh, a mesh that the user gives, as `mesh=` or in a `Plan`, means "run under this mesh" and is set in both places. A
mesh that only comes from the arguments' or the function's own shardings is set in neither, as in a real run.
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
    """The context of a call: the places that held a mesh (`_jax.PLACES`), JAX's settings, flax's logical axis rules."""

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
    """A `with_sharding_constraint` of the program: its shape, its spec, and its line."""

    shape: tuple[int, ...]
    spec: Spec
    source: Frame | None
