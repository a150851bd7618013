"""The programs that follow from a program: its gradient, its products with Jacobians, and itself over a new dimension.

`Program` extends `Derivable`. What is derived knows what it was made from, so that a plan for the one gives a plan for
the other (`plan_from`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from shardviz.errors import ShardvizError
from shardviz.program import derivatives
from shardviz.program import transform as transforms
from shardviz.program.call import Call
from shardviz.program.lowerings import Lowerings
from shardviz.program.plan import Plan
from shardviz.program.vmap import vmap as mapped
from shardviz.records import PlanRecord


class Derivable:
    """A program that others can be derived from.

    Attributes:
        name: the function's name.
    """

    name: str
    _call: Call
    _lowerings: Lowerings
    _origin: tuple[Self, transforms.Transformed] | None

    def __init__(self, call: Call, mesh: Any = None):
        """A program of a call; see `Program`."""

    @abstractmethod
    def bind(self, plan: Plan) -> PlanRecord:
        """The plan, found to fit."""

    def grad(self, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Self:
        """The program of the gradient, as `jax.grad` gives it, with the plan that this one brings.

        Of flax.nnx objects the gradient is by their `nnx.Param`s, as `nnx.grad` has it. What the function changes in
        them comes out too, here as of every transform, as `updated.` and the variable's path.

        Args:
            argnums: the positional arguments to differentiate by.
            has_aux: the function returns (scalar, anything else).

        Raises:
            TraceError: if the result is no real scalar, or an argument is static, not floating point, or of flax.nnx
                and without an `nnx.Param`.
        """
        return self._derived(derivatives.grad(self._call, argnums, has_aux))

    def value_and_grad(self, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Self:
        """The program of the value and its gradient; arguments and errors as `grad`."""
        return self._derived(derivatives.grad(self._call, argnums, has_aux, value=True))

    def vjp(self) -> Self:
        """The program of (outputs, gradients by every positional argument), with one argument more, `cotangents`.

        The cotangents have the result's tree, with None for what is not floating point; so have the gradients.

        Raises:
            TraceError: if the function cannot be traced or transformed.
        """
        return self._derived(derivatives.vjp(self._call, self._lowerings.shapes))

    def jvp(self) -> Self:
        """The program of (outputs, their tangents), with one argument more, `tangents`: a tuple, one for each argument.

        What is not floating point has None in place of a tangent.

        Raises:
            TraceError: if the function cannot be traced or transformed.
        """
        return self._derived(derivatives.jvp(self._call, self._lowerings.shapes))

    def vmap(
        self,
        in_axes: Any = 0,
        out_axes: Any = 0,
        *,
        axis_size: int,
        spmd_axis_name: str | Sequence[str] | None = None,
    ) -> Self:
        """The program mapped over a new dimension, as `jax.vmap` maps it; this program's arguments are one example's.

        Args:
            in_axes: where each argument gets the dimension: an int, or a pytree prefix of the positional arguments
                with None for what is not mapped. Keyword arguments get it in front.
            out_axes: the same for the result.
            axis_size: the size of the new dimension.
            spmd_axis_name: the mesh axis or axes that cut the new dimension, inside sharding constraints too; None
                leaves it to the compiler.

        Raises:
            TraceError: if the function cannot be traced, or if `in_axes`, `out_axes` or `axis_size` do not fit.
            SpecError: if an axis of `spmd_axis_name` cuts an argument already.
        """
        return self._derived(mapped(self._call, self._lowerings.shapes, in_axes, out_axes, axis_size, spmd_axis_name))

    def plan_from(self, plan: Plan) -> Plan:
        """The plan for a transformed program that follows from one for the program that it was made from.

        Arguments keep their specs, a cotangent takes its output's and a tangent its primal's, a mapped array has the
        new dimension's axes put in; gradients are the compiler's choice. Values inside are constrained as they are in
        the original, where each has the shape that the function itself gives it.

        Args:
            plan: a plan for the original.

        Raises:
            ShardvizError: if this program is no transformed one.
            SpecError, TraceError: as `bind` of the original.
        """
        if self._origin is None:
            raise ShardvizError(f"{self.name} was not made by grad, value_and_grad, vjp, jvp or vmap; use its own plan")
        origin, transformed = self._origin
        bound, of, own = origin.bind(plan), origin._lowerings.traced(plan), self._lowerings
        known = own.latest if own.is_traced else own.known(plan.mesh)
        edits = transforms.argument_specs(bound, of, transformed, [a.name for a in known.arguments])
        traced = own.latest if own.is_traced else own.traced(Plan(plan.mesh, edits=edits))
        outs = transforms.output_specs(bound, of, transformed, traced)
        return Plan(plan.mesh, edits=edits, out_edits=outs, constraints=plan.constraints)

    def _derived(self, transformed: transforms.Transformed) -> Self:
        made = type(self)(transformed.call, None if self._lowerings.bare else self._lowerings.mesh)
        made._origin = self, transformed
        return made
