"""`explore` opens the explorer on a function, a traced program or an example; `open` opens a saved session.

>>> explorer = explore(train_step, params, tokens, mesh={"data": 8, "model": 8})     # doctest: +SKIP
>>> explorer                                                                         # doctest: +SKIP
>>> explorer.wait().collectives                                                      # doctest: +SKIP
"""

from __future__ import annotations

import os
import reprlib
from typing import Any, overload

from shardviz import processes
from shardviz.ask import Program
from shardviz.ask.calls import program_of
from shardviz.errors import MeshError, ShardvizError, TraceError
from shardviz.explorer.explorer import ExplorerState
from shardviz.explorer.files import read_session
from shardviz.gallery import Example
from shardviz.judge.report import Report
from shardviz.page.explorer import Explorer
from shardviz.page.run import RunExplorer
from shardviz.plan.plan import Plan
from shardviz.runs.run import Run, RunStep
from shardviz.runs.together import Together
from shardviz.tracing.adapt.exported import held_by


@overload
def explore(fn: Run, **options: Any) -> Explorer | RunExplorer: ...
@overload
def explore(fn: Together, **options: Any) -> RunExplorer: ...
@overload
def explore(fn: Any, *args: Any, **options: Any) -> Explorer: ...
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
) -> Any:
    """Open the explorer on a function, a traced program, or an example of the gallery.

    Args:
        fn: a function, a `jax.jit`-ed function, a traced program, or an `Example` such as `sv.gallery.llama("8b")`.
            Also a program of a dry run (`run["train_step"]`), or a whole run or `sv.together(...)`, which adds a strip
            with the programs.
        *args: the function's arguments: arrays or `jax.ShapeDtypeStruct`s in any pytree. Nothing is allocated.
        plan: the starting plan, instead of `mesh`, `in_specs` and `out_specs`. After a traced program, an example or
            a program of a run it needs no keyword: `sv.explore(program, plan)`.
        mesh: a mesh in any form that `sv.mesh` takes, such as `{"data": 8, "model": 8}`. None for the function's own
            mesh (of an example, a pmapped function, or `in_shardings`), else the target's `default_mesh`.
        in_specs, out_specs: pytree prefixes of PartitionSpecs, as `jax.jit` takes them.
        static_argnums, static_argnames, donate_argnums, donate_argnames: as `jax.jit` takes them.
        level: the highest level after each change: `propagated`, `partitioned` or `compiled`.
        timeout: time limit of a compile in seconds; `explorer.state.timeout` changes it later.
        memory_limit: memory limit of a compile in bytes, None for no limit; `explorer.state.memory_limit` changes it.
        target: the machine: `cpu`, `tpu v5p:4x4x4`, `gpu h100:8x8`, a chip alone (`v5p`: its most cube-like topology of
            the mesh's size), `attached`, or a `Machine`. It has as many devices as the mesh.
        tokens: tokens (or samples) per step, for tokens per second; None derives them from the arguments, False omits
            them.
        model_flops: FLOPs per step that the model needs (6 x parameters x tokens, say), for its utilisation.
        **kwargs: keyword arguments of the function, as for `sv.trace`.

    Returns:
        The `Explorer`; as the last expression of a cell it displays itself. Several programs give a
        `RunExplorer`; its `explorer` is the open one.

    Raises:
        ShardvizError: if there is nothing to explore, no plan, or the function cannot be traced. Also if the plan does
            not fit it, the target is unknown, or target and mesh differ in size.

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
    asked: dict[str, Any] = {"level": level, "timeout": timeout, "memory_limit": memory_limit, "target": target}
    if isinstance(fn, Together):
        if fn.machine is not None and target == "cpu":
            asked["target"] = fn.machine
        return RunExplorer(fn, 0, lambda side: explore(side.program, plan=side.plan, **asked))
    if isinstance(fn, Run):
        step = fn.longest
        beside = [each for each in fn if each.program and (each.recorded.devices > 1) == (step.recorded.devices > 1)]
        asked |= {"plan": plan, "mesh": mesh, "in_specs": in_specs, "out_specs": out_specs}
        if len(beside) == 1:
            return explore(step, **asked)
        return RunExplorer(fn, fn.steps.index(step), lambda each: explore(each, **asked))
    if isinstance(fn, Example | Program | RunStep) and plan is None and args and isinstance(args[0], Plan):
        plan, args = args[0], args[1:]
    if isinstance(fn, RunStep):
        fn, plan, target = _of_run(fn, plan, mesh, target)
    if isinstance(fn, Example | Program):
        args_words = [f"args[{i}] of type {type(arg).__name__}" for i, arg in enumerate(args)]
        extra = [*args_words, *kwargs, *(name for name, option in options.items() if option != ())]
        if extra:
            why = "is traced already" if isinstance(fn, Program) else "is an example with arguments of its own"
            raise TraceError(f"{fn.name} {why}, so leave out {', '.join(extra)}")
    elif not callable(fn) and held_by(fn) is None:
        raise TraceError(_nothing_to_explore(fn))
    if isinstance(fn, Example) and plan is None:
        mesh, in_specs, out_specs = (
            own if asked is None else asked
            for asked, own in ((mesh, fn.mesh), (in_specs, fn.in_specs), (out_specs, fn.out_specs))
        )
    own = plan is None and mesh is None  # then the function must have its own mesh
    plan = None if own else _plan(plan, mesh, in_specs, out_specs)
    processes.start()  # while the function is traced
    program = fn.program if isinstance(fn, Example) else fn
    if not isinstance(program, Program):
        program = program_of(program, args, kwargs, None if plan is None else plan.mesh, **options)
    plan, remark = _own_plan(program, in_specs, out_specs, target) if plan is None else (plan, "")
    limits: dict[str, Any] = {"timeout": timeout, "memory_limit": memory_limit}
    on: dict[str, Any] = {"target": target, "remark": remark, "tokens": tokens, "model_flops": model_flops}
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
    """Open a session that `explorer.save("session.json")` wrote.

    Args:
        path: the file.
        program: a traced program, or an example of the gallery. Every card's plan is propagated anew. To look at a
            session without its program, save a page: `explorer.save("page.html")`.
        target: another machine than the saved one; required if its chip is user-defined.
        level, timeout, memory_limit: as `explore`.

    Returns:
        The `Explorer`.

    Raises:
        ShardvizError: if the file cannot be read, is no session, or is damaged.
        SpecError: if a plan does not fit the program; the message names the argument.
        TargetError, MeshError: if the machine is unknown, or its size differs from the mesh's.

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
            f"open: program must be the result of sv.trace(fn, ...), or an example of sv.gallery, not "
            f"{reprlib.repr(program)} ({type(program).__name__})"
        )
    processes.start()
    return Explorer(read_session(path, program, target, level=level, timeout=timeout, memory_limit=memory_limit))


def _of_run(step: RunStep, plan: Any, mesh: Any, target: Any) -> tuple[Program, Any, Any]:
    if step.program is None:
        raise ShardvizError(f"{step.name}: {step.why_not}")
    if plan is None and mesh is None:
        plan = step.plan
        target = step.target if target == "cpu" and step.target else target
    return step.program, plan, target


def _plan(plan: Any, mesh: Any, in_specs: Any, out_specs: Any) -> Plan:
    if plan is None:
        return Plan(mesh, in_specs=in_specs, out_specs=out_specs)
    if any(part is not None for part in (mesh, in_specs, out_specs)):
        raise ShardvizError("explore takes either a plan, or mesh, in_specs and out_specs; not both")
    if not isinstance(plan, Plan):
        raise ShardvizError(f"plan: expected an sv.Plan, not {reprlib.repr(plan)}")
    return plan


def _own_plan(program: Program, in_specs: Any, out_specs: Any, target: Any) -> tuple[Plan, str]:
    """Return the plan on the function's own mesh, else on the target's default mesh, and a remark for the target."""
    try:
        return program.plan(None, in_specs, out_specs), ""
    except MeshError:
        pass
    try:
        plan = program.plan(None, in_specs, out_specs, target)
        return plan, f"gave the mesh {plan.mesh}, since none was given; change it above"
    except MeshError as error:
        raise MeshError(
            "explore needs a mesh, such as mesh={'data': 8, 'model': 8}, a target with a topology, such as "
            "target='tpu v5e:4x4', or a plan, plan=sv.Plan(...): neither the function nor its arguments have a mesh"
        ) from error


def _nothing_to_explore(subject: Any) -> str:
    """Return why an object cannot be explored, with an alternative for known types."""
    text = "explore takes a function, a program from sv.trace, or an example such as sv.gallery.llama('8b')"
    if isinstance(subject, Plan):
        return f"{text}; a plan goes second: sv.explore(program, plan=plan)"
    if isinstance(subject, Report):
        return f"{text}; a report is a finding, and shows itself as the last expression of a cell"
    return f"{text}; not {reprlib.repr(subject)} ({type(subject).__name__})"
