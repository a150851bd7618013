"""HLO's ways to write a sharding, read back into a spec.

The same cut in XLA's three notations, all of them met in the programs that JAX compiles:

>>> mesh = DeviceMesh.of({"data": 2, "model": 4})
>>> for text in ("{devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}",            # V1: a list of devices
...              "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",              # V2: a transposed iota
...              "{mesh['data'=2,'model'=4], [{'model'}, {}]}"):                        # V3: named axes
...     print(parse_hlo_sharding(text, mesh, 2))
P('model', None)
P('model', None)
P('model', None)

A tile assignment names no axes: they are found from how the devices are laid along each tensor dimension. Device i is
the i-th place of the mesh in row-major order. The formats are those of `HloSharding::ToString`, `TileAssignment` and
`NamedSharding::ToString` in XLA's `hlo/ir`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from shardviz.errors import ParseError, SpecError
from shardviz.notation.hlo_text import parse_hlo
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.spec import Axis, Spec, axis_size
from shardviz.notation.strides import digits, places

_METADATA = re.compile(r",?\s*metadata=\{.*\}(?=\}$)")
_TILES = re.compile(r"devices=\[([\d,]+)\]\s*(?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))(.*)", re.DOTALL)
_MESH = re.compile(
    r"mesh\[((?:[^\]'\"]|'[^']*'|\"[^\"]*\")*)\](?:\s*,\s*device_ids=\((\[[\d,]+\](?:T\([\d,]+\))?|\d+(?:,\s*\d+)*)\))?"
)
_MESH_AXIS = re.compile(r"(?:'([^']*)'|\"([^\"]*)\")\s*=\s*(\d+)")
_AXIS_REF = re.compile(r"(?:'([^']*)'|\"([^\"]*)\")(?::\((\d+)\)(\d+))?")
_BRACES = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|[{}]")
_MOST_DEVICES = 1 << 22
_SHORT = frozenset(("replicated", "manual", "unreduced", "unknown"))


@dataclass(frozen=True)
class TextMesh:
    """A mesh as HLO text writes it: `mesh['a'=2,'b'=4], device_ids=(...)`.

    Attributes:
        names, sizes: its axes.
        devices: the place (partition) at each position, row-major; empty for 0, 1, 2, ...
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    devices: tuple[int, ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, text: str) -> tuple[TextMesh, str]:
        """Reads a mesh from the beginning of `text`.

        Returns:
            The mesh and the text after it.

        Raises:
            ParseError: if the text begins with no mesh.
        """
        found = _MESH.match(text)
        if found is None:
            raise ParseError(f"expected a mesh such as mesh['a'=2,'b'=4], not {text[:80]!r}")
        axes = [(single or double, int(size)) for single, double, size in _MESH_AXIS.findall(found[1])]
        names, sizes = tuple(n for n, _ in axes), tuple(s for _, s in axes)
        if 0 in sizes:
            raise ParseError(f"HLO mesh {found[0]!r}: an axis of size 0")
        devices: tuple[int, ...] = ()
        if found[2]:
            devices = tuple(_device_ids(found[2]).tolist())
            if len(devices) != math.prod(sizes) or sorted(devices) != list(range(len(devices))):
                raise ParseError(f"HLO mesh {found[0]!r}: its device ids are not 0 to {math.prod(sizes) - 1}")
        return cls(names, sizes, devices), text[found.end() :]

    def axes(self, text: str) -> tuple[Axis, ...]:
        """The axes in a list such as `'a', 'b':(2)2`."""
        found: list[Axis] = []
        for single, double, before, size in _AXIS_REF.findall(text):
            name = single or double
            whole = dict(zip(self.names, self.sizes, strict=True)).get(name)
            if whole is None or (before and (int(before) * int(size) == 0 or whole % (int(before) * int(size)))):
                raise ParseError(
                    f"HLO axes {text!r}: no axis {name!r} of that size in {self.names} of sizes {self.sizes}"
                )
            found.append((name, int(before), int(size)) if before else name)
        return tuple(found)

    def places(self, axes: tuple[Axis, ...]) -> np.ndarray:
        """The places that a count through some of its axes visits, the others at 0."""
        found = places(axes, DeviceMesh(self.names, self.sizes))
        return np.asarray(self.devices)[found] if self.devices else found

    def table(self, axes: tuple[Axis, ...]) -> np.ndarray:
        """Its places as a table, groups x members: one row for each setting of the axes that are not in `axes`."""
        mesh = DeviceMesh(self.names, self.sizes)
        member = digits(axes, mesh)
        count = int(member.max(initial=0)) + 1
        order = np.lexsort((member, places_without(axes, mesh)))
        devices = np.asarray(self.devices) if self.devices else np.arange(mesh.size)
        return devices[order].reshape(-1, count)


def places_without(axes: tuple[Axis, ...], mesh: DeviceMesh) -> np.ndarray:
    """Each place of a mesh with the digits of `axes` set to 0: equal for the places that differ only along them."""
    return np.arange(mesh.size) - places(axes, mesh)[digits(axes, mesh)]


def _device_ids(text: str) -> np.ndarray:
    if not text.startswith("["):
        return np.array([int(d) for d in text.split(",")])
    dims, _, order = text.partition("T")
    return iota(_integers(dims.strip("[]")), _integers(order.strip("()")) if order else ())


def iota(reshape: tuple[int, ...], transpose: tuple[int, ...] = ()) -> np.ndarray:
    """`<=[reshape]T(transpose)`: 0, 1, 2, ... in that shape, with its dimensions in that order, made flat."""
    if math.prod(reshape) > _MOST_DEVICES:
        raise ParseError(f"HLO iota <=[{reshape}]: more than {_MOST_DEVICES} devices")
    if transpose and sorted(transpose) != list(range(len(reshape))):
        raise ParseError(f"HLO iota <=[{reshape}]T({transpose}): the second is no order of the first's dimensions")
    values = np.arange(math.prod(reshape)).reshape(reshape)
    return (values.transpose(transpose) if transpose else values).ravel()


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())


def split_tuple(text: str) -> tuple[str, ...]:
    """The shardings in a tuple's sharding.

    Args:
        text: such as `{{replicated}, {devices=[2,1]<=[2]}}`, or the sharding of one array.

    Returns:
        The text of each; of one array's sharding, that one.
    """
    text = text.strip()
    if not re.match(r"\{\s*(?:/\*.*?\*/\s*)?\{", text) and text != "{}":
        return (text,)
    parts: list[str] = []
    depth = begin = 0
    for found in _BRACES.finditer(text):
        if found[0] == "{":
            depth += 1
            if depth == 2:
                begin = found.start()
        elif found[0] == "}":
            if depth == 2:
                parts.append(text[begin : found.end()])
            depth -= 1
    return tuple(parts)


@lru_cache(maxsize=8192)
def parse_hlo_sharding(text: str, mesh: DeviceMesh, rank: int) -> Spec:
    """Reads an array's HLO sharding into a spec over the axes of a mesh.

    Args:
        text: V1, V2 or V3, with its braces.
        mesh: the mesh whose axes to use; device i is its i-th place in row-major order.
        rank: the array's number of dimensions.

    Returns:
        The spec, one entry a dimension. Axes of size 1 are left out, and parts of axes are (name, sizes before, size).

    Raises:
        SpecError: where no PartitionSpec says it; the message says why.
        ParseError: if the text is no sharding.
    """
    plain = text.strip()
    if re.match(r"\{\s*\{", plain):
        raise SpecError(f"HLO sharding {text}: this is the sharding of a tuple; take it apart with split_tuple")
    try:
        found = parse_hlo(plain, mesh, rank)
    except (ParseError, SpecError) as error:
        if str(error).startswith("HLO sharding"):
            raise
        raise type(error)(f"HLO sharding {text}: {error}") from error
    if found.manual:
        whole = "as inside a shard_map: the shape is one device's"
        if math.prod(axis_size(axis, mesh) for axis in found.manual) < mesh.size:
            raise SpecError(f"HLO sharding {text}: manual over some axes, {whole} along these")
        raise SpecError(f"HLO sharding {text}: manual, {whole}, and no PartitionSpec says how it is cut")
    if found.spec is None:
        raise SpecError(f"HLO sharding {text}: {found.why}")
    if len(found.spec.dims) != rank:
        raise SpecError(f"HLO sharding {text}: {len(found.spec.dims)} dimensions for an array of rank {rank}")
    return Spec(tuple(_larger(dim, mesh) for dim in found.spec.dims), _larger(found.unreduced, mesh))


def _larger(axes: tuple[Axis, ...], mesh: DeviceMesh) -> tuple[Axis, ...]:
    return tuple(axis for axis in axes if axis_size(axis, mesh) > 1)


def tile_counts(text: str, rank: int) -> tuple[int, ...] | None:
    """Into how many tiles an HLO sharding cuts each dimension.

    Args:
        text: V1, V2 or V3; also one that no PartitionSpec says.
        rank: the array's number of dimensions.

    Returns:
        One number a dimension; None where the text does not say it.
    """
    inner = text.strip()[1:-1]
    if found := _TILES.match(inner):
        tiles = _integers(found[1])
        if 0 in tiles:
            raise ParseError(f"HLO sharding {text!r}: a dimension cannot be cut into 0 tiles")
        return tiles[:rank] if len(tiles) >= rank else None
    if not inner.startswith("mesh["):
        return (1,) * rank if inner in _SHORT or inner.startswith(("maximal", "single_device")) else None
    mesh, rest = TextMesh.parse(inner)
    sizes = dict(zip(mesh.names, mesh.sizes, strict=True))
    dims = re.findall(r"\{([^}]*)\}", rest.partition("[")[2].partition("]")[0])
    if not dims:
        return (1,) * rank
    if len(dims) != rank:
        return None
    return tuple(math.prod(sizes[a] if isinstance(a, str) else a[2] for a in mesh.axes(dim)) for dim in dims)
