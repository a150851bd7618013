"""JAX's PartitionSpec, `P('data', None)`: the object, the tuple of its entries, and its text.

>>> from shardviz.notation.letters import text_of
>>> mesh = DeviceMesh.of({"X": 2, "Y": 4})
>>> cut = read("P(P.UNCONSTRAINED, 'X', unreduced={'Y'})", mesh)
>>> str(cut), text_of(write(cut)), str(from_entries(("X", None), mesh, 2))
('[?, X] sum over Y', "P(P.UNCONSTRAINED, 'X', unreduced={'Y'})", '[X, ·]')

Axes that the mesh has as Manual are manual, which a PartitionSpec does not say.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

from shardviz.errors import ParseError, SpecError
from shardviz.notation.letters import REDUCED, SUM, UNCUT, Letter, Piece, axis_words, names_words, nothing_cut
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.record import Sharding
from shardviz.notation.spec import Axis, Spec, axis_text, only_sums

_CALL = re.compile(r"(?:[A-Za-z_]\w*\.)*(?:P|PartitionSpec)\s*\(")
_TUPLE = re.compile(r"\(\s*\)|\(.*,\s*\)$", re.DOTALL)


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


def read(text: str, mesh: DeviceMesh, rank: int | None = None) -> Sharding:
    """Reads a PartitionSpec's text, or a tuple's: `P('data', None)`, `('data', None)`.

    Raises:
        ParseError: if it is neither.
        SpecError: if it does not fit the mesh.
    """
    expression = f"P{text}" if _TUPLE.match(text) else text
    try:
        tree = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ParseError(f"sharding {text!r}: expected P('data', None), and this is no Python ({error})") from error
    if isinstance(tree, ast.Tuple):
        entries, keywords = tree.elts, []
    elif isinstance(tree, ast.Call):
        entries, keywords = tree.args, tree.keywords
    else:
        comma = " (a tuple of one has a comma, ('data',))" if text.startswith("(") else ""
        raise ParseError(f"sharding {text!r}: expected P('data', None){comma}")
    opened = [_is_unconstrained(node) for node in entries]
    dims = tuple(() if o else _entry(node, text) for node, o in zip(entries, opened, strict=True))
    lists: dict[str, tuple[Axis, ...]] = {}
    for keyword in keywords:
        if keyword.arg == "unreduced_kind":
            only_sums(ast.unparse(keyword.value).strip("'"), text)
            continue
        if keyword.arg not in ("unreduced", "reduced"):
            raise ParseError(f"sharding {text!r}: expected unreduced={{...}} or reduced={{...}}, not {keyword.arg!r}")
        names = _set(keyword.value, text)
        lists[keyword.arg] = tuple(sorted(names, key=str))
    spec = Spec(dims, lists.get("unreduced", ()))
    return Sharding.from_spec(spec, mesh, rank, manual=mesh.manual, open=opened, reduced=lists.get("reduced", ()))


def _is_unconstrained(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id == "UNCONSTRAINED") or (
        isinstance(node, ast.Attribute) and node.attr == "UNCONSTRAINED"
    )


def _entry(node: ast.expr, text: str) -> tuple[Axis, ...]:
    if isinstance(node, ast.Constant) and node.value is None:
        return ()
    if isinstance(node, ast.Tuple | ast.List) and not _is_part(node):
        return tuple(_name(item, text) for item in node.elts)
    return (_name(node, text),)


def _is_part(node: ast.Tuple | ast.List) -> bool:
    kinds = [type(item.value) if isinstance(item, ast.Constant) else None for item in node.elts]
    return kinds == [str, int, int]


def _name(node: ast.expr, text: str) -> Axis:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Tuple | ast.List) and _is_part(node):
        name, before, size = ast.literal_eval(node)
        return name, before, size
    given = ast.get_source_segment(text, node) or type(node).__name__
    hint = f"; put the name in quotes, {given!r}" if isinstance(node, ast.Name) else ""
    raise ParseError(f"sharding {text!r}: an entry is None, an axis name or a tuple of axis names, not {given}{hint}")


def _set(node: ast.expr, text: str) -> list[Axis]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("frozenset", "set"):
        if not node.args:
            return []
        node = node.args[0]
    if isinstance(node, ast.Dict) and not node.keys:
        return []
    if not isinstance(node, ast.Set | ast.Tuple | ast.List):
        raise ParseError(f"sharding {text!r}: expected a set of axis names such as {{'model'}}")
    return [_name(item, text) for item in node.elts]


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
    for key, axes, words in (("unreduced", unreduced, SUM), ("reduced", reduced, REDUCED)):
        if axes:
            yield ", " if comma else ""
            yield Letter(f"{key}={{{', '.join(map(repr, axes))}}}", words.format(names_words(axes)))
            comma = True
    yield ")"


def make(cut: Sharding) -> Any:
    """The record as a `jax.sharding.PartitionSpec`.

    Raises:
        SpecError: where no PartitionSpec says it.
    """
    parts = _parts(cut)
    from shardviz import _jax

    return _jax.partition_spec(*parts)


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
