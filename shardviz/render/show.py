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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from shardviz.errors import ShardvizError, SpecError
from shardviz.layouts import itemsize, layout
from shardviz.notation import Sharding
from shardviz.records.report import Report
from shardviz.render.processes import read_processes
from shardviz.render.reading import Subject, is_array, is_shape, read_one, says_sharding, unpack
from shardviz.render.shown import Shown, ShownChange, ShownTree
from shardviz.render.unknown import ShownUnknown

Processes = int | Sequence[int] | Mapping[int, int] | None


def show(
    array_or_shape: Any,
    spec: Any = None,
    mesh: Any = None,
    *,
    after: Any = None,
    leaf: str | None = None,
    dtype: Any = None,
    processes: Processes = None,
) -> Shown | ShownTree | ShownChange | ShownUnknown:
    """The shard map of an array, a shape, a report's value, or a tree of arrays; or of an array before and after.

    Args:
        array_or_shape: a shape such as `(8192, 4096)`; a `records.Value`; anything with `.shape` and `.sharding` (a
            `jax.Array`, a `jax.ShapeDtypeStruct`), or a traced value; a pytree of these, such as a model's parameters;
            or a `Report`, which is the tree of its arguments.
        spec: a PartitionSpec, a tuple such as `("data", None)`, any `jax.sharding.Sharding`, or whatever else `layout`
            reads; overrides the array's own. For a tree: one for all leaves, or a tree of them (or of its top).
        mesh: a mesh in any form that `DeviceMesh.of` reads; overrides the array's own.
        after: of one array, the sharding that it changes to, as `spec`; what moves is shown too.
        leaf: of a tree, the name of the leaf whose shard map is drawn, the heaviest if None; of a report, the name of
            any argument, output or intermediate.
        dtype: of a shape, the element type, for bytes; overrides an array's own.
        processes: which devices belong to one process (host): how many each has, counted by device id; or the process
            of each device in mesh order, or device id → process. None for what a mesh of devices itself says.

    Returns:
        A `Shown`, a `ShownTree` for a tree, a `ShownChange` with `after`, a `ShownUnknown` where nobody has said yet
        how the array is cut. It shows itself in a notebook; `.text()`, `.html()`, `.plot(ax=None)`.

    Raises:
        SpecError: if no spec is given and the array has none, or it does not fit.
        MeshError: if `mesh` is no mesh, or `processes` does not fit it.
        ShardvizError: if it has no shape, no mesh is given and the array has none, or `leaf` is no leaf.
    """
    if isinstance(array_or_shape, Report):
        return _report(array_or_shape, spec, after, leaf, processes)
    if is_array(array_or_shape) or is_shape(array_or_shape):
        return _one(array_or_shape, spec, mesh, after, dtype, processes)
    names, leaves, specs = _flatten(array_or_shape, spec)
    if not any(map(is_array, leaves)):
        read_one(array_or_shape, spec, mesh)  # says what it is not
    if after is not None:
        raise ShardvizError("show(after=...): it is of one array, not of a tree; give one leaf of it")
    found: list[Shown | ShownUnknown] = []
    left_out = []
    for name, array, one in zip(names, leaves, specs, strict=True):
        if not is_array(array) or (mesh is None and one is None and not says_sharding(array)):
            left_out.append(name)
        else:
            found.append(_shown(read_one(array, one, mesh, name=name), processes))
    return _tree(found, left_out, leaf, len(leaves))


def _tree(found: Sequence[Shown | ShownUnknown], left_out: list[str], leaf: str | None, count: int) -> ShownTree:
    known = [shown for shown in found if isinstance(shown, Shown)]
    left_out = left_out + [shown.title for shown in found if isinstance(shown, ShownUnknown)]
    if not known:
        raise ShardvizError(
            f"show: none of the {count} leaves has a sharding ({', '.join(left_out[:3])}, ...); give a mesh and a "
            "spec, such as show(params, ('data', None), {'data': 8})"
        )
    if leaf is None:
        return ShownTree(known, None, left_out)
    chosen = [shown for shown in found if shown.title == leaf]
    if not chosen:
        have = ", ".join(repr(shown.title) for shown in found[:6]) + (", ..." if len(found) > 6 else "")
        raise ShardvizError(f"show(leaf={leaf!r}): no leaf has this name; they are {have}")
    return ShownTree(known, chosen[0], left_out)


def _report(
    report: Report, spec: Any, after: Any, leaf: str | None, processes: Processes
) -> Shown | ShownTree | ShownChange | ShownUnknown:
    """A report's arguments as a tree, with the value called `leaf` drawn; that value alone with `spec` or `after`."""
    if leaf is not None and (spec is not None or after is not None):
        return _one(report.value(leaf), spec, report.mesh, after, None, processes)
    if spec is not None or after is not None:
        raise ShardvizError("show(report): spec and after are of one value; name it, such as leaf=\"params['w']\"")
    found = [_shown(read_one(value, None, report.mesh), processes) for value in report.arguments]
    chosen = None if leaf is None else _shown(read_one(report.value(leaf), None, report.mesh), processes)
    known = [shown for shown in found if isinstance(shown, Shown)]
    if not known:
        if chosen is not None:
            return chosen
        raise ShardvizError(f"show(report): {report.program} has no argument whose sharding is known; name a value")
    return ShownTree(known, chosen, [shown.title for shown in found if isinstance(shown, ShownUnknown)])


def _one(
    array: Any, spec: Any, mesh: Any, after: Any, dtype: Any, processes: Processes
) -> Shown | ShownChange | ShownUnknown:
    subject = read_one(array, spec, mesh)
    if dtype is not None:
        subject = replace(subject, dtype=str(getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype)))
        itemsize(subject.dtype)
    shown = _shown(subject, processes)
    if after is None:
        return shown
    given, where, _ = unpack(after)
    if where is None and not isinstance(given, Sharding):
        where = shown.layout.mesh if isinstance(shown, Shown) else shown.mesh
    then = _shown(replace(read_one(subject.shape, given, where), name=subject.name, dtype=subject.dtype), processes)
    for word, one in (("before", shown), ("after", then)):
        if isinstance(one, ShownUnknown):
            raise SpecError(f"show(after=...): what moves is not known, for {word} the change {one.why}")
    assert isinstance(shown, Shown) and isinstance(then, Shown)
    return ShownChange(Shown(shown.layout, shown.title, shown.dtype, hosts=shown.hosts), then)


def _shown(subject: Subject, processes: Processes) -> Shown | ShownUnknown:
    if subject.unknown:
        return ShownUnknown(subject.shape, subject.unknown, subject.name, subject.dtype, subject.mesh)
    cut = layout(subject.shape, subject.sharding, subject.mesh)
    return Shown(cut, subject.name, subject.dtype, subject.values, read_processes(cut, processes))


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
