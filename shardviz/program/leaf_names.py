"""What to call the arrays among a call's arguments before anything is traced: tree paths, as `jax.jit` has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any

import jax


def tree_of_names(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], static: Collection[int] = ()
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with a name in place of every leaf: `params['w']`, `rest[0]`.

    Args:
        fn: the function whose parameters they are.
        args, kwargs: what it is called with.
        static: numbers of the positional arguments that are no data; these are left out.
    """
    heads = _heads(fn, args)
    positional = tuple(_named(head, a) for i, (head, a) in enumerate(zip(heads, args, strict=True)) if i not in static)
    return positional, {k: _named(k, a) for k, a in kwargs.items()}


def _heads(fn: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    heads: list[str] = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            heads.append(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            heads += [f"{parameter.name}[{i}]" for i in range(len(args) - len(heads))]
    heads += [f"argument {i}" for i in range(len(heads), len(args))]
    return heads[: len(args)]


def _named(head: str, tree: Any) -> Any:
    return jax.tree_util.tree_map_with_path(lambda path, _: head + jax.tree_util.keystr(path), tree)
