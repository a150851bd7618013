"""The functions that start from a person's own function: `trace`, `analyze`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shardviz.analysis.program import Program
from shardviz.program.adapters import adapt
from shardviz.report import Report

Numbers = int | Iterable[int]
Names = str | Iterable[str]


def trace(
    fn: Callable[..., Any],
    *args: Any,
    static_argnums: Numbers = (),
    static_argnames: Names = (),
    donate_argnums: Numbers = (),
    donate_argnames: Names = (),
    **kwargs: Any,
) -> Program:
    """Traces a function; nothing runs and nothing is allocated.

    Args:
        fn: a function, or one that `jax.jit` has wrapped.
        args, kwargs: what it is called with: arrays, `jax.ShapeDtypeStruct`s or numbers in pytrees.
        static_argnums, static_argnames, donate_argnums, donate_argnames: as for `jax.jit`.

    Returns:
        The `Program`. A function whose sharding constraints are bare PartitionSpecs is traced when its first plan says
        over which mesh they are.

    Raises:
        TraceError: if an argument is no array, or the function raises; its own exception is the cause.
    """
    return _program(fn, args, kwargs, None, static_argnums, static_argnames, donate_argnums, donate_argnames)


def analyze(
    fn: Callable[..., Any],
    *args: Any,
    mesh: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
    target: str | None = None,
    static_argnums: Numbers = (),
    static_argnames: Names = (),
    donate_argnums: Numbers = (),
    donate_argnames: Names = (),
    **kwargs: Any,
) -> Report:
    """Traces, partitions and, for a target, compiles, in one call.

    Args:
        fn, args, kwargs, static_argnums, static_argnames, donate_argnums, donate_argnames: as for `trace`.
        mesh: the device mesh, in any form that `sv.mesh` takes; None for the one that the function brings, see
            `Program.plan`.
        in_specs, out_specs: specs for the arguments and the result, as for `Plan`.
        target: compile for this machine too (`"cpu"`), which adds the memory plan.

    Returns:
        The report, at level `partitioned`, or `compiled` if a target was given.

    Raises:
        ShardvizError: as `trace`, `Plan` and `Program.partition`.
    """
    options = (static_argnums, static_argnames, donate_argnums, donate_argnames)
    program = _program(fn, args, kwargs, mesh, *options)
    plan = program.plan(mesh, in_specs, out_specs)
    return program.partition(plan) if target is None else program.compile(plan, target)


def _program(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    mesh: Any,
    static_argnums: Numbers,
    static_argnames: Names,
    donate_argnums: Numbers,
    donate_argnames: Names,
) -> Program:
    options = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
    }
    return Program(adapt(fn, args, kwargs, **options), mesh)
