"""A device mesh as plain data: named axes with sizes and types, the devices in mesh order, and a text form.

>>> mesh = DeviceMesh.of({"data": 2, "model": 4})
>>> mesh.size, str(mesh)
(8, 'data=2,model=4')
>>> mesh.coordinates()[5].tolist()      # device 5 is data=1, model=1
[1, 1]

Several slices (DCN between slices, ICI within a slice) form one mesh. An axis may run over both networks:

>>> hybrid = DeviceMesh.of("data=2*4,model=2:Explicit")     # or DeviceMesh.of({"data": (2, 4), "model": 2})
>>> hybrid.sizes, hybrid.dcn, hybrid.types, hybrid.slices().tolist()
((8, 2), (2, 1), ('Auto', 'Explicit'), [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1])

In text, axes are written major to minor as `name=size`, then the axis's type unless it is Auto. A size with two factors
runs over several slices: the first factor is the number of slices along the axis (DCN), the second is the number of
devices within a slice (ICI). After the axes, the text may list the device ids in mesh order, and the slice of each
device. Both are lists, or a transposed iota as in HLO. `devices=[0,1,2,...]` fixes this order on every machine. Without
a list, `jax.experimental.mesh_utils` chooses the order. `numbers=` instead of `devices=` also states that HLO text
numbers devices by these ids, not by their positions in the mesh.

>>> mesh = DeviceMesh.of("data=2*2,model=2 devices=[2,4]T(1,0)")
>>> mesh.sizes, mesh.device_ids, mesh.slice_ids, mesh.text
((4, 2), (0, 4, 1, 5, 2, 6, 3, 7), (0, 0, 0, 0, 1, 1, 1, 1), 'data=2*2,model=2 devices=[2,4]T(1,0)')
>>> DeviceMesh.of("mesh<['a'=2, 'b'=4]>").text
'a=2,b=4'
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np

from shardviz.caching import cached_property
from shardviz.errors import MeshError, ParseError, excerpt
from shardviz.notation.bounds import (
    MOST_AXES,
    MOST_CELLS,
    MOST_CHARACTERS,
    MOST_DEVICES,
    MOST_DIGITS,
    MOST_NAME,
    check_size,
)
from shardviz.notation.scan import Scanner, iota, iota_of, iota_text, read_iota

AXIS_TYPES = ("Auto", "Explicit", "Manual")
_MOST_ALONE = 2  # axes of size 1 that are shown
_BARE = r"[^\s,=:*'\"\[\]](?:[^,=:*'\"\[\]]*[^\s,=:*'\"\[\]])?"
_LIST = re.compile(r"(devices|numbers|slices)\s*+=\s*+\[([0-9,\s]*+)\]\s*+(?>(?:T\(([0-9,\s]*+)\))?)\s*+")
_AXIS = re.compile(
    rf"(?>'((?>(?:[^'\\]++|\\.)*))'|\"((?>(?:[^\"\\]++|\\.)*))\"|({_BARE}))\s*+=\s*+"  # name=
    r"([0-9]{1,9}+)\s*+(?>(?:\*\s*+([0-9]{1,9}+)\s*+)?)(?>(?::\s*+([A-Za-z]++)\s*+)?)"  # size*size:type
    rf"(?=\Z|,|(?<=\s)(?:{_LIST.pattern}))",
    re.DOTALL,
)
_GAP = re.compile(r"[, \t\r\n]++")
_DEVICE_IDS = re.compile(r",\s*device_ids=\s*")
_OF_MODULE = re.compile(r"(?:#?sdy\.)?mesh\s*[<\[]|(?:Abstract)?Mesh\(")


@dataclass(frozen=True)
class DeviceMesh:
    """Named mesh axes and the order of the devices.

    Attributes:
        names: the mesh axes' names, major to minor.
        sizes: the number of devices along each axis.
        types: `Auto`, `Explicit` or `Manual` for each axis; empty means that all are `Auto`.
        device_ids: the device id at each position of the mesh, in row-major order; empty means 0, 1, 2, ...
        slice_ids: the slice of the device at each position, if there are several slices. ICI connects the devices of
            a slice, the data centre's network (DCN) connects slices. Empty means one slice. Meshes with different
            slices are not equal.
        in_order: fix the device order 0, 1, 2, ... Without it and without `device_ids`, the order is free, and
            `jax.experimental.mesh_utils` chooses it for the machine.
        by_id: whether HLO and Shardy text over this mesh numbers devices by id. Text that contains its own mesh
            (`device_ids=(0,2,1,3)`) does. Text over a JAX mesh numbers positions in mesh order.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    types: tuple[str, ...] = ()
    device_ids: tuple[int, ...] = ()
    slice_ids: tuple[int, ...] = ()
    in_order: bool = field(default=False, repr=False)
    by_id: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.names) != len(self.sizes):
            raise MeshError(f"mesh: {len(self.names)} axis names {self.names} for {len(self.sizes)} sizes {self.sizes}")
        check_size(self.names, MOST_AXES, "mesh", "axes", MeshError)
        for name, size in zip(self.names, self.sizes, strict=True):
            if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise MeshError(f"mesh: an axis name must be a non-empty string, not {name!r}")
            check_size(name, MOST_NAME, f"mesh: axis {excerpt(name)!r}", "characters in its name", MeshError)
            if self.names.count(name) > 1:
                raise MeshError(f"mesh: two axes are named {name!r}; give each axis its own name")
            if not _is_whole(size):
                raise MeshError(f"mesh: axis {name!r} must have a whole number of devices, 1 or more, not {size!r}")
        object.__setattr__(self, "sizes", tuple(int(s) for s in self.sizes))
        if self.size > MOST_DEVICES:
            raise MeshError(f"mesh {self.shape}: {self.size} devices; at most {MOST_DEVICES} are supported")
        if self.size * len(self.sizes) > MOST_CELLS:
            raise MeshError(
                f"mesh {self.shape}: {self.size} devices, each with a place on {len(self.sizes)} axes; at most "
                f"{MOST_CELLS:,} places are counted here, so join some axes"
            )
        object.__setattr__(self, "types", tuple(self.types) or ("Auto",) * len(self.names))
        if len(self.types) != len(self.names) or any(t not in AXIS_TYPES for t in self.types):
            raise MeshError(f"mesh: axis types must be one of {AXIS_TYPES} for each axis, not {self.types}")
        for what in ("device_ids", "slice_ids"):
            object.__setattr__(self, what, self._numbers(what))
        if len(set(self.device_ids)) != len(self.device_ids):
            raise MeshError(
                f"mesh: {self.size} places need {self.size} different device ids, not {len(set(self.device_ids))}"
            )
        if self.device_ids == tuple(range(self.size)):
            object.__setattr__(self, "device_ids", ())
        if self.by_id and self.device_ids and max(self.device_ids) >= self.size:
            raise MeshError(f"mesh {self}: numbers of devices are 0 to {self.size - 1}, not {self.device_ids[:8]}")
        object.__setattr__(self, "by_id", self.by_id and bool(self.device_ids))
        if self.in_order and self.device_ids:
            raise MeshError(
                f"mesh: in_order=True is 0, 1, 2, ..., but the ids are {self.device_ids[:8]}; give only one"
            )
        if len(set(self.slice_ids)) == 1:
            object.__setattr__(self, "slice_ids", ())

    def _numbers(self, what: str) -> tuple[int, ...]:
        """Return a field that has one whole number for each position, checked; or empty."""
        values, words = tuple(getattr(self, what)), what.replace("_", " ")
        if not values:
            return ()
        try:
            numbers = np.asarray(values)
        except ValueError:  # numbers and tuples of them, mixed
            numbers = np.empty(0, object)
        if numbers.dtype.kind not in "iu" or numbers.ndim != 1 or numbers.min() < 0:
            raise MeshError(f"mesh: {words} are whole numbers of 0 or more, not {values[:8]}")
        if len(values) != self.size:
            different = "different " if what == "device_ids" else ""
            raise MeshError(f"mesh: {self.size} places need {self.size} {different}{words}, not {len(values)}")
        return tuple(numbers.tolist())

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.sizes)

    @property
    def shape(self) -> dict[str, int]:
        """Axis name → size, in mesh order."""
        return self._shape.copy()

    @cached_property
    def _shape(self) -> dict[str, int]:
        return dict(zip(self.names, self.sizes, strict=True))

    def size_of(self, name: str) -> int:
        """Return the number of devices along an axis; KeyError for an unknown name."""
        return self._shape[name]

    @property
    def manual(self) -> tuple[str, ...]:
        """The Manual axes with more than one device; along these the program states what each device does."""
        return tuple(n for n, s, t in zip(self.names, self.sizes, self.types, strict=True) if t == "Manual" and s > 1)

    def ids(self) -> np.ndarray:
        """Return the device ids in mesh order, an integer array of length `size`."""
        return np.asarray(self.device_ids) if self.device_ids else np.arange(self.size)

    def numbers(self) -> np.ndarray:
        """Return the number that HLO and Shardy text gives each device: integers, in mesh order."""
        return self.ids() if self.by_id else np.arange(self.size)

    def places_of(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return the positions in the mesh of devices that HLO or Shardy text numbers; the inverse of `numbers`."""
        if not self.by_id or any(n >= self.size for n in numbers):
            return tuple(numbers)
        return tuple(np.argsort(self.device_ids)[list(numbers)].tolist())

    def coordinates(self) -> np.ndarray:
        """Return the coordinates of every device: integers, device x axis, in mesh order (read only)."""
        return _coordinates(self.sizes)

    def slices(self) -> np.ndarray:
        """Return the slice of each device, an integer array in mesh order; all 0 if there is one slice."""
        return np.asarray(self.slice_ids) if self.slice_ids else np.zeros(self.size, np.int64)

    @cached_property
    def dcn(self) -> tuple[int, ...] | None:
        """The number of slices along each axis. None if the slices are not rectangular blocks of the mesh."""
        if not self.slice_ids:
            return (1,) * len(self.names)
        table = self.slices().reshape(self.sizes)
        factors: list[int] = []
        for axis in range(table.ndim):
            line = table[(0,) * axis + (slice(None),) + (0,) * (table.ndim - axis - 1)]
            factors.append(1 + int(np.count_nonzero(np.diff(line))))
        if any(size % factor for size, factor in zip(self.sizes, factors, strict=True)):
            return None
        block = _slices_of(self.sizes, factors)
        first = np.zeros(math.prod(factors), np.int64)
        first[block] = self.slices()
        return tuple(factors) if np.array_equal(first[block], self.slices()) and len(set(first)) == len(first) else None

    @cached_property
    def slices_in_order(self) -> bool:
        """Whether the slices are blocks, numbered 0, 1, 2, ... in mesh order, so that `dcn` describes them."""
        return self.dcn is not None and np.array_equal(_slices_of(self.sizes, self.dcn), self.slices())

    def __str__(self) -> str:
        return _axes_text(self)

    @property
    def larger(self) -> DeviceMesh:
        """The mesh without its axes of size 1; unchanged if all axes have size 1."""
        kept = [i for i, size in enumerate(self.sizes) if size > 1]
        if len(kept) in (0, len(self.sizes)):
            return self
        fields = {field: tuple(getattr(self, field)[i] for i in kept) for field in ("names", "sizes", "types")}
        return replace(self, **fields)

    @property
    def folded(self) -> tuple[str, ...]:
        """The axes of size 1 that displays omit: all of these, if there are more than two beside larger axes."""
        alone = tuple(name for name, size in self.shape.items() if size == 1)
        return alone if self.size > 1 and len(alone) > _MOST_ALONE else ()

    @property
    def shown(self) -> DeviceMesh:
        """The mesh without the axes of size 1 that are folded."""
        return self.larger if self.folded else self

    @property
    def text(self) -> str:
        """The mesh as text that `DeviceMesh.of` reads back into an equal mesh. `str(mesh)` omits the devices."""
        parts = [_axes_text(self)]
        if self.device_ids or self.in_order:
            parts.append(f"{'numbers' if self.by_id else 'devices'}={_list_text(self.ids())}")
        if self.slice_ids and not self.slices_in_order:
            parts.append(f"slices={_list_text(self.slices())}")
        return " ".join(filter(None, parts))

    @classmethod
    def of(cls, mesh: Any) -> DeviceMesh:
        """Read a mesh from any description of one.

        Args:
            mesh: a `DeviceMesh`; a `jax.sharding.Mesh` or `AbstractMesh`; a mapping from axis name to size, where a
                size may be a pair, (slices, devices within a slice); or text such as `"data=8,model=4"`, in the form
                described above, or as HLO, Shardy and JAX print a mesh (`mesh['a'=2,'b'=4]`, `mesh<["a"=2, "b"=4]>`,
                `Mesh('a': 2, 'b': 4, axis_types=(Auto, Auto))`). A `Mesh` of devices brings their order and slices.

        Raises:
            MeshError: for any other value, and for text that is not a mesh.
        """
        if isinstance(mesh, DeviceMesh):
            return mesh
        if isinstance(mesh, str):
            return _parse(mesh)
        if isinstance(mesh, Mapping):
            items = cast("Mapping[Any, Any]", mesh)
            names = tuple(items.keys())
            sizes, slices = _sizes_and_slices(tuple(items.values()), names)
            return cls(names, sizes, slice_ids=slices)
        names, sizes = getattr(mesh, "axis_names", None), getattr(mesh, "axis_sizes", None)
        if names is None or sizes is None:
            raise MeshError(
                f"mesh: expected a jax Mesh or AbstractMesh, a dict such as {{'data': 8}} or text such as "
                f"'data=8,model=4', not {type(mesh).__name__}"
            )
        types = tuple(getattr(t, "name", str(t)) for t in getattr(mesh, "axis_types", None) or ())
        try:
            devices = list(np.asarray(mesh.devices).flat)
            ids = tuple(int(device.id) for device in devices)
        except (AttributeError, ValueError):  # an AbstractMesh has no devices: JAX raises either error
            return cls(tuple(names), tuple(sizes), types)
        slices = tuple(int(each.slice_index) for each in devices if getattr(each, "slice_index", None) is not None)
        return cls(tuple(names), tuple(sizes), types, ids, slices if len(slices) == len(devices) else ())


def _sizes_and_slices(sizes: Sequence[Any], names: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the full sizes of axes and the slice of each position, from sizes such as (slices, devices per slice).
    Slices are the major part of an axis, as in `jax.experimental.mesh_utils.create_hybrid_device_mesh`."""
    factors: list[int] = []
    full: list[Any] = []
    for name, size in zip(names, sizes, strict=True):
        if not isinstance(size, tuple | list):
            factors.append(1)
            full.append(size)
            continue
        parts = cast("Sequence[Any]", size)
        if len(parts) != 2 or not all(map(_is_whole, parts)):
            raise MeshError(
                f"mesh: axis {name!r} of size {size!r}: expected (slices, devices within a slice), two whole numbers "
                "of 1 or more such as (2, 8)"
            )
        factors.append(int(parts[0]))
        full.append(int(parts[0]) * int(parts[1]))
    several = math.prod(factors) > 1 and all(isinstance(n, int) and n > 0 for n in full) and len(full) <= MOST_AXES
    if several and math.prod(full) > MOST_DEVICES:
        raise MeshError(f"mesh: {math.prod(full)} devices over {math.prod(factors)} slices; at most {MOST_DEVICES}")
    return tuple(full), tuple(_slices_of(full, factors).tolist()) if several else ()


def _is_whole(number: object) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool) and bool(number >= 1)


def _slices_of(sizes: Sequence[int], factors: Sequence[int]) -> np.ndarray:
    """Return the slice of each position in mesh order, if each axis has `factors` slices, major first."""
    at = _coordinates(tuple(sizes))
    slices = np.zeros(len(at), np.int64)
    for column, (size, factor) in enumerate(zip(sizes, factors, strict=True)):
        slices = slices * factor + at[:, column] // (size // factor)
    return slices


@lru_cache(maxsize=16)
def _coordinates(sizes: tuple[int, ...]) -> np.ndarray:
    table = unravel(np.arange(math.prod(sizes)), sizes)
    table.setflags(write=False)
    return table


def unravel(numbers: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Return the digits of numbers in a table of these sizes, the last fastest: integers, number x digit."""
    return np.stack(np.unravel_index(numbers, sizes), 1) if sizes else np.zeros((len(numbers), 0), np.int64)


def _parse(text: str) -> DeviceMesh:
    check_size(text, MOST_CHARACTERS, "mesh", "characters", MeshError)
    plain = text.strip()
    if _OF_MODULE.match(plain):
        return _of_module(plain)

    def wrong(why: str) -> MeshError:
        return MeshError(f"mesh {excerpt(text)!r}: {why}")

    axes: list[tuple[str, tuple[int, int], str]] = []
    lists: dict[str, tuple[int, ...]] = {}
    at = 0
    while at < len(plain):
        if token := _GAP.match(plain, at):
            pass
        elif token := _LIST.match(plain, at):
            if token[1] in lists:
                raise wrong(f"expected {token[1]}=[...] once, behind the axes")
            lists[token[1]] = _numbers(token[2], token[3], wrong)
        elif token := _AXIS.match(plain, at):
            name = token[3]
            if name is None:
                name = re.sub(r"\\(.)", r"\1", token[1] or token[2] or "", flags=re.DOTALL)
            kind = (token[6] or "Auto").capitalize()
            if kind not in AXIS_TYPES:
                raise wrong(f"axis {excerpt(name)!r} has type {excerpt(token[6])!r}; expected Auto, Explicit or Manual")
            if lists:
                raise wrong(f"the axis {name!r} comes after {next(iter(lists))}=[...]; write it before")
            size = int(token[4])
            axes.append((name, (1, size) if token[5] is None else (size, int(token[5])), kind))
            check_size(axes, MOST_AXES, f"mesh {excerpt(text)!r}", "axes", MeshError)
        else:
            raise wrong(
                "expected axes as 'name=size', such as 'data=8,model=4' (or 'data=2*8' for 2 slices of 8, "
                f"'model=4:Explicit' for an axis type), not {plain[at : at + 30]!r}"
            )
        at = token.end()
    if plain and not (axes or lists):
        raise wrong("expected axes as 'name=size', such as 'data=8,model=4'")
    names, sizes, types = zip(*axes, strict=True) if axes else ((), (), ())
    full, slices = _sizes_and_slices(sizes, names)
    if slices and "slices" in lists:
        raise wrong("sizes such as 2*8 and slices=[...] both give the slices; write only one of them")
    if "devices" in lists and "numbers" in lists:
        raise wrong("devices=[...] and numbers=[...] both give the device order; write only one of them")
    devices = lists.get("devices", ())
    return DeviceMesh(
        names,
        full,
        types,
        devices or lists.get("numbers", ()),
        slice_ids=lists.get("slices", ()) or slices,
        in_order=bool(devices) and devices == tuple(range(len(devices))),
        by_id="numbers" in lists,
    )


def _numbers(inside: str, order: str | None, wrong: Callable[[str], MeshError]) -> tuple[int, ...]:
    """Read a list of numbers; with `order`, the list is the shape of a transposed iota."""
    parts = inside.split(",") if inside.strip() else [], [] if order is None else order.split(",")
    if any(len(each) > MOST_DEVICES or max(map(len, map(str.strip, each)), default=0) > MOST_DIGITS for each in parts):
        raise wrong(f"expected at most {MOST_DEVICES} numbers of at most {MOST_DIGITS} digits")
    try:
        numbers, perm = (tuple(map(int, each)) for each in parts)
    except ValueError:  # numbers with only a space between them, or an empty entry
        raise wrong("expected whole numbers with commas between them, such as [0,1,3,2]") from None
    try:
        return numbers if order is None else tuple(iota(numbers, perm).tolist())
    except ParseError:
        raise wrong(
            f"{list(numbers[:MOST_AXES])} with T{perm[:MOST_AXES]} is not a transposed count of devices; the second is "
            "an order of the first's dimensions, as in [2,4]T(1,0)"
        ) from None


def _of_module(plain: str) -> DeviceMesh:
    scan = Scanner(plain, "mesh")
    try:
        if scan.sees("Mesh(") or scan.sees("AbstractMesh("):
            mesh = read_jax_mesh(scan)
        else:
            scan.take("#")
            scan.take("sdy.")
            axes, devices = read_module_mesh(scan)
            mesh = DeviceMesh(axes.names, axes.sizes, (), devices)
        scan.end()
    except ParseError as error:
        raise MeshError(str(error)) from None
    return mesh


def read_module_mesh(scan: Scanner) -> tuple[DeviceMesh, tuple[int, ...]]:
    """Read a mesh as HLO and Shardy write it, `mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0))` or `mesh<["a"=2, "b"=4]>`.
    Return its axes, and the device at each position (empty for 0, 1, 2, ...). Raises ParseError for other text."""
    scan.need("mesh")
    enclosed = scan.take("<")
    scan.need("[")

    def axis() -> tuple[str, int]:
        name = scan.quoted()
        scan.need("=")
        return name, scan.integer()

    axes = scan.listed(axis, "]", MOST_AXES)
    names, sizes = tuple(n for n, _ in axes), tuple(s for _, s in axes)
    if math.prod(sizes) > MOST_DEVICES:
        scan.fail(f"a mesh of at most {MOST_DEVICES} devices")
    devices: Sequence[int] = ()
    if scan.token(_DEVICE_IDS):
        if scan.sees("["):  # Shardy's list
            devices = scan.integers()
        else:
            scan.need("(")
            if scan.sees("["):
                devices = read_iota(scan).tolist()
                scan.need(")")
            else:
                devices = scan.integers("", ")")
    if enclosed:
        scan.need(">")
    return DeviceMesh(names, sizes), tuple(devices)


def read_jax_mesh(scan: Scanner) -> DeviceMesh:
    """Read a mesh as JAX prints it, `Mesh('a': 2, axis_types=(Auto,))`; JAX does not print the device order."""
    scan.word()
    scan.need("(")
    scan.take(",")  # JAX prints a Mesh without axes as `Mesh(, axis_types=())`
    names: list[str] = []
    sizes: list[int] = []
    lists: dict[str, list[str]] = {}
    while not scan.take(")"):
        if scan.take("("):  # no axes
            scan.need(")")
        elif scan.sees("'") or scan.sees('"'):
            if len(names) == MOST_AXES:
                scan.fail(f"at most {MOST_AXES} axes, and then ')'")
            names.append(scan.quoted())
            scan.need(":")
            sizes.append(scan.integer())
        else:
            key = scan.word("an axis such as 'data': 8, or axis_types=(...)")
            if key not in ("axis_sizes", "axis_names", "axis_types") or key in lists:
                scan.refuse("axis_sizes=, axis_names= or axis_types=, each once")
            scan.need("=")
            scan.need("(")
            lists[key] = []
            while not scan.take(")"):
                if len(lists[key]) == MOST_AXES:
                    scan.fail(f"at most {MOST_AXES} axes, and then ')'")
                lists[key].append(
                    scan.quoted() if scan.sees("'") else str(scan.integer()) if "size" in key else scan.word()
                )
                scan.take(",")
        scan.take(",")
    names += lists.get("axis_names", [])
    sizes += map(int, lists.get("axis_sizes", []))
    return DeviceMesh(tuple(names), tuple(sizes), tuple(lists.get("axis_types", ())))


def _axes_text(mesh: DeviceMesh) -> str:
    """Write the axes: `data=2*8,model=4:Explicit`. Slices that are not in order are not written as factors."""
    factors = mesh.dcn if mesh.slices_in_order else (1,) * len(mesh.names)
    assert factors is not None  # slices in order are blocks
    return ",".join(
        f"{_quoted(name)}={f'{dcn}*{size // dcn}' if dcn > 1 else size}{'' if kind == 'Auto' else f':{kind}'}"
        for name, size, kind, dcn in zip(mesh.names, mesh.sizes, mesh.types, factors, strict=True)
    )


def _quoted(name: str) -> str:
    bare = re.fullmatch(_BARE, name) is not None and _OF_MODULE.match(name) is None
    return name if bare else "'" + re.sub(r"(['\\])", r"\\\1", name) + "'"


def _list_text(numbers: np.ndarray) -> str:
    listed = f"[{','.join(map(str, numbers.tolist()))}]"
    count = iota_of(numbers)
    return listed if count is None else min(listed, iota_text(*count), key=len)
