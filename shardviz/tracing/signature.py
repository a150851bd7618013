"""The names of a call's arguments: their tree paths in `jax.jit`'s notation: `params['w']`, `rest[0]`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any

import jax


def parameters_of(fn: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """Return a function's parameters; empty if Python does not know them."""
    try:
        return tuple(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return ()


def parameter_names(fn: Callable[..., Any], count: int) -> list[str]:
    """Return the names of the first `count` positional arguments: the parameter's name, or `rest[0]` for `*rest`."""
    names: list[str] = []
    for parameter in parameters_of(fn):
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{i}]" for i in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return (names + [f"args[{i}]" for i in range(len(names), count)])[:count]


def short(value: Any) -> str:
    """Return a value's repr on one line of at most 60 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:59] + "…"


def tree_of_names(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], static: Collection[int] = ()
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments, without static ones, with a name in place of every leaf: `params['w']`, `rest[0]`."""
    rows = enumerate(zip(parameter_names(fn, len(args)), args, strict=True))
    positional = tuple(named_tree(root, tree) for i, (root, tree) in rows if i not in static)
    return positional, {k: named_tree(k, tree) for k, tree in kwargs.items()}


def named_tree(root: str, tree: Any) -> Any:
    """Return the tree with each leaf replaced by its path below `root`."""
    return jax.tree_util.tree_map_with_path(lambda path, _: root + jax.tree_util.keystr(path), tree)
