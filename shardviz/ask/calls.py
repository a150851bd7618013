"""The functions that start from a user's function: `trace`, `analyze`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shardviz.ask.program import Program
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.plan.plan import Plan
from shardviz.tracing.adapt import adapt

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
    """Trace a function. Nothing runs and nothing is allocated.

    Tracing calls the function once here, and again when a later question needs another trace: the first plan on a mesh
    with other axis names, or the first constraint on an intermediate. `Program.traces` counts them. The function's side
    effects (prints, counters, files) happen each time.

    Args:
        fn: a function, a method or another callable, possibly wrapped by `jax.jit`, `jax.pmap`, the old `pjit`,
            `nnx.jit` or `equinox.filter_jit`; or an export of `jax.export`, which already has its arguments.
        args, kwargs: its arguments: arrays, `jax.ShapeDtypeStruct`s or numbers in pytrees; flax.nnx objects, or
            functions without parameters that make them.
        static_argnums, static_argnames, donate_argnums, donate_argnames: as for `jax.jit`.

    Returns:
        The `Program`. A function that cannot be traced without a mesh (because of bare PartitionSpecs in constraints, a
        `shard_map` without a mesh, or a `pmap` inside) is traced with its first plan's mesh.

    Raises:
        TraceError: if an argument is not an array, or the function raises; its exception is the cause.

    Examples:
        >>> import jax, shardviz as sv
        >>> from jax.sharding import PartitionSpec as P
        >>> program = sv.trace(lambda x: x @ x.T, jax.ShapeDtypeStruct((512, 1024), "float32"))
        >>> report = program.propagate(sv.Plan({"data": 4}, in_specs=P("data")))
        >>> [one.kind for one in report.collectives]
        ['all-gather']
    """
    settings = dict(zip(_SETTINGS, (static_argnums, static_argnames, donate_argnums, donate_argnames), strict=True))
    return program_of(fn, args, kwargs, None, **settings)


def analyze(
    fn: Callable[..., Any],
    *args: Any,
    mesh: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
    target: str | None = None,
    flops: Mapping[str, float] | None = None,
    static_argnums: Numbers = (),
    static_argnames: Names = (),
    donate_argnums: Numbers = (),
    donate_argnames: Names = (),
    **kwargs: Any,
) -> Report:
    """Trace, partition and, for a target, compile a function in one call.

    Args:
        fn, args, kwargs, static_argnums, static_argnames, donate_argnums, donate_argnames: as for `trace`.
        mesh: the device mesh, in any form that `sv.mesh` takes; None for the function's own, or else the target's, see
            `Program.plan`.
        in_specs, out_specs: specs for the arguments and the result, as for `Plan`.
        target: compile for this machine too (`"cpu"`), which adds the memory plan.
        flops: FLOPs of kernels and library calls that do not state them, by name, as for `Program.with_flops`.

    Returns:
        The report, at level `partitioned`, or `compiled` if a target was given.

    Raises:
        ShardvizError: as `trace`, `Plan` and `Program.partition`.

    Examples:
        >>> import jax, shardviz as sv
        >>> from jax.sharding import PartitionSpec as P
        >>> x, w = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((512, 1024), (1024, 256)))
        >>> specs = P(None, "model"), P("model")
        >>> report = sv.analyze(lambda x, w: x @ w, x, w, mesh={"model": 8}, in_specs=specs)
        >>> [(one.kind, one.axes, one.operand_bytes) for one in report.collectives]
        [('all-reduce', ('model',), 524288.0)]
    """
    settings = dict(zip(_SETTINGS, (static_argnums, static_argnames, donate_argnums, donate_argnames), strict=True))
    program = program_of(fn, args, kwargs, mesh, **settings).with_flops(flops or {})
    plan = program.plan(mesh, in_specs, out_specs, target)
    return program.partition(plan) if target is None else program.compile(plan, target)


_SETTINGS = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")


def program_of(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], mesh: Any, **settings: Any
) -> Program:
    """Return the program of a call, traced on `mesh` (None: the function's own). `settings` are the settings of
    `jax.jit` that `trace` takes."""
    return Program(adapt(fn, args, kwargs, **settings), mesh)


def program_and_plan(subject: Any, mesh: Any = None, target: str | None = None) -> tuple[Program, Plan]:
    """Return the program and the plan of a subject, on `mesh` if given. The subject is a `Program`, an example of the
    gallery, either of them with a plan, or (function, arguments[, keywords]) with `in_specs`, `out_specs` and the
    options of `trace` among the keywords; `target` is as for `Program.plan`. Raises ShardvizError for another subject;
    otherwise as `trace` and `Program.plan`."""
    if isinstance(subject, Program):
        return subject, subject.plan(mesh, target=target)
    program, plan = getattr(subject, "program", None), getattr(subject, "plan", None)
    if isinstance(subject, tuple) and len(subject) == 2 and isinstance(subject[1], Plan):
        program, plan = getattr(subject[0], "program", subject[0]), subject[1]
    if isinstance(program, Program) and isinstance(plan, Plan):
        return program, plan if mesh is None else plan.with_mesh(mesh)
    if (
        isinstance(subject, tuple)
        and 2 <= len(subject) <= 3
        and callable(subject[0])
        and not isinstance(subject[1], Plan)
    ):
        fn, args = subject[:2]
        options = dict(subject[2]) if len(subject) == 3 else {}
        specs = {name: options.pop(name, None) for name in ("in_specs", "out_specs")}
        settings = {name: options.pop(name) for name in _SETTINGS if name in options}
        program = program_of(fn, tuple(args), options, mesh, **settings)
        return program, program.plan(mesh, **specs, target=target)
    parts = ", ".join(type(part).__name__ for part in (subject if isinstance(subject, tuple) else (subject,)))
    raise ShardvizError(
        f"({parts}) was given: expected a program (sv.trace), an example of the gallery, (program, plan), (function, "
        "arguments) or (function, arguments, keywords)"
    )
