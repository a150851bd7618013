"""Walks over jaxprs: the contents of a traced program, and their source places."""

from __future__ import annotations

import functools
import math
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, TypeVar

import jax
from jax._src import core as jax_core
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

_T = TypeVar("_T")
ClosedJaxpr: Any = getattr(jax_core, "ClosedJaxpr", jax_core.Jaxpr)  # in the newest JAX a closed one is a jaxpr too


_JAXPRS = ClosedJaxpr, jax_core.Jaxpr


def names_of(traced: Any) -> tuple[tuple[str | None, ...], tuple[str | None, ...]]:
    """Return the tree paths of a trace's flat arguments and results, as `jax.jit` names them; None if unnamed."""
    info = traced.jaxpr.jaxpr.debug_info
    return tuple(info.arg_names or ()), tuple(info.result_paths or ())


def key_bits(name: str) -> int | None:
    """Return the number of bits of a PRNG key from the name of its type (`key<fry>`), if JAX has registered that PRNG;
    otherwise None."""
    from jax._src.random.prng import prngs

    return next((math.prod(impl.key_shape) * 32 for impl in prngs.values() if name == f"key<{impl.tag}>"), None)


def dtype_name(dtype: Any) -> str:
    """Return JAX's name of an element type. The type of an unregistered PRNG's key ends in its bits: `key<mine>96`."""
    if not jax.numpy.issubdtype(dtype, jax.dtypes.prng_key):
        return str(dtype)
    bits = 8 * dtype.itemsize
    return str(dtype) if key_bits(str(dtype)) == bits else f"{dtype}{bits}"


def sub_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    """Yield the jaxprs (not closed) in an equation's parameters."""
    for value in params.values():
        if isinstance(value, _JAXPRS):
            yield getattr(value, "jaxpr", value)
        elif isinstance(value, tuple | list) and value and not isinstance(value[0], int):
            for item in value:
                if isinstance(item, _JAXPRS):
                    yield getattr(item, "jaxpr", item)


def _items(params: dict[str, Any]) -> Iterator[Any]:
    """Yield an equation's parameters, with tuples and lists flattened."""
    for value in params.values():
        yield from value if isinstance(value, tuple | list) else (value,)


def every_equation(jaxpr: Any) -> Iterator[Any]:
    """Yield every equation of a jaxpr, each before those of the jaxprs inside it. A jaxpr shared by several equations
    is visited once."""
    return (equation for equation, _ in _listed(jaxpr))


def largest_array(jaxpr: Any) -> float:
    """Return the bytes of the largest array that a device computes in a `shard_map`, without temporaries of functions
    such as `jnp.roll`, which are jitted by themselves."""

    def sizes(inner: Any) -> Iterator[int]:
        for equation in inner.eqns:
            arrays = (v.aval for v in equation.outvars if hasattr(v.aval, "dtype"))
            yield from (a.size * a.dtype.itemsize for a in arrays)
            for each in sub_jaxprs(equation.params) if equation.primitive.name not in ("jit", "pjit") else ():
                yield from sizes(each)

    maps = (e for e in every_equation(getattr(jaxpr, "jaxpr", jaxpr)) if e.primitive.name == "shard_map")
    return float(max((size for e in maps for inner in sub_jaxprs(e.params) for size in sizes(inner)), default=0))


_CALLED_BY_ALL = frozenset(
    ("psum", "psum2", "psum_invariant", "pmax", "pmin", "ppermute", "all_gather", "all_to_all", "reduce_scatter")
)
"""Primitives that wait for the other devices."""


def has_branched_collective(jaxpr: Any) -> bool:
    """Return whether a branch, or a loop of unknown length, contains a collective, which then some devices alone may
    call."""
    branched = (e for e in every_equation(getattr(jaxpr, "jaxpr", jaxpr)) if e.primitive.name in ("cond", "while"))
    inside = (inner for equation in branched for each in sub_jaxprs(equation.params) for inner in every_equation(each))
    return any(equation.primitive.name in _CALLED_BY_ALL for equation in inside)


_lists: weakref.WeakKeyDictionary[Any, tuple[tuple[Any, tuple[Any, ...]], ...]] = weakref.WeakKeyDictionary()


def _listed(jaxpr: Any) -> tuple[tuple[Any, tuple[Any, ...]], ...]:
    """Return every equation with its source infos, as `_with_infos` yields them; cached, because a jaxpr is read many
    times."""
    if jaxpr not in _lists:
        _lists[jaxpr] = tuple(_with_infos(jaxpr, (), set()))
    return _lists[jaxpr]


def _with_infos(jaxpr: Any, around: tuple[Any, ...], seen: set[int]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield every equation with its source info and those of the equations around it, innermost first."""
    for equation in jaxpr.eqns:
        infos = (equation.source_info, *around)
        yield equation, infos
        for inner in sub_jaxprs(equation.params):
            if id(inner) not in seen:
                seen.add(id(inner))
                yield from _with_infos(inner, infos, seen)


def once(answer: Callable[[Any, Callable[[Any], _T]], _T]) -> Callable[[Any], _T]:
    """Return what answers a question about a jaxpr, by asking the same about those inside it: about each of them once,
    however many equations share it."""

    @functools.wraps(answer)
    def ask(jaxpr: Any) -> _T:
        answers: dict[int, _T] = {}

        def inside(inner: Any) -> _T:
            if id(inner) not in answers:
                answers[id(inner)] = answer(inner, inside)
            return answers[id(inner)]

        return inside(jaxpr)

    return ask


MOST_EQUATIONS = 1_000_000
"""A train step of 80 layers without a scan has some 30,000; to read a million would take minutes."""


@once
def written_out(jaxpr: Any, inside: Callable[[Any], int]) -> int:
    """Return the number of equations, where a shared jaxpr counts once for each equation that has it."""
    return len(jaxpr.eqns) + sum(inside(inner) for e in jaxpr.eqns for inner in sub_jaxprs(e.params))


def constraints(jaxpr: Any) -> Iterator[tuple[tuple[int, ...], PartitionSpec, Any]]:
    """Yield every `with_sharding_constraint` in a jaxpr, nested ones too: shape, spec, and source info."""
    for equation in every_equation(jaxpr):
        sharding = equation.params["sharding"] if equation.primitive.name == "sharding_constraint" else None
        if isinstance(sharding, NamedSharding):
            yield equation.invars[0].aval.shape, sharding.spec, equation.source_info


@once
def scanned(jaxpr: Any, inside: Callable[[Any], set[int]]) -> set[int]:
    """Return the positions of a jaxpr's arguments that a scan, also a nested one, slices in each iteration."""
    at: dict[Any, int] = {v: place for place, v in enumerate(jaxpr.invars)}
    sliced_places: set[int] = set()
    for equation in jaxpr.eqns:
        places = [None if isinstance(v, jax_core.Literal) else at.get(v) for v in equation.invars]
        for inner in sub_jaxprs(equation.params):
            if len(inner.invars) == len(places):
                own = inside(inner)
                for place, (outer_place, var, outer) in enumerate(
                    zip(places, inner.invars, equation.invars, strict=True)
                ):
                    sliced = equation.primitive.name == "scan" and len(var.aval.shape) < len(outer.aval.shape)
                    if outer_place is not None and (sliced or place in own):
                        sliced_places.add(outer_place)
        if equation.primitive.name == "convert_element_type" and places[0] is not None:
            at[equation.outvars[0]] = places[0]
    return sliced_places


_DEBUG = ("debug_callback", "debug_print", "inspect_sharding")
_CALLBACKS = ("pure_callback", "io_callback", "python_callback")


def callbacks(jaxpr: Any) -> Iterator[tuple[str, bool, Any]]:
    """Yield every equation that calls Python while the program runs: its name, whether it only reports, and its source
    info."""
    for equation in every_equation(jaxpr):
        name = equation.primitive.name
        if name in _CALLBACKS or name in _DEBUG:
            yield name, name in _DEBUG and not equation.outvars, equation.source_info


def has_kernel(jaxpr: Any) -> bool:
    """Return whether a Pallas kernel is inside, which is written for one platform."""
    return any(equation.primitive.name == "pallas_call" for equation in every_equation(jaxpr))


def meshes(jaxpr: Any) -> Iterator[Any]:
    """Yield every mesh that an equation names: in a `shard_map`, a constraint, or the shardings of a nested jit."""
    for equation in every_equation(jaxpr):
        for item in _items(equation.params):
            mesh = item.mesh if isinstance(item, NamedSharding) else item
            if isinstance(mesh, Mesh | AbstractMesh) and mesh.axis_names:
                yield mesh


def equations(jaxpr: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the primitive of every equation, nested ones too, with its source info and those around it, innermost
    first. A jaxpr shared by several equations is visited once, inside the first of them."""
    return ((equation.primitive.name, infos) for equation, infos in _listed(jaxpr))


def checkpoint_names(jaxpr: Any) -> Iterator[tuple[str, tuple[int, ...], str, tuple[Any, Any]]]:
    """Yield every `checkpoint_name`: name, shape, dtype, and the frames of the value's maker and of the naming."""
    maker = _makers(jaxpr)
    for equation in every_equation(jaxpr):
        if equation.primitive.name == "name":
            aval, makers = equation.outvars[0].aval, (maker.get(id(equation.invars[0]), equation), equation)
            frames = user_frame(makers[0].source_info), user_frame(makers[1].source_info)
            yield equation.params["name"], tuple(aval.shape), dtype_name(aval.dtype), frames


def _makers(jaxpr: Any) -> dict[int, Any]:
    return {id(variable): equation for equation in every_equation(jaxpr) for variable in equation.outvars}


def offloaded(jaxpr: Any) -> Iterator[tuple[tuple[str, int, str], tuple[int, ...], str]]:
    """Yield every value that is moved to the host's memory: the frame of its maker, shape and dtype."""
    makers, host = _makers(jaxpr), ("pinned_host", "unpinned_host")
    for equation in every_equation(jaxpr):
        if equation.primitive.name == "device_put":
            for var, place in zip(equation.invars, equation.params["devices"], strict=True):
                maker = makers.get(id(var))
                while maker is not None and maker.primitive.name in ("name", "reduce_precision"):
                    maker = makers.get(id(maker.invars[0]))
                frame = None if maker is None else user_frame(maker.source_info)
                on_host = place == jax.memory.Space.Host or getattr(place, "memory_kind", None) in host
                if frame is not None and on_host:
                    yield frame, tuple(var.aval.shape), dtype_name(var.aval.dtype)


def constants(closed: Any) -> Iterator[tuple[tuple[int, ...], str, Any]]:
    """Yield every array constant of a closed jaxpr once: shape, dtype, and its first reader's source info or None."""
    seen: set[int] = set()  # of arrays, and of jaxprs, which equations share
    waiting = [closed]
    while waiting:
        holder = waiting.pop()
        if id(holder) in seen:
            continue
        seen.add(id(holder))
        first: dict[int, Any] = {}
        for equation in holder.jaxpr.eqns:
            for var in equation.invars:
                first.setdefault(id(var), equation.source_info)
            waiting += [part for part in _items(equation.params) if isinstance(part, ClosedJaxpr)]
        for var, held in zip(holder.jaxpr.constvars, holder.consts, strict=True):
            if id(held) not in seen and getattr(held, "shape", None):
                seen.add(id(held))
                yield tuple(held.shape), dtype_name(held.dtype), first.get(id(var))


def leaked(traced: Any) -> Iterator[tuple[str, Any]]:
    """Return the values of other traces that a trace holds, which JAX cannot lower: the type, and the maker's source
    info."""
    for held in getattr(traced, "_consts", ()):
        if isinstance(held, jax_core.Tracer):
            yield held.aval.str_short(), getattr(held, "_line_info", None)


def memory_kinds(avals: Iterable[Any]) -> tuple[str, ...]:
    """Return the memory kind of each abstract value."""
    host = jax.memory.Space.Host
    return tuple("pinned_host" if getattr(aval, "memory_space", None) == host else "device" for aval in avals)


def user_frame(source_info: Any) -> tuple[str, int, str] | None:
    """Return file, line and function of the user's innermost frame in an equation's source info."""
    return next(user_frames(source_info), None)


def user_frames(source_info: Any) -> Iterator[tuple[str, int, str]]:
    """Return file, line and function of every frame outside JAX, innermost first."""
    from jax._src import source_info_util

    for frame in source_info_util.user_frames(getattr(source_info, "traceback", None)):
        yield frame.file_name, frame.start_line, frame.function_name


def rewritten(
    item: Any,
    here: Any,
    equation: Callable[[Any, Any, Callable[[Any, Any], Any]], Any],
    other: Callable[[Any, Any], Any] = lambda item, here: item,
    effects: Set[Any] = frozenset(),
) -> Any:
    """Return a jaxpr (closed or not) with its equations changed, nested ones too. `equation` gets the old equation,
    `here` and a function that changes its parameters, and returns the new equation or None to drop it. `other` changes
    parameters that are not jaxprs. Effects are dropped. A shared jaxpr stays shared and an unchanged one stays the same
    object, because JAX lowers a function called twice to one function if both calls hold the same jaxpr."""
    jaxprs: dict[tuple[int, Any], Any] = {}

    def inside(item: Any, here: Any) -> Any:
        if isinstance(item, ClosedJaxpr | jax_core.Jaxpr):
            key = id(item), here
            if key not in jaxprs:
                jaxprs[key] = jaxpr(item, here)
            return jaxprs[key]
        if type(item) in (tuple, list):
            items = type(item)(inside(each, here) for each in item)
            return item if all(map(operator.is_, item, items)) else items
        return other(item, here)

    def jaxpr(of: Any, here: Any) -> Any:
        if not isinstance(of, jax_core.Jaxpr):  # in the newest JAX a closed one is a jaxpr too
            body = inside(of.jaxpr, here)
            return of if body is of.jaxpr else of.replace(jaxpr=body)
        eqns = [e for e in (equation(e, here, inside) for e in of.eqns) if e is not None]
        same = len(eqns) == len(of.eqns) and all(map(operator.is_, of.eqns, eqns))
        return of if same else of.replace(eqns=eqns, effects=of.effects - effects)

    return inside(item, here)


def scan_constants(params: Mapping[str, Any]) -> int:
    """Return how many of a scan's operands are the same in each iteration."""
    old = params.get("num_consts")
    return len(list(params["ft_in"].unpack()[0])) if old is None else old


def scan_carried(params: Mapping[str, Any]) -> int:
    """Return how many of a scan's operands are carried from one iteration to the next."""
    old = params.get("num_carry")
    return len(list(params["ft_in"].unpack()[1])) if old is None else old


def on_mesh(closed: Any, mesh: AbstractMesh) -> Any:
    """Return the closed jaxpr with `mesh`, which has all axes, in place of every mesh in constraints, `shard_map`s and
    nested jits. Axis types are those of `mesh`, except for axes that an enclosing `shard_map` makes Manual, and meshes
    to which the trace itself gave other types, as `auto_axes` does. `jax.debug` callbacks are dropped, because lowering
    them needs devices."""
    from jax._src import debugging

    reports = {debugging.debug_effect, debugging.ordered_debug_effect}

    def other(item: Any, here: AbstractMesh) -> Any:
        if isinstance(item, NamedSharding):
            of = axes_of(item.mesh, here)
            return item if of is item.mesh else NamedSharding(of, item.spec, memory_kind=item.memory_kind)
        return axes_of(item, here) if isinstance(item, Mesh | AbstractMesh) else item

    def axes_of(own: Any, here: AbstractMesh) -> Any:
        if not own.axis_names or not isinstance(own, AbstractMesh) or own.axis_names != here.axis_names:
            return here if own.axis_names else own
        return own if own.axis_sizes == here.axis_sizes else here.update(axis_types=own.axis_types)

    def equation(e: Any, here: AbstractMesh, inside: Callable[[Any, Any], Any]) -> Any:
        if e.primitive.name in _DEBUG and not e.outvars:
            return None
        below = here
        if e.primitive.name == "shard_map":
            below = here.update_axis_types(dict.fromkeys(e.params["newly_manual_axes"], AxisType.Manual))
        bodies = (ClosedJaxpr, jax_core.Jaxpr)
        params = {k: inside(v, below if isinstance(v, bodies) else here) for k, v in e.params.items()}
        same = all(params[k] is v for k, v in e.params.items())
        return e if same else e.replace(params=params, effects=e.effects - reports)

    return rewritten(closed, mesh, equation, other, reports)


Specs = tuple[PartitionSpec | None, ...]


@once
def outermost_shard_map(jaxpr: Any, inside: Callable[[Any], tuple[Specs, Specs]]) -> tuple[Specs, Specs]:
    """Return for each argument and result the spec of a `shard_map` that takes or returns it directly, or None. If the
    `shard_map` leaves mesh axes Auto, its results have None, because their specs are incomplete."""
    ins: dict[Any, PartitionSpec] = {}
    outs: dict[Any, PartitionSpec] = {}
    for equation in jaxpr.eqns:
        if equation.primitive.name == "shard_map":
            ins |= {v: s for v, s in zip(equation.invars, equation.params["in_specs"], strict=True) if _is_var(v)}
            if set(equation.params["newly_manual_axes"]) == set(equation.params["mesh"].axis_names):
                outs |= dict(zip(equation.outvars, equation.params["out_specs"], strict=True))
        elif equation.primitive.name in ("jit", "pjit"):
            inner_ins, inner_outs = inside(equation.params["jaxpr"].jaxpr)
            pairs = zip(equation.invars, inner_ins, strict=True)
            ins |= {v: s for v, s in pairs if s is not None and _is_var(v)}
            outs |= {v: s for v, s in zip(equation.outvars, inner_outs, strict=True) if s is not None}
    return tuple(ins.get(v) for v in jaxpr.invars), tuple(outs.get(v) if _is_var(v) else None for v in jaxpr.outvars)


def _is_var(atom: Any) -> bool:
    return not isinstance(atom, jax_core.Literal)


def settled_results(jaxpr: Any, mesh: Any) -> list[PartitionSpec] | None:
    """Return the specs of a jaxpr's results where they follow from it alone, else None: each result is that of a
    `with_sharding_constraint` on `mesh`, or a scalar, or neither an argument nor a constraint has a say in it."""
    makers = {v: equation for equation in jaxpr.eqns for v in equation.outvars}
    arguments = {v for v in jaxpr.invars if v.aval.shape}
    specs, unconstrained = list[PartitionSpec](), set[Any]()
    for v in jaxpr.outvars:
        if not v.aval.shape:
            specs.append(PartitionSpec())
        elif v.aval.sharding.mesh.explicit_axes:  # its type shards it
            return None
        elif (spec := _constrained(makers.get(v), mesh)) is not None:
            specs.append(spec)
        elif v in arguments or not arguments.isdisjoint(_arrays_of(makers[v]) if v in makers else ()):
            return None
        else:
            unconstrained.add(v)
            specs.append(PartitionSpec())
    return None if unconstrained and unconstrained & _reached(jaxpr) else specs


def _constrained(equation: Any, mesh: Any) -> PartitionSpec | None:
    """Return a constraint's spec if it leaves no dimension open; otherwise None."""
    if equation is None or equation.primitive.name != "sharding_constraint" or equation.params["unconstrained_dims"]:
        return None
    sharding = equation.params["sharding"]
    if not isinstance(sharding, NamedSharding) or sharding.mesh.shape_tuple != mesh.shape_tuple:
        return None
    return sharding.spec if sharding.memory_kind in (None, "device") else None


_PLAIN = frozenset(("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "scan", "while", "cond"))
"""Equations with jaxprs inside that shard nothing themselves."""


def _reached(jaxpr: Any) -> set[Any]:
    """Return the arrays whose sharding an argument, a constraint or a `shard_map` may determine, through operations in
    either direction."""

    def shards(equation: Any) -> bool:
        name, inner = equation.primitive.name, list(sub_jaxprs(equation.params))
        alone = name in ("sharding_constraint", "reshard") or bool(inner and name not in _PLAIN)
        return alone or any(map(any_shards, inner))

    any_shards = functools.cache(lambda inner: any(map(shards, inner.eqns)))
    users: dict[Any, list[Any]] = {}
    for equation in jaxpr.eqns:
        for v in _arrays_of(equation):
            users.setdefault(v, []).append(equation)
    waiting = [v for v in (*jaxpr.invars, *jaxpr.constvars) if v.aval.shape]
    waiting += [v for equation in jaxpr.eqns if shards(equation) for v in _arrays_of(equation)]
    reached, passed = set(waiting), set[int]()
    while waiting:
        for equation in users.get(waiting.pop(), ()):
            if id(equation) not in passed:
                passed.add(id(equation))
                new = [v for v in _arrays_of(equation) if v not in reached]
                reached.update(new)
                waiting += new
    return reached


def _arrays_of(equation: Any) -> Iterator[Any]:
    """Yield the arrays that an equation reads and writes, without literals and scalars, which no axis shards."""
    vs = (*equation.invars, *equation.outvars)
    return (v for v in vs if not isinstance(v, jax_core.Literal) and getattr(v.aval, "shape", ()))


_PASSED_ON = {"convert_element_type", "reshape", "squeeze", "transpose", "sharding_constraint", "copy"}


@once
def written(jaxpr: Any, inside: Callable[[Any], set[int]]) -> set[int]:
    """Return the places of arguments that a program updates in part, such as a cache: it returns or keeps the updated
    copy. Loops and inner functions count too."""
    roots, written = {v: n for n, v in enumerate(jaxpr.invars)}, set[int]()
    for equation in jaxpr.eqns:
        name, at = equation.primitive.name, [roots.get(v) if _is_var(v) else None for v in equation.invars]
        writes = name == "dynamic_update_slice" or name.startswith("scatter")
        if at and at[0] is not None and (writes or name in _PASSED_ON):
            written |= {at[0]} if writes else set()
            roots[equation.outvars[0]] = at[0]
        for body in sub_jaxprs(equation.params):
            if len(body.invars) == len(at):
                written |= {place for n in inside(body) if (place := at[n]) is not None}
    return written
