"""Functions that `jax.jit` has wrapped, on their way to another process: JAX leaves half of them behind when it pickles
them, what `.trace` and `.lower` need included.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import jax

from shardviz._jax.wrappers import unwrap_jit

_JITTED = type(jax.jit(lambda: None))


def reduced(obj: Any) -> Any:
    """What a pickler is told of a function that `jax.jit` has wrapped: its name where it can be imported, else what it
    was made of. NotImplemented for anything else.
    """
    if type(obj) is not _JITTED:
        return NotImplemented
    module, name = getattr(obj, "__module__", ""), getattr(obj, "__qualname__", "")
    if module != "__main__" and module in sys.modules and _there(module, name) is obj:
        return _named, (module, name)
    wrapping = unwrap_jit(obj)
    if wrapping is None:
        return NotImplemented
    options = {
        name: getattr(wrapping, name)
        for name in ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "keep_unused")
        if getattr(wrapping, name)
    }
    for name in ("in_shardings", "out_shardings"):
        given = getattr(wrapping, name)
        if any(
            type(leaf).__name__ != "UnspecifiedValue" for leaf in jax.tree.leaves(given, is_leaf=lambda n: n is None)
        ):
            options[name] = given
    return _jitted, (wrapping.fn, options)


def _jitted(fn: Callable[..., Any], options: dict[str, Any]) -> Any:
    return jax.jit(fn, **options)


def _named(module: str, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


def _there(module: str, name: str) -> Any:
    try:
        return _named(module, name)
    except (AttributeError, ImportError):
        return None
