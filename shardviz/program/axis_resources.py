"""Axis resources, as pjit of 2021 took them: what each array is to be cut along.

A resource is a PartitionSpec, None for replicated, or `FROM_GDA`: the sharding that an argument has already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardviz.errors import SpecError
from shardviz.notation import DeviceMesh, Spec


class _FromGda:
    def __repr__(self) -> str:
        return "FROM_GDA"


FROM_GDA = _FromGda()
"""In `in_axis_resources`: take the sharding that the argument already has."""


def is_resource(node: Any) -> bool:
    """Whether a node of a tree is a resource rather than a branch."""
    return node is None or node is FROM_GDA or isinstance(node, Spec | PartitionSpec)


def map_resources(change: Callable[[Any], Any], tree: Any) -> Any:
    """A tree of resources with each of them changed."""
    return jax.tree.map(change, tree, is_leaf=is_resource)


def resources(what: str, tree: Any) -> Any:
    """The tree with a `Spec` in place of every PartitionSpec and None."""

    def leaf(path: Any, resource: Any) -> Any:
        where = what + jax.tree_util.keystr(path)
        if resource is FROM_GDA and what == "in_axis_resources":
            return resource
        if not is_resource(resource) or resource is FROM_GDA:
            kinds = "a PartitionSpec, FROM_GDA" if what == "in_axis_resources" else "a PartitionSpec"
            raise SpecError(f"{where}: expected {kinds} or None (replicated), not {resource!r}")
        spec = Spec.of(resource)
        if spec.unreduced:
            raise SpecError(f"{where} {spec}: a resource says how dimensions are cut, and nothing of partial sums")
        if twice := [axis for axis, n in Counter(spec.axes).items() if n > 1]:
            raise SpecError(
                f"{where} {spec}: a mesh axis can cut one dimension at most, and {', '.join(map(repr, twice))} is "
                "there more than once"
            )
        return spec

    return jax.tree_util.tree_map_with_path(leaf, tree, is_leaf=is_resource)


def own_sharding(x: Any) -> NamedSharding | None:
    """The sharding that an array has of its own (a global device array of the time), where it has one."""
    if isinstance(x, Tracer):
        return None
    sharding = getattr(x, "sharding", None)
    return sharding if isinstance(sharding, NamedSharding) else None


def resolved(name: str, x: Any, resource: Any) -> Spec:
    own = own_sharding(x)
    if resource is not FROM_GDA:
        if own is not None and not resource.same_as(Spec.of(own.spec), mesh := DeviceMesh.of(own.mesh)):
            missing = set(resource.axes) - set(mesh.names)
            if not missing:
                raise _mismatch(name, own, resource)
        return resource
    if own is None:
        raise SpecError(
            f"in_axis_resources: {name} is FROM_GDA, the sharding that it has, but it has none; give it a "
            "PartitionSpec, or jax.device_put it with a NamedSharding first",
            argument=name,
        )
    return Spec.of(own.spec)


def _mismatch(name: str, own: NamedSharding, resource: Any) -> SpecError:
    return SpecError(
        f"in_axis_resources: {name} is partitioned as {Spec.of(own.spec)} over {DeviceMesh.of(own.mesh)} already, and "
        f"its resource is {resource}. They must agree: use FROM_GDA, or jax.device_put it first",
        argument=name,
    )


def same_partitioning(name: str, x: Any, sharding: NamedSharding) -> None:
    own = own_sharding(x)
    if own is None or not isinstance(own.mesh, Mesh) or not isinstance(sharding.mesh, Mesh):
        return
    if not own.is_equivalent_to(sharding, len(x.shape)):
        raise _mismatch(name, own, f"{Spec.of(sharding.spec)} over {DeviceMesh.of(sharding.mesh)}")
