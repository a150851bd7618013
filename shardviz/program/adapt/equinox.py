"""Functions that `equinox.filter_jit` has wrapped: arrays are traced, everything else in the arguments is static.

What is no array in the result (an activation function of a model that comes out, say) is left out of it.
Nothing here imports equinox before somebody who has imported it comes along.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from shardviz.program.adapt.call import Call, Options, name_of


def adapt_equinox(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Call | None:
    """A function or method wrapped by `equinox.filter_jit`, with what it says of donation unless `options` say more.

    Raises:
        TraceError, SpecError: as `adapt`.
    """
    if "equinox" not in sys.modules:
        return None
    wrapper, bound = fn, ()
    if type(fn).__module__.startswith("equinox.") and type(fn).__name__ == "Partial":  # a method, bound to its module
        wrapper, bound = fn.func, tuple(fn.args)
        kwargs = {**fn.keywords, **kwargs}
    if not (type(wrapper).__module__.startswith("equinox.") and type(wrapper).__name__ == "_JitWrapper"):
        return None
    args = (*bound, *args)
    if not options:
        donated = [i for i in range(len(args)) if (wrapper.donate_first if i == 0 else wrapper.donate_rest)]
        options = Options(donate_argnums=tuple(donated))
    pure, (positional, keyword) = _pure(wrapper.__wrapped__, args, kwargs)
    call = adapt(pure, positional, keyword, options)
    return None if call is None else replace(call, kind="jit")


def _pure(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Callable[..., Any], Any]:
    """(the function of the arrays alone, its arguments with None in place of what is no array)."""
    leaves, tree = jax.tree.flatten((args, kwargs))

    @functools.wraps(fn)
    def pure(*args: Any, **kwargs: Any) -> Any:
        arrays = iter(jax.tree.leaves((args, kwargs)))
        whole, named = tree.unflatten([next(arrays) if is_array(x) else x for x in leaves])
        out, out_tree = jax.tree.flatten(fn(*whole, **named))
        return out_tree.unflatten([x if is_array(x) else None for x in out])

    pure.__name__ = name_of(fn)
    return pure, tree.unflatten([x if is_array(x) else None for x in leaves])


def is_array(x: Any) -> bool:
    """Whether `filter_jit` traces it: arrays, NumPy's included, and what stands for one; no Python number."""
    return isinstance(x, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)
