"""Whatever can be called, made ready to be traced: an adapter for each kind of callable.

`adapt` asks them in turn. A kind's own package (flax, say) is imported only where the callable already comes from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardviz.errors import TraceError
from shardviz.program.adapters import jit
from shardviz.program.adapters.call import Brings, Call, Options

__all__ = ["Brings", "Call", "Options", "adapt"]

Adapter = Callable[[Any, tuple[Any, ...], dict[str, Any], Options], Call | None]

ADAPTERS: tuple[Adapter, ...] = (jit.adapt,)
"""Each gives a `Call`, or None where the callable is not of its kind; the last one takes every function."""


def adapt(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any) -> Call:
    """A callable and its arguments as a `Call`; nothing is kept alive, nothing is allocated and nothing runs.

    Args:
        fn: any JAX callable.
        args, kwargs: what to call it with: arrays, `ShapeDtypeStruct`s or numbers in pytrees, or static values.
        options: `static_argnums`, `static_argnames`, `donate_argnums`, `donate_argnames`, as for `jax.jit`.

    Raises:
        TraceError: if `fn` is not callable, or an argument is no array and not static.
    """
    given = Options.of(options)
    for adapter in ADAPTERS:
        call = adapter(fn, args, kwargs, given)
        if call is not None:
            return call
    raise TraceError(f"expected a function, not {fn!r}")
