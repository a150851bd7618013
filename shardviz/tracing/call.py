"""A callable with abstract arguments, and its own mesh and specs."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from shardviz.errors import SpecError, TraceError
from shardviz.notation import DeviceMesh, Spec
from shardviz.records import Finding, Frame, Reconstrained
from shardviz.tracing.contexts import Contexts
from shardviz.tracing.rules import Leaf
from shardviz.tracing.signature import parameters_of, short


@dataclass(frozen=True)
class JitOptions:
    """Options of `jax.jit` about a function's arguments, each as a tuple."""

    static_argnums: tuple[int, ...] = ()
    static_argnames: tuple[str, ...] = ()
    donate_argnums: tuple[int, ...] = ()
    donate_argnames: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: dict[str, Any]) -> JitOptions:
        """Make options from single values, iterables or None. Raises TraceError for an unknown option."""
        names = [f.name for f in fields(cls)]
        if unknown := [name for name in options if name not in names]:
            raise TraceError(f"there is no option {unknown[0]!r}; there are {', '.join(names)}")
        return cls(**{name: _plural(value) for name, value in options.items() if value is not None})

    def __bool__(self) -> bool:
        return any(getattr(self, f.name) for f in fields(self))

    def given(self) -> dict[str, Any]:
        """Return the options that are set, as keyword arguments of `jax.jit`."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name)}

    def static_places(self, fn: Any, count: int) -> set[int]:
        """Return the numbers of the static ones among `count` positional arguments."""
        places = {n + count if n < 0 else n for n in self.static_argnums}
        parameters = [p.name for p in parameters_of(fn)] if self.static_argnames else []
        return places | {parameters.index(n) for n in self.static_argnames if n in parameters}


def _plural(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, int | str) else tuple(value) if isinstance(value, Iterable) else (value,)


@dataclass(frozen=True)
class Brings:
    """The plan of a callable and its arguments, used where the user's plan says nothing."""

    mesh: DeviceMesh | None = None
    in_specs: tuple[Spec | None, ...] = ()  # for each array, in flat order, if anything is known of any
    out_specs: Any = None  # a pytree prefix of the result; None where the compiler chooses
    specs_from: str = ""  # in words, for error messages


@dataclass(frozen=True)
class ArrayPlaces:
    """The places of arrays among the arguments, of which modules of flax.nnx may share one: the (positional, keyword)
    arguments with a `Leaf` at every place, and in flat order the number of the array there."""

    tree: tuple[tuple[Any, ...], dict[str, Any]]
    numbers: tuple[int, ...]

    def twice(self) -> tuple[str, str] | None:
        """Return the names of the first two places of an array that has several; None if there is none."""
        first: dict[int, str] = {}
        for leaf, number in zip(jax.tree.leaves(self.tree), self.numbers, strict=True):
            if first.setdefault(number, leaf.name) != leaf.name:
                return first[number], leaf.name
        return None

    def agreed(self, what: str, values: Sequence[Any], meaning: Callable[[Any], Any] = lambda s: s) -> list[Any]:
        """Return each array's value from the values of its places (or of the first ones) in flat order. Raises
        SpecError if the `meaning` of two places of an array differs, as flax does; `what` names the argument with the
        values."""
        first: dict[int, tuple[Leaf, Any]] = {}
        for leaf, number, one in zip(jax.tree.leaves(self.tree), self.numbers, values, strict=False):
            other, before = first.setdefault(number, (leaf, one))
            if meaning(before) != meaning(one):
                a, b = ("no spec" if m is None else str(m) for m in map(meaning, (before, one)))
                raise SpecError(
                    f"{what}: {other.name} and {leaf.name} are one variable, given {a} at the one place and {b} at the "
                    "other; flax refuses that too. Give both the same",
                    argument=other.name,
                )
        return [first[number][1] for number in sorted(first)]


Notes = Callable[[DeviceMesh, str], tuple[Finding, ...]]


@dataclass(eq=False)
class Tally:
    """The number of traces of a function."""

    traces: int = 0


@dataclass(frozen=True, eq=False)
class Call:
    """A callable with abstract arguments, ready to be traced."""

    fn: Any  # something with a `.trace(*args, **kwargs)` such as `jax.jit` gives
    args: tuple[Any, ...]  # `jax.ShapeDtypeStruct`s in pytrees, and static values
    kwargs: dict[str, Any]
    name: str
    # what it was given as: `jit`, `pjit`, `equinox`, `nnx`, `state`, `shard_map`, `pmap`, `exported`, `recorded`
    kind: str = "function"
    options: JitOptions = JitOptions()  # which arguments are static or donated
    brings: Brings = field(default_factory=Brings)  # the plan that it comes with
    # what there is to say of it on a plan's mesh and a platform (`cpu`, `tpu`, `cuda`)
    notes: Notes = lambda _mesh, _platform: ()
    traced_for: Callable[[DeviceMesh | None], Any] | None = None  # gives the `Traced` of an exported program on a mesh
    leaves: tuple[Leaf, ...] = ()  # what filters see of every array, where that is more than the array
    places: ArrayPlaces | None = None  # where its arrays stand, if some may stand at several places
    keeps_unused: bool = False  # arguments that no result needs stay in the program
    checkpoint: str = ""  # the policy that its layers are traced under, besides what it says itself
    constraints: tuple[tuple[Frame, Reconstrained], ...] = ()  # the function's own that are traced otherwise
    collectives: tuple[str, ...] = ()  # lines of those in a `shard_map` that are written otherwise
    contexts: Contexts = field(default_factory=Contexts.here)  # what held around the call
    tally: Tally = field(default_factory=Tally)  # how often the function was traced, for this call and those made of it

    @property
    def dynamic(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The dynamic (positional, keyword) arguments."""
        static = self.options.static_places(self.fn, len(self.args))
        positional = tuple(a for i, a in enumerate(self.args) if i not in static)
        keyword = {k: v for k, v in self.kwargs.items() if k not in self.options.static_argnames}
        return positional, keyword

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The dynamic arguments' leaves, in the order of the flat program."""
        return tuple(jax.tree.leaves(self.dynamic))

    def filled(self, arrays: Iterable[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the (positional, keyword) arguments with the dynamic leaves replaced, in that order."""
        positional, keyword = jax.tree.unflatten(jax.tree.structure(self.dynamic), list(arrays))
        static, dynamic = self.options.static_places(self.fn, len(self.args)), iter(positional)
        return tuple(a if i in static else next(dynamic) for i, a in enumerate(self.args)), {**self.kwargs, **keyword}


_MESHES = (jax.sharding.Mesh, jax.sharding.AbstractMesh)


def abstract(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: JitOptions) -> Any:
    """Return (arguments, keyword arguments) with a ShapeDtypeStruct, including its sharding, for every array except
    static ones. Raises TraceError if an argument is neither an array nor static, or the function has no such keyword
    argument."""
    parameters = parameters_of(fn)
    if parameters and not any(each.kind is each.VAR_KEYWORD for each in parameters):
        have = [each.name for each in parameters]
        for name in [name for name, x in kwargs.items() if name not in have and not isinstance(x, _MESHES)]:
            raise TraceError(
                f"{name}={short(kwargs[name])}: {name_of(fn)} has no argument of this name, nor shardviz a setting; "
                f"{name_of(fn)} has {', '.join(have) or 'no arguments'}"
            )
    static = options.static_places(fn, len(args))
    positional = tuple(a if i in static else abstract_tree(f"argument {i}", a) for i, a in enumerate(args))
    keyword = {k: a if k in options.static_argnames else abstract_tree(k, a) for k, a in kwargs.items()}
    return positional, keyword


def jitted(fn: Callable[..., Any], name: str, options: JitOptions) -> Any:
    """Return a function wrapped by `jax.jit`, which keeps unused arguments. Raises TraceError for invalid options."""
    try:
        return jax.jit(fn, keep_unused=True, **options.given())
    except (TypeError, ValueError) as error:
        raise TraceError(f"{name}: {error}") from error


def abstract_tree(name: str, tree: Any) -> Any:
    """Return the tree with a ShapeDtypeStruct, including its sharding, for every array. Raises TraceError, which names
    the leaf's tree path, if a leaf is no array, and for a tree that JAX cannot flatten."""
    with readable(name):
        paths, structure = jax.tree_util.tree_flatten_with_path(tree)
    return structure.unflatten(_leaf(name + jax.tree_util.keystr(path), x) for path, x in paths)


@contextlib.contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn JAX's error about unsortable dict keys into a TraceError inside the context."""
    try:
        yield
    except ValueError as error:
        if "sorting pytree dictionary keys" not in str(error):
            raise
        advice = "JAX sorts the keys of a dict: give each dict keys of one type, all str or all int"
        raise TraceError(f"{name or 'a keyword argument'} cannot be flattened: {error} {advice}") from error


def _leaf(where: str, x: Any) -> Any:
    if isinstance(x, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type, sharding=x.sharding)
    if isinstance(x, np.ndarray | np.generic):
        return jax.ShapeDtypeStruct(x.shape, jax.dtypes.canonicalize_dtype(x.dtype))
    if hasattr(x, "aval"):
        own = getattr(x, "sharding", None)
        own = own if isinstance(own, NamedSharding) else None
        return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=getattr(x, "weak_type", False), sharding=own)
    if isinstance(x, bool | int | float | complex):
        return x
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return jax.ShapeDtypeStruct(x.shape, x.dtype)
    advice = "If it is a setting and not data, name its argument in static_argnums or static_argnames"
    if isinstance(x, _MESHES):
        advice = "A mesh is part of the plan: sv.Plan(mesh, in_specs=...), or sv.analyze(fn, ..., mesh=mesh)"
    if "equinox" in sys.modules and "." in where:  # below a module, beside its arrays
        advice = (
            "Wrap the function in equinox.filter_jit, which takes such modules, or split them before: "
            "arrays, static = equinox.partition(module, equinox.is_array)"
        )
    raise TraceError(
        f"{where} is a {type(x).__name__}, {short(x)}: expected an array, a jax.ShapeDtypeStruct or a number. {advice}"
    )


def name_of(fn: Any) -> str:
    """Return a callable's name: its own, that of the function it is a partial of, or that of its type."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", None) or type(fn).__name__


def own_specs(leaves: Iterable[Any]) -> tuple[tuple[Spec | None, ...], DeviceMesh | None]:
    """Return (each array's spec or None, the first mesh) of arrays with a NamedSharding."""
    return specs_of(getattr(leaf, "sharding", None) for leaf in leaves)


def specs_of(shardings: Iterable[Any]) -> tuple[tuple[Spec | None, ...], DeviceMesh | None]:
    """Return (the spec of each NamedSharding or PartitionSpec, None for other objects; the first mesh)."""
    specs: list[Spec | None] = []
    mesh = None
    for sharding in shardings:
        named = isinstance(sharding, NamedSharding)
        specs.append(Spec.of(sharding) if isinstance(sharding, NamedSharding | PartitionSpec) else None)
        if named and mesh is None and sharding.mesh.axis_names:
            mesh = DeviceMesh.of(sharding.mesh)
    return tuple(specs), mesh


def without_shardings(tree: Any) -> Any:
    """Return the tree without shardings on its ShapeDtypeStructs, so that one trace serves every plan."""

    def leaf(x: Any) -> Any:
        if isinstance(x, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type)
        return x

    return jax.tree.map(leaf, tree)
