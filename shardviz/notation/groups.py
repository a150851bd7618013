"""Replica groups: which devices a collective lets talk to each other, as HLO writes them, and which mesh axes that is.

HLO has four ways to write them. On `data=2,model=4`:

>>> mesh = DeviceMesh.of({"data": 2, "model": 4})
>>> for text in ("{{0,1,2,3},{4,5,6,7}}", "[2,4]<=[8]", "[2,4]<=[4,2]T(1,0)", "mesh['axis_0'=2,'axis_1'=4] {'axis_1'}"):
...     print(axes_of(parse_groups(text, mesh.size), mesh))
('model',)
('model',)
('data', ('model', 1, 2))
('model',)

The third's groups are {0,2,4,6} and {1,3,5,7}: all of `data` and the major half of `model`, which Shardy would write
`"model":(1)2`. Device i is the i-th place of the mesh in row-major order.
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
    """Reads `replica_groups` in any of its spellings: integers, groups x members (read only), short groups filled up
    with -1; no text or `{}` is one group of all. A `ParseError` for other text, or of another number of devices."""
    check_size(text, MOST_CHARACTERS, "replica groups", "characters")
    if not 0 <= devices <= MOST_DEVICES:
        raise ParseError(f"replica groups {excerpt(text)!r}: of {devices} devices; expected 0 to {MOST_DEVICES}")
    table = _table(text.strip(), devices)
    table.setflags(write=False)
    return table


def _table(text: str, devices: int) -> np.ndarray:
    if text in ("", "{}", "{{}}"):
        return np.arange(devices).reshape(1, -1)
    it = Scanner(text, "replica groups")
    if it.sees("["):
        dims = it.integers()
        it.need("<=")
        listed = read_iota(it)
        it.end()
        if len(dims) != 2 or math.prod(dims) != devices or len(listed) != devices:
            raise ParseError(f"{it.subject}: they are not of {devices} devices")
        return listed.reshape(dims)
    if it.sees("mesh["):
        return _along_axes(it, devices)
    if _LISTS.fullmatch(text):
        return _rows(text, it.subject)
    raise ParseError(f"{it.subject}: expected {{{{0,1}},{{2,3}}}}, [4,2]<=[8] or mesh['a'=2,'b'=4] {{'a'}}")


def _rows(text: str, where: str) -> np.ndarray:
    """`{{0,1},{2,3}}` as a table, its shape of numbers in braces checked: -1 behind the numbers of a shorter row."""
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
    except ValueError:  # two with a space between them, or none
        raise ParseError(f"{where}: expected whole numbers with commas between them") from None
    return table


def _along_axes(it: Scanner, devices: int) -> np.ndarray:
    """`mesh['a'=2,'b'=4] {'a'}`: a group for each setting of the axes that are not in the braces."""
    mesh, order = read_module_mesh(it)
    axes = read_axes(it)
    it.end()
    if mesh.size != devices or (order and sorted(order) != list(range(devices))):
        raise ParseError(f"{it.subject}: they are not of {devices} devices")
    try:
        check_axes(Spec((axes,)), [("the groups", axis) for axis in axes], mesh)
    except SpecError as error:
        raise ParseError(f"{it.subject}: {error}") from error
    member = digits(axes, mesh)
    others = np.arange(devices) - places(axes, mesh)[member]
    return np.asarray(order or range(devices))[np.lexsort((member, others))].reshape(-1, int(member.max()) + 1)


def parse_pairs(text: str) -> np.ndarray:
    """Reads `source_target_pairs`: integers, pairs x 2. A `ParseError` where the text is no list of pairs."""
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
    """The mesh axes that groups (groups x members) span, or parts as (name, sizes before it, size), major to minor in
    the order of the members, else of the mesh; none of size 1. None where they are no product of axes, or leave devices
    out."""
    if groups.size != mesh.size or not np.array_equal(np.sort(groups, axis=None), np.arange(mesh.size)):
        return None
    for table in (groups, np.sort(groups, axis=1)):
        row = table[np.flatnonzero(table[:, 0] == table[:, 0].min())[0]]
        axes = axes_along(row, mesh)
        if axes is not None and np.array_equal(table - table[:, :1], np.broadcast_to(places(axes, mesh), table.shape)):
            return axes
    return None


def axes_of_pairs(pairs: np.ndarray, mesh: DeviceMesh) -> tuple[Axis, ...] | None:
    """The axes, in mesh order, on which the source and target of any pair (pairs x 2) differ; None where a device is
    not on the mesh."""
    if pairs.size and (pairs.max() >= mesh.size or pairs.min() < 0):
        return None
    coordinates = mesh.coordinates()
    differs = (coordinates[pairs[:, 0]] != coordinates[pairs[:, 1]]).any(axis=0)
    return tuple(name for name, moved in zip(mesh.names, differs, strict=True) if moved)
