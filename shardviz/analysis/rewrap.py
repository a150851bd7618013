"""A call's function wrapped anew by a transform: its parameters keep their names, its static arguments stay static."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax

from shardviz import _jax
from shardviz.analysis.carry import Carry, numbered
from shardviz.errors import TraceError
from shardviz.program.adapters import Call, Options
from shardviz.program.signature import parameter_names
from shardviz.program.trees import Changes


def inner_of(call: Call, what: str) -> Callable[..., Any]:
    """The function to be transformed, jit's wrapping taken off."""
    wrapped = _jax.unwrap_jit(call.fn)
    fn = call.fn if wrapped is None else wrapped.fn
    if call.ready is not None or not callable(fn):
        raise TraceError(
            f"{what} of {call.name}: it is {call.kind} already, and JAX transforms functions only; "
            "trace the function itself"
        )
    return fn


def rewrapped(
    call: Call,
    what: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    signature: inspect.Signature | None,
    names: dict[str, str],
    *,
    donate: bool = False,
) -> Call:
    """The new call: static arguments stay static; a buffer that was donated to the original is not donated to it,
    unless `donate` says so.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    run.__name__ = run.__qualname__ = name = f"{call.name}.{what}"
    if signature is not None:
        run.__signature__ = signature  # type: ignore[attr-defined]
    own = call.options
    options = Options(
        tuple(sorted(own.static_places(call.fn, len(call.args)) & set(range(len(call.args))))),
        tuple(n for n in own.static_argnames if n in call.kwargs),
        own.donate_argnums if donate else (),
        own.donate_argnames if donate else (),
    )
    own_names = {k: v for k, v in call.names.items() if not k.startswith("result")}
    jitted = jax.jit(run, keep_unused=True, **options.given())
    return replace(
        call,
        fn=jitted,
        args=args,
        kwargs=kwargs,
        name=name,
        kind="function",
        options=options,
        names=own_names | names,
        leaves=(),
        signature=None,
        in_shardings=None,
    )


def with_extra(
    call: Call,
    what: str,
    inner: Callable[..., Any],
    run: Callable[[tuple[Any, ...], Any, Callable[..., Any]], tuple[Any, Any]],
    extra: str,
    tree: Any,
    carries: Any,
    names: dict[str, str],
) -> tuple[Call, tuple[Carry, ...]]:
    """A call with one more argument after the positional ones; by keyword where the function takes `*args`.

    Args:
        run: from (the dynamic positional arguments, the new one, the function of the former) to (result, new values of
            arguments that are changed in place); the function gives such a pair too.
    """
    changes, number = Changes(), dict[int, int]()
    extra = unused(extra, call)
    dynamic = dynamic_places(call)
    signature, positional = _extended(call, extra)

    def fn(*args: Any, **kwargs: Any) -> Any:
        given = args[-1] if positional else kwargs.pop(extra)
        args = args[:-1] if positional else args
        primals = tuple(args[i] for i in dynamic)
        apart = lambda *primals: changes.apart(inner(*merged(args, dynamic, primals), **kwargs))  # noqa: E731
        return changes.together(
            *run(primals, given, apart), lambda p: p.at(None if p.number is None else number[p.number])
        )

    args = (*call.args, tree) if positional else call.args
    kwargs = call.kwargs if positional else {**call.kwargs, extra: tree}
    made = rewrapped(call, what, fn, args, kwargs, signature, names)
    static_names = set(call.options.static_argnames)
    keywords = {k: v for k, v in call.kwargs.items() if k not in static_names}
    own_args, own_keywords = numbered("in", (tuple(call.args[i] for i in dynamic), keywords))
    if positional:
        flat = jax.tree.leaves(((*own_args, carries), own_keywords))
    else:
        flat = jax.tree.leaves((own_args, {**own_keywords, extra: carries}))
    own = set(map(id, jax.tree.leaves((own_args, own_keywords))))
    number.update((carry.index, i) for i, carry in enumerate(flat) if id(carry) in own)
    return made, tuple(flat)


def merged(args: tuple[Any, ...], dynamic: Sequence[int], primals: tuple[Any, ...]) -> list[Any]:
    """All positional arguments: the static ones of `args` and the others from `primals`."""
    whole = list(args)
    for i, primal in zip(dynamic, primals, strict=True):
        whole[i] = primal
    return whole


def dynamic_places(call: Call) -> list[int]:
    """The numbers of the positional arguments that are not static."""
    static = call.options.static_places(call.fn, len(call.args))
    return [i for i in range(len(call.args)) if i not in static]


def parameters_of(call: Call) -> inspect.Signature | None:
    try:
        return inspect.signature(call.fn)
    except (TypeError, ValueError):
        return None


def roots_of(call: Call) -> list[str]:
    """What each positional argument is called: its parameter's name, or a transform's name for it."""
    return [call.names.get(name, name) for name in parameter_names(call.fn, len(call.args))]


def unused(name: str, call: Call) -> str:
    """The name, or one like it that no parameter has."""
    signature = parameters_of(call)
    taken = {*call.kwargs, *(signature.parameters if signature else ())}
    while name in taken:
        name += "_"
    return name


def _extended(call: Call, extra: str) -> tuple[inspect.Signature | None, bool]:
    """The signature with one more parameter after the arguments that are there, and whether it is positional."""
    signature = parameters_of(call)
    if signature is None:
        return None, True
    parameters = list(signature.parameters.values())
    kinds = inspect.Parameter
    positional = [p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    rest = any(p.kind is kinds.VAR_POSITIONAL for p in parameters)
    added = kinds(extra, kinds.KEYWORD_ONLY if rest else kinds.POSITIONAL_OR_KEYWORD)
    if rest:
        named = [p for p in parameters if p.kind is kinds.VAR_KEYWORD]
        return signature.replace(parameters=[*(p for p in parameters if p not in named), added, *named]), False
    filled = [p.replace(default=kinds.empty) for p in positional[: len(call.args)]]
    # what has its default, or comes by keyword, can no longer come by position
    others = [p.replace(kind=kinds.KEYWORD_ONLY) for p in positional[len(call.args) :]]
    others += [p for p in parameters if p.kind is kinds.KEYWORD_ONLY]
    others += [p for p in parameters if p.kind is kinds.VAR_KEYWORD]
    if filled and filled[-1].kind is kinds.POSITIONAL_ONLY:
        added = added.replace(kind=kinds.POSITIONAL_ONLY)
    return signature.replace(parameters=[*filled, added, *others]), True


def below(path: str, names: Any, form: str) -> dict[str, str]:
    """The names of the original's results, for those results at another path."""
    found = {path + key.removeprefix("result"): form.format(v) for key, v in names.items() if key.startswith("result")}
    return {path: form.format("result")} | found
