"""Any callable as a `Call` that can be traced, with an adapter for each kind.

`adapt` tries the adapters in order. A kind's own package (flax, say) is imported only if the callable comes from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from shardviz import _jax
from shardviz.errors import TraceError
from shardviz.tracing.adapt import exported, jit, nnx, pmap
from shardviz.tracing.call import Call, JitOptions

Adapter = Callable[[Any, tuple[Any, ...], dict[str, Any], JitOptions], Call | None]


def _own(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: JitOptions) -> Call | None:
    """Return the `Call` that an object's method `__shardviz_call__(args, kwargs, options)` makes; the old `pjit` has
    one."""
    adapt_own = getattr(type(fn), "__shardviz_call__", None)
    return None if adapt_own is None else adapt_own(fn, args, kwargs, options)


ADAPTERS: tuple[Adapter, ...] = (_own, exported.adapt, jit.adapt_equinox, nnx.adapt, pmap.adapt, jit.adapt)
"""Each returns a `Call`, or None for a callable of another kind; the last one takes every function."""

_STAGES = (jax.stages.Traced, jax.stages.Lowered, jax.stages.Compiled)


def adapt(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any) -> Call:
    """Return a callable and its arguments (arrays, `ShapeDtypeStruct`s, numbers in pytrees, static values) as a `Call`.
    Nothing is kept alive, allocated or run. `options` are those of `JitOptions`. Raises TraceError if `fn` is not
    callable, or is a stage of `jax.jit`, or if an argument is neither an array nor static."""
    stage = getattr(fn, "_inner_obj", fn) if type(fn).__module__.startswith("flax.nnx") else fn  # of nnx.jit's
    if isinstance(stage, _STAGES):
        raise TraceError(
            f"a jax.stages.{type(stage).__name__} is of one mesh and one set of shardings; give the function that "
            "jax.jit made it of, with its arguments"
        )
    jit_options = JitOptions.of(options)
    if inspect.ismethod(fn) and _jax.unwrap_jit(fn) is None and _jax.unwrap_jit(fn.__func__) is not None:
        fn, args = fn.__func__, (fn.__self__, *args)  # a pytree with arrays of its own
    for adapter in ADAPTERS:
        call = adapter(fn, args, kwargs, jit_options)
        if call is not None:
            return call
    raise TraceError(f"expected a function, not {fn!r}")
