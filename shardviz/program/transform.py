"""What every transform of a program shares: a call wrapped anew, and the plan that follows from the original's.

A transformed call keeps the person's parameter names, its static arguments stay static, and each of its arrays knows
which array of the original it takes its spec from (a `Carry`): a cotangent from its output, a tangent from its
primal, a mapped argument from the unmapped one with a dimension put in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardviz import _jax
from shardviz.errors import SpecError, TraceError
from shardviz.notation import Spec
from shardviz.notation.parsed import ParsedSpec
from shardviz.program.call import Brings, Call, Options
from shardviz.program.plan import expand, is_spec
from shardviz.program.signature import parameter_names
from shardviz.program.trace import Traced
from shardviz.program.trees import Changes, is_object, load
from shardviz.records import PlanRecord


def grad(call: Call, argnums: int | Sequence[int], has_aux: bool, *, value: bool = False) -> Transformed:
    """The gradient of a call's scalar result by some of its positional arguments, as `jax.grad` gives it.

    Args:
        call: the original.
        argnums: the positional arguments to differentiate by.
        has_aux: the function returns (scalar, anything else).
        value: give the scalar too, as `jax.value_and_grad` does.

    Raises:
        TraceError: if there is no such argument, or it has a leaf that is not floating point.

    Of `flax.nnx` objects the gradient is by their `nnx.Param`s, as `nnx.grad` has it; what the function changes in them
    comes out beside the result.
    """
    what = "value_and_grad" if value else "grad"
    inner = inner_of(call, what)
    several = not isinstance(argnums, int)
    numbers = tuple(_argnum(call, n, what) for n in (argnums if several else (argnums,)))
    roots = roots_of(call)
    chosen = [_chosen(call, n, roots[n], what) for n in numbers]

    def run(*args: Any, **kwargs: Any) -> Any:
        changes = Changes()

        def scalar(picked: list[Any]) -> Any:
            whole = list(args)
            for n, which, some in zip(numbers, chosen, picked, strict=True):
                whole[n] = _filled_in(args[n], which, some)
            out, values = changes.apart(inner(*whole, **kwargs))
            out = _scalar(out, call.name, what, has_aux)
            return (out[0], (out[1], values)) if has_aux else (out, (None, values))

        picked = [_picked(args[n], which) for n, which in zip(numbers, chosen, strict=True)]
        (out, (aux, values)), gradients = jax.value_and_grad(scalar, has_aux=True)(picked)
        gradients = tuple(gradients) if several else gradients[0]
        out = (out, aux) if has_aux else out
        result = (out, gradients) if value else (gradients, aux) if has_aux else gradients
        return changes.together(result, values)

    # jax.grad: gradients, or (gradients, aux); value_and_grad: (value, gradients), or ((value, aux), gradients)
    path = "result[1]" if value else "result[0]" if has_aux else "result"
    names = {path + (f"[{i}]" if several else ""): f"grad({roots[n]})" for i, n in enumerate(numbers)}
    if value:
        names |= {"result[0][0]": "value", "result[0][1]": "aux"} if has_aux else {"result[0]": "value"}
    elif has_aux:
        names["result[1]"] = "aux"
    ins = tuple(Carry("in", i) for i in range(len(call.arrays)))
    made = rewrapped(call, what, run, call.args, call.kwargs, parameters_of(call), names)
    brings = replace(call.brings, out_specs=None)
    return Transformed(replace(made, brings=brings, leaves=call.leaves), ins, lambda _: FREE)


def vjp(call: Call, traced: Traced) -> Transformed:
    """Outputs and gradients, a function of the arguments and of a cotangent for every floating-point output.

    The result is (outputs, gradients), the gradients a tuple over the positional arguments that are not static; what is
    not floating point has None in place of a cotangent and of a gradient.

    Raises:
        TraceError: if the call cannot be transformed.
    """
    inner = inner_of(call, "vjp")
    outs = out_avals(traced)
    cotangents = jax.tree.map(lambda a: _array(a) if _is_float(a) else None, outs)
    carries = jax.tree.map(lambda c, a: c if _is_float(a) else None, numbered("out", outs), outs)

    def run(primals: tuple[Any, ...], given: Any, fn: Callable[..., Any]) -> Any:
        out, pull, values = jax.vjp(fn, *primals, has_aux=True)
        gradients = pull(_filled(given, out))
        return (out, jax.tree.map(_or_none, gradients)), values

    roots = roots_of(call)
    names = below("result[0]", call.names, "{}")
    names |= {f"result[1][{j}]": f"grad({roots[i]})" for j, i in enumerate(dynamic_places(call))}
    made, ins = with_extra(call, "vjp", inner, run, "cotangents", cotangents, carries, names)
    return bring(call, traced, made, ins, lambda t: (numbered("out", out_avals(t)), FREE))


def jvp(call: Call, traced: Traced) -> Transformed:
    """Outputs and their tangents, a function of the arguments and of a tangent for each.

    The tangents are a tuple over the positional arguments that are not static; what is not floating point has None in
    place of a tangent.

    Raises:
        TraceError: if the call cannot be transformed.
    """
    inner = inner_of(call, "jvp")
    dynamic = dynamic_places(call)
    primals = tuple(call.args[i] for i in dynamic)
    tangents = jax.tree.map(lambda a: _array(a) if _is_float(a) else None, primals)
    own = numbered("in", (primals, {}))[0]  # the positional arguments come first
    carries = jax.tree.map(lambda c, a: c if _is_float(a) else None, own, primals)

    def run(primals: tuple[Any, ...], given: Any, fn: Callable[..., Any]) -> Any:
        out, tangent, values = jax.jvp(fn, primals, _filled(given, primals), has_aux=True)
        return (out, jax.tree.map(_or_none, tangent)), values

    roots = roots_of(call)
    names = below("result[0]", call.names, "{}") | below("result[1]", call.names, "tangent({})")
    extra = unused("tangents", call)
    names |= {f"{extra}[{j}]": f"tangent({roots[i]})" for j, i in enumerate(dynamic)}
    made, ins = with_extra(call, "jvp", inner, run, extra, tangents, carries, names)
    return bring(call, traced, made, ins, lambda t: (numbered("out", out_avals(t)),) * 2)


def _array(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(np.shape(aval), dtype_of(aval))


def _is_float(x: Any) -> bool:
    return bool(jnp.issubdtype(dtype_of(x), jnp.inexact))


def _or_none(x: Any) -> Any:
    return None if x.dtype == jax.dtypes.float0 else x


def _filled(given: Any, like: Any) -> Any:
    """Cotangents or tangents for a whole tree: those given, and JAX's zeros for what is not floating point."""
    leaves, structure = jax.tree.flatten(like)
    rest = iter(jax.tree.leaves(given))
    return jax.tree.unflatten(
        structure, [next(rest) if _is_float(x) else np.zeros(np.shape(x), jax.dtypes.float0) for x in leaves]
    )


def _argnum(call: Call, number: Any, what: str) -> int:
    count, roots = len(call.args), roots_of(call)
    if isinstance(number, bool) or not isinstance(number, int) or not -count <= number < count:
        there = ", ".join(f"{i} ({name})" for i, name in enumerate(roots))
        there = f"there are {there}" if there else "there is none, so pass what to differentiate by by position"
        raise TraceError(f"{what} of {call.name}: argnums={number!r} is no positional argument; {there}")
    if number % count not in dynamic_places(call):
        raise TraceError(
            f"{what} of {call.name}: argument {number}, {roots[number]}, is static, and a gradient is by arrays; "
            "take it out of static_argnums, or choose other argnums"
        )
    return number % count


def _chosen(call: Call, number: int, root: str, what: str) -> list[bool]:
    """For each array of an argument whether the gradient is by it.

    Raises:
        TraceError: if one that it would have to be by is not floating point, or there is none.
    """
    leaves = jax.tree_util.tree_leaves_with_path(call.args[number])
    static = call.options.static_places(call.fn, len(call.args))
    start = len(jax.tree.leaves([a for i, a in enumerate(call.args[:number]) if i not in static]))
    held = [leaf.value for leaf in call.leaves[start : start + len(leaves)]]
    if any(map(is_object, held)):
        param = load().Param
        found = [isinstance(v, param) if is_object(v) else _is_float(v) for v in held]
        if not any(found):
            raise TraceError(
                f"{what} of {call.name}: a gradient of flax.nnx objects is by their nnx.Param, and {root} has none; "
                "choose other argnums"
            )
        return found
    for path, leaf in leaves:
        if not _is_float(leaf):
            raise TraceError(
                f"{what} of {call.name}: {root}{jax.tree_util.keystr(path)} is {dtype_of(leaf)}, and a gradient is by "
                "floating-point arrays; choose other argnums, or move it into an argument of its own"
            )
    return [True] * len(leaves)


def _picked(tree: Any, which: list[bool]) -> Any:
    """The tree with None for what is not chosen."""
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, [x if yes else None for x, yes in zip(leaves, which, strict=True)])


def _filled_in(tree: Any, which: list[bool], picked: Any) -> Any:
    """The tree with the leaves that were chosen from another, `_picked` from it."""
    leaves, structure = jax.tree.flatten(tree)
    some = iter(jax.tree.leaves(picked))
    return jax.tree.unflatten(structure, [next(some) if yes else x for x, yes in zip(leaves, which, strict=True)])


def _scalar(out: Any, name: str, what: str, has_aux: bool) -> Any:
    """The function's result, if it has a gradient.

    Raises:
        TraceError: saying what it is instead of one real number.
    """
    value = out
    if has_aux:
        if not isinstance(out, tuple) or len(out) != 2:
            raise TraceError(f"{what} of {name} with has_aux=True: expected (scalar, anything else), not {_words(out)}")
        value = out[0]
    why = ""
    if value is None:
        why = "return the loss"
    elif not jax.tree_util.treedef_is_leaf(jax.tree.structure(value)):
        why = "return one scalar; give what else there is as (scalar, rest) with has_aux=True, or use program.vjp()"
    elif np.shape(value) != ():
        why = "take its mean or sum, or use program.vjp(), which takes a cotangent of that shape"
    elif not jnp.issubdtype(dtype_of(value), jnp.floating):
        why = "return a real floating-point number, such as the loss"
    if why:
        raise TraceError(
            f"{what} of {name}: a gradient is of one real number, and the result is {_words(value)}; {why}"
        )
    return out


def _words(value: Any) -> str:
    if value is None:
        return "None"
    if jax.tree_util.treedef_is_leaf(jax.tree.structure(value)):
        return f"{dtype_of(value)}{list(np.shape(value))}"
    kind = type(value).__name__
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind} of {len(jax.tree.leaves(value))} arrays"


@dataclass(frozen=True)
class Carry:
    """Where an array of a transformed program takes its spec from.

    Attributes:
        whence: `in`, `out`, or `free` for the compiler's choice.
        index: the number of the original's flat argument or output.
        dimension: where a new dimension is put in, or None for none.
        axes: the mesh axes that cut the new dimension.
    """

    whence: str
    index: int = 0
    dimension: int | None = None
    axes: tuple[str, ...] = ()

    def spec(self, ins: Sequence[Spec | None], outs: Sequence[Spec | None]) -> Spec | None:
        """The spec, from those of the original; None where the original has none.

        Raises:
            SpecError: if an axis that the new dimension is cut along cuts the array already.
        """
        if self.whence == "free":
            return None
        found = (ins if self.whence == "in" else outs)[self.index]
        if self.dimension is None or (found is None and (self.whence == "out" or not self.axes)):
            return found
        return ParsedSpec.of(found or Spec()).insert(self.dimension, self.axes).spec


FREE = Carry("free")


@dataclass(frozen=True, eq=False)
class Transformed:
    """A transformed call.

    Attributes:
        call: what to trace.
        ins: for each flat argument, whence its spec.
        outs: from the original's trace, a pytree prefix of the result: whence each output's spec.
    """

    call: Call
    ins: tuple[Carry, ...]
    outs: Callable[[Traced], Any]


def carried_ins(origin: PlanRecord, of: Traced, transformed: Transformed, names: Sequence[str]) -> dict[str, Spec]:
    """The specs of a transformed program's arguments that follow from a plan for the original.

    Args:
        origin: the original's plan, bound.
        of: the original's trace.
        transformed: what was done to it.
        names: the transformed program's arguments.

    Raises:
        SpecError: if an axis of `spmd_axis_name` cuts an array already.
    """
    return _carried_all(origin, of, names, transformed.ins)


def carried_outs(origin: PlanRecord, of: Traced, transformed: Transformed, traced: Traced) -> dict[str, Spec]:
    """The same for its outputs, from its own trace."""
    flat = jax.tree.leaves(jax.tree.broadcast(transformed.outs(of), traced.out_tree))
    names = [o.name for o in traced.outputs[: len(flat)]]  # new values of arguments come last
    return _carried_all(origin, of, names, flat)


def _carried_all(origin: PlanRecord, of: Traced, names: Sequence[str], carries: Sequence[Carry]) -> dict[str, Spec]:
    ins = [origin.in_specs[a.name] for a in of.arguments]
    outs = [origin.out_specs[o.name] for o in of.outputs]
    found = {name: carried(carry, name, ins, outs) for name, carry in zip(names, carries, strict=True)}
    return {name: spec for name, spec in found.items() if spec is not None}


def carried(carry: Carry, name: str, ins: Sequence[Spec | None], outs: Sequence[Spec | None]) -> Spec | None:
    try:
        return carry.spec(ins, outs)
    except SpecError as error:
        raise SpecError(f"{name}: {error}", argument=name) from error


def bring(call: Call, traced: Traced, made: Call, ins: tuple[Carry, ...], outs: Callable[[Traced], Any]) -> Transformed:
    """With the plan that the original brings, carried over."""
    own = call.brings
    before: list[Spec | None] = list(own.in_specs) or [None] * len(traced.arguments)
    after: list[Spec | None] = expand("out_specs", own.out_specs, traced.out_tree)
    names = [a.name for a in traced.arguments] + ["the new argument"] * len(ins)
    specs = tuple(carried(c, n, before, after) for c, n in zip(ins, names, strict=False))
    anything = jax.tree.map(lambda c: carried(c, "the result", before, after), outs(traced))
    given = any(s is not None for s in jax.tree.leaves(anything, is_leaf=is_spec))
    brings = Brings(
        own.mesh,
        specs if any(s is not None for s in specs) else (),
        anything if given else None,
        own.whence,
    )
    return Transformed(replace(made, brings=brings), ins, outs)


def numbered(whence: str, tree: Any) -> Any:
    """The tree with a `Carry` for each leaf, in order."""
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, [Carry(whence, i) for i in range(len(leaves))])


def out_avals(traced: Traced) -> Any:
    """The result's avals in its tree, without the new values of arguments."""
    tree = jax.tree.structure(traced.out_tree)
    return jax.tree.unflatten(tree, list(traced.closed.out_avals)[: tree.num_leaves])


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


def dtype_of(x: Any) -> Any:
    """An array's dtype, or that which a Python number has."""
    return x.dtype if hasattr(x, "dtype") else jnp.result_type(x)
