"""JAX's PartitionSpec, `P('data', None)`: the object, the tuple of its entries, and its text.

>>> from shardviz.notation.letters import text_of
>>> mesh = DeviceMesh.of({"X": 2, "Y": 4})
>>> cut = read("P(P.UNCONSTRAINED, 'X', unreduced={'Y'})", mesh)
>>> str(cut), text_of(write(cut)), str(from_entries(("X", None), mesh, 2))
('[?, X] sum over Y', "P(P.UNCONSTRAINED, 'X', unreduced={'Y'})", '[X, ·]')

Axes that the mesh has as Manual are manual, which a PartitionSpec does not say.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from shardviz.errors import ParseError, SpecError, excerpt
from shardviz.notation.bounds import MOST_NAMED, MOST_WRITTEN
from shardviz.notation.letters import REDUCED, UNCUT, Letter, Piece, axis_words, names_words, nothing_cut, partial_words
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.record import Sharding
from shardviz.notation.scan import Scanner
from shardviz.notation.spec import Axis, Spec, axis_text, partial_kind

_CALL = re.compile(r"(?>(?:[A-Za-z_]\w*+\.)*)(?:P|PartitionSpec)\s*+\(")
_KEYWORD = re.compile(r"([A-Za-z_]\w*+)\s*+=(?!=)")
_SET = re.compile(r"(?:frozenset|set)\s*+\(")
_DOTTED = re.compile(r"[A-Za-z_][\w.]*+")
_TEXT = re.compile(r"'(?>(?:[^'\\\n]++|\\.)*)'|\"(?>(?:[^\"\\\n]++|\\.)*)\"", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "\n": ""}
_ENTRY = "an entry is None, an axis name or a tuple of axis names"
_DEEPEST = 4  # of a PartitionSpec's entries: a tuple, of tuples, which are parts of axes


def is_pspec(given: Any) -> bool:
    """Whether it is a PartitionSpec, told by what it has, so that JAX is not imported for it."""
    return hasattr(given, "UNCONSTRAINED") and isinstance(given, Iterable) and not isinstance(given, type)


def from_entries(given: Any, mesh: DeviceMesh, rank: int | None) -> Sharding:
    """The record of a PartitionSpec, a tuple or a `Spec`.

    Raises:
        SpecError: if it is none of these, or does not fit the mesh.
    """
    spec, opened = Spec.with_open(given)
    reduced = tuple(sorted(getattr(given, "reduced", None) or (), key=str))
    return Sharding.from_spec(spec, mesh, rank, manual=mesh.manual, open=opened, reduced=reduced)


def looks_like(text: str) -> bool:
    """Whether text is meant as a PartitionSpec or a tuple."""
    return text.startswith("(") or _CALL.match(text) is not None


def begins(it: Scanner) -> bool:
    """Whether a PartitionSpec's call comes next."""
    return _CALL.match(it.text, it.at) is not None


def read(text: str, mesh: DeviceMesh, rank: int | None = None) -> Sharding:
    """Reads a PartitionSpec's text, or a tuple's: `P('data', None)`, `('data', None)`.

    Raises:
        ParseError: if it is neither.
        SpecError: if it does not fit the mesh.
    """
    it = Scanner(text, "sharding", MOST_WRITTEN)
    result = read_call(it, mesh, rank)
    it.end()
    return result


def read_call(it: Scanner, mesh: DeviceMesh, rank: int | None = None) -> Sharding:
    """Reads a PartitionSpec, and what follows is left. Raises as `read` does."""
    lists: dict[str, Any] = {}
    if it.takes(_CALL):
        entries: list[Any] = []
        while not it.take(")"):
            if found := it.token(_KEYWORD):
                _keyword(it, found[1], lists)
            elif lists:
                it.fail("unreduced={...}, reduced={...} or ')'")
            else:
                entries.append(_value(it))
            _comma(it, ")", entries)
    else:
        entries = _value(it)
        if not isinstance(entries, tuple):
            comma = " (a tuple of one has a comma, ('data',))" if it.text.startswith("(") else ""
            raise ParseError(f"{it.given}: expected P('data', None){comma}")
        entries = list(entries)
    opened = [entry is ... for entry in entries]
    dims = tuple(() if o else _axes(entry, it) for entry, o in zip(entries, opened, strict=True))
    spec = Spec(dims, lists.get("unreduced", ()), (), lists.get("unreduced_kind", "sum"))
    return Sharding.from_spec(spec, mesh, rank, manual=mesh.manual, open=opened, reduced=lists.get("reduced", ()))


def _value(it: Scanner, depth: int = 0) -> Any:
    """A value as Python writes it: None, a name in quotes, a whole number, a tuple or list of these; `...` for open."""
    for opened, closed in (("(", ")"), ("[", "]")):
        if it.sees(opened):
            if depth == _DEEPEST:
                it.fail(f"tuples at most {_DEEPEST} deep")
            it.take(opened)
            items: list[Any] = []
            comma = opened == "["
            while not it.take(closed):
                items.append(_value(it, depth + 1))
                comma = _comma(it, closed, items) or comma
            return tuple(items) if comma or not items else items[0]
    if found := it.token(_TEXT):
        return _unescaped(found[0])
    if found := it.token(_DOTTED):
        if found[0] == "None":
            return None
        if found[0].rpartition(".")[2] == "UNCONSTRAINED":
            return ...
        name = excerpt(found[0])
        raise ParseError(f"{it.given}: {_ENTRY}, not {name}; put the name in quotes, {name!r}")
    if it.at < len(it.text) and it.text[it.at] in "0123456789":
        return it.integer()
    it.fail("None, an axis name in quotes or a tuple of axis names")


def _comma(it: Scanner, closed: str, items: list[Any]) -> bool:
    if len(items) > MOST_NAMED:
        it.fail(f"at most {MOST_NAMED} entries, and then {closed!r}")
    comma = it.take(",")
    if not comma and not it.sees(closed):
        it.fail(f"',' or {closed!r}")
    return comma


def _axes(entry: Any, it: Scanner) -> tuple[Axis, ...]:
    if entry is None:
        return ()
    if isinstance(entry, tuple) and not _is_part(entry):
        return tuple(_axis(item, it) for item in entry)
    return (_axis(entry, it),)


def _is_part(entry: Any) -> bool:
    return isinstance(entry, tuple) and [type(item) for item in entry] == [str, int, int]


def _axis(item: Any, it: Scanner) -> Axis:
    if isinstance(item, str) or _is_part(item):
        return item
    said = "P.UNCONSTRAINED" if item is ... else repr(item)
    raise ParseError(f"{it.given}: {_ENTRY}, not {excerpt(said)}")


def _keyword(it: Scanner, key: str, lists: dict[str, Any]) -> None:
    if key == "unreduced_kind":
        kind = it.token(_TEXT) or it.token(_DOTTED)
        lists[key] = partial_kind(kind[0].strip("'\"") if kind else it.fail("a kind such as sum"), it.given)
        return
    if key not in ("unreduced", "reduced") or key in lists:
        it.refuse("unreduced={...} or reduced={...}, each once")
    called = it.takes(_SET)
    found: list[Any] = []
    if it.sees("{"):
        it.take("{")
        while not it.take("}"):
            found.append(_value(it, 1))
            _comma(it, "}", found)
    elif not (called and it.sees(")")):
        value = _value(it) if it.sees("(") or it.sees("[") else None
        if not isinstance(value, tuple):
            raise ParseError(f"{it.given}: expected a set of axis names such as {{'model'}}")
        found = list(value)
    if called:
        it.need(")")
    lists[key] = tuple(sorted((_axis(item, it) for item in found), key=str))


def _unescaped(text: str) -> str:
    """What stands between Python's quotes, its escapes undone."""
    return _ESCAPE.sub(_letter, text[1:-1])


def _letter(found: re.Match[str]) -> str:
    code = found[1] or found[2] or found[3]
    if code:
        return chr(int(code, 16)) if int(code, 16) <= sys.maxunicode else found[0]
    return _LETTERS.get(found[4], found[4])


def write(cut: Sharding) -> Iterator[Piece]:
    """The text of a PartitionSpec.

    Raises:
        SpecError: where no PartitionSpec says it.
    """
    entries, unreduced, reduced = _parts(cut)
    if not (entries or unreduced or reduced):
        yield Letter("P()", nothing_cut(cut))
        return
    yield "P("
    for i, entry in enumerate(entries):
        yield ", " if i else ""
        if entry is None:
            yield Letter("None", UNCUT)
        elif entry is ...:
            yield Letter("P.UNCONSTRAINED", "the compiler may cut this dimension as it likes")
        elif isinstance(entry, str):
            yield Letter(repr(entry), axis_words(cut, entry))
        else:
            yield "("
            for j, axis in enumerate(entry):
                yield ", " if j else ""
                yield Letter(repr(axis), axis_words(cut, axis))
            yield ")"
    comma = bool(entries)
    partial = partial_words(unreduced, cut.unreduced_kind)
    for key, axes, words in (("unreduced", unreduced, partial), ("reduced", reduced, REDUCED)):
        if axes:
            yield ", " if comma else ""
            yield Letter(f"{key}={{{', '.join(map(repr, axes))}}}", words.format(names_words(axes)))
            comma = True
    if cut.unreduced_kind != "sum":
        yield ", "
        yield Letter(f"unreduced_kind=jax.sharding.UnreducedKind.{cut.unreduced_kind}", partial)
    yield ")"


def make(cut: Sharding) -> Any:
    """The record as a `jax.sharding.PartitionSpec`.

    Raises:
        SpecError: where no PartitionSpec says it.
    """
    parts = _parts(cut)
    from shardviz import _jax

    try:
        return _jax.partition_spec(*parts, cut.unreduced_kind)
    except AttributeError:
        raise SpecError(
            f"{cut}: a PartitionSpec of this JAX has partial sums only; JAX 0.12 has partial maxima and minima too"
        ) from None


def _parts(cut: Sharding) -> tuple[tuple[Any, ...], tuple[str, ...], tuple[str, ...]]:
    """What a PartitionSpec is made of: entries (`...` for UNCONSTRAINED), unreduced axes, reduced axes."""
    if cut.spec is None:
        raise SpecError(f"{cut}: no PartitionSpec says it: {cut.why}")
    if any(p is not None for p in cut.priorities):
        raise SpecError(f"{cut}: a PartitionSpec has no priorities, which Shardy has")
    if any(cut.open) and cut.replicated:
        names = " ".join(map(axis_text, cut.replicated))
        raise SpecError(f"{cut}: a PartitionSpec cannot keep {names} out of the dimensions that it leaves open")
    wanted = set(cut.mesh.manual)
    if {axis_text(a) for a in cut.manual} != wanted:
        names = " ".join(map(axis_text, cut.manual)) or "none"
        raise SpecError(
            f"{cut}: a PartitionSpec has no manual axes, the types of the mesh's axes have; here {names} would have "
            f"to be Manual in the mesh, where {' '.join(sorted(wanted)) or 'none'} is"
        )
    entries: list[Any] = []
    for dim, is_open in zip(cut.spec.dims, cut.open, strict=True):
        if dim and is_open:
            raise SpecError(
                f"{cut}: a PartitionSpec leaves a dimension open (P.UNCONSTRAINED) or names its axes, not both, and "
                f"this one names {' '.join(map(axis_text, dim))}"
            )
        names = _whole(dim, cut)
        entries.append(... if is_open else None if not names else names[0] if len(names) == 1 else names)
    return tuple(entries), _whole(cut.unreduced, cut), _whole(cut.reduced, cut)


def _whole(axes: tuple[Axis, ...], cut: Sharding) -> tuple[str, ...]:
    for axis in axes:
        if not isinstance(axis, str):
            raise SpecError(
                f"{cut}: a PartitionSpec has whole axes only, and {axis_text(axis)!r} is a part; on a mesh where "
                f"{axis[0]!r} is two or more axes it can be said"
            )
    return tuple(str(axis) for axis in axes)
