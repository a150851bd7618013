"""Functions of `sv.pjit`: their axis resources are the plan, on the mesh of the call site."""

from __future__ import annotations

import functools
from typing import Any

import jax

from shardviz import _jax
from shardviz.errors import TraceError
from shardviz.notation import DeviceMesh
from shardviz.program.call import Brings, Call, Options, abstract, own_specs, without_shardings
from shardviz.records import Diagnostic


def adapt(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Call | None:
    """A pjit function: None in its resources is replicated, `FROM_GDA` the argument's own sharding.

    Raises:
        TraceError: if arguments are given by name, or `options` says again what pjit was told.
        SpecError: if the resources do not fit the arguments.
    """
    from shardviz.compat.pjit import Pjit

    if not isinstance(fn, Pjit):
        return None
    if options:
        raise TraceError(f"{fn.name} is a pjit function, which has static_argnums and donate_argnums of its own")
    fn.static(args, kwargs)
    options = Options(fn.static_argnums, (), fn.donate_argnums)
    args, kwargs = abstract(fn.fun, args, kwargs, options)
    specs = tuple(spec for _, _, spec in fn.in_specs(args, kwargs))
    arrays = [x for _, x, _ in fn.in_specs(args, kwargs)]
    around = _jax.context_mesh()
    mesh = own_specs(arrays)[1] if around is None else DeviceMesh.of(around)
    jitted = jax.jit(_named(fn), keep_unused=True, **options.given())
    brings = Brings(mesh, specs, fn.out_axis_resources, "in_axis_resources")
    return Call(jitted, without_shardings(args), {}, fn.name, "pjit", options, brings, _notes(mesh))


def _named(fn: Any) -> Any:
    """The function inside, with its own name and parameters."""
    return functools.wraps(fn.fun)(lambda *args: fn.inside(*args))


def _notes(mesh: DeviceMesh | None) -> tuple[Diagnostic, ...]:
    if mesh is None or len(set(mesh.process_ids)) < 2:
        return ()
    message = (
        f"the mesh spans {len(set(mesh.process_ids))} processes and all shapes here are global ones; the pjit of the "
        "time took from each process, and gave it, its own piece of an array, unless it was a GlobalDeviceArray"
    )
    return (Diagnostic("pjit-local-views", "info", message),)
