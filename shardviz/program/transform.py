"""What every transform of a program shares: a wrapped call, and the plan that follows from the original's.

A transformed call keeps the person's parameter names, its static arguments stay static, and each of its arrays knows
which array of the original it takes its spec from (a `SpecSource`): a cotangent from its output, a tangent from its
primal, a mapped argument from the unmapped one with a dimension put in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from shardviz import _jax
from shardviz.errors import SpecError, TraceError
from shardviz.notation import Spec
from shardviz.program.call import Brings, Call, Options
from shardviz.program.plan import expand, is_spec
from shardviz.program.signature import parameter_names
from shardviz.program.trace import Traced
from shardviz.program.trees import Changes
from shardviz.records import PlanRecord


@dataclass(frozen=True)
class SpecSource:
    """Where an array of a transformed program takes its spec from.

    Attributes:
        of: `in`, `out`, or `free` for the compiler's choice.
        index: the number of the original's flat argument or output.
        dimension: where a new dimension is put in, or None for none.
        axes: the mesh axes that cut the new dimension.
    """

    of: str
    index: int = 0
    dimension: int | None = None
    axes: tuple[str, ...] = ()

    def spec(self, ins: Sequence[Spec | None], outs: Sequence[Spec | None]) -> Spec | None:
        """The spec, from those of the original; None where the original has none.

        Raises:
            SpecError: if an axis that the new dimension is cut along cuts the array already.
        """
        if self.of == "free":
            return None
        found = (ins if self.of == "in" else outs)[self.index]
        if self.dimension is None or (found is None and (self.of == "out" or not self.axes)):
            return found
        return (found or Spec()).insert(self.dimension, self.axes)


FREE = SpecSource("free")


@dataclass(frozen=True, eq=False)
class Transformed:
    """A transformed call.

    Attributes:
        call: what to trace.
        ins: for each flat argument, where its spec comes from.
        outs: from the original's trace, a pytree prefix of the result: where each output's spec comes from.
    """

    call: Call
    ins: tuple[SpecSource, ...]
    outs: Callable[[Traced], Any]


def argument_specs(origin: PlanRecord, of: Traced, transformed: Transformed, names: Sequence[str]) -> dict[str, Spec]:
    """The specs of a transformed program's arguments that follow from a plan for the original.

    Args:
        origin: the original's plan, bound.
        of: the original's trace.
        transformed: what was done to it.
        names: the transformed program's arguments.

    Raises:
        SpecError: if an axis of `spmd_axis_name` cuts an array already.
    """
    return _specs_from(origin, of, names, transformed.ins)


def output_specs(origin: PlanRecord, of: Traced, transformed: Transformed, traced: Traced) -> dict[str, Spec]:
    """The same for its outputs, from its own trace."""
    flat = jax.tree.leaves(jax.tree.broadcast(transformed.outs(of), traced.out_tree))
    names = [o.name for o in traced.outputs[: len(flat)]]  # new values of arguments come last
    return _specs_from(origin, of, names, flat)


def _specs_from(origin: PlanRecord, of: Traced, names: Sequence[str], sources: Sequence[SpecSource]) -> dict[str, Spec]:
    ins = [origin.in_specs[a.name] for a in of.arguments]
    outs = [origin.out_specs[o.name] for o in of.outputs]
    found = {name: spec_from(source, name, ins, outs) for name, source in zip(names, sources, strict=True)}
    return {name: spec for name, spec in found.items() if spec is not None}


def spec_from(source: SpecSource, name: str, ins: Sequence[Spec | None], outs: Sequence[Spec | None]) -> Spec | None:
    try:
        return source.spec(ins, outs)
    except SpecError as error:
        raise SpecError(f"{name}: {error}", argument=name) from error


def bring(
    call: Call, traced: Traced, made: Call, ins: tuple[SpecSource, ...], outs: Callable[[Traced], Any]
) -> Transformed:
    """With the plan that the original brings, spec_from over."""
    own = call.brings
    before: list[Spec | None] = list(own.in_specs) or [None] * len(traced.arguments)
    after: list[Spec | None] = expand("out_specs", own.out_specs, traced.out_tree)
    names = [a.name for a in traced.arguments] + ["the new argument"] * len(ins)
    specs = tuple(spec_from(c, n, before, after) for c, n in zip(ins, names, strict=False))
    anything = jax.tree.map(lambda c: spec_from(c, "the result", before, after), outs(traced))
    given = any(s is not None for s in jax.tree.leaves(anything, is_leaf=is_spec))
    brings = Brings(
        own.mesh,
        specs if any(s is not None for s in specs) else (),
        anything if given else None,
        own.specs_from,
    )
    return Transformed(replace(made, brings=brings), ins, outs)


def numbered(of: str, tree: Any) -> Any:
    """The tree with a `SpecSource` for each leaf, in order."""
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, [SpecSource(of, i) for i in range(len(leaves))])


def out_avals(traced: Traced) -> Any:
    """The result's avals in its tree, without the new values of arguments."""
    tree = jax.tree.structure(traced.out_tree)
    if traced.closed is None:  # it was exported
        return tree.unflatten(jax.ShapeDtypeStruct(o.shape, jnp.dtype(o.dtype)) for o in traced.outputs)
    return tree.unflatten(list(traced.closed.out_avals)[: tree.num_leaves])


def inner_of(call: Call, what: str) -> Callable[..., Any]:
    """The function to be transformed, jit's wrapping taken off."""
    wrapped = _jax.unwrap_jit(call.fn)
    fn = call.fn if wrapped is None else wrapped.fn
    if not callable(fn):
        why = f"{call.kind} already"
        if call.kind == "exported":
            why = "exported without its VJP, which vjp_order=1 puts into the file"
        raise TraceError(
            f"{what} of {call.name}: it was {why}, and JAX transforms functions only; trace the function itself"
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
        traced_for=None,
        places=None,
    )


def with_extra(
    call: Call,
    what: str,
    inner: Callable[..., Any],
    run: Callable[[tuple[Any, ...], Any, Callable[..., Any]], tuple[Any, Any]],
    extra: str,
    tree: Any,
    sources: Any,
    names: dict[str, str],
) -> tuple[Call, tuple[SpecSource, ...]]:
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
        flat = jax.tree.leaves(((*own_args, sources), own_keywords))
    else:
        flat = jax.tree.leaves((own_args, {**own_keywords, extra: sources}))
    own = set(map(id, jax.tree.leaves((own_args, own_keywords))))
    number.update((source.index, i) for i, source in enumerate(flat) if id(source) in own)
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


def dtype_of(x: Any) -> Any:
    """An array's dtype, or that which a Python number has."""
    return x.dtype if hasattr(x, "dtype") else jnp.result_type(x)
