"""What a gallery program consists of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shardviz.analysis import Program
from shardviz.program.plan import Plan
from shardviz.program.trace import call


@dataclass(frozen=True, eq=False)
class Example:
    """A program of the gallery, ready for `sv.explore(example)` or `sv.trace(example.fn, *example.args, **example.options)`.

    Attributes:
        fn: the function.
        args: its arguments, `jax.ShapeDtypeStruct`s in pytrees.
        mesh: axis name → size of the mesh that the specs are meant for.
        in_specs, out_specs: a sensible plan.
        options: for `sv.trace`, such as `donate_argnums`.
        parameters: the number of trainable parameters.
        tokens: tokens (or examples) in a step's batch.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    mesh: dict[str, int]
    in_specs: Any
    out_specs: Any
    options: dict[str, Any]
    parameters: int
    tokens: int

    @cached_property
    def program(self) -> Program:
        """The function, traced on the example's mesh."""
        return Program(call(self.fn, self.args, {}, **self.options), self.mesh)

    @cached_property
    def plan(self) -> Plan:
        """The sensible plan."""
        return Plan(self.mesh, self.in_specs, self.out_specs)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.fn.__name__
