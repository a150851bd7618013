"""Notations for writing by hand: `[data, ·]`, and the scaling book's `A[I_X, J_Y]`.

>>> mesh = DeviceMesh.of({"X": 2, "Y": 4})
>>> str(read("[X Y, -]", mesh)), str(read_book("A[I_XY, J]", mesh)), str(read_book("C[I_X, K] {U_Y}", mesh))
('[X Y, ·]', '[X Y, ·]', '[X, ·] sum over Y')
>>> read("[X Y, ·]", mesh).to("book")
'A[I_XY, J]'
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from shardviz.errors import ParseError, SpecError, excerpt
from shardviz.notation import letters
from shardviz.notation.bounds import MOST_DIMENSIONS, MOST_NAMED, MOST_WRITTEN, check_size
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.record import Sharding
from shardviz.notation.spec import KINDS, Axis, Spec, axis_text

_NOT_SHARDED = ("·", "-", "None", "_", "*", ".")  # a dimension that is not sharded
_PART = re.compile(r"(.+):\(([0-9]{1,9})\)([0-9]{1,9})", re.DOTALL)
_BOOK = re.compile(r"[A-Za-z][\w']*+\s*+\[([^\[\]]*+)\]\s*+(?>(?:\{\s*+U_([^{}\s]++|\{[^{}]*+\})\s*+\})?)", re.DOTALL)
_CELL = re.compile(r"(?>(?:[^{},]++|\{[^{}]*+\}|[{}])*)")
_TAILS = (*((kind, "over") for kind in KINDS), ("manual",), ("reduced",))


def read(text: str, mesh: DeviceMesh) -> Sharding:
    """Read the short form, `[data ?, ·] sum over model`. Raises ParseError for other text, SpecError if the sharding
    does not fit the mesh."""
    quoted = _named(text)
    inside, close, rest = text[1:].partition("]")
    tail = rest.split()
    if not close or (tail and not _key(tail)):
        raise ParseError(f"{quoted}: expected [data, ·], optionally followed by 'sum over model'")
    dims: list[tuple[Axis, ...]] = []
    opened: list[bool] = []
    cells = inside.split(",") if inside.strip() else []
    check_size(cells, MOST_DIMENSIONS, quoted, "dimensions")
    for cell in cells:
        words = cell.split()
        opened.append(words[-1:] == ["?"])
        words = words[: len(words) - opened[-1]]
        if not words and not opened[-1]:
            raise ParseError(f"{quoted}: an entry is empty; write · for a dimension that is not sharded")
        unsharded = len(words) == 1 and words[0] in _NOT_SHARDED and words[0] not in mesh.names
        dims.append(() if unsharded else tuple(_axis(word, quoted) for word in words))
    lists: dict[str, tuple[Axis, ...]] = {}
    while tail:
        key = " ".join(_key(tail))
        end = len(key.split())
        start = end
        while end < len(tail) and not _key(tail[end : end + 3]):
            end += 1
        if key in lists or end == start:
            raise ParseError(f"{quoted}: expected axes behind {key!r}, once")
        lists[key] = tuple(_axis(word, quoted) for word in tail[start:end])
        tail = tail[end:]
    kinds = [kind for kind in KINDS if f"{kind} over" in lists]
    if len(kinds) > 1:
        raise ParseError(f"{quoted}: partial results are reduced by one of {', '.join(KINDS)}, not by {len(kinds)}")
    kind = kinds[0] if kinds else "sum"
    spec = Spec(tuple(dims), lists.get(f"{kind} over", ()), (), kind)
    manual, reduced = lists.get("manual", ()), lists.get("reduced", ())
    return Sharding.from_spec(spec, mesh, len(dims), manual=manual, reduced=reduced, open=opened)


def _named(text: str) -> str:
    check_size(text, MOST_WRITTEN, "sharding", "characters")
    return f"sharding {excerpt(text)!r}"


def _key(words: list[str]) -> tuple[str, ...]:
    """Return the keyword that `words` begin with, if axes follow it; otherwise it is an axis name."""
    return next((key for key in _TAILS if tuple(words[: len(key)]) == key and len(words) > len(key)), ())


def _axis(word: str, quoted: str) -> Axis:
    part = _PART.fullmatch(word)
    if part:
        return part[1], int(part[2]), int(part[3])
    if not word or any(c in word for c in "[]{}()<>,\"'"):
        raise ParseError(
            f"{quoted}: expected axis names such as data, or model:(2)4, not {excerpt(word)!r}; write names without "
            "quotes, and several with spaces between them, [data model, ·]"
        )
    if "?" in word:
        raise ParseError(f"{quoted}: write ? last in its entry, after a space, [data ?, ?], not {excerpt(word)!r}")
    return word


def read_book(text: str, mesh: DeviceMesh) -> Sharding | None:
    """Read the scaling book's form: `I_X`; for two axes `I_{X,Y}`, or `I_XY` if their names have one letter each. A
    following `{U_Z}` is a partial sum. Return None for text that is not in this form. Raises as `read` does."""
    quoted = _named(text)
    if (match := _BOOK.fullmatch(text)) is None:
        return None
    inside, partial = match[1], match[2]
    dims: list[tuple[Axis, ...]] = []
    cells: list[str] = []
    at = 0 if inside.strip() else len(inside) + 1
    while at <= len(inside):
        cell = _CELL.match(inside, at)
        assert cell is not None  # it matches nothing at all, too
        cells.append(cell[0])
        at = cell.end() + 1  # behind its comma
    check_size(cells, MOST_DIMENSIONS, quoted, "dimensions")
    for cell in cells:
        name, underscore, axes = cell.strip().partition("_")
        if not re.fullmatch(r"[^\W\d_][\w']*", name) or (underscore and not axes):
            raise ParseError(f"{quoted}: expected dimensions such as I or I_X, not {excerpt(cell.strip())!r}")
        dims.append(_subscript(axes, quoted, mesh) if underscore else ())
    spec = Spec(tuple(dims), _subscript(partial, quoted, mesh) if partial else ())
    return Sharding.from_spec(spec, mesh, len(dims))


def _subscript(axes: str, quoted: str, mesh: DeviceMesh) -> tuple[Axis, ...]:
    if axes.startswith("{") and axes.endswith("}"):
        axes = axes[1:-1]
    named: list[Axis] = []
    words = axes.replace(" ", ",").split(",")
    check_size(words, MOST_NAMED, quoted, "axes")
    for word in words:
        if word in mesh.names:
            named.append(word)
        elif 0 < len(word) <= len(mesh.names) and set(word) <= set(mesh.names):  # one-letter names, run together
            named.extend(word)
        else:
            have = ", ".join(map(repr, mesh.names)) or "none"
            raise SpecError(
                f"{quoted}: {excerpt(word)!r} does not name axes of the mesh, which has {have}. "
                "Write several as I_{X,Y}"
            )
    return tuple(named)


def write(sharding: Sharding) -> Iterator[letters.Piece]:
    """Write the short form, which is also a record's `str`."""
    if sharding.spec is None:
        raise SpecError(f"{sharding}: the short form names mesh axes, and {sharding.why}")
    if any(p is not None for p in sharding.priorities):
        raise SpecError(f"{sharding}: the short form has no priorities, which Shardy has")
    if any(sharding.open) and sharding.replicated:
        raise SpecError(f"{sharding}: the short form has no explicitly replicated axes, which Shardy has")
    strange = [n for n in sharding.mesh.names if any(c.isspace() or c in "[]{}()<>,:?\"'" for c in n) or n in "·-_*."]
    if strange:
        raise SpecError(f"the short form cannot hold the axis name {strange[0]!r}")
    if not sharding.spec.dims:
        yield letters.Letter("[]", letters.unsharded_words(sharding))
    for i, (dim, is_open) in enumerate(zip(sharding.spec.dims, sharding.open, strict=True)):
        pieces = [letters.Letter(axis_text(axis), letters.axis_words(sharding, axis)) for axis in dim]
        if is_open or not dim:
            pieces.append(letters.Letter("?", letters.OPEN) if is_open else letters.Letter("·", letters.NOT_SHARDED))
        yield ", " if i else "["
        yield from letters.listed(([letter] for letter in pieces), "", " ")
    yield "]" if sharding.spec.dims else ""
    partial = (
        f"{sharding.unreduced_kind} over",
        sharding.unreduced,
        letters.partial_words(sharding.unreduced, sharding.unreduced_kind),
    )
    tails = (partial, ("manual", sharding.manual, letters.MANUAL), ("reduced", sharding.reduced, letters.REDUCED))
    for key, axes, words in tails:
        if axes:
            yield " "
            yield letters.Letter(f"{key} {' '.join(map(axis_text, axes))}", words.format(letters.names_words(axes)))


def write_book(sharding: Sharding) -> Iterator[letters.Piece]:
    """Write `A[I_X, J]`; one-letter names of several axes run together, other names are in braces."""
    if sharding.spec is None:
        raise SpecError(f"{sharding}: the scaling book's form names mesh axes, and {sharding.why}")
    for lacking, what in (
        (any(sharding.open), "open dimensions"),
        (any(p is not None for p in sharding.priorities), "priorities"),
        (sharding.manual, "manual axes"),
        (sharding.reduced, "reduced axes"),
        (sharding.replicated, "explicitly replicated axes"),
        (sharding.unreduced_kind != "sum", "partial results other than sums"),
    ):
        if lacking:
            raise SpecError(f"{sharding}: the scaling book's form has no {what}")
    yield letters.Letter("A", "the array, of whatever name")
    if not sharding.spec.dims:
        yield letters.Letter("[]", letters.unsharded_words(sharding))
    for i, dim in enumerate(sharding.spec.dims):
        yield ", " if i else "["
        letter = _LETTERS[i] if i < len(_LETTERS) else f"I{i}"
        if dim:
            words = "; ".join(letters.axis_words(sharding, axis) for axis in dim)
            yield letters.Letter(f"{letter}_{_run_together(dim, sharding)}", f"dimension {i}: {words}")
        else:
            yield letters.Letter(letter, f"dimension {i}, which is not sharded")
    yield "]" if sharding.spec.dims else ""
    if sharding.unreduced:
        yield " "
        yield letters.Letter(
            f"{{U_{_run_together(sharding.unreduced, sharding)}}}",
            letters.SUM.format(letters.names_words(sharding.unreduced)),
        )


_LETTERS = "IJKLMNOPQRST"


def _run_together(axes: tuple[Axis, ...], sharding: Sharding) -> str:
    for axis in axes:
        if not isinstance(axis, str):
            raise SpecError(f"{sharding}: the scaling book's form has no parts of axes, such as {axis_text(axis)!r}")
        if any(c.isspace() or c in "[]{}," for c in axis):
            raise SpecError(f"the scaling book's form cannot hold the axis name {axis!r}")
    names = [str(axis) for axis in axes]
    run = "".join(names)
    alone = len(names) == 1 or (all(len(name) == 1 for name in names) and run not in sharding.mesh.names)
    return run if alone else f"{{{','.join(names)}}}"
