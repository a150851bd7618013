"""`show`: the shard map of any object with a sharding, as a record with a notebook display.

This module does not import JAX's classes. An array is any object with a `shape` and a `sharding`. A sharding has a
`spec` and a `mesh`, or is anything that `layout` reads.

>>> print(show((8, 6), ("data",), {"data": 2}))
[8, 6] P('data', None) · shard [4, 6] · mesh data=2, 2 devices
rows: dimension 0, 8, along data, 4 each
columns: dimension 1, 6, not sharded
<BLANKLINE>
       0:6
     ┌─────┐
 0:4 │  0  │
 4:8 │  1  │
     └─────┘
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from shardviz.caching import cached_property
from shardviz.costs.machine import Machine
from shardviz.costs.placement import Placement
from shardviz.display import Displayed, paint
from shardviz.errors import ShardvizError, SpecError
from shardviz.layouts import Layout, Moves, TreeBytes, TreeLeaf, add_up, itemsize, layout
from shardviz.layouts.layout import is_plain, is_spec_entry
from shardviz.notation import DeviceMesh, Sharding, Spec
from shardviz.notation.read import sharding as read_sharding
from shardviz.records import Value
from shardviz.records.amounts import format_bytes
from shardviz.records.groups import grouped
from shardviz.records.paths import without_numbers
from shardviz.stablehlo.resharding import moves_between


class Drawn(Displayed):
    """A displayed record with a figure."""

    _width: ClassVar[int | None] = 80

    def plot(self, ax: Any = None, *, dark: bool = False) -> Any:
        """Draw the figure with matplotlib on `ax`, or on a new figure, and return the Axes."""
        return paint("plot", self, ax, dark=dark)


@dataclass(frozen=True, eq=False, repr=False)
class Shown(Drawn):
    """A shard map.

    Attributes:
        layout: the device of every slice.
        title: the array's name; may be empty.
        dtype: the element type; None if unknown.
    """

    layout: Layout
    title: str = ""
    dtype: str | None = None

    @property
    def size(self) -> str:
        """The element type and the bytes per device; empty if the type is unknown."""
        if self.dtype is None:
            return ""
        return f"{self.dtype}, {format_bytes(self.layout.bytes_per_device(self.dtype))} per device"

    @property
    def named(self) -> str:
        """The name and the size, as far as known."""
        return "  ".join(filter(None, (self.title, self.size)))

    @property
    def nbytes(self) -> float:
        """Bytes per device; 0 if the type is unknown."""
        return 0.0 if self.dtype is None else self.layout.bytes_per_device(self.dtype)

    @cached_property
    def equal_by(self) -> Hashable:
        """A key that is equal for arrays of the same type, shape and sharding, whatever their names."""
        own, arrays = self.layout, (self.layout.starts, self.layout.stops, self.layout.device_ids)
        places = hash(tuple(each.tobytes() for each in arrays))
        return self.dtype, own.shape, str(own.spec), own.mesh.names, own.mesh.sizes, own.partial_sums, places


T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class EqualArrays(Generic[T]):
    """Equal arrays of a tree, such as the same weight of every layer.

    Attributes:
        name: their tree path, with `*` for the numbers that differ: `['layers'][*]['wq']`.
        one: the first of them.
        titles: the tree path of each.
    """

    name: str
    one: T
    titles: tuple[str, ...]

    @property
    def count(self) -> int:
        """Number of arrays."""
        return len(self.titles)

    @property
    def counted(self) -> str:
        """The name, and the number if there are several."""
        return self.name if self.count == 1 else f"{self.name} ×{self.count}"


def group(arrays: Iterable[tuple[str, Hashable, T]]) -> tuple[EqualArrays[T], ...]:
    """Group arrays, given as (tree path, key of equality, array), whose paths differ only in numbers.

    >>> [each.counted for each in group((f"['layers'][{n}]['w']", "float32 [8, 8]", n) for n in range(3))]
    ["['layers'][*]['w'] ×3"]
    """
    alike = grouped(((without_numbers(title), key), (title, array)) for title, key, array in arrays)
    groups = []
    for members in alike.values():
        titles = tuple(title for title, _ in members)
        parts = zip(*(_NUMBERS.split(title) for title in titles), strict=True)
        name = "".join(each[0] if len(set(each)) == 1 else "*" for each in parts)
        groups.append(EqualArrays(name, members[0][1], titles))
    return tuple(groups)


_NUMBERS = re.compile(r"(\d+)")


@dataclass(frozen=True, eq=False, repr=False)
class ShownTree(Drawn):
    """A tree of arrays: a table, and shard maps side by side.

    Attributes:
        leaves: the arrays, each as `Shown`, in tree order.
        chosen: the only array whose shard map is drawn; None for the heaviest groups.
        left_out: names of leaves that are no arrays with a known sharding.
    """

    _width: ClassVar[int | None] = 100

    leaves: tuple[Shown, ...]
    chosen: Shown | None = None
    left_out: tuple[str, ...] = ()

    @cached_property
    def bytes(self) -> TreeBytes:
        """The total bytes per device."""
        return add_up(TreeLeaf.of(shown.title, shown.layout, shown.dtype) for shown in self.leaves)

    @property
    def bytes_per_device(self) -> dict[int, float]:
        """Device id → total bytes."""
        return dict(zip(self.bytes.device_ids.tolist(), self.bytes.per_device.tolist(), strict=True))

    @cached_property
    def groups(self) -> tuple[EqualArrays[Shown], ...]:
        """Equal arrays together, in tree order."""
        return group((shown.title, shown.equal_by, shown) for shown in self.leaves)


@dataclass(frozen=True, eq=False, repr=False)
class ShownChange(Drawn):
    """An array before and after a change of its sharding, side by side, with the data moved.

    Attributes:
        before, after: the two shard maps.
    """

    before: Shown
    after: Shown

    @property
    def sides(self) -> tuple[tuple[str, Shown], tuple[str, Shown]]:
        """The two maps, each with its name."""
        return ("before", self.before), ("after", self.after)

    @cached_property
    def moves(self) -> Moves:
        """The data that each device keeps, receives and drops, and the collectives."""
        return moves_between(self.before.layout, self.after.layout)


@dataclass(frozen=True, eq=False, repr=False)
class ShownTreeChange(Drawn):
    """A tree of arrays before and after a change of their shardings.

    Attributes:
        before, after: the two trees.
    """

    _width: ClassVar[int | None] = 100

    before: ShownTree
    after: ShownTree

    @cached_property
    def _groups(self) -> tuple[EqualArrays[ShownChange], ...]:
        then = {shown.title: shown for shown in self.after.leaves}
        pairs = ((one, then[one.title]) for one in self.before.leaves if one.title in then)
        return group((one.title, (one.equal_by, two.equal_by), ShownChange(one, two)) for one, two in pairs)

    @cached_property
    def changed(self) -> tuple[EqualArrays[ShownChange], ...]:
        """The arrays in both trees whose sharding, shape or type changes, equal ones together."""
        return tuple(each for each in self._groups if each.one.before.equal_by != each.one.after.equal_by)

    @cached_property
    def same(self) -> tuple[EqualArrays[ShownChange], ...]:
        """The arrays that are equal in both trees, equal ones together."""
        return tuple(each for each in self._groups if each.one.before.equal_by == each.one.after.equal_by)

    @property
    def only(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of arrays in only one tree: of the first, and of the second."""
        one, two = ([shown.title for shown in tree.leaves] for tree in (self.before, self.after))
        return tuple(n for n in one if n not in set(two)), tuple(n for n in two if n not in set(one))


class Undecided(SpecError):
    """An error for an array whose sharding is not decided yet; `why` says what decides it."""

    def __init__(self, what: str, why: str):
        super().__init__(f"show({what}): its sharding is not known yet: {why}")
        self.why = why


def show(
    array_or_shape: Any,
    spec: Any = None,
    mesh: Any = None,
    *,
    after: Any = None,
    leaf: str | None = None,
    dtype: Any = None,
    target: str | Machine | None = None,
) -> Shown | ShownTree | ShownChange | ShownTreeChange:
    """Show the shard map of an array, a shape, a report's value or a tree of arrays, or of arrays before and after a
    change.

    Args:
        array_or_shape: a shape such as `(8192, 4096)`; a `records.Value`; any object with `.shape` and `.sharding` (a
            `jax.Array`, a `jax.ShapeDtypeStruct`); a traced value; or a pytree of these, such as a model's parameters.
        spec: a PartitionSpec, a tuple such as `("data", None)`, any `jax.sharding.Sharding`, or anything that `layout`
            reads; overrides the array's own. For a tree, one spec for all leaves, or a tree of specs (or a prefix).
        mesh: a mesh in any form that `DeviceMesh.of` reads; overrides the array's own.
        after: the array or tree after the change, or its new sharding, as `spec`; the data moved is shown too.
        leaf: for a tree, the name of the only leaf to draw; if None, the heaviest are drawn side by side, equal ones
            (the same weight of every layer) once.
        dtype: the element type, for bytes; overrides the array's own.
        target: a machine such as `tpu v5p:4x4x4`, on which the mesh is placed. The slices that each host holds and
            loads are shown too (`.layout.local(host)`), as for a mesh with devices of several hosts.

    Returns:
        A `Shown`, or a `ShownTree` for a tree; with `after` a `ShownChange`, or a `ShownTreeChange` for a tree. It
            displays itself in a notebook, and has `.text()`, `.html()`, `.save(path)` and `.plot(ax=None)`.

    Raises:
        SpecError: if there is no spec, the spec does not fit, or the sharding is not decided yet; the message says what
            decides it.
        MeshError: if `mesh` is no mesh.
        TargetError: if the machine is unknown, or its size differs from the mesh's.
        ShardvizError: if there is no shape or mesh, or `leaf` is no leaf.

    Examples:
        >>> import shardviz as sv
        >>> print(sv.show((8, 6), ("data", None), {"data": 2}).text().splitlines()[0])
        [8, 6] P('data', None) · shard [4, 6] · mesh data=2, 2 devices
    """
    if target is not None:
        return _placed(show(array_or_shape, spec, mesh, after=after, leaf=leaf, dtype=dtype), target)
    if _is_array(array_or_shape) or _is_shape(array_or_shape):
        return _one(array_or_shape, spec, mesh, after, dtype)
    import jax  # only trees need it

    names, leaves, specs = _flatten(array_or_shape, spec)
    if not any(map(_is_array, leaves)):
        read_one(array_or_shape, spec, mesh)  # says what it is not
    tree = _tree(names, leaves, specs, mesh, dtype, leaf=leaf)
    if after is None:
        return tree
    if any(map(_is_array, jax.tree.leaves(after))):
        return ShownTreeChange(tree, _tree(*_flatten(after, None), None, dtype))
    specs = dict(zip(names, _flatten(array_or_shape, after)[2], strict=True))
    then = (shown if specs[shown.title] is None else _then(shown, specs[shown.title]) for shown in tree.leaves)
    return ShownTreeChange(tree, ShownTree(tuple(then), None, tree.left_out))


def _tree(
    names: Sequence[str], leaves: Sequence[Any], specs: Sequence[Any], mesh: Any, dtype: Any, *, leaf: str | None = None
) -> ShownTree:
    """Return the leaves whose sharding is known, as `show` does; `leaf` is the only one to draw."""
    every: list[Shown] = []
    left_out = []
    for name, array, one in zip(names, leaves, specs, strict=True):
        says = _is_array(array) and (mesh is not None or one is not None or _says_sharding(array))
        shown = read_known(array, one, mesh, name=name) if says else None
        if shown is None:
            left_out.append(name)
        else:
            every.append(_of_type(shown, dtype))
    if len(left_out) == len(leaves):
        raise ShardvizError(
            f"show: none of the {len(leaves)} leaves has a sharding ({', '.join(left_out[:3])}, ...); give a mesh and "
            "a spec, such as show(params, ('data', None), {'data': 8})"
        )
    chosen = next((shown for shown in every if shown.title == leaf), None)
    if leaf is not None and chosen is None:
        if leaf in left_out and _is_array(array := leaves[names.index(leaf)]):
            read_one(array, specs[names.index(leaf)], mesh, name=leaf)  # says who decides
        have = ", ".join(repr(shown.title) for shown in every[:6]) + (", ..." if len(every) > 6 else "")
        raise ShardvizError(f"show(leaf={leaf!r}): no leaf has this name; they are {have}")
    return ShownTree(tuple(every), chosen, tuple(left_out))


def _placed(shown: Any, target: str | Machine) -> Any:
    if isinstance(shown, ShownChange | ShownTreeChange):
        return type(shown)(_placed(shown.before, target), _placed(shown.after, target))
    if isinstance(shown, ShownTree):
        leaves = tuple(_placed(each, target) for each in shown.leaves)
        return replace(shown, leaves=leaves, chosen=None if shown.chosen is None else _placed(shown.chosen, target))
    return replace(shown, layout=on_machine(shown.layout, Placement.of(shown.layout.mesh, target)))


def on_machine(own_layout: Layout, place: Placement) -> Layout:
    """Return a layout with the machine's devices and hosts."""
    ids = place.device_ids()
    mesh = replace(own_layout.mesh, device_ids=ids, in_order=False, by_id=False)
    return replace(own_layout, mesh=mesh, device_ids=np.asarray(ids), process_ids=np.asarray(place.processes()))


def _one(array: Any, spec: Any, mesh: Any, after: Any, dtype: Any) -> Shown | ShownChange:
    shown = _of_type(read_one(array, spec, mesh), dtype)
    if after is None:
        return shown
    then = _of_type(read_one(after), dtype) if _is_array(after) else _then(shown, after)
    if then.layout.shape != shown.layout.shape:
        sizes = " and ".join(str(list(each.layout.shape)) for each in (shown, then))
        raise ShardvizError(
            f"show(after=...): an array {sizes} before and after; expected two arrays of the same shape, or a spec"
        )
    change = ShownChange(shown, replace(then, title=shown.title))
    _ = change.moves  # raises for other devices
    return change


def _of_type(shown: Shown, dtype: Any) -> Shown:
    if dtype is None:
        return shown
    shown = replace(shown, dtype=str(getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype)))
    itemsize(shown.dtype)
    return shown


def _then(shown: Shown, after: Any) -> Shown:
    """Return an array with another sharding; a spec without a mesh is on the array's own."""
    asked, where = _unpack(after)
    if where is None and not isinstance(asked, Sharding):
        where = shown.layout.mesh
    return replace(read_one(shown.layout.shape, asked, where), title=shown.title, dtype=shown.dtype)


def _flatten(tree: Any, spec: Any) -> tuple[list[str], list[Any], list[Any]]:
    """Return the tree path, the leaf, and the spec or None, of every leaf, as three lists."""
    import jax

    paths, structure = jax.tree_util.tree_flatten_with_path(tree)
    names, leaves = [jax.tree_util.keystr(path) for path, _ in paths], [leaf for _, leaf in paths]
    if is_spec_entry(spec):
        return names, leaves, [spec] * len(paths)
    try:
        return names, leaves, structure.flatten_up_to(jax.tree.broadcast(spec, tree, is_leaf=is_spec_entry))
    except ValueError as error:
        raise ShardvizError(f"show: the tree of specs does not fit the tree of arrays: {error}") from error


def read_known(array: Any, spec: Any = None, mesh: Any = None, *, name: str = "") -> Shown | None:
    """Return `read_one`, or None if the sharding is not decided yet."""
    try:
        return read_one(array, spec, mesh, name=name)
    except Undecided:
        return None


def read_one(array_or_shape: Any, spec: Any = None, mesh: Any = None, *, name: str = "") -> Shown:
    """Return the shard map of one array or shape; `spec` and `mesh` override its own, `name` is used if it has none.

    Raises Undecided if the sharding is not decided yet; ShardvizError if there is no shape or mesh, or the sharding
    cannot be read.
    """
    shape, own_name, dtype = _shape_of(array_or_shape)
    title = own_name or name
    what = title or str(list(shape))
    sharding, where, lack, unknown = (*_unpack(spec), "", "") if spec is not None else _own(array_or_shape)
    if unknown and (mesh is None or isinstance(array_or_shape, Value)):
        raise Undecided(what, unknown)
    mesh = where if mesh is None else mesh
    if mesh is None and sharding is not None and is_plain(sharding):
        lack = lack or "a spec alone does not say how many devices its axes have"
    if mesh is None and lack:
        raise ShardvizError(f"show({what}): {lack}; give a mesh, such as mesh={{'data': 8}}")
    if spec is None and isinstance(array_or_shape, Value) and array_or_shape.manual:
        sharding = Sharding.from_spec(sharding or Spec(), DeviceMesh.of(mesh), len(shape), manual=array_or_shape.manual)
    if not is_plain(sharding) and not isinstance(sharding, Sharding):
        sharding, mesh = read_sharding(sharding, mesh, len(shape)), None
    if isinstance(sharding, Sharding):
        decided = sharding.unreduced or sharding.manual or sharding.replicated or any(n > 1 for n in sharding.tiles)
        if sharding.unknown:
            raise Undecided(what, _THE_COMPILER)
        if sharding.open and all(sharding.open) and not decided and sharding.mesh.size > 1:
            raise Undecided(what, _ALL_OPEN)
    own_layout = layout(shape, sharding, mesh)
    return Shown(own_layout, title, dtype)


def _says_sharding(thing: Any) -> bool:
    """Return whether the object's type has a sharding, like JAX's arrays."""
    return hasattr(thing, "sharding") or hasattr(thing, "aval")


def _is_array(thing: Any) -> bool:
    return isinstance(getattr(thing, "shape", None), Iterable)


def _is_shape(thing: Any) -> bool:
    """Return whether it is a size or a sequence of sizes; a bool or a one-element array is none."""
    sizes = thing if isinstance(thing, tuple | list) else (thing,)
    return all(
        isinstance(n, np.integer) or (hasattr(n, "__index__") and not isinstance(n, bool) and not hasattr(n, "shape"))
        for n in sizes
    )


def _unpack(sharding: Any) -> tuple[Any, Any]:
    """Return a sharding and its mesh: a `NamedSharding` is split, everything else is left to `layout`."""
    if not isinstance(sharding, Sharding) and hasattr(sharding, "spec") and hasattr(sharding, "mesh"):
        return sharding.spec, sharding.mesh
    return sharding, None


def _shape_of(thing: Any) -> tuple[tuple[int, ...], str, str | None]:
    if _is_array(thing):
        dtype = getattr(thing, "dtype", None)
        name = thing.name if isinstance(thing, Value) else ""
        return tuple(thing.shape), name, None if dtype is None else str(getattr(dtype, "name", dtype))
    if _is_shape(thing):
        return tuple(map(int, thing if isinstance(thing, tuple | list) else (thing,))), "", None
    raise ShardvizError(
        f"show: expected a shape such as (8192, 4096) or an array with a sharding, not "
        f"{type(thing).__name__} {str(thing)[:60]}"
    )


def _own(array: Any) -> tuple[Any, Any, str, str]:
    """Return an array's sharding, its mesh, what it lacks, and what decides its sharding; None or empty if absent."""
    if isinstance(array, Value):
        own = array.spec if array.spec is not None else array.sharding.get("hlo") or array.sharding.get("sdy")
        own = (array.spec or Spec()) if array.manual else own
        lack = "a report's value does not carry its mesh, which is report.mesh"
        return own, None, lack, "" if own is not None else _A_REPORT
    if hasattr(array, "aval") and not hasattr(array, "sharding"):
        array = array.aval  # a traced value
    if type(array).__name__ == "ShapedArray":
        return _of_a_type(array.sharding)
    sharding = getattr(array, "sharding", None)
    if sharding is None:
        return None, None, "a shape alone does not say which devices hold it", _says_sharding(array) * _NOBODY_YET
    own, mesh = _unpack(sharding)
    placed = mesh is not None or isinstance(sharding, Sharding) or hasattr(sharding, "device_set")
    lack = "" if placed else f"its sharding is a {type(sharding).__name__}, which has no PartitionSpec and mesh"
    return own, mesh, lack, ""


def _of_a_type(sharding: Any) -> tuple[Any, Any, str, str]:
    """Return `_own` for a traced value's type, which only determines Explicit axes."""
    mesh = DeviceMesh.of(sharding.mesh)
    kinds = {name: kind for name, size, kind in zip(mesh.names, mesh.sizes, mesh.types, strict=True) if size > 1}
    auto = [name for name, kind in kinds.items() if kind == "Auto"]
    if not mesh.names or (auto and len(auto) == len(kinds)):
        return None, mesh if mesh.names else None, "", _traced(auto)
    if not auto:
        return sharding.spec, mesh, "", ""
    record = read_sharding(sharding.spec, mesh)
    return replace(record, open=(True,) * len(record.tiles)), None, "", ""


_THE_COMPILER = (
    "the compiler has not decided its sharding yet: the partitioner decides, unless a constraint "
    "(jax.lax.with_sharding_constraint) does"
)
_ALL_OPEN = (
    "every dimension is open, so the compiler may shard it in any way: its partitioner decides, and the compiled "
    "program has what it chose"
)
_NOBODY_YET = (
    "it is a shape and a type without a sharding: jit's in_shardings decide, or the sharding of the array that is "
    "passed; without either, the compiler"
)
_A_REPORT = "the report does not say how it is sharded: at its level the compiler has not decided"


def _traced(axes: Sequence[str]) -> str:
    """Return what decides the sharding of a traced value, whose type only determines Explicit axes."""
    if not axes:
        return (
            "it is a traced value, and no mesh is set: the arguments and the compiler decide; sv.analyze shows the "
            "finished program"
        )
    return (
        f"it is a traced value, whose type says nothing about the Auto {'axis' if len(axes) == 1 else 'axes'} "
        f"{', '.join(axes)}: there the compiler's partitioner decides; sv.analyze shows it"
    )
