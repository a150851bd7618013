"""By what `jax.jit` recognises a call, and the names of a call's arguments.

Arrays go by their tree paths, as `jax.jit` has them: `params['w']`, `rest[0]`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from shardviz import _jax
from shardviz.errors import TraceError


@dataclass(frozen=True, eq=False)
class CallSignature:
    """A call of a function (jit's wrapping taken off; JAX knows it by identity) as `jax.jit` knows it, without arrays:
    abstract ones, with the shardings of those that are committed, and static values, these also as text with their
    types; what `jax.jit` is told of the function; and what enters again the settings and meshes around the call."""

    name: str
    fn: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any]
    context: Callable[[], AbstractContextManager[None]]
    static: Mapping[str, str]

    @property
    def arrays(self) -> dict[str, Any]:
        """Tree path → abstract array, or static value."""
        names = tree_of_names(self.fn, self.args, dict(self.kwargs))
        return dict(zip(jax.tree.leaves(names), jax.tree.leaves((self.args, self.kwargs)), strict=True))

    def __repr__(self) -> str:
        return "\n".join([f"call of {self.name}", *(f"  {name}: {short(x)}" for name, x in self.arrays.items())])

    def lowered(self, stand_in: Callable[..., Any]) -> Any:
        """Another function lowered as this call would be, for the CPU."""
        with self.context():
            jitted = jax.jit(stand_in, keep_unused=True, **self.options)
            return jitted.trace(*self.args, **self.kwargs).lower(lowering_platforms=("cpu",))


def signature_of(
    fn: Any,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Any,
    in_shardings: Any = None,
) -> CallSignature:
    """The signature of a call, under what holds now. Raises TraceError for an argument that cannot be in it."""
    roots, static = parameter_names(fn, len(args)), options.static_places(fn, len(args))

    statics: dict[str, str] = {}

    def abstract(root: str, value: Any, is_static: bool) -> Any:
        if is_static:
            _require_hashable(name, root, value)
            statics[root] = f"{short(value)} ({type(value).__name__})"
            return value
        at = lambda path, x: _abstract(name, root + jax.tree_util.keystr(path), x)  # noqa: E731
        return jax.tree_util.tree_map_with_path(at, value)

    jit_options = options.given() | ({} if in_shardings is None else {"in_shardings": in_shardings})
    return CallSignature(
        name,
        fn,
        tuple(abstract(root, x, i in static) for i, (root, x) in enumerate(zip(roots, args, strict=True))),
        {k: abstract(k, x, k in options.static_argnames) for k, x in kwargs.items()},
        jit_options,
        _jax.context_here(),
        statics,
    )


def stand_in(fn: Any) -> Callable[..., Any]:
    """A function with another's signature that does nothing: JAX's caches know no more of a function than that."""

    @functools.wraps(fn)
    def nothing(*args: Any, **kwargs: Any) -> tuple[()]:
        return ()

    return nothing


def parameters_of(fn: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """A function's parameters; none where Python does not know them."""
    try:
        return tuple(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return ()


def parameter_names(fn: Callable[..., Any], count: int) -> list[str]:
    """What the first `count` positional arguments are called: the parameter's name, `rest[0]` of a `*rest`."""
    names: list[str] = []
    for parameter in parameters_of(fn):
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{i}]" for i in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return (names + [f"args[{i}]" for i in range(len(names), count)])[:count]


def short(value: Any) -> str:
    """A value's repr, cut to one line of at most 60 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:59] + "…"


def _require_hashable(function: str, name: str, value: Any) -> None:
    try:
        hash(value)
    except TypeError as error:
        raise TraceError(
            f"{function}: the static argument {name} is a {type(value).__name__}, {short(value)}, "
            "which has no hash, by which JAX finds a call again; give a tuple in place of a list, or a frozen dataclass"
        ) from error


def _abstract(function: str, name: str, x: Any) -> Any:
    if isinstance(x, jax.ShapeDtypeStruct | bool | int | float | complex):
        return x
    try:
        aval = jax.typeof(x)
    except TypeError as error:
        raise TraceError(
            f"{function}: {name} is a {type(x).__name__}, {short(x)}: expected an array, a jax.ShapeDtypeStruct or "
            "a number. If it is a setting and not data, name its argument in static_argnums or static_argnames"
        ) from error
    sharding: Any = x.sharding if isinstance(x, jax.Array) and x.committed else None
    while isinstance(sharding, NamedSharding) and sharding.spec[-1:] == (None,) and not sharding.spec.unreduced:
        sharding = NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[:-1]), memory_kind=sharding.memory_kind)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=sharding)


def tree_of_names(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], static: Collection[int] = ()
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, but for static ones, with a name in place of every leaf: `params['w']`, `rest[0]`."""
    rows = enumerate(zip(parameter_names(fn, len(args)), args, strict=True))
    positional = tuple(named_tree(root, tree) for i, (root, tree) in rows if i not in static)
    return positional, {k: named_tree(k, tree) for k, tree in kwargs.items()}


def named_tree(root: str, tree: Any) -> Any:
    """The tree with its path below `root` in place of every leaf."""
    return jax.tree_util.tree_map_with_path(lambda path, _: root + jax.tree_util.keystr(path), tree)
