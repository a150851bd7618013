"""Functions of flax.nnx modules, optimizers and states, made pure, with every array under its attribute's name.

A module is split into its arrays, `model.layers[0].kernel`, and the rest, and merged again for the function. In-place
changes (parameters by the optimizer, batch statistics, counters of random keys) become further outputs,
`updated.model.layers[0].kernel`. Arrays that two modules share are one argument, of the first module.

flax is optional: it is not imported unless the user's program has imported it.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from shardviz import _jax
from shardviz.errors import ANYTHING, TraceError
from shardviz.notation import DeviceMesh, Spec
from shardviz.tracing.call import (
    ArrayPlaces,
    Brings,
    Call,
    JitOptions,
    abstract_tree,
    jitted,
    name_of,
    own_specs,
    readable,
    without_shardings,
)
from shardviz.tracing.prefixes import expand, is_spec
from shardviz.tracing.rules import Leaf, Rules
from shardviz.tracing.signature import parameter_names, parameters_of
from shardviz.tracing.trees import (
    Attributes,
    Outcome,
    Path,
    ResultPlace,
    entries,
    is_object,
    load,
    partition,
    path_text,
    plain_path,
    spec_meshes,
    spec_tree,
    views,
)


def adapt(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: JitOptions) -> Call | None:
    """Return a function of flax.nnx objects, possibly wrapped by `nnx.jit` or `jax.jit`, or a module or its method, as
    a `Call`. An argument may be a function without parameters that makes such an object; only `nnx.eval_shape` calls
    it. Raises TraceError if an argument is neither an array nor static; SpecError if `in_shardings` do not fit the
    arguments."""
    if "flax.nnx" not in sys.modules:
        return None
    asked = _unwrapped(fn, args)
    if asked is None:
        return None
    if asked.how is not None:
        options = options or JitOptions(**asked.how.roles)
    lifted = Lifted.of(asked, kwargs, options)
    if lifted is None:
        return None
    name = name_of(asked.fn)
    brings, pinned = _brings(name, asked, lifted)
    asked = replace(asked, args=())  # or the function would keep a model alive
    pure = pure_function(asked, lifted, _donated(asked.fn, options), pinned)
    positional, keyword = map(without_shardings, lifted.pure)
    kind = "state" if lifted.states and not asked.by_nnx else "nnx"
    call = Call(jitted(pure, name, options), positional, keyword, name, kind, options, brings, leaves=lifted.leaves)
    return replace(call, places=lifted.places)


def _unwrapped(fn: Any, args: tuple[Any, ...]) -> Given | None:
    while isinstance(fn, functools.partial) and not fn.keywords and _is_nnx_jit(fn.func):
        fn, args = fn.func, (*fn.args, *args)  # `nnx.jit` on a method, bound to its module
    if _is_nnx_jit(fn):
        jitted: Any = fn
        wrapping = _jax.unwrap_jit(jitted.jitted_fn)
        if wrapping is None:
            return None
        inner: Any = wrapping.fn
        first = getattr(fn, "partial_args", ())
        args = (first, *args) if isinstance(first, list) else (*first, *args)  # jit_partial's are one list
        graph = type(fn).__name__ == "JitWrapped"
        out = wrapping.out_shardings  # graph mode: (arguments, keyword arguments, result); tree mode: (result, updates)
        out = (out[2] if graph else out[0]) if isinstance(out, tuple | list) else None
        method = inner.f  # its module's parameter is called as elsewhere
        if args and is_object(args[0]) and [p.name for p in parameters_of(method)[:1]] == ["self"]:
            method = _named_first("model", method.__name__, method)
        return Given(method, args, wrapping, True, graph, wrapping.in_shardings, out)
    wrapping = _jax.unwrap_jit(fn)
    if wrapping is not None:
        return Given(
            wrapping.fn, args, wrapping, in_shardings=wrapping.in_shardings, out_shardings=wrapping.out_shardings
        )
    if is_object(fn) and callable(fn):
        return Given(_named_first("model", type(fn).__name__, type(fn).__call__), (fn, *args))
    if inspect.ismethod(fn) and is_object(fn.__self__):
        return Given(_named_first("model", fn.__name__, fn.__func__), (fn.__self__, *args))
    if not callable(fn) or hasattr(fn, "lower"):  # wrapped by something else, such as jax.pmap
        return None
    return Given(fn, args)


def _is_nnx_jit(fn: Any) -> bool:
    return hasattr(fn, "jitted_fn") and type(fn).__module__.startswith("flax.nnx")


def _named_first(first: str, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with its first parameter, `self`, renamed, because tree paths begin with it."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    own, *rest = inspect.signature(fn).parameters.values()
    call.__signature__ = inspect.Signature([own.replace(name=first), *rest])  # pyright: ignore
    call.__name__ = name
    return call


def _donated(fn: Any, options: JitOptions) -> set[int | str]:
    parameters = [p.name for p in parameters_of(fn)]
    numbers = {parameters.index(n) for n in options.donate_argnames if n in parameters}
    names = {parameters[n] for n in options.donate_argnums if n < len(parameters)}
    return {*options.donate_argnums, *options.donate_argnames, *numbers, *names}


def _brings(name: str, under: Given, lifted: Lifted) -> tuple[Brings, tuple[bool, ...]]:
    """Return the function's own plan, and for each array whether `in_shardings` determine its new value's sharding."""
    own, mesh = own_specs(lifted.arrays)
    specs = list(own)
    for i, leaf in enumerate(lifted.leaves):
        if specs[i] is None and is_object(leaf.value):
            specs[i], theirs = partition(leaf.value)
            mesh = mesh or theirs
    specs_from = (
        "as the variable's own metadata says; where these are logical names, flax.nnx.logical_axis_rules around the "
        "call gives them mesh axes"
    )
    asked, pinned = _asked(name, under, lifted)
    for i, spec in enumerate(asked):
        if pinned[i]:
            specs[i], specs_from = spec, f"{name}'s in_shardings"
    meshes = [*spec_meshes(under.in_shardings), *spec_meshes(under.out_shardings)]
    if meshes:
        mesh = DeviceMesh.of(meshes[0])
    elif mesh is None and (around := _jax.context_mesh()) is not None:
        mesh = DeviceMesh.of(around)
    brought = tuple(specs) if any(s is not None for s in specs) else ()
    return Brings(mesh, brought, None, specs_from), pinned


def _asked(name: str, under: Given, lifted: Lifted) -> tuple[list[Spec | None], tuple[bool, ...]]:
    """Return for each array the spec that `in_shardings` give it, and whether they give one. Raises SpecError if they
    give two to an array at two places; TraceError if an array has two places and `nnx.jit` is in its tree mode."""
    what, places = f"{name}'s in_shardings", lifted.places
    prefix = spec_tree(under.in_shardings)
    positional, keyword = places.tree
    prefix = tuple(prefix) if isinstance(prefix, tuple | list) else (prefix,) * len(positional)
    if under.by_nnx and not under.graph and (twice := places.twice()):
        raise TraceError(
            f"{name}: {' and '.join(twice)} are one variable, and nnx.jit in its tree mode (graph=False) takes each "
            "variable once, as flax says too; give it once, or use graph=True"
        )
    specs, pinned = specs_by(what, prefix, positional)
    others = (None,) * len(jax.tree.leaves(keyword))  # in_shardings say nothing of keyword arguments
    agreed = places.agreed(what, [*zip(specs, pinned, strict=True), *((o, False) for o in others)], lambda s: s[0])
    return [spec for spec, _ in agreed], tuple(p for _, p in agreed)


@dataclass(frozen=True)
class Given:
    """The given function and arguments, without their wrapper."""

    fn: Any  # the function itself
    args: tuple[Any, ...]  # positional ones, those bound beforehand included
    how: Any = None  # what `jax.jit` was told, by the person or by `nnx.jit`
    by_nnx: bool = False
    graph: bool = False  # nnx's graph mode, where every variable of an argument with a sharding comes out
    in_shardings: Any = None  # a prefix of the dynamic positional arguments
    out_shardings: Any = None  # a prefix of the result

    @property
    def updates(self) -> bool:
        """Whether in-place changes are returned: `jax.jit` alone drops them."""
        return self.by_nnx or self.how is None


def _leaf(path: Path, value: Any, held: Any = None) -> Leaf:
    return Leaf("", path, value if held is None else held, tuple(getattr(value, "shape", ())))


def _arrays_of(objects: Sequence[Any], arrays: Mapping[Path, Leaf]) -> list[dict[Path, Leaf]]:
    """Return for each object its arrays by path, including those shared with an earlier object. `arrays` has the arrays
    by path in the objects' common state, which begins with the object's number."""
    variable = load().Variable
    first: dict[int, Path] = {}  # a variable → its path in the state
    places: list[dict[Path, Path]] = []
    for number, x in enumerate(objects):
        held = {path: id(node) for path, node in load().iter_graph(x) if isinstance(node, variable)}
        places.append({path: first.setdefault(node, (number, *path)) for path, node in held.items()})
    below: dict[Path, list[Path]] = {}  # a variable may hold a tree of arrays; what is in none stands for itself
    homes = set(first.values())
    for path in arrays:
        home = next((path[:n] for n in range(len(path), 0, -1) if path[:n] in homes), path)
        below.setdefault(home, []).append(path)
        if home not in homes:
            places[path[0]][path[1:]] = path  # pyright: ignore[reportArgumentType, reportCallIssue]
    return [
        {path + full[len(home) :]: arrays[full] for path, home in each.items() for full in below.get(home, ())}
        for each in places
    ]


@dataclass(frozen=True, kw_only=True)
class Lifted:
    """Arguments whose objects are split into arrays."""

    pure: tuple[tuple[Any, ...], dict[str, Any]]  # (positional, keyword) ones without objects
    arrays: list[Any]  # every abstract array among the dynamic ones, in flat order
    leaves: tuple[Leaf, ...]  # the same as filters see them; their names are empty
    places: ArrayPlaces  # where each stands: what is given twice stands at two places
    # of each dynamic argument its structure down to objects, and which of its leaves are objects
    trees: dict[int | str, tuple[Any, tuple[bool, ...]]]
    graphdef: Any  # the objects' graph
    treedef: Any  # their state's structure
    roots: tuple[int | str, ...]  # for each object the argument that it is in
    numbers: dict[Path, int]  # an object's array, by its path (the object's number first) → its number among all arrays
    states: bool  # all objects are states: trees that `jax.jit` takes and gives

    @classmethod
    def of(cls, under: Given, kwargs: dict[str, Any], options: JitOptions) -> Lifted | None:
        """Return the lifted arguments; None for a plain function without objects among its arguments."""
        static = {*options.static_places(under.fn, len(under.args)), *options.static_argnames}
        whole: dict[int | str, Any] = {**dict(enumerate(under.args)), **kwargs}
        whole = {k: v if k in static else made(v) for k, v in whole.items()}
        flat = {}
        for k, v in whole.items():
            if k not in static:
                with readable(k if isinstance(k, str) else f"argument {k}"):
                    flat[k] = jax.tree.flatten(v, is_leaf=is_object)
        trees = {k: (treedef, tuple(map(is_object, leaves))) for k, (leaves, treedef) in flat.items()}
        owned = [(k, x) for k, (leaves, _) in flat.items() for x in leaves if is_object(x)]
        if not owned and not under.by_nnx:
            return None
        if under.how is not None and not under.by_nnx:  # to jax.jit two modules are two, whatever they share
            owned = [(k, load().clone(x)) for k, x in owned]
        graphdef, state = load().split(tuple(x for _, x in owned))
        state = abstract_tree("the state", state)  # so that nothing keeps a model alive
        arrays = iter(views(state, len(owned), lambda _, __, value: value))
        objects = {path: _leaf(path[1:], value, held) for path, held, value in entries(state)}
        facts = iter(views(state, len(owned), lambda path, _, __: objects[path]))
        arrays_of_objects = iter(_arrays_of([x for _, x in owned], objects))
        roots = parameter_names(under.fn, len(under.args))
        pure, arguments, places = dict(whole), {}, {}
        home: dict[int, Leaf] = {}  # a leaf at a place → that of its array
        for key, (leaves, treedef) in flat.items():
            root, where = (key, key) if isinstance(key, str) else (roots[key], f"argument {key}")
            pure[key] = abstract_tree(where, treedef.unflatten(next(arrays) if is_object(x) else x for x in leaves))
            paths = (path for path, _ in jax.tree_util.tree_flatten_with_path(whole[key], is_leaf=is_object)[0])
            own, at = [], []
            for path, x, value in zip(paths, leaves, treedef.flatten_up_to(pure[key]), strict=True):
                name = root + jax.tree_util.keystr(path)
                if is_object(x):
                    own.append(next(facts))
                    here = next(arrays_of_objects)
                    named = {p: replace(leaf, name=name + path_text(p), path=p) for p, leaf in here.items()}
                    home |= {id(leaf): here[p] for p, leaf in named.items()}
                    at.append(Attributes.nested(named))
                else:
                    own.append(leaf := _leaf(plain_path(path), value))
                    at.append(named := replace(leaf, name=name))
                    home[id(named)] = leaf
            arguments[key], places[key] = treedef.unflatten(own), treedef.unflatten(at)

        def ordered(by_key: dict[Any, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            positional = tuple(by_key[i] for i in range(len(under.args)) if i in by_key)
            return positional, {k: by_key[k] for k in kwargs if k in by_key}

        every, positions = tuple(jax.tree.leaves(ordered(arguments))), ordered(places)
        numbers = {id(leaf): i for i, leaf in enumerate(every)}
        position_numbers = tuple(numbers[id(home[id(leaf)])] for leaf in jax.tree.leaves(positions))
        return cls(
            pure=ordered(pure),
            arrays=jax.tree.leaves(ordered({k: pure[k] for k in flat})),
            leaves=every,
            places=ArrayPlaces(positions, position_numbers),
            trees=trees,
            graphdef=graphdef,
            treedef=jax.tree.structure(state),
            roots=tuple(k for k, _ in owned),
            states=all(isinstance(x, load().State) for _, x in owned),
            numbers={path: numbers[id(leaf)] for path, leaf in objects.items()},
        )

    def merged(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any, dict[Path, Any]]:
        """Return (arguments, keyword arguments, objects, arrays by path) from pure arguments, during tracing."""
        whole: dict[int | str, Any] = {**dict(enumerate(args)), **kwargs}
        slots = {k: treedef.flatten_up_to(whole[k]) for k, (treedef, _) in self.trees.items()}
        taken = [s for k, (_, kinds) in self.trees.items() for s, kind in zip(slots[k], kinds, strict=True) if kind]
        state = self.treedef.unflatten(jax.tree.leaves(taken))
        objects = load().merge(self.graphdef, state)
        in_order = iter(objects)
        for k, (treedef, kinds) in self.trees.items():
            whole[k] = treedef.unflatten(next(in_order) if kind else s for s, kind in zip(slots[k], kinds, strict=True))
        before = {path: value for path, _, value in entries(state)}
        return tuple(whole[i] for i in range(len(args))), {k: whole[k] for k in kwargs}, objects, before


def pure_function(
    under: Given, lifted: Lifted, donated: set[int | str], pinned: tuple[bool, ...]
) -> Callable[..., Any]:
    """Return the function from arrays to arrays."""

    @functools.wraps(under.fn)
    def pure(*args: Any, **kwargs: Any) -> Any:
        args, kwargs, objects, before = lifted.merged(args, kwargs)
        result = under.fn(*args, **kwargs)
        leaves, treedef = jax.tree.flatten(result, is_leaf=is_object)
        _, state = load().split(objects)
        updates = under.by_nnx or (under.updates and not lifted.states)  # to jax.jit a state is a tree like others
        new = _updates(under, lifted, donated, pinned=pinned, state=state, before=before) if updates else []
        taken = {id(value) for _, value in new}  # a module that is an argument and a result comes out once
        own = tuple(x for x in leaves if is_object(x))
        _, state = load().split(own)

        def fresh(_, __, value):
            return id(value) not in taken

        arrays = iter(views(state, len(own), lambda _, __, value: value, fresh))
        facts = iter(views(state, len(own), lambda path, held, x: Leaf("", path[1:], held, x.shape), fresh))
        plain = treedef.unflatten(next(arrays) if is_object(x) else x for x in leaves)
        placeholders = treedef.unflatten(
            next(facts) if is_object(x) else Leaf("", (), x, tuple(getattr(x, "shape", ()))) for x in leaves
        )
        specs, _ = specs_by("out_shardings", under.out_shardings, placeholders)
        if not new and not any(specs):
            return plain
        return Outcome(plain, [v for _, v in new], tuple(p for p, _ in new), specs)

    return pure


def _updates(
    under: Given,
    lifted: Lifted,
    donated: set[int | str],
    *,
    pinned: tuple[bool, ...],
    state: Any,
    before: dict[Path, Any],
) -> list[tuple[ResultPlace, Any]]:
    """Return the new values: changed ones, donated ones, and in graph mode those with a sharding."""
    updates = []
    for path, _, value in entries(state):
        number = lifted.numbers.get(path)
        if number is None:
            near = next((i for p, i in lifted.numbers.items() if p[0] == path[0]), None)
            updates.append((ResultPlace(near, () if near is None else lifted.leaves[near].path, path[1:]), value))
            continue
        kept = lifted.roots[path[0]] in donated or (under.graph and pinned[number])  # pyright: ignore
        if kept or before[path] is not value:
            updates.append((ResultPlace(number, follows=pinned[number]), value))
    return updates


def specs_by(what: str, prefix: Any, leaves: Any) -> tuple[tuple[Spec | None, ...], tuple[bool, ...]]:
    """Return for each leaf its spec in a prefix that `nnx.jit` takes, and whether the prefix gives one."""
    prefix = jax.tree.map(lambda s: s if is_spec(s) else None, spec_tree(prefix), is_leaf=is_spec)
    expanded = expand(what, prefix, leaves)
    specs = tuple(
        s.spec(leaf) if isinstance(s, Rules) else None if s is None else Spec.of(s)
        for s, leaf in zip(expanded, jax.tree.leaves(leaves), strict=True)
    )
    return specs, tuple(s is not None for s in expanded)


def made(argument: Any) -> Any:
    """Return the abstract result of a function without parameters; other arguments unchanged. Raises TraceError if the
    function raises."""
    if not inspect.isfunction(argument) and not isinstance(argument, functools.partial):
        return argument
    try:
        inspect.signature(argument).bind()
    except (TypeError, ValueError):
        return argument
    nnx = load()
    with nnx.use_eager_sharding(False):  # variables with partitions ask for a mesh otherwise
        try:
            return nnx.eval_shape(argument)
        except ANYTHING as error:  # a person's function may raise anything
            raise TraceError(
                f"an argument is a function, which is taken for one that makes a model, and called under "
                f"nnx.eval_shape it raised {type(error).__name__}: {error}. If it is a setting and not data, name its "
                "argument in static_argnums or static_argnames"
            ) from error
