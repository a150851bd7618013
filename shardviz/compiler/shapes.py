"""Shapes in HLO text, `f32[4,8]{1,0}`, and the trees of them that tuples have; layouts are passed over.

>>> parse_shape("(bf16[4,8]{1,0:T(8,128)(2,1)}, /*index=1*/pred[])")
(Shape(dtype='bfloat16', dims=(4, 8)), Shape(dtype='bool', dims=()))
>>> parse_shape("bf16[4,8]").nbytes
64.0
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

from shardviz.errors import ParseError
from shardviz.layouts.layout import itemsize

_LEAF = re.compile(r"([a-z][a-z0-9]*)\[((?:(?:<=)?\d+|\?)(?:,\s*(?:(?:<=)?\d+|\?))*)?\](?:\{[^}]*\})?")
_COMMENT = re.compile(r"/\*.*?\*/")
_PLAIN = {
    "pred": "bool",
    "bf16": "bfloat16",
    "c64": "complex64",
    "c128": "complex128",
    "token": "token",
    "opaque": "opaque",
}
_PREFIX = {"s": "int", "u": "uint", "f": "float"}


@dataclass(frozen=True)
class Shape:
    """An array's element type and dimensions.

    Attributes:
        dtype: NumPy's name of the element type.
        dims: the dimensions; of one that is bounded (`<=8`), the bound.
    """

    dtype: str
    dims: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.dims)

    @property
    def nbytes(self) -> float:
        """Bytes; half a byte for each element of a 4-bit type."""
        if self.dtype in ("token", "opaque"):
            return 0.0
        try:
            return self.size * itemsize(self.dtype)
        except TypeError as error:
            raise ParseError(f"HLO: the size of element type {self.dtype!r} is not known") from error


ShapeTree = Shape | tuple["ShapeTree", ...]
"""A shape, or a tuple of them."""


def leaves(shape: ShapeTree) -> tuple[Shape, ...]:
    """The arrays of a shape, tuples flattened."""
    return (shape,) if isinstance(shape, Shape) else tuple(leaf for part in shape for leaf in leaves(part))


def element(shape: ShapeTree, path: tuple[int, ...]) -> ShapeTree:
    """The part of a tuple's shape that `path` leads to."""
    for index in path:
        if isinstance(shape, Shape) or index >= len(shape):
            raise ParseError(f"HLO: there is no element {path} of {shape}")
        shape = shape[index]
    return shape


@lru_cache(maxsize=8192)
def parse_shape(text: str) -> ShapeTree:
    """Reads a shape.

    Args:
        text: such as `f32[4,8]{1,0}` or `(s32[], f32[8])`.

    Raises:
        ParseError: if it is none.
    """
    plain = _COMMENT.sub("", text).strip()
    shape, end = _tree(plain, 0, text)
    if end != len(plain):
        raise ParseError(f"HLO shape {text!r}: unexpected {plain[end:]!r}")
    return shape


def _tree(text: str, at: int, whole: str) -> tuple[ShapeTree, int]:
    if text.startswith("(", at):
        parts: list[ShapeTree] = []
        at += 1
        while not text.startswith(")", at):
            part, at = _tree(text, at, whole)
            parts.append(part)
            while at < len(text) and text[at] in ", ":
                at += 1
            if at >= len(text):
                raise ParseError(f"HLO shape {whole!r}: a tuple does not end")
        return tuple(parts), at + 1
    found = _LEAF.match(text, at)
    if found is None:
        raise ParseError(f"HLO shape {whole!r}: expected a shape such as f32[4,8]{{1,0}} at {text[at : at + 40]!r}")
    dims = tuple(
        int(d.strip().lstrip("<=")) if d.strip() != "?" else 0 for d in (found[2] or "").split(",") if d.strip()
    )
    return Shape(numpy_name(found[1]), dims), found.end()


def numpy_name(dtype: str) -> str:
    """NumPy's (or ml_dtypes') name of one of HLO's element types: `bfloat16` for `bf16`."""
    if dtype in _PLAIN:
        return _PLAIN[dtype]
    found = re.fullmatch(r"([suf])(\d+)(e\w+)?", dtype)
    if found is None:
        return dtype
    return _PREFIX[found[1]] + found[2] + (f"_{found[3]}" if found[3] else "")
