"""Replica groups: which devices of a collective communicate, in HLO's spellings, and which mesh axes these groups span.

HLO has four spellings. On `data=2,model=4`:

>>> mesh = DeviceMesh.of({"data": 2, "model": 4})
>>> for text in ("{{0,1,2,3},{4,5,6,7}}", "[2,4]<=[8]", "[2,4]<=[4,2]T(1,0)", "mesh['axis_0'=2,'axis_1'=4] {'axis_1'}"):
...     print(axes_of(parse_groups(text, mesh.size), mesh))
('model',)
('model',)
('data', ('model', 1, 2))
('model',)

The third text's groups are {0,2,4,6} and {1,3,5,7}: all of `data` and the major half of `model`, in Shardy's text
`"model":(1)2`. Device i is at position i of the mesh in row-major order.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

import numpy as np

from shardviz.errors import ParseError, SpecError, excerpt
from shardviz.notation.bounds import MOST_CELLS, MOST_CHARACTERS, MOST_DEVICES, MOST_DIGITS, check_size
from shardviz.notation.mesh import DeviceMesh, read_module_mesh
from shardviz.notation.named import read_axes
from shardviz.notation.scan import Scanner, read_iota
from shardviz.notation.spec import Axis, Spec, check_axes
from shardviz.notation.tiling import axes_along, digits, places

_LISTS = re.compile(r"\{[\s,]*+(?>(?:\{[0-9,\s]*+\}[\s,]*+)*)\}")


@lru_cache(maxsize=64)
def parse_groups(text: str, devices: int) -> np.ndarray:
    """Read `replica_groups` in any spelling: integers, groups x members (read only), short groups padded with -1. No
    text or `{}` is one group of all devices. Raises ParseError for other text or another number of devices."""
    check_size(text, MOST_CHARACTERS, "replica groups", "characters")
    if not 0 <= devices <= MOST_DEVICES:
        raise ParseError(f"replica groups {excerpt(text)!r}: of {devices} devices; expected 0 to {MOST_DEVICES}")
    table = _table(text.strip(), devices)
    table.setflags(write=False)
    return table


def _table(text: str, devices: int) -> np.ndarray:
    if text in ("", "{}", "{{}}"):
        return np.arange(devices).reshape(1, -1)
    scan = Scanner(text, "replica groups")
    if scan.sees("["):
        dims = scan.integers()
        scan.need("<=")
        listed = read_iota(scan)
        scan.end()
        if len(dims) != 2 or math.prod(dims) != devices or len(listed) != devices:
            raise ParseError(f"{scan.subject}: its groups are not of {devices} devices")
        return listed.reshape(dims)
    if scan.sees("mesh["):
        return _along_axes(scan, devices)
    if _LISTS.fullmatch(text):
        return _rows(text, scan.subject)
    raise ParseError(f"{scan.subject}: expected {{{{0,1}},{{2,3}}}}, [4,2]<=[8] or mesh['a'=2,'b'=4] {{'a'}}")


def _rows(text: str, where: str) -> np.ndarray:
    """Read `{{0,1},{2,3}}`, which matches `_LISTS`, as a table; short rows are padded with -1."""
    if text.count("}") > MOST_DEVICES:
        raise ParseError(f"{where}: expected at most {MOST_DEVICES} groups")
    rows = [row.partition("{")[2].strip() for row in text[1:-1].split("}")[:-1]]
    lengths = np.array([row.count(",") + 1 if row else 0 for row in rows], np.int64)
    longest = int(lengths.max(initial=0))
    if len(rows) * longest > MOST_CELLS:
        raise ParseError(f"{where}: {len(rows)} groups of up to {longest} members; at most {MOST_CELLS:,} are counted")
    numbers = ",".join(filter(None, rows)).split(",") if longest else []
    if any(len(n) > MOST_DIGITS for n in numbers):
        raise ParseError(f"{where}: expected numbers of at most {MOST_DIGITS} digits")
    table = np.full((len(rows), longest), -1, np.int64)
    try:
        table[np.arange(longest) < lengths[:, None]] = [int(n) for n in numbers]
    except ValueError:  # numbers with only a space between them, or an empty entry
        raise ParseError(f"{where}: expected whole numbers with commas between them") from None
    return table


def _along_axes(scan: Scanner, devices: int) -> np.ndarray:
    """Read `mesh['a'=2,'b'=4] {'a'}`: one group for each index along the axes that are not in the braces."""
    mesh, order = read_module_mesh(scan)
    axes = read_axes(scan)
    scan.end()
    if mesh.size != devices or (order and sorted(order) != list(range(devices))):
        raise ParseError(f"{scan.subject}: its groups are not of {devices} devices")
    try:
        check_axes(Spec((axes,)), [("the groups", axis) for axis in axes], mesh)
    except SpecError as error:
        raise ParseError(f"{scan.subject}: {error}") from error
    member = digits(axes, mesh)
    others = np.arange(devices) - places(axes, mesh)[member]
    return np.asarray(order or range(devices))[np.lexsort((member, others))].reshape(-1, int(member.max()) + 1)


def parse_pairs(text: str) -> np.ndarray:
    """Read `source_target_pairs`: integers, pairs x 2. Raises ParseError if the text is not a list of pairs."""
    check_size(text, MOST_CHARACTERS, "source-target pairs", "characters")
    where = f"source-target pairs {excerpt(text)!r}"
    plain = text.strip()
    table = _rows(plain, where) if _LISTS.fullmatch(plain) else np.zeros((1, 0), np.int64)
    if not table.size and "".join(plain.split()) in ("{}", "{{}}"):
        return np.zeros((0, 2), np.int64)
    if table.shape[1] != 2 or table.min() < 0:
        raise ParseError(f"{where}: expected {{{{0,1}},{{1,0}}}}")
    return table


def axes_of(groups: np.ndarray, mesh: DeviceMesh) -> tuple[Axis, ...] | None:
    """Return the mesh axes that groups (groups x members) span, without axes of size 1; None if no axes express them. A
    part of an axis is (name, product of the sizes before it, size). The order is major to minor by the members' order
    if possible, otherwise by the mesh's order."""
    if groups.size != mesh.size or not np.array_equal(np.sort(groups, axis=None), np.arange(mesh.size)):
        return None
    for table in (groups, np.sort(groups, axis=1)):
        row = table[np.flatnonzero(table[:, 0] == table[:, 0].min())[0]]
        axes = axes_along(row, mesh)
        if axes is not None and np.array_equal(table - table[:, :1], np.broadcast_to(places(axes, mesh), table.shape)):
            return axes
    return None


def axes_of_pairs(pairs: np.ndarray, mesh: DeviceMesh) -> tuple[Axis, ...] | None:
    """Return the axes, in mesh order, along which the source and target of any pair (pairs x 2) differ. None if a
    device is not on the mesh."""
    if pairs.size and (pairs.max() >= mesh.size or pairs.min() < 0):
        return None
    coordinates = mesh.coordinates()
    differs = (coordinates[pairs[:, 0]] != coordinates[pairs[:, 1]]).any(axis=0)
    return tuple(name for name, moved in zip(mesh.names, differs, strict=True) if moved)
