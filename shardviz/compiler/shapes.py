"""Shapes in HLO text, `f32[4,8]{1,0}`, and trees of them for tuples.

>>> parse_shape("(bf16[4,8]{1,0:T(8,128)(2,1)}, /*index=1*/pred[])")
(HloShape(dtype='bfloat16', dims=(4, 8)), HloShape(dtype='bool', dims=()))
>>> parse_shape("bf16[4,8]").nbytes
64.0

A layout says in which memory an array is, and in which tiles it is stored there:

>>> array = parse_shape("f32[3,8192]{1,0:T(4,128)S(1)}")
>>> array.nbytes, array.stored_bytes, array.is_in_main_memory
(98304.0, 131072.0, False)
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from shardviz.errors import DtypeError, ParseError, excerpt
from shardviz.layouts.layout import itemsize
from shardviz.notation.bounds import MOST_DIGITS, MOST_DIMENSIONS, MOST_NESTED, check_size

_LEAF = re.compile(r"([a-z][a-z0-9]*+)\[([0-9<=?,\s]*+)\](?>(?:\{([^}]*+)\})?)")
_ORDER = re.compile(r"^([\d,]*)(?::T\(([\d,]+)\))?")
_SPACE = re.compile(r"S\((\d+)\)")
_DIMENSION = re.compile(rf"\s*+(?:(?>(?:<=)?)(\d{{1,{MOST_DIGITS}}}+)|\?)\s*+", re.ASCII)
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
class HloShape:
    """An array's element type (NumPy's name), its dimensions (a bounded one's bound), and its layout as in the text:
    `1,0:T(8,128)S(1)`."""

    dtype: str
    dims: tuple[int, ...]
    layout: str = field(default="", repr=False, compare=False)

    @property
    def nbytes(self) -> float:
        """Bytes; an element of a 4-bit type counts half a byte."""
        if self.dtype in ("token", "opaque"):
            return 0.0
        try:
            return math.prod(self.dims) * itemsize(self.dtype)
        except DtypeError as error:
            raise ParseError(f"HLO: {error}") from error

    @property
    def is_in_main_memory(self) -> bool:
        """Whether it is in main memory: neither in on-chip memory (`S(1)`: a TPU's VMEM) nor in the host's (`S(5)`)."""
        space = _SPACE.search(self.layout)
        return space is None or space[1] == "0"

    @property
    def stored_bytes(self) -> float:
        """Bytes with the padding of its tiles: minor dimensions are rounded up to full tiles."""
        order = _ORDER.match(self.layout)
        if order is None or not order[1] or not order[2]:
            return self.nbytes
        padded = list(self.dims)
        for size, dimension in zip(reversed(order[2].split(",")), order[1].split(","), strict=False):
            padded[int(dimension)] = -(-padded[int(dimension)] // int(size)) * int(size)
        return HloShape(self.dtype, tuple(padded)).nbytes


ShapeTree = HloShape | tuple["ShapeTree", ...]
"""A shape, or a tuple of them."""


def leaves(tree: Any) -> tuple[Any, ...]:
    """Yield the leaves of nested tuples, such as the arrays of a `ShapeTree`."""
    return tuple(leaf for part in tree for leaf in leaves(part)) if isinstance(tree, tuple) else (tree,)


def element(tree: Any, path: tuple[int, ...], called: str = "") -> Any:
    """Return the part of nested tuples at `path`; `what` names it in errors."""
    for index in path:
        if not isinstance(tree, tuple) or index >= len(tree):
            raise ParseError(f"HLO: there is no element {path} of {called or tree}")
        tree = tree[index]
    return tree


@lru_cache(maxsize=4096)
def parse_shape(text: str) -> ShapeTree:
    """Parse a shape such as `f32[4,8]{1,0}` or `(s32[], f32[8])`. Raises ParseError for other text."""
    plain = _without_comments(text).strip()
    shape, at = _shape_at(plain, 0, text, 0)
    if at != len(plain):
        raise ParseError(f"HLO shape {excerpt(text)!r}: unexpected {excerpt(plain[at : at + 200], 100)!r}")
    return shape


def _shape_at(plain: str, at: int, whole: str, around: int) -> tuple[ShapeTree, int]:
    """Return the shape that begins at a position, inside so many tuples, and its end."""
    if not plain.startswith("(", at):
        return _leaf(plain, at, whole)
    check_size(range(around + 1), MOST_NESTED, f"HLO shape {excerpt(whole)!r}", "tuples within each other")
    parts, at = list[ShapeTree](), at + 1
    while not plain.startswith(")", at):
        part, at = _shape_at(plain, at, whole, around + 1)
        parts.append(part)
        while plain.startswith((",", " "), at):
            at += 1
        if at >= len(plain):
            raise ParseError(f"HLO shape {excerpt(whole)!r}: a tuple does not end")
    return tuple(parts), at + 1


def _without_comments(text: str) -> str:
    if "/*" not in text:
        return text
    first, *rest = text.split("/*")
    parts = [part.partition("*/") for part in rest]
    if not all(end for _, end, _ in parts):
        raise ParseError(f"HLO shape {excerpt(text)!r}: a comment does not end")
    return first + "".join(behind for _, _, behind in parts)


def _leaf(text: str, at: int, whole: str) -> tuple[HloShape, int]:
    match = _LEAF.match(text, at)
    if match is None:
        raise ParseError(
            f"HLO shape {excerpt(whole)!r}: expected a shape such as f32[4,8]{{1,0}} at {text[at : at + 40]!r}"
        )
    parts = match[2].split(",") if match[2].strip() else []
    check_size(parts, MOST_DIMENSIONS, f"HLO shape {excerpt(whole)!r}", "dimensions")
    dims = [_DIMENSION.fullmatch(part) for part in parts]
    if None in dims:
        raise ParseError(
            f"HLO shape {excerpt(whole)!r}: expected dimensions such as 4, <=8 or ?, not {excerpt(match[2])!r}"
        )
    return HloShape(numpy_name(match[1]), tuple(int(d[1] or 0) for d in dims if d), match[3] or ""), match.end()


def numpy_name(dtype: str) -> str:
    """Return NumPy's (or ml_dtypes') name of an HLO element type: `bfloat16` for `bf16`."""
    if dtype in _PLAIN:
        return _PLAIN[dtype]
    match = re.fullmatch(r"([suf])(\d+)(e\w+)?", dtype)
    if match is None:
        return dtype
    return _PREFIX[match[1]] + match[2] + (f"_{match[3]}" if match[3] else "")
