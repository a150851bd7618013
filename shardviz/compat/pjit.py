"""`jax.experimental.pjit` of 2021 and 2022, for exploring: its signature, its rules, its errors.

>>> step = pjit(
...     lambda x, w: x @ w, in_axis_resources=(PartitionSpec("data"), None), out_axis_resources=PartitionSpec("data")
... )

`sv.explore(step, x, w)` uses the mesh of the call site, or a given mesh. To run the program,
`program.code(plan)` writes it with today's `jax.jit`, from which pjit differs in three ways. A resource is a
PartitionSpec, None (replicated; for `jax.jit` the compiler's choice) or `FROM_GDA`, the argument's current sharding.
The mesh is taken at the call, not at the wrapping. Arguments with resources are positional.

The changes of 2022 are included: `in_shardings` and `out_shardings` as names of the resources; NamedShardings, which
bring their mesh; and omitted resources, with which an argument keeps its own sharding and may be a keyword argument,
and the compiler chooses a result's sharding.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import jax
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec

from shardviz import _jax
from shardviz.errors import MeshError, SpecError, TraceError
from shardviz.notation import DeviceMesh, Spec, check_spec
from shardviz.tracing.call import Brings, Call, JitOptions, abstract, own_specs, without_shardings
from shardviz.tracing.prefixes import expand
from shardviz.tracing.signature import named_tree, tree_of_names


class _Marker:
    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return self.name


FROM_GDA = _Marker("FROM_GDA")
"""A resource in `in_axis_resources`: the sharding that the argument already has."""
UNSPECIFIED = _Marker("UNSPECIFIED")
"""An omitted resource: an argument's own sharding if it has one, and the compiler's choice for a result."""


def pjit(
    fun: Callable[..., Any],
    in_axis_resources: Any = UNSPECIFIED,
    out_axis_resources: Any = UNSPECIFIED,
    static_argnums: int | Iterable[int] = (),
    donate_argnums: int | Iterable[int] = (),
    keep_unused: bool = False,
    *,
    static_argnames: str | Iterable[str] = (),
    in_shardings: Any = UNSPECIFIED,
    out_shardings: Any = UNSPECIFIED,
) -> Pjit:
    """Return a function that is compiled for, and partitioned over, the mesh of each call site.

    Args:
        fun: the function.
        in_axis_resources: a pytree prefix of the tuple of non-static arguments: at each leaf a PartitionSpec, None for
            replicated, a NamedSharding, or `FROM_GDA` for the argument's sharding. A list is read as a tuple. Omitted:
            each argument's own sharding.
        out_axis_resources: a pytree prefix of the result, with the same leaves except `FROM_GDA`. Omitted: the
            compiler's choice.
        static_argnums, static_argnames: the static arguments; they must be hashable.
        donate_argnums: numbers of the donated arguments, whose buffers the results may reuse.
        keep_unused: keep arguments that no result needs.
        in_shardings, out_shardings: the resources under their later names.

    Returns:
        A function for `sv.trace`, `sv.analyze` and `sv.explore`. If it is called while another function is traced, it
        constrains arguments and results to its resources.

    Raises:
        SpecError: for a leaf that is not a resource, or uses a mesh axis twice.
        TraceError: if `fun` is not callable, an argument is both static and donated, or resources are given under both
            names.
    """
    if UNSPECIFIED not in (in_axis_resources, in_shardings) or UNSPECIFIED not in (out_axis_resources, out_shardings):
        raise TraceError("pjit: in_shardings is another name of in_axis_resources, as for outputs; give one of them")
    ins = in_axis_resources if in_shardings is UNSPECIFIED else in_shardings
    outs = out_axis_resources if out_shardings is UNSPECIFIED else out_shardings
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    static, donated = _numbers("static_argnums", static_argnums), _numbers("donate_argnums", donate_argnums)
    return Pjit(fun, ins, outs, JitOptions(static, names, donated), keep_unused)


def with_sharding_constraint(x: Any, axis_resources: Any) -> Any:
    """Apply `jax.lax.with_sharding_constraint` with the rule of `jax.experimental.pjit`: None is replicated."""
    specs = map_resources(lambda r: PartitionSpec() if r is None else r, axis_resources)
    return jax.lax.with_sharding_constraint(x, specs)


class Pjit:
    """The return value of `pjit`.

    Attributes:
        in_axis_resources, out_axis_resources: the resources, with a `Spec` in place of every PartitionSpec and None.
        options: the static and the donated arguments.
        keep_unused: the argument of `pjit`.
        mesh: the mesh of the NamedShardings among the resources, which precedes the call site's; None without any.
    """

    def __init__(self, fun: Any, ins: Any, outs: Any, options: JitOptions, keep_unused: bool):
        if not callable(fun):
            raise TraceError(f"pjit: expected a function, not {fun!r}")
        functools.update_wrapper(self, fun)
        self.name = getattr(fun, "__name__", type(fun).__name__)
        self.fun, self.options, self.keep_unused = fun, options, keep_unused
        ins = tuple(ins) if isinstance(ins, list) else ins
        named = (s for s in jax.tree.leaves((ins, outs), is_leaf=is_resource) if isinstance(s, NamedSharding))
        self.mesh = next((s.mesh for s in named), None)
        self.in_axis_resources = resources("in_axis_resources", ins)
        self.out_axis_resources = resources("out_axis_resources", outs)
        if both := set(options.static_argnums) & set(options.donate_argnums):
            raise TraceError(f"pjit: argument {min(both)} cannot be both static and donated; donate only arrays")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(x, Tracer) for x in jax.tree.leaves((args, kwargs))):
            raise TraceError(
                f"this pjit of {self.name} cannot run, only be explored; sv.trace({self.name}, ...).code(plan) writes "
                "a jax.jit that runs"
            )
        mesh = self.mesh or _jax.context_mesh()
        if mesh is None:  # inside a trace, which a plan may repeat on its own mesh
            missing = MeshError(f"pjit of {self.name} needs a mesh where it is called; call it under `with mesh:`")
            raise TraceError(str(missing)) from missing
        rows = self.in_specs(args, kwargs)
        args, kwargs = Call(self.fun, args, kwargs, self.name, options=self.options).filled(_constrained(rows, mesh))
        leaves, structure = jax.tree.flatten(result := self.fun(*args, **kwargs))
        names = named_tree("result", result)
        specs = expand("out_axis_resources", self.out_axis_resources, names)
        rows = zip(jax.tree.leaves(names), leaves, (None if s is UNSPECIFIED else s for s in specs), strict=True)
        return structure.unflatten(_constrained(rows, mesh))

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __shardviz_call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], options: JitOptions) -> Call:
        """Return the call for `sv.trace` and `sv.explore`: the axis resources are the plan, on the call site's mesh.
        Raises SpecError or TraceError if the resources do not fit the arguments."""
        if options:
            raise TraceError(f"{self.name} is a pjit function, which has static_argnums and donate_argnums of its own")
        self.dynamic(args, kwargs)
        args, kwargs = abstract(self.fun, args, kwargs, self.options)
        arrays = self.in_specs(args, kwargs)
        call_mesh = self.mesh or _jax.context_mesh()
        mesh = own_specs([x for _, x, _ in arrays])[1] if call_mesh is None else DeviceMesh.of(call_mesh)
        # `wraps` keeps the function's name and parameters
        run = functools.wraps(self.fun)(lambda *args, **kwargs: self.fun(*args, **kwargs))
        jitted = jax.jit(run, keep_unused=True, **self.options.given())
        outs = map_resources(lambda r: None if r is UNSPECIFIED else r, self.out_axis_resources)
        brings = Brings(mesh, tuple(spec for _, _, spec in arrays), outs, "in_axis_resources")
        args, kwargs = without_shardings(args), without_shardings(kwargs)
        call = Call(jitted, args, kwargs, self.name, "pjit", self.options, brings)
        return replace(call, keeps_unused=self.keep_unused)

    def dynamic(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments that are not static, as `jax.jit` has them. Raises TraceError for a keyword argument
        with resources, or for an argument number that is out of range."""
        if kwargs and self.in_axis_resources is not UNSPECIFIED:
            raise TraceError(
                f"pjit takes positional arguments only, where there are resources for them: {self.name} was called "
                f"with {', '.join(kwargs)} by name"
            )
        numbers = self.options.static_argnums, self.options.donate_argnums
        if max(itertools.chain(*numbers), default=-1) >= len(args):
            raise TraceError(
                f"pjit: {self.name} has static_argnums={numbers[0]} and donate_argnums={numbers[1]}, but was called "
                f"with {len(args)} arguments"
            )
        static = self.options.static_places(self.fun, len(args))
        positional = tuple(a for i, a in enumerate(args) if i not in static)
        return positional, {k: v for k, v in kwargs.items() if k not in self.options.static_argnames}

    def in_specs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any, Spec | None]]:
        """Return (tree path, array, spec) of every array among the arguments, with `FROM_GDA` resolved. The spec is
        None if the resource is omitted and the array has no sharding. Raises SpecError if the resources are not a
        prefix of the arguments, if `FROM_GDA` is given for an array without a sharding, or if an array's sharding
        differs from its resource."""
        positional, keyword = self.dynamic(args, kwargs)
        names = tree_of_names(self.fun, args, keyword, self.options.static_places(self.fun, len(args)))
        tree = self.in_axis_resources
        if not is_resource(tree) and not isinstance(tree, tuple):
            raise SpecError(
                f"in_axis_resources of {self.name} is a {type(tree).__name__}; it must be a pytree prefix of the "
                "tuple of arguments, so for a function of one argument write (resources,)"
            )
        expand("in_axis_resources", map_resources(lambda r: Spec(), tree), names[0])  # raises where the trees differ
        leaf_resources = expand("in_axis_resources", tree, names[0])
        leaf_resources += [UNSPECIFIED] * len(jax.tree.leaves(keyword))
        leaves = zip(jax.tree.leaves(names), jax.tree.leaves((positional, keyword)), leaf_resources, strict=True)
        return [(name, x, resolved(name, x, resource)) for name, x, resource in leaves]


def _numbers(what: str, argnums: Any) -> tuple[int, ...]:
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in numbers):
        raise TraceError(f"pjit: {what} must be whole numbers of 0 or more, not {argnums!r}")
    return tuple(sorted(set(numbers)))


def _constrained(rows: Iterable[tuple[str, Any, Spec | None]], mesh: Any) -> list[Any]:
    """Return values constrained to their specs; values without a spec are unchanged. The names are for errors."""
    values = []
    for name, value, spec in rows:
        if spec is not None:
            check_spec(name, jax.numpy.shape(value), spec, DeviceMesh.of(mesh))
            sharding = NamedSharding(mesh, PartitionSpec(*spec.entries()))
            value = jax.lax.with_sharding_constraint(value, sharding)
        values.append(value)
    return values


def is_resource(node: Any) -> bool:
    """Return whether a node of a tree is a resource rather than a branch."""
    return node is None or isinstance(node, _Marker | Spec | PartitionSpec | NamedSharding)


def map_resources(change: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree of resources with `change` applied to each resource."""
    return jax.tree.map(change, tree, is_leaf=is_resource)


def resources(what: str, tree: Any) -> Any:
    """Return the tree with a `Spec` in place of every PartitionSpec and None."""

    def leaf(path: Any, resource: Any) -> Any:
        where = what + jax.tree_util.keystr(path)
        if resource is UNSPECIFIED or (resource is FROM_GDA and what == "in_axis_resources"):
            return resource
        if not is_resource(resource) or resource is FROM_GDA:
            kinds = "a PartitionSpec, FROM_GDA" if what == "in_axis_resources" else "a PartitionSpec"
            raise SpecError(f"{where}: expected {kinds} or None (replicated), not {resource!r}")
        spec = Spec.of(resource.spec if isinstance(resource, NamedSharding) else resource)
        if spec.unreduced:
            raise SpecError(f"{where} {spec}: a resource cannot have unreduced axes; leave them out")
        if twice := [axis for axis, n in Counter(spec.axes).items() if n > 1]:
            raise SpecError(
                f"{where} {spec}: a mesh axis can shard one dimension at most, and {', '.join(map(repr, twice))} is "
                "there more than once"
            )
        return spec

    return jax.tree_util.tree_map_with_path(leaf, tree, is_leaf=is_resource)


def resolved(name: str, x: Any, resource: Any) -> Spec | None:
    """Return the spec of a resource for an array, which may have its own sharding; raise as `Pjit.in_specs` does."""
    own = None if isinstance(x, Tracer) else getattr(x, "sharding", None)
    own = own if isinstance(own, NamedSharding) else None
    if resource is FROM_GDA and own is None:
        raise SpecError(
            f"in_axis_resources: {name} is FROM_GDA, the array's own sharding, but the array has none; give a "
            "PartitionSpec, or jax.device_put the array with a NamedSharding first",
            argument=name,
        )
    if resource is UNSPECIFIED or resource is FROM_GDA:
        return None if own is None else Spec.of(own.spec)
    mesh = None if own is None else DeviceMesh.of(own.mesh)
    if own is None or mesh is None or not set(resource.axes) <= set(mesh.names):
        return resource
    if not resource.same_as(Spec.of(own.spec), mesh):
        raise SpecError(
            f"in_axis_resources: {name} is partitioned as {Spec.of(own.spec)} over {mesh} already, and its resource is "
            f"{resource}. They must agree: use FROM_GDA, or jax.device_put it first",
            argument=name,
        )
    return resource
