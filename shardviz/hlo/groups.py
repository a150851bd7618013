"""Which devices talk to each other, and which mesh axes that is.

XLA writes the groups of a collective in four ways. On `data=2,model=4`:

>>> from shardviz.notation import DeviceMesh
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

from shardviz.errors import ParseError
from shardviz.layout.device_groups import axes_of, axes_of_pairs
from shardviz.notation.hlo_sharding import TextMesh, iota

__all__ = ["axes_of", "axes_of_pairs", "parse_groups", "parse_pairs"]

_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?$")
_LIST = re.compile(r"\{((?:\d+(?:,\s*\d+)*)?)\}")
_AXES = re.compile(r"\{(.*)\}\s*$")


@lru_cache(maxsize=256)
def parse_groups(text: str, devices: int) -> np.ndarray:
    """Reads `replica_groups` in any of its spellings.

    Args:
        text: the attribute's text; `{}` (or nothing) means that all devices make one group.
        devices: the number of devices.

    Returns:
        Integers, groups x members (read only). Groups of unequal sizes are filled up with -1.

    Raises:
        ParseError: if the text is none of the spellings, or is of another number of devices.
    """
    table = _table(text.strip(), devices)
    table.setflags(write=False)
    return table


def _table(text: str, devices: int) -> np.ndarray:
    if text in ("", "{}", "{{}}"):
        return np.arange(devices).reshape(1, -1)
    if found := _IOTA.match(text):
        dims, reshape, order = (tuple(int(n) for n in (part or "").split(",") if n) for part in found.groups())
        if len(dims) != 2 or math.prod(dims) != devices or math.prod(reshape) != devices:
            raise ParseError(f"replica groups {text!r}: they are not of {devices} devices")
        return iota(reshape, order).reshape(dims)
    if text.startswith("mesh["):
        mesh, rest = TextMesh.parse(text)
        axes = _AXES.search(rest)
        if math.prod(mesh.sizes) != devices:
            raise ParseError(f"replica groups {text!r}: they are not of {devices} devices")
        if axes is None:
            raise ParseError(f"replica groups {text!r}: expected the axes in braces after the mesh")
        return mesh.table(mesh.axes(axes[1]))
    if text.startswith("{") and re.fullmatch(r"\{[\s,]*\}", _LIST.sub("", text)):
        rows = [[int(n) for n in row.split(",") if n] for row in _LIST.findall(text)]
        longest = max(map(len, rows), default=0)
        return np.array([row + [-1] * (longest - len(row)) for row in rows], np.int64).reshape(len(rows), longest)
    raise ParseError(f"replica groups {text!r}: expected {{{{0,1}},{{2,3}}}}, [4,2]<=[8] or mesh['a'=2,'b'=4] {{'a'}}")


def parse_pairs(text: str) -> np.ndarray:
    """Reads `source_target_pairs`: integers, pairs x 2.

    Raises:
        ParseError: if the text is no list of pairs.
    """
    numbers = [int(n) for n in re.findall(r"\d+", text)]
    if len(numbers) % 2 or not text.strip().startswith("{"):
        raise ParseError(f"source-target pairs {text!r}: expected {{{{0,1}},{{1,0}}}}")
    return np.array(numbers, np.int64).reshape(-1, 2)
