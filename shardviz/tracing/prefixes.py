"""Pytree prefixes: entries for a tree's branches, spread over its leaves; and specs in one canonical form.

>>> spread((None, {"a": 1}), ("x", {"a": ["y", "z"]}))
[None, 1, 1]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from shardviz.errors import SpecError
from shardviz.notation import Spec
from shardviz.tracing.rules import Rules
from shardviz.tracing.trees import spec_tree


@dataclass(frozen=True)
class _Box:
    """A wrapper of a prefix's entry. None is an entry there, but an empty branch in other pytrees."""

    held: Any


def spread(prefix: Any, tree: Any, is_entry: Callable[[Any], bool] = lambda x: x is None) -> list[Any]:
    """Return for each leaf of a tree the entry of a pytree prefix; None and what `is_entry` accepts are entries. Raises
    ValueError, in JAX's words, if it is no prefix of the tree."""
    boxed = jax.tree.map(_Box, prefix, is_leaf=is_entry)
    return [box.held for box in jax.tree.leaves(jax.tree.broadcast(boxed, tree))]


def is_spec(leaf: Any) -> bool:
    """Return whether a node of a tree of specs is a spec, rules, or None, rather than a branch."""
    return leaf is None or isinstance(leaf, Spec | Rules | jax.sharding.PartitionSpec | jax.sharding.Sharding)


def canonical(what: str, tree: Any) -> Any:
    """Return the tree with a `Spec` for every PartitionSpec; flax's states and StateShardings of specs become plain
    trees."""

    def leaf(path: Any, spec: Any) -> Any:
        where = what + jax.tree_util.keystr(path)
        if not is_spec(spec):
            raise SpecError(f"{where}: expected a PartitionSpec or None, not {spec!r}")
        if isinstance(spec, Rules) and what == "out_specs":
            words = "rules and StateShardings say how arguments are sharded; give PartitionSpecs for the result"
            raise SpecError(f"{where}: {words}")
        if isinstance(spec, jax.sharding.Sharding) and not isinstance(spec, jax.sharding.NamedSharding):
            raise SpecError(f"{where}: expected a PartitionSpec, not a {type(spec).__name__}")
        return spec if spec is None or isinstance(spec, Rules) else Spec.of(spec)

    return jax.tree_util.tree_map_with_path(leaf, spec_tree(tree), is_leaf=is_spec)


def expand(what: str, prefix: Any, tree: Any) -> list[Any]:
    """Return a spec, None or `Rules` for each leaf of `tree`, from a pytree prefix of it. Raises SpecError if `prefix`
    is no prefix of the tree; the message says where they differ."""
    try:
        return spread(prefix, tree, is_spec)
    except (ValueError, AttributeError) as error:  # JAX stumbles over its own message where keys are attributes
        raise SpecError(
            f"{what} must be a pytree prefix of the {'arguments' if what.startswith('in_') else 'result'}: "
            f"{_parting(what, prefix, tree)}"
        ) from error


def _parting(where: str, prefix: Any, tree: Any) -> str:
    """Return in words the first place where a prefix does not fit the tree, with the argument there."""
    if is_spec(prefix):
        return f"{where} fits"
    called = _called(tree)
    place = where if called in ("", where) else f"{where} ({called})"
    if type(prefix) is not type(tree):
        leaf = jax.tree_util.treedef_is_leaf(jax.tree.structure(tree))
        kind = "single array" if leaf else type(tree).__name__
        return f"{place} is a {type(prefix).__name__} where the function has a {kind}"
    ours, theirs = _children(prefix), _children(tree)

    def keys(paths):
        return ", ".join(map(jax.tree_util.keystr, paths))

    if missing := [p for p in theirs if p not in ours][:5]:
        names = ", ".join(filter(None, (_called(theirs[p]) for p in missing))) if not called else ""
        return f"{place} lacks {keys(missing)}{f' ({names})' if names else ''}; give it a spec, or None"
    if extra := [p for p in ours if p not in theirs][:5]:
        return f"{place} has {keys(extra)}, which the function does not have; it has {keys(list(theirs)[:8])}"
    for path, node in ours.items():
        if not is_spec(node) and "fits" not in (text := _parting(where + keys([path]), node, theirs[path])):
            return text
    return f"{where} fits"


def _called(tree: Any) -> str:
    """Return the common root of the arguments in a tree of names: `params` for `params['w']` at `['w']`; empty if
    none."""
    named = jax.tree_util.tree_flatten_with_path(tree)[0]
    rows = ((path, getattr(leaf, "name", leaf)) for path, leaf in named)  # a name, or a `Leaf`
    common = {name.removesuffix(jax.tree_util.keystr(path)) for path, name in rows if isinstance(name, str)}
    return common.pop() if len(common) == 1 else ""


def _children(tree: Any) -> dict[Any, Any]:
    """Return a pytree root's children by path."""
    return dict(jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: node is not tree)[0])
