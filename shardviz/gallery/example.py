"""A gallery program with its arguments, mesh and plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax.sharding import PartitionSpec

from shardviz.ask import Program
from shardviz.caching import cached_property
from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh
from shardviz.plan.plan import Plan
from shardviz.tracing.adapt import adapt
from shardviz.tracing.call import name_of


@dataclass(frozen=True, eq=False)
class Example:
    """A program of the gallery, ready for `sv.explore(example)` or
    `sv.trace(example.fn, *example.args, **example.options)`.

    Attributes:
        fn: the function.
        args: its arguments, `jax.ShapeDtypeStruct`s in pytrees.
        mesh: axis name → size of the mesh for the specs.
        in_specs, out_specs: a sensible plan; None if the function brings its own, and on one device.
        options: for `sv.trace`, such as `donate_argnums`.
        parameters: the number of trainable parameters; this and the next three are 0 for a small step (`steps`).
        tokens: tokens (or examples) in a step's batch.
        flops: FLOPs of a step's matrix products and convolutions on all devices together, by formula. Products that
            `jax.checkpoint` repeats and products in a pipeline's bubble count too. If the plan shards every product
            evenly, each device has an equal share; XLA may repeat small products on several devices.
        model_flops: FLOPs that the model itself needs, for its utilisation
            (`sv.cost(report, target, model_flops=example.model_flops, tokens=example.tokens)`).
        kernels: FLOPs of one run of each kernel that has no cost estimate, by name.

    The docstring of each model's `step_flops` has the formulas of `flops` and `model_flops`.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    mesh: dict[str, int]
    in_specs: Any = None
    out_specs: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    parameters: int = 0
    tokens: int = 0
    flops: float = 0.0
    model_flops: float = 0.0
    kernels: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def program(self) -> Program:
        """The function, traced on the example's mesh."""
        program = Program(adapt(self.fn, self.args, {}, **self.options), self.mesh)
        return program.with_flops(self.kernels) if self.kernels else program

    @cached_property
    def plan(self) -> Plan:
        """The sensible plan."""
        return Plan(self.mesh, self.in_specs, self.out_specs)

    @property
    def name(self) -> str:
        """The function's name."""
        return name_of(self.fn)


def fitted(shape: Sequence[int], spec: PartitionSpec, mesh: Mapping[str, int]) -> PartitionSpec:
    """Return the spec without axes that are not in the mesh, or that do not divide their dimension.

    >>> fitted((8, 128), PartitionSpec("model", "data"), {"data": 4, "model": 16})
    P(None, 'data')
    """
    entries = [
        axis if axis in mesh and size % mesh[axis] == 0 else None for size, axis in zip(shape, spec, strict=False)
    ]
    while entries and entries[-1] is None:
        entries.pop()
    return PartitionSpec(*entries)


def mesh_over(mesh: Any, default: dict[str, int], model: str) -> dict[str, int]:
    """Read a mesh as `mesh_of` does, for a model that requires the default's axes; raise ShardvizError for others."""
    sizes = mesh_of(mesh, default)
    if set(sizes) != set(default):
        raise ShardvizError(f"{model}(mesh): expected axes {' and '.join(map(repr, default))}, not {', '.join(sizes)}")
    return sizes


def mesh_of(mesh: Any, default: dict[str, int]) -> dict[str, int]:
    """Return axis name → size of a mesh in any form, or the default for None."""
    return default if mesh is None else DeviceMesh.of(mesh).shape
