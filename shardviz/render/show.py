"""`show`: the shard map of anything that has a sharding.

>>> print(show((8, 6), ("data",), {"data": 2}))
[8, 6]  P('data', None)  mesh data=2, 2 devices  shard [4, 6]
rows     dimension 0: 8 by data=2, 4 each
columns  dimension 1: 6, not cut
<BLANKLINE>
       0:6
     ┌─────┐
 0:4 │  0  │
 4:8 │  1  │
     └─────┘
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shardviz.errors import ShardvizError
from shardviz.layout import itemsize, layout
from shardviz.render.reading import Subject, is_array, is_shape, read_one, unpack
from shardviz.render.shown import Shown, ShownChange, ShownTree


def show(
    array_or_shape: Any,
    spec: Any = None,
    mesh: Any = None,
    *,
    after: Any = None,
    leaf: str | None = None,
    dtype: Any = None,
) -> Shown | ShownTree | ShownChange:
    """The shard map of an array, a shape, a report's value, or a tree of arrays; or of an array before and after.

    Args:
        array_or_shape: a shape such as `(8192, 4096)`; a `records.Value`; anything with `.shape` and `.sharding` (a
            `jax.Array`, a `jax.ShapeDtypeStruct`); or a pytree of these, such as a model's parameters.
        spec: a PartitionSpec, a tuple such as `("data", None)`, any `jax.sharding.Sharding`, or whatever else `layout`
            reads; overrides the array's own. For a tree: one for all leaves, or a tree of them (or of its top).
        mesh: a mesh in any form that `DeviceMesh.of` reads; overrides the array's own.
        after: of one array, the sharding that it changes to, as `spec`; what moves is shown too.
        leaf: of a tree, the name of the leaf whose shard map is drawn; the heaviest if None.
        dtype: of a shape, the element type, for bytes; overrides an array's own.

    Returns:
        A `Shown`, a `ShownTree` for a tree, or a `ShownChange` with `after`: it shows itself in a notebook; `.text()`,
        `.html()`, `.plot(ax=None)`.

    Raises:
        SpecError: if no spec is given and the array has none, or it does not fit.
        MeshError: if `mesh` is no mesh.
        ShardvizError: if it has no shape, no mesh is given and the array has none, or `leaf` is no leaf.
    """
    if is_array(array_or_shape) or is_shape(array_or_shape):
        return _one(array_or_shape, spec, mesh, after, dtype)
    names, leaves, specs = _flatten(array_or_shape, spec)
    if not any(map(is_array, leaves)):
        return _shown(read_one(array_or_shape, spec, mesh))  # which says what it is not
    if after is not None:
        raise ShardvizError("show(after=...): it is of one array, not of a tree; give one leaf of it")
    found, left_out = [], []
    for name, array, one in zip(names, leaves, specs, strict=True):
        if not is_array(array) or (mesh is None and one is None and getattr(array, "sharding", None) is None):
            left_out.append(name)
        else:
            found.append(_shown(read_one(array, one, mesh, name=name)))
    if not found:
        raise ShardvizError(
            f"show: none of the {len(leaves)} leaves has a sharding ({', '.join(names[:3])}, ...); give a mesh and a "
            "spec, such as show(params, ('data', None), {'data': 8})"
        )
    if leaf is None:
        return ShownTree(found, None, left_out)
    chosen = [s for s in found if s.title == leaf]
    if not chosen:
        have = ", ".join(repr(s.title) for s in found[:6]) + (", ..." if len(found) > 6 else "")
        raise ShardvizError(f"show(leaf={leaf!r}): no leaf has this name; they are {have}")
    return ShownTree(found, chosen[0], left_out)


def _one(array: Any, spec: Any, mesh: Any, after: Any, dtype: Any) -> Shown | ShownChange:
    subject = read_one(array, spec, mesh)
    if dtype is not None:
        subject = replace(subject, dtype=str(getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype)))
        itemsize(subject.dtype)
    shown = _shown(subject)
    if after is None:
        return shown
    given, where, _ = unpack(after)
    then = replace(subject, sharding=given, mesh=subject.mesh if where is None else where, values=None)
    return ShownChange(Shown(shown.layout, shown.title, shown.dtype), _shown(then))


def _shown(subject: Subject) -> Shown:
    cut = layout(subject.shape, subject.sharding, subject.mesh)
    return Shown(cut, subject.name, subject.dtype, subject.values)


def _flatten(tree: Any, spec: Any) -> tuple[list[str], list[Any], list[Any]]:
    """(tree path, leaf, spec or None) of every leaf, as three lists."""
    import jax  # a tree is JAX's notion; nothing else here needs it

    paths, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = [jax.tree_util.keystr(path) for path, _ in paths]
    if _is_spec(spec):
        return names, [leaf for _, leaf in paths], [spec] * len(paths)
    try:
        specs = structure.flatten_up_to(jax.tree.broadcast(spec, tree, is_leaf=_is_spec))
    except ValueError as error:
        raise ShardvizError(f"show: the tree of specs does not fit the tree of arrays: {error}") from error
    return names, [leaf for _, leaf in paths], specs


def _is_spec(thing: Any) -> bool:
    """Whether it is one spec, not a tree of them."""
    if isinstance(thing, dict | list):
        return False
    if type(thing) is tuple:
        return all(e is None or isinstance(e, str) or (type(e) is tuple and _is_spec(e)) for e in thing)
    return True
