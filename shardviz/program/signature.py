"""What `jax.jit` looks at to know whether it has traced and compiled a call before.

JAX keeps three things: a trace for each function, tree, abstract value and static value under a context; an executable
for each trace and placing of its arguments; and a table for a fast look-up, which sees a little more, such as whether
an argument is a NumPy array. A `CallSignature` holds what all three are keyed by, as text and numbers: no array.

Arrays go by their tree paths, as `jax.jit` has them: `params['w']`, `rest[0]`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, Sharding

from shardviz import _jax
from shardviz.errors import TraceError
from shardviz.notation import DeviceMesh, Spec, axis_name
from shardviz.program.trees import spread


@dataclass(frozen=True)
class ArgumentSignature:
    """What is keyed of one array among the arguments.

    Attributes:
        name: its tree path.
        shape, dtype, weak_type: its abstract value; a Python number's type is weak.
        given: what it is: `NumPy array`, `jax.Array`, `Python float`, `ShapeDtypeStruct`.
        sharding: its sharding in words; empty where it has none.
        typed: the mesh of a NamedSharding, its axes' types, and the part of the spec that is over Explicit axes: these
            are in the array's type.
        committed: whether it must stay where it is.
        placed: its sharding as the compiler gets it, device numbers included; empty where it is not committed,
            or where the function has in_shardings for it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    weak_type: bool
    given: str
    sharding: str = ""
    typed: str = ""
    committed: bool = False
    placed: str = ""


@dataclass(frozen=True, eq=False)
class StaticSignature:
    """A static value, which is keyed by its type, `__hash__` and `__eq__`.

    Attributes:
        name: its argument's name.
        value: itself.
        by_keyword: whether it was given by keyword.
    """

    name: str
    value: Any
    by_keyword: bool = False

    def same(self, other: StaticSignature) -> bool:
        """Whether JAX takes the two for one: equal, and of one type exactly."""
        return type(self.value) is type(other.value) and bool(self.value == other.value)


@dataclass(frozen=True, eq=False)
class CallSignature:
    """What a call is keyed by.

    Attributes:
        name: the function's name.
        fn: the function itself; JAX knows it by identity.
        kind: `function`, `jit`, `pmap`, ...
        tree: the arguments' containers, as JAX writes them.
        arguments: the arrays, in the order of the flat program.
        static: the static values.
        donated: names of what is donated.
        context: settings that a trace depends on, and the meshes around the call: name → value.
        devices: the numbers of the devices of the mesh around the call.
    """

    name: str
    fn: Any
    kind: str
    tree: str
    arguments: tuple[ArgumentSignature, ...]
    static: tuple[StaticSignature, ...]
    donated: tuple[str, ...]
    context: Mapping[str, Any] = field(default_factory=dict)
    devices: tuple[int, ...] = ()

    def __repr__(self) -> str:
        lines = [f"call of {self.name}"]
        for a in self.arguments:
            shape = ", ".join(map(str, a.shape))
            weak = " weakly typed" if a.weak_type else ""
            where = f", {a.sharding}" + (" (committed)" if a.committed else "") if a.sharding else ""
            donated = ", donated" if a.name in self.donated else ""
            lines.append(f"  {a.name}: {a.dtype}[{shape}]{weak}, {a.given}{where}{donated}")
        lines += [f"  {s.name}: static {short(s.value)}" for s in self.static]
        return "\n".join(lines)


def signature_of(
    fn: Any,
    name: str,
    kind: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Any,
    in_shardings: Any = None,
) -> CallSignature:
    """The signature of a call with these arguments, under the settings and meshes that hold now.

    Args:
        fn: the function, jit's wrapping taken off.
        name, kind: what it is called and was given as.
        args, kwargs: as for the call itself.
        options: which arguments are static or donated.
        in_shardings: those that the function was wrapped with; None for none.

    Raises:
        TraceError: if an argument is no array and not static, or a static one cannot be hashed.
    """
    roots, static = parameter_names(fn, len(args)), options.static_places(fn, len(args))
    statics = [StaticSignature(roots[i], args[i]) for i in sorted(static) if i < len(args)]
    statics += [StaticSignature(k, kwargs[k], True) for k in sorted(kwargs) if k in options.static_argnames]
    for value in statics:
        _require_hashable(name, value)
    dynamic = [i for i in range(len(args)) if i not in static]
    positional = tuple(args[i] for i in dynamic)
    keyword = {k: kwargs[k] for k in sorted(kwargs) if k not in options.static_argnames}
    given_away = {roots[n] for n in options.donate_argnums if -len(args) <= n < len(args)} | {*options.donate_argnames}
    fixed = _fixed(in_shardings, positional)
    found: list[ArgumentSignature] = []
    donated: list[str] = []
    for root, tree in (*zip((roots[i] for i in dynamic), positional, strict=True), *keyword.items()):
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            where = root + jax.tree_util.keystr(path)
            found.append(_argument(name, where, leaf, len(found) < len(fixed) and fixed[len(found)]))
            donated += [where] if root in given_away else []
    return CallSignature(
        name,
        fn,
        kind,
        str(jax.tree.structure((positional, keyword))).removeprefix("PyTreeDef(").removesuffix(")"),
        tuple(found),
        tuple(statics),
        tuple(donated),
        _jax.trace_context(),
        _jax.mesh_device_ids(_jax.context_mesh()),
    )


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


def short(value: Any, most: int = 60) -> str:
    """A value's repr, cut to one line of at most so many characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _require_hashable(name: str, static: StaticSignature) -> None:
    try:
        hash(static.value)
    except TypeError as error:
        raise TraceError(
            f"{name}: the static argument {static.name} is a {type(static.value).__name__}, {short(static.value)}, "
            "which has no hash, by which JAX finds a call again; give a tuple in place of a list, or a frozen dataclass"
        ) from error


def _fixed(in_shardings: Any, args: tuple[Any, ...]) -> list[bool]:
    """For each leaf of the positional arguments whether in_shardings say where it goes."""
    if in_shardings is None:
        return []
    try:
        return [isinstance(s, Sharding) for s in spread(in_shardings, args)]
    except ValueError:  # it no longer fits the call; JAX will say so
        return []


def _argument(function: str, name: str, x: Any, fixed: bool) -> ArgumentSignature:
    own, committed = None, False
    if isinstance(x, jax.ShapeDtypeStruct):
        aval, given, own = x, type(x).__name__, x.sharding
        dtype = jax.dtypes.canonicalize_dtype(x.dtype, allow_extended_dtype=True)
        committed = own is not None
    else:
        try:
            aval = jax.typeof(x)
        except TypeError as error:
            raise TraceError(
                f"{function}: {name} is a {type(x).__name__}, {short(x)}: expected an array, a jax.ShapeDtypeStruct or "
                "a number. If it is a setting and not data, name its argument in static_argnums or static_argnames"
            ) from error
        dtype, given = aval.dtype, f"Python {type(x).__name__}"
        if isinstance(x, np.ndarray | np.generic):
            given = "NumPy array" if isinstance(x, np.ndarray) else "NumPy number"
        elif isinstance(x, jax.Array):
            given, own, committed = "jax.Array", x.sharding, bool(x.committed)
    placed, shape = "", tuple(aval.shape)
    if committed and own is not None and not fixed:
        placed = f"{_jax.hlo_sharding_of(own, len(shape)) or own} on {_jax.device_ids_of(own)} {own.memory_kind or ''}"
    return ArgumentSignature(
        name,
        shape,
        str(dtype),
        bool(aval.weak_type),
        given,
        "" if own is None else _words(own),
        "" if own is None else _typed(own),
        committed,
        placed,
    )


def _words(sharding: Any) -> str:
    """`P('x', None) over x=2`, `device 0`."""
    ids = _jax.device_ids_of(sharding)
    if isinstance(sharding, NamedSharding):
        mesh = DeviceMesh.of(sharding.mesh)
        ordered = "" if ids == tuple(range(len(ids))) else f", devices {', '.join(map(str, ids))}"
        kind = sharding.memory_kind
        return f"{Spec.of(sharding.spec)} over {mesh}{ordered}" + (f", {kind}" if kind not in (None, "device") else "")
    return f"device {ids[0]}" if len(ids) == 1 else f"{type(sharding).__name__} on {len(ids)} devices"


def _typed(sharding: Any) -> str:
    """What of a sharding is in an array's type: the mesh without its devices, and the spec over Explicit axes."""
    if not isinstance(sharding, NamedSharding):
        return ""
    mesh = DeviceMesh.of(sharding.mesh)
    explicit = {n for n, kind in zip(mesh.names, mesh.types, strict=True) if kind == "Explicit"}
    spec = Spec(tuple(tuple(a for a in dim if axis_name(a) in explicit) for dim in Spec.of(sharding.spec).dims))
    kinds = ", ".join(f"{n}={s} {t}" for n, s, t in zip(mesh.names, mesh.sizes, mesh.types, strict=True))
    return f"{kinds}" + (f" {spec.canonical()}" if explicit else "")


def tree_of_names(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], static: Collection[int] = ()
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with a name in place of every leaf: `params['w']`, `rest[0]`.

    Args:
        fn: the function whose parameters they are.
        args, kwargs: what it is called with.
        static: numbers of the positional arguments that are no data; these are left out.
    """
    rows = enumerate(zip(parameter_names(fn, len(args)), args, strict=True))
    positional = tuple(named_tree(root, tree) for i, (root, tree) in rows if i not in static)
    return positional, {k: named_tree(k, tree) for k, tree in kwargs.items()}


def named_tree(root: str, tree: Any) -> Any:
    """The tree with its path below `root` in place of every leaf."""
    return jax.tree_util.tree_map_with_path(lambda path, _: root + jax.tree_util.keystr(path), tree)


def signature_from(names: tuple[tuple[Any, ...], dict[str, Any]]) -> inspect.Signature | None:
    """The signature of a function with these trees of names as (positional, keyword) arguments.

    None where they do not tell: each positional argument's names must begin with one identifier of its own.
    """
    positional, keyword = names
    found = ({m[0] for name in jax.tree.leaves(tree) if (m := _ROOT.match(name))} for tree in positional)
    roots = [each.pop() if len(each) == 1 else "" for each in found]
    every = [*roots, *keyword]
    if not all(name.isidentifier() and not iskeyword(name) for name in every) or len(set(every)) != len(every):
        return None
    kinds = inspect.Parameter
    parameters = [kinds(name, kinds.POSITIONAL_OR_KEYWORD) for name in roots]
    return inspect.Signature(parameters + [kinds(name, kinds.KEYWORD_ONLY) for name in keyword])


_ROOT = re.compile(r"\w+")
