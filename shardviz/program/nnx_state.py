"""What is read of flax.nnx objects: their arrays by path, their partitions, and trees of specs in their shape.

Nothing here imports flax before somebody else has; `load` says how to install it where it is missing.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh, Spec
from shardviz.program.rules import Rules, is_state_sharding
from shardviz.program.trees import Attributes, Path, plain_path


def load() -> Any:
    """The module `flax.nnx`.

    Raises:
        ShardvizError: if flax is not installed, with how to install it.
    """
    try:
        return importlib.import_module("flax.nnx")
    except ImportError as error:
        raise ShardvizError(
            "this needs flax, which is not installed here; pip install 'shardviz[flax]' brings it"
        ) from error


def is_object(x: Any) -> bool:
    """Whether this is a module, an optimizer, a variable, a state or another object of flax.nnx."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(x, (nnx.Pytree, nnx.Variable, nnx.State))


def entries(state: Any) -> Iterator[tuple[Path, Any, Any]]:
    """(path, variable, array) of everything in a state, in the order of its pytree leaves.

    The path of a variable's array is the variable's; what has no variable around it stands for itself.
    """
    nnx = load()
    for path, held in nnx.to_flat_state(state):
        for below, value in jax.tree_util.tree_flatten_with_path(held, is_leaf=lambda x: x is None)[0]:
            below = plain_path(below)
            yield (*path, *(below[1:] if isinstance(held, nnx.Variable) else below)), held, value


def views(
    state: Any,
    count: int,
    of: Callable[[Path, Any, Any], Any],
    keep: Callable[[Path, Any, Any], bool] = lambda *_: True,
) -> list[Any]:
    """The state of `count` objects as a tree for each.

    Args:
        state: what `nnx.split` gives for a tuple of objects.
        count: how many they are.
        of: makes a leaf from its path in the state (the object's number first), its variable and its array.
        keep: whether it belongs into the tree, from the same.
    """
    found: list[dict[Path, Any]] = [{} for _ in range(count)]
    for path, held, value in entries(state):
        if keep(path, held, value):
            found[path[0]][path[1:]] = of(path, held, value)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return [Attributes.nested(leaves) for leaves in found]


def partition(held: Any) -> tuple[Spec | None, DeviceMesh | None]:
    """The spec that a variable's metadata asks for, logical axis names resolved by flax's rules, and its mesh."""
    nnx = load()
    metadata = held.get_metadata() if isinstance(held, nnx.Variable) else {}
    asked, mesh = metadata.get("out_sharding"), metadata.get("mesh")
    asked = getattr(asked, "sharding", asked)  # of a Format
    if isinstance(asked, NamedSharding):
        return Spec.of(asked.spec), DeviceMesh.of(asked.mesh)
    if not asked:
        return None, None
    found = jax.tree.leaves(nnx.get_partition_spec(held), is_leaf=lambda x: isinstance(x, PartitionSpec))[0]
    return Spec.of(found), None if mesh is None else DeviceMesh.of(mesh)


def spec_tree(tree: Any) -> Any:
    """A tree of specs with `Rules` for each `nnx.StateSharding`, and states and modules of specs as plain trees."""

    def leaf(x: Any) -> Any:
        if _is_split(x):
            return Rules(x.metadata)
        if is_state_sharding(x):
            return Rules(x)
        if isinstance(x, getattr(sys.modules.get("flax.nnx"), "State", ())):
            return Attributes.nested({path: value for path, _, value in entries(x)})
        if is_object(x):
            _, state = load().split((x,))
            return views(state, 1, lambda _, __, value: value)[0]
        return x

    stop = lambda x: x is None or is_object(x) or is_state_sharding(x) or _is_split(x)  # noqa: E731
    return jax.tree.map(leaf, tree, is_leaf=stop)


def _is_split(x: Any) -> bool:
    """Whether this is what `nnx.jit` gives to `jax.jit` in place of a StateSharding."""
    return type(x).__name__ == "NodeStates" and type(x).__module__.startswith("flax.nnx")


def spec_meshes(tree: Any) -> Iterator[Any]:
    """The meshes of the NamedShardings in a tree of specs, those in a StateSharding included."""
    if _is_split(tree):
        tree = tree.metadata
    if is_state_sharding(tree):
        tree = list(tree.shardings)
    for x in jax.tree.leaves(tree, is_leaf=lambda x: x is not tree and (_is_split(x) or is_state_sharding(x))):
        if isinstance(x, NamedSharding):
            yield x.mesh
        elif _is_split(x) or is_state_sharding(x):
            yield from spec_meshes(x)
