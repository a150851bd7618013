"""The notations that people write: `[data, ·]`, and the scaling book's `A[I_X, J_Y]`.

>>> mesh = DeviceMesh.of({"X": 2, "Y": 4})
>>> str(read("[X Y, -]", mesh)), str(read_book("A[I_XY, J]", mesh)), str(read_book("C[I_X, K] {U_Y}", mesh))
('[X Y, ·]', '[X Y, ·]', '[X, ·] sum over Y')
>>> read("[X Y, ·]", mesh).to("book")
'A[I_XY, J]'
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from shardviz.errors import ParseError, SpecError
from shardviz.notation.letters import (
    MANUAL,
    OPEN,
    REDUCED,
    SUM,
    UNCUT,
    Letter,
    Piece,
    axis_words,
    names_words,
    nothing_cut,
)
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.record import Sharding
from shardviz.notation.spec import Axis, Spec, axis_text

_WHOLE = ("·", "-", "None", "_", "*", ".")  # a dimension that is not cut
_PART = re.compile(r"(.+):\(([0-9]{1,9})\)([0-9]{1,9})", re.DOTALL)
_BOOK = re.compile(r"[A-Za-z][\w']*\s*\[([^\[\]]*)\]\s*(?:\{\s*U_([^{}\s]+|\{[^{}]*\})\s*\})?", re.DOTALL)
_TAILS = re.compile(r"(?:\s+|(?<=\]))(sum over|manual|reduced)(?=\s)")


def read(text: str, mesh: DeviceMesh) -> Sharding:
    """Reads the short form, `[data ?, ·] sum over model`.

    Raises:
        ParseError: if it is none.
        SpecError: if it does not fit the mesh.
    """
    inside, close, rest = text[1:].partition("]")
    parts = _TAILS.split(rest)
    if not close or parts[0].strip():
        raise ParseError(f"sharding {text!r}: expected [data, ·], perhaps with 'sum over model' behind it")
    dims: list[tuple[Axis, ...]] = []
    opened: list[bool] = []
    for cell in inside.split(",") if inside.strip() else ():
        words = cell.split()
        opened.append(words[-1:] == ["?"])
        words = words[: len(words) - opened[-1]]
        if not words and not opened[-1]:
            raise ParseError(f"sharding {text!r}: an entry is empty; write · for a dimension that is not cut")
        whole = len(words) == 1 and words[0] in _WHOLE and words[0] not in mesh.names
        dims.append(() if whole else tuple(_axis(word, text) for word in words))
    lists: dict[str, tuple[Axis, ...]] = {}
    for key, words in zip(parts[1::2], parts[2::2], strict=True):
        if key in lists or not words.split():
            raise ParseError(f"sharding {text!r}: expected axes behind {key!r}, once")
        lists[key] = tuple(_axis(word, text) for word in words.split())
    spec = Spec(tuple(dims), lists.get("sum over", ()))
    manual, reduced = lists.get("manual", ()), lists.get("reduced", ())
    return Sharding.from_spec(spec, mesh, len(dims), manual=manual, reduced=reduced, open=opened)


def _axis(word: str, text: str) -> Axis:
    found = _PART.fullmatch(word)
    if found:
        return found[1], int(found[2]), int(found[3])
    if not word or any(c in word for c in "[]{}()<>,\"'"):
        raise ParseError(
            f"sharding {text!r}: expected axis names such as data, or model:(2)4, not {word!r}; names stand without "
            "quotes, and several with spaces between them, [data model, ·]"
        )
    if "?" in word:
        raise ParseError(f"sharding {text!r}: ? stands last in its entry and apart, as in [data ?, ?], not as {word!r}")
    return word


def read_book(text: str, mesh: DeviceMesh) -> Sharding | None:
    """Reads the book's form: `I_X`, `I_XY` or `I_{X,Y}` for two axes, `{U_Z}` behind for a partial sum.

    Returns:
        The record; None for text that is not meant so.

    Raises:
        ParseError, SpecError: as `read` does.
    """
    if (whole := _BOOK.fullmatch(text)) is None:
        return None
    inside, partial = whole[1], whole[2]
    dims: list[tuple[Axis, ...]] = []
    cells = re.split(r",(?![^{}]*\})", inside) if inside.strip() else []
    for cell in cells:
        name, underscore, axes = cell.strip().partition("_")
        if not re.fullmatch(r"[^\W\d_][\w']*", name) or (underscore and not axes):
            raise ParseError(f"sharding {text!r}: expected dimensions such as I or I_X, not {cell.strip()!r}")
        dims.append(_subscript(axes, text, mesh) if underscore else ())
    spec = Spec(tuple(dims), _subscript(partial, text, mesh) if partial else ())
    return Sharding.from_spec(spec, mesh, len(dims))


def _subscript(axes: str, text: str, mesh: DeviceMesh) -> tuple[Axis, ...]:
    if axes.startswith("{") and axes.endswith("}"):
        axes = axes[1:-1]
    found: list[Axis] = []
    for word in axes.replace(" ", ",").split(","):
        ways = [(word,)] if word in mesh.names else _readings(word, tuple(mesh.names))
        if len(ways) != 1:
            have = ", ".join(map(repr, mesh.names)) or "none"
            more = f"; it can be read as {' or '.join(' '.join(w) for w in ways)}" if ways else ""
            raise SpecError(
                f"sharding {text!r}: {word!r} does not name axes of the mesh, which has {have}{more}. "
                "Write several as I_{X,Y}"
            )
        found.extend(ways[0])
    return tuple(found)


def _readings(word: str, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The ways to read a word as axis names run together, each axis at most once."""
    if not word:
        return [()]
    if len(word) > 200:
        return []
    return [
        (name, *rest)
        for name in names
        if word.startswith(name)
        for rest in _readings(word[len(name) :], tuple(n for n in names if n != name))
    ]


def write(cut: Sharding) -> Iterator[Piece]:
    """The short form, which is also how a record prints.

    Raises:
        SpecError: where it cannot be written so.
    """
    if cut.spec is None:
        raise SpecError(f"{cut}: the short form names mesh axes, and {cut.why}")
    if any(p is not None for p in cut.priorities):
        raise SpecError(f"{cut}: the short form has no priorities, which Shardy has")
    if any(cut.open) and cut.replicated:
        raise SpecError(f"{cut}: the short form has no explicitly replicated axes, which Shardy has")
    strange = [n for n in cut.mesh.names if any(c.isspace() or c in "[]{}()<>,:?\"'" for c in n) or n in "·-_*."]
    if strange:
        raise SpecError(f"the short form cannot hold the axis name {strange[0]!r}")
    if not cut.spec.dims:
        yield Letter("[]", nothing_cut(cut))
    for i, (dim, is_open) in enumerate(zip(cut.spec.dims, cut.open, strict=True)):
        yield ", " if i else "["
        for j, axis in enumerate(dim):
            yield " " if j else ""
            yield Letter(axis_text(axis), axis_words(cut, axis))
        if is_open:
            yield " " if dim else ""
            yield Letter("?", OPEN)
        elif not dim:
            yield Letter("·", UNCUT)
    yield "]" if cut.spec.dims else ""
    tails = (("sum over", cut.unreduced, SUM), ("manual", cut.manual, MANUAL), ("reduced", cut.reduced, REDUCED))
    for key, axes, words in tails:
        if axes:
            yield " "
            yield Letter(f"{key} {' '.join(map(axis_text, axes))}", words.format(names_words(axes)))


def write_book(cut: Sharding) -> Iterator[Piece]:
    """`A[I_X, J]`; several axes run together where each is one letter, as the book has it, else stand in braces.

    Raises:
        SpecError: where it cannot be written so.
    """
    if cut.spec is None:
        raise SpecError(f"{cut}: the scaling book's form names mesh axes, and {cut.why}")
    for given, what in (
        (any(cut.open), "open dimensions"),
        (any(p is not None for p in cut.priorities), "priorities"),
        (cut.manual, "manual axes"),
        (cut.reduced, "reduced axes"),
        (cut.replicated, "explicitly replicated axes"),
    ):
        if given:
            raise SpecError(f"{cut}: the scaling book's form has no {what}")
    yield Letter("A", "the array, of whatever name")
    if not cut.spec.dims:
        yield Letter("[]", nothing_cut(cut))
    for i, dim in enumerate(cut.spec.dims):
        yield ", " if i else "["
        letter = _LETTERS[i] if i < len(_LETTERS) else f"I{i}"
        words = (
            f"dimension {i}: {'; '.join(axis_words(cut, a) for a in dim)}"
            if dim
            else f"dimension {i}, which is not cut"
        )
        yield Letter(letter + (f"_{_run_together(dim, cut)}" if dim else ""), words)
    yield "]" if cut.spec.dims else ""
    if cut.unreduced:
        yield " "
        yield Letter(f"{{U_{_run_together(cut.unreduced, cut)}}}", SUM.format(names_words(cut.unreduced)))


_LETTERS = "IJKLMNOPQRST"


def _run_together(axes: tuple[Axis, ...], cut: Sharding) -> str:
    for axis in axes:
        if not isinstance(axis, str):
            raise SpecError(f"{cut}: the scaling book's form has whole axes only, and {axis_text(axis)!r} is a part")
        if any(c.isspace() or c in "[]{}," for c in axis):
            raise SpecError(f"the scaling book's form cannot hold the axis name {axis!r}")
    names = [str(axis) for axis in axes]
    run = "".join(names)
    alone = len(names) == 1 or (
        all(len(n) == 1 for n in names) and run not in cut.mesh.names and len(_readings(run, cut.mesh.names)) == 1
    )
    return run if alone else f"{{{','.join(names)}}}"
