"""New programs from a program: its gradient, its vector-Jacobian and Jacobian-vector products, and itself mapped."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardviz.errors import TraceError
from shardviz.program.call import Call
from shardviz.program.trace import Traced
from shardviz.program.transform import (
    FREE,
    SpecSource,
    Transformed,
    below,
    bring,
    dtype_of,
    dynamic_places,
    inner_of,
    merged,
    numbered,
    out_avals,
    parameters_of,
    rewrapped,
    roots_of,
    unused,
    with_extra,
)
from shardviz.program.trees import Changes, Place, is_object, load, spread

COTANGENTS = "cotangents"
"""The argument that `vjp` adds; an underscore more where the function has one of that name."""


def is_cotangent(path: str) -> bool:
    """Whether a tree path lies in an argument that `vjp` added."""
    return re.fullmatch(rf"{COTANGENTS}\w*", re.split(r"[\[.]", path, maxsplit=1)[0]) is not None


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
    ins = tuple(SpecSource("in", i) for i in range(len(call.arrays)))
    made = rewrapped(call, what, run, call.args, call.kwargs, parameters_of(call), names)
    brings = replace(call.brings, out_specs=None)
    return Transformed(replace(made, brings=brings, leaves=call.leaves, places=call.places), ins, lambda _: FREE)


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
    sources = jax.tree.map(lambda c, a: c if _is_float(a) else None, numbered("out", outs), outs)

    def run(primals: tuple[Any, ...], given: Any, fn: Callable[..., Any]) -> Any:
        out, pull, values = jax.vjp(fn, *primals, has_aux=True)
        gradients = pull(_filled(given, out))
        return (out, jax.tree.map(_or_none, gradients)), values

    roots = roots_of(call)
    names = below("result[0]", call.names, "{}")
    names |= {f"result[1][{j}]": f"grad({roots[i]})" for j, i in enumerate(dynamic_places(call))}
    made, ins = with_extra(call, "vjp", inner, run, COTANGENTS, cotangents, sources, names)
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
    sources = jax.tree.map(lambda c, a: c if _is_float(a) else None, own, primals)

    def run(primals: tuple[Any, ...], given: Any, fn: Callable[..., Any]) -> Any:
        out, tangent, values = jax.jvp(fn, primals, _filled(given, primals), has_aux=True)
        return (out, jax.tree.map(_or_none, tangent)), values

    roots = roots_of(call)
    names = below("result[0]", call.names, "{}") | below("result[1]", call.names, "tangent({})")
    extra = unused("tangents", call)
    names |= {f"{extra}[{j}]": f"tangent({roots[i]})" for j, i in enumerate(dynamic)}
    made, ins = with_extra(call, "jvp", inner, run, extra, tangents, sources, names)
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


# Mapped over a new dimension.


def vmap(
    call: Call, traced: Traced, in_axes: Any, out_axes: Any, axis_size: int, spmd_axis_name: str | Sequence[str] | None
) -> Transformed:
    """The call mapped over a new dimension of its arguments, as `jax.vmap` maps it.

    Args:
        call: the original, whose arguments are one example's.
        traced: its trace.
        in_axes: where each argument has the new dimension: an int, or a pytree prefix of the positional arguments with
            None for what is not mapped. Keyword arguments are mapped along dimension 0.
        out_axes: the same for the result.
        axis_size: the size of the new dimension.
        spmd_axis_name: the mesh axis or axes that cut the new dimension everywhere, constraints included.

    Raises:
        TraceError: if `in_axes`, `out_axes` or `axis_size` do not fit.
        SpecError: if an axis of `spmd_axis_name` cuts an argument already.
    """
    inner = inner_of(call, "vmap")
    if isinstance(axis_size, bool) or not isinstance(axis_size, int) or axis_size < 1:
        raise TraceError(f"vmap of {call.name}: axis_size is the number of examples, 1 or more, not {axis_size!r}")
    axes = () if spmd_axis_name is None else _plural(spmd_axis_name)
    roots, dynamic = roots_of(call), dynamic_places(call)
    given = tuple(in_axes) if isinstance(in_axes, tuple | list) else (in_axes,) * len(call.args)
    if len(given) != len(call.args):
        raise TraceError(
            f"vmap of {call.name}: in_axes has {len(given)} entries and there are {len(call.args)} positional "
            f"arguments, {', '.join(roots)}; give one entry for each, or one int for all"
        )
    places = {i: _places(f"vmap of {call.name}: in_axes for {roots[i]}", given[i], call.args[i]) for i in dynamic}
    static_names = set(call.options.static_argnames)
    keyed = {k: _places(f"vmap of {call.name}: {k}", 0, v) for k, v in call.kwargs.items() if k not in static_names}
    args = tuple(_stacked(a, places[i], axis_size) if i in places else a for i, a in enumerate(call.args))
    kwargs = {k: _stacked(v, keyed[k], axis_size) if k in keyed else v for k, v in call.kwargs.items()}
    if all(at is None for some in (*places.values(), *keyed.values()) for at in some):
        raise TraceError(f"vmap of {call.name}: in_axes maps no argument; give at least one an int")

    def run(*args: Any, **kwargs: Any) -> Any:
        fixed, changes = {k: v for k, v in kwargs.items() if k not in keyed}, Changes()

        def one(primals: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            return changes.apart(inner(*merged(args, dynamic, primals), **keywords, **fixed))

        mapped = jax.vmap(
            one,
            in_axes=(tuple(given[i] for i in dynamic), 0),
            out_axes=(out_axes, 0),
            axis_size=axis_size,
            spmd_axis_name=spmd_axis_name if spmd_axis_name is None else axes,
        )
        out, values = mapped(tuple(args[i] for i in dynamic), {k: kwargs[k] for k in keyed})
        return changes.together(out, values, lambda place: replace(place, follows=place.follows and _leads(ins, place)))

    own = numbered("in", (tuple(call.args[i] for i in dynamic), {k: call.kwargs[k] for k in keyed}))
    spots = [at for i in dynamic for at in places[i]] + [at for k in sorted(keyed) for at in keyed[k]]

    def put(sources: Any, spots: list[int | None]) -> list[SpecSource]:
        pairs = zip(jax.tree.leaves(sources), spots, strict=True)
        return [s if at is None else replace(s, dimension=at, axes=axes) for s, at in pairs]

    ins = tuple(put(own, spots))

    def outs(of: Traced) -> Any:
        avals = out_avals(of)
        spots = _places(f"vmap of {call.name}: out_axes", out_axes, avals)
        return jax.tree.unflatten(jax.tree.structure(avals), put(numbered("out", avals), spots))

    made = rewrapped(call, "vmap", run, args, kwargs, parameters_of(call), dict(call.names), donate=True)
    return bring(call, traced, made, ins, outs)


def _leads(ins: Sequence[SpecSource], place: Place) -> bool:
    """Whether an argument is mapped along dimension 0, as its new value is."""
    return place.number is not None and ins[place.number].dimension == 0


def _places(what: str, prefix: Any, tree: Any) -> list[int | None]:
    """For each leaf of a tree where the new dimension goes, counted from the front; None for not mapped.

    Raises:
        TraceError: if `prefix` is no prefix of the tree, or an axis is out of range.
    """
    try:
        places = spread(prefix, tree)
    except ValueError as error:
        raise TraceError(f"{what}: {prefix!r} is no int, None or pytree prefix of it: {error}") from error
    for at, leaf in zip(places, jax.tree.leaves(tree), strict=True):
        rank = len(np.shape(leaf)) + 1
        if at is not None and (isinstance(at, bool) or not isinstance(at, int) or not -rank <= at < rank):
            raise TraceError(
                f"{what}: {at!r} is no place for a new dimension of {dtype_of(leaf)}{list(np.shape(leaf))}; "
                f"there are {-rank} to {rank - 1}, and None for not mapped"
            )
    leaves = jax.tree.leaves(tree)
    return [None if at is None else at % (len(np.shape(x)) + 1) for at, x in zip(places, leaves, strict=True)]


def _stacked(tree: Any, places: list[int | None], size: int) -> Any:
    """The tree's arrays with the new dimension."""
    leaves, structure = jax.tree.flatten(tree)
    for n, (x, at) in enumerate(zip(leaves, places, strict=True)):
        if at is not None:
            shape = list(np.shape(x))
            shape.insert(at, size)
            weak = getattr(x, "weak_type", not hasattr(x, "dtype"))
            leaves[n] = jax.ShapeDtypeStruct(tuple(shape), dtype_of(x), weak_type=weak)
    return structure.unflatten(leaves)


def _plural(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
