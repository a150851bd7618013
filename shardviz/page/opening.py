"""`explore`: opens the explorer on a function, a traced program or an example; `open`: on a file that it saved.

>>> explorer = explore(train_step, params, tokens, mesh={"data": 8, "model": 8})     # doctest: +SKIP
>>> explorer                                                                         # doctest: +SKIP
>>> explorer.wait().collectives                                                      # doctest: +SKIP
"""

from __future__ import annotations

import os
import reprlib
from typing import Any

from shardviz import processes
from shardviz.ask import Program
from shardviz.ask.calls import program_of
from shardviz.errors import MeshError, ShardvizError, TraceError
from shardviz.explorer.explorer import ExplorerState
from shardviz.explorer.files import read_session
from shardviz.gallery import Example
from shardviz.judge.report import Report
from shardviz.page.explorer import Explorer
from shardviz.program.adapt.exported import held_by
from shardviz.program.plan import Plan


def explore(
    fn: Any,
    *args: Any,
    plan: Plan | None = None,
    mesh: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
    static_argnums: Any = (),
    static_argnames: Any = (),
    donate_argnums: Any = (),
    donate_argnames: Any = (),
    level: str = "compiled",
    timeout: float = 60.0,
    memory_limit: float | None = None,
    target: Any = "cpu",
    tokens: float | bool | None = None,
    model_flops: float | None = None,
    **kwargs: Any,
) -> Explorer:
    """Opens the explorer on a function, on a program that is traced already, or on an example of the gallery.

    Args:
        fn: a function, a `jax.jit`-ed one, what `sv.trace` gave, or an `Example` such as `sv.gallery.llama("8b")`.
        *args: the function's arguments: arrays or `jax.ShapeDtypeStruct`s in any pytree. Nothing is allocated.
        plan: the plan to begin with, instead of `mesh`, `in_specs` and `out_specs`. One of the two must be given, but
            for what brings a mesh and specs of its own: an example, a pmapped function, one with `in_shardings`, ...
        mesh: a mesh in any form that `sv.mesh` takes, such as `{"data": 8, "model": 8}`.
        in_specs, out_specs: pytree prefixes of PartitionSpecs, as `jax.jit` takes them.
        static_argnums, static_argnames, donate_argnums, donate_argnames: as `jax.jit` takes them.
        level: how far to go after each change: `propagated`, `partitioned` or `compiled`.
        timeout: seconds that a compile may take; `explorer.state.timeout` changes it later.
        memory_limit: bytes that a compile may use, None for no limit; `explorer.state.memory_limit` changes it later.
        target: the machine that the plan is for: `cpu`, `tpu v5p:4x4x4`, `gpu h100:8x8`, a chip alone (`v5p`: its most
            cube-like topology of the mesh's size), `attached`, or a `Machine`. It has as many devices as the mesh.
        tokens: tokens (or samples) of a whole step, for tokens a second; by default what the arguments tell, False for
            none. It changes nothing else.
        model_flops: FLOPs of a whole step that the model needs (6 x parameters x tokens, say), for its utilisation.
        **kwargs: all other keyword arguments are the function's own, as for `sv.trace`.

    Returns:
        The `Explorer`; show it by making it the last expression of a cell.

    Raises:
        ShardvizError: if there is nothing to explore or no plan, the function cannot be traced, the plan does not fit
            it, there is no such target, or it has another number of devices than the mesh.

    Examples:
        >>> import shardviz as sv
        >>> explorer = sv.explore(sv.gallery.mlp(), level="propagated")
        >>> explorer.report.level
        'propagated'
    """
    options = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
    }
    if isinstance(fn, Example | Program):
        extra = [*map(repr, args), *kwargs, *(name for name, option in options.items() if option != ())]
        if extra:
            why = "is traced already" if isinstance(fn, Program) else "is an example with arguments of its own"
            raise TraceError(f"{fn.name} {why}, so it takes none here; leave out {', '.join(extra)[:200]}")
    elif not callable(fn) and held_by(fn) is None:
        raise TraceError(_nothing_to_explore(fn))
    if isinstance(fn, Example) and plan is None:
        mesh, in_specs, out_specs = (
            own if asked is None else asked
            for asked, own in ((mesh, fn.mesh), (in_specs, fn.in_specs), (out_specs, fn.out_specs))
        )
    own = plan is None and mesh is None  # then the function must bring a mesh
    plan = None if own else _plan(plan, mesh, in_specs, out_specs)
    processes.start()  # while the function is traced
    program = fn.program if isinstance(fn, Example) else fn
    if not isinstance(program, Program):
        program = program_of(program, args, kwargs, None if plan is None else plan.mesh, **options)
    plan = _own_plan(program, in_specs, out_specs) if plan is None else plan
    limits: dict[str, Any] = {"timeout": timeout, "memory_limit": memory_limit}
    on: dict[str, Any] = {"target": target, "tokens": tokens, "model_flops": model_flops}
    return Explorer(ExplorerState(program, plan, level=level, **limits, **on))


def open(
    path: str | os.PathLike[str],
    program: Any,
    *,
    target: Any = None,
    level: str = "compiled",
    timeout: float = 60.0,
    memory_limit: float | None = None,
) -> Explorer:
    """Opens what `explorer.save("session.json")` wrote.

    Args:
        path: of the file.
        program: what `sv.trace` gave, or an example of the gallery: the explorer goes on with its cards, for each of
            which Shardy is asked anew. What can be looked at without it is a page, `explorer.save("page.html")`.
        target: another machine than the saved one; needed where its chip is one of your own.
        level, timeout, memory_limit: as `explore`.

    Returns:
        The `Explorer`.

    Raises:
        ShardvizError: if the file cannot be read, is no session or damaged.
        SpecError: if a plan does not fit the program; the message names the argument.
        TargetError, MeshError: if the machine is not known here, or has another number of devices than the mesh.

    Examples:
        >>> import os, tempfile, shardviz as sv
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = sv.explore(sv.gallery.mlp(), level="propagated").save(os.path.join(folder, "session.json"))
        ...     explorer = sv.open(path, sv.gallery.mlp(), level="propagated")
        >>> explorer.report.level
        'propagated'
    """
    if isinstance(program, Example):
        program = program.program
    if not isinstance(program, Program):
        raise ShardvizError(
            f"open: program is what sv.trace(fn, ...) gives, or an example of sv.gallery, not {reprlib.repr(program)} "
            f"({type(program).__name__})"
        )
    processes.start()
    return Explorer(read_session(path, program, target, level=level, timeout=timeout, memory_limit=memory_limit))


def _plan(plan: Any, mesh: Any, in_specs: Any, out_specs: Any) -> Plan:
    if plan is None:
        return Plan(mesh, in_specs=in_specs, out_specs=out_specs)
    if any(part is not None for part in (mesh, in_specs, out_specs)):
        raise ShardvizError("explore takes either a plan, or mesh, in_specs and out_specs; not both")
    if not isinstance(plan, Plan):
        raise ShardvizError(f"plan: expected an sv.Plan, not {reprlib.repr(plan)}")
    return plan


def _own_plan(program: Any, in_specs: Any, out_specs: Any) -> Plan:
    try:
        return program.plan(None, in_specs, out_specs)
    except MeshError as error:
        raise MeshError(
            "explore needs a mesh, such as mesh={'data': 8, 'model': 8}, or a plan, plan=sv.Plan(...): neither the "
            "function nor its arguments bring one"
        ) from error


def _nothing_to_explore(subject: Any) -> str:
    """Why this cannot be explored, with a way out where it is something of ours."""
    text = "explore takes a function, a program from sv.trace, or an example such as sv.gallery.llama('8b')"
    if isinstance(subject, Plan):
        return f"{text}; a plan goes second: sv.explore(program, plan=plan)"
    if isinstance(subject, Report):
        return f"{text}; a report is a finding, and shows itself as the last expression of a cell"
    return f"{text}; not {reprlib.repr(subject)} ({type(subject).__name__})"
