"""Variants of a program that no plan can express: donated arguments, another length of a dimension, another checkpoint
policy, other constraints.

`Program` extends `Derivable`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from shardviz.caching import cached_property
from shardviz.errors import ShardvizError, SpecError, excerpt
from shardviz.plan import variants
from shardviz.plan.jax_code import reconstrained_lines
from shardviz.plan.lowerings import Lowerings
from shardviz.plan.plan import Plan, is_by_name
from shardviz.propagate.dimensions import Dimensions, dimensions
from shardviz.records import Frame, PlanRecord, Variant
from shardviz.tracing.call import Call
from shardviz.tracing.trace import better_collectives

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="Derivable")

_MOST_VARIANTS = 8


def of_plan(method: Callable[Concatenate[S, Plan, P], T]) -> Callable[Concatenate[S, Plan, P], T]:
    """Return a method that runs on the program with the plan's variant."""

    @wraps(method)
    def answered(self: S, plan: Plan, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(*planned(self, plan), *args, **kwargs)

    return answered


def planned(program: S, plan: Plan) -> tuple[S, Plan]:
    """Return the program with a plan's variant, and the plan with the arrays of its logical dimensions. Raises
    SpecError if `plan` is not a plan; ShardvizError as `of_variant` and `_settled`."""
    if not isinstance(plan, Plan):
        way = "such as sv.Plan({'data': 8}, in_specs=...), or one of program.presets(mesh)"
        if isinstance(plan, PlanRecord):
            way = "not a report's record of one: give the plan that the report was made from"
        raise SpecError(f"plan: a {type(plan).__name__} was given; expected an sv.Plan, {way}")
    program = of_variant(program, plan.variant)
    return program, program._settled(plan)


class Derivable:
    """The part of `Program` that derives other programs from it."""

    name: str
    _call: Call
    _lowerings: Lowerings
    _flops: Mapping[str, float]
    _root: Any = None  # the program as it is, of one that a plan's variant has changed
    _variant: Variant = Variant()
    _variants: dict[Variant, Any]

    @cached_property
    def dimensions(self) -> Dimensions:
        """The logical dimensions: the dimensions of arguments and outputs that belong together, as Shardy propagates
        them.

        `plan.with_dimension("d_ff", "model")` shards one wherever it occurs.

        Raises:
            TraceError: as `arguments`, or for an operation that JAX cannot lower.
        """
        return dimensions(self._lowerings.lowered)

    def _find_dimensions(self, tell: Callable[[float], None]) -> Dimensions:
        """Return `dimensions`; while they are computed, `tell` is called with the share that is found."""
        if "dimensions" not in self.__dict__:
            self.__dict__["dimensions"] = dimensions(self._lowerings.lowered, tell)
        return self.dimensions

    def _settled(self, plan: Plan) -> Plan:
        """Return the plan in which each logical dimension that it names is resolved to its arrays; other plans
        unchanged. Raises ShardvizError for an unknown dimension, TraceError as `dimensions`."""
        return plan._with_members(self.dimensions) if is_by_name(plan) else plan

    def _with(self, variant: Variant) -> Self:
        program = self

        def varied(vary, *how):
            return program._varied(vary(program._call, program._lowerings.shapes, *how))

        for longer in variant.lengths:
            member = f"{longer.path}:{longer.dimension}"
            dimension = next((d for d in program.dimensions if member in map(str, d.members)), None)
            if dimension is None:
                raise ShardvizError(f"{self.name} has no dimension {excerpt(member)} to make {longer.better} long")
            program = varied(variants.lengthened, dimension, longer.size, longer.better)
        if variant.donated:
            program = varied(variants.donating, variant.donated)
        if variant.constraints:
            program = varied(variants.reconstraining, variant.constraints)
        if variant.collectives:
            program = program._varied(variants.rewriting(program._call, variant.collectives))
        if variant.checkpoint:
            program = program._varied(variants.checkpointing(program._call, variant.checkpoint))
        return program

    def _varied(self, call: Call) -> Any:
        program: Any = type(self)
        return program(call, None if self._lowerings.bare else self._lowerings.mesh).with_flops(self._flops)


def of_variant(program: S, variant: Variant) -> S:
    """Return a program with a plan's variant, traced anew; the last few are cached. Methods that take a plan call this
    themselves.

    Raises ShardvizError if the function's own wrapper determines donation, its shapes cannot be changed here, the
    policy or constraint does not exist, or the program is an export; TraceError if the function does not take such
    arrays.
    """
    if variant == program._variant:
        return program
    root = program if program._root is None else program._root
    if not variant:
        return root
    if (varied := root._variants.get(variant)) is None:
        varied = root._with(variant)
        varied._root, varied._variant = root, variant
        root._variants[variant] = varied
        for old in list(root._variants)[:-_MOST_VARIANTS]:
            root._variants.pop(old, None)
    return varied


def checkpoints(program: Derivable) -> tuple[Frame, ...]:
    """Return the lines of loops whose body is under a `jax.checkpoint`, and of other checkpoints. Raises TraceError if
    the function needs a mesh to be traced and has had no plan yet."""
    return tuple(variants.checkpoint_lines(program._lowerings.shapes))


def rewritten_words(program: Derivable, line: str) -> list[str]:
    """Return how `Plan.with_variant(collectives=...)` rewrites the collectives of this line; empty if it changes none.
    Raises TraceError as `checkpoints`."""
    closed = program._lowerings.shapes.closed
    return [] if closed is None else better_collectives(closed, line)[1]


def constraint_words(program: Derivable) -> str:
    """Return the code to write for the constraints that the program's variant changes, and where."""
    return "; ".join(reconstrained_lines(program._lowerings.shapes))


def checkpoint_words(program: Derivable, policy: str, most: int | None = None) -> tuple[str, ...]:
    """Return the code to write for the checkpoint policy of the program's variant, and where; at most `most` lines of a
    kind."""
    return variants.checkpoint_words(program._lowerings.shapes, policy, most)
