"""JAX's PartitionSpec, `P('data', None)`: the object, the tuple of its entries, and its text.

>>> from shardviz.notation.letters import text_of
>>> mesh = DeviceMesh.of({"X": 2, "Y": 4})
>>> sharding = read("P(P.UNCONSTRAINED, 'X', unreduced={'Y'})", mesh)
>>> str(sharding), text_of(write(sharding)), str(from_entries(("X", None), mesh, 2))
('[?, X] sum over Y', "P(P.UNCONSTRAINED, 'X', unreduced={'Y'})", '[X, ·]')

A PartitionSpec does not name manual axes: the mesh's axes of type Manual are manual.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from shardviz.errors import ParseError, SpecError, excerpt
from shardviz.notation import letters
from shardviz.notation.bounds import MOST_WRITTEN, check_size
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.record import Sharding
from shardviz.notation.spec import Axis, Spec, axis_text, partial_kind

_CALL = re.compile(r"(?>(?:[A-Za-z_]\w*+\.)*)(?:P|PartitionSpec)\s*+\(")
_NAMES = ("P", "PartitionSpec")
_ENTRY = "an entry is None, an axis name or a tuple of axis names"


def is_pspec(value: Any) -> bool:
    """Return whether a value is a PartitionSpec, tested by its attributes, so that JAX is not imported."""
    return hasattr(value, "UNCONSTRAINED") and isinstance(value, Iterable) and not isinstance(value, type)


def from_entries(entries: Any, mesh: DeviceMesh, rank: int | None) -> Sharding:
    """Return the record of a PartitionSpec, a tuple or a `Spec`; raise SpecError if it does not fit the mesh."""
    spec, opened = Spec.with_open(entries)
    reduced = tuple(sorted(getattr(entries, "reduced", None) or (), key=str))
    return Sharding.from_spec(spec, mesh, rank, manual=mesh.manual, open=opened, reduced=reduced)


def looks_like(text: str) -> bool:
    """Return whether text looks like a PartitionSpec or a tuple."""
    return text.startswith("(") or _CALL.match(text) is not None


def read(text: str, mesh: DeviceMesh, rank: int | None = None) -> Sharding:
    """Read the text of a PartitionSpec, `P('data', None)`, or of a tuple, `('data', None)`. Raises ParseError for other
    text, SpecError if the sharding does not fit the mesh."""
    check_size(text, MOST_WRITTEN, "sharding", "characters")
    spec, opened = parse(text, f"sharding {excerpt(text)!r}")
    return Sharding.from_spec(spec, mesh, rank, manual=mesh.manual, open=opened, reduced=spec.reduced)


def parse(text: str, what: str, *, bare: bool = False) -> tuple[Spec, list[bool]]:
    """Parse the text of a PartitionSpec or a tuple, without evaluating it. Return the spec, and for each dimension
    whether it is `P.UNCONSTRAINED`. With `bare`, names need no quotes, and a single entry or a list replaces the tuple.
    `what` names the text in a ParseError."""
    try:
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):  # invalid escapes
            node = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        at = max(0, (error.offset or 1) - 1)
        raise ParseError(f"{what}: expected P('data', None): {error.msg} at position {at}") from None
    except (ValueError, RecursionError, MemoryError):  # a null character, or too deeply nested expressions
        raise ParseError(f"{what}: expected P('data', None)") from None
    keywords: list[ast.keyword] = []
    if isinstance(node, ast.Call) and _last_name(node.func) in _NAMES:
        entries, keywords = node.args, node.keywords
    elif isinstance(node, ast.Tuple) or (bare and isinstance(node, ast.List)):
        entries = node.elts
    elif bare:
        entries = [node]
    else:
        comma = " (a tuple of one has a comma, ('data',))" if text.startswith("(") else ""
        raise ParseError(f"{what}: expected P('data', None){comma}")
    lists: dict[str, Any] = {}
    for keyword in keywords:
        key = keyword.arg or "**"
        if key in lists or key not in ("unreduced", "reduced", "unreduced_kind"):
            raise ParseError(f"{what}: expected unreduced={{...}} or reduced={{...}}, each once, not {excerpt(key)}=")
        lists[key] = (_kind if key == "unreduced_kind" else _names)(keyword.value, what)
    is_open = [_last_name(entry) == "UNCONSTRAINED" for entry in entries]
    dims = tuple(() if o else _axes(entry, what, bare) for entry, o in zip(entries, is_open, strict=True))
    sets = lists.get("unreduced", ()), lists.get("reduced", ())
    return Spec(dims, *sets, lists.get("unreduced_kind", "sum")), is_open


def _last_name(node: ast.expr) -> str:
    """Return the last name of an expression, `max` of `jax.sharding.UnreducedKind.max`; empty for other nodes."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _axes(node: ast.expr, what: str, bare: bool) -> tuple[Axis, ...]:
    if isinstance(node, ast.Constant) and node.value is None:
        return ()
    if isinstance(node, ast.Tuple | ast.List) and not _part(node):
        return tuple(_axis(each, what, bare) for each in node.elts)
    return (_axis(node, what, bare),)


def _axis(node: ast.expr, what: str, bare: bool = False) -> Axis:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if part := _part(node):
        return part
    if isinstance(node, ast.Name) and bare:
        return node.id
    if isinstance(node, ast.Name):
        raise ParseError(f"{what}: {_ENTRY}, not {node.id}; put the name in quotes, {node.id!r}")
    raise ParseError(f"{what}: {_ENTRY}, not the expression at position {node.col_offset}")


def _part(node: ast.expr) -> tuple[str, int, int] | None:
    """Read a part of an axis, `('model', 1, 2)`; None for anything else."""
    if not isinstance(node, ast.Tuple | ast.List):
        return None
    match [getattr(each, "value", None) for each in node.elts]:
        case [str(name), int(before), int(size)]:
            return name, before, size
    return None


def _names(node: ast.expr, what: str) -> tuple[Axis, ...]:
    """Read a set of axes: `{'a'}`, `frozenset({'a'})`, `('a',)`."""
    if isinstance(node, ast.Call) and _last_name(node.func) in ("set", "frozenset"):
        node = node.args[0] if node.args else ast.Set(elts=[])
    if not isinstance(node, ast.Set | ast.Tuple | ast.List):
        raise ParseError(f"{what}: expected a set of axis names such as {{'model'}}")
    return tuple(sorted((_axis(each, what) for each in node.elts), key=str))


def _kind(node: ast.expr, what: str) -> str:
    word = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else _last_name(node)
    if not word:
        raise ParseError(f"{what}: expected a kind of partial results such as unreduced_kind=sum")
    return partial_kind(word, what)


def write(sharding: Sharding) -> Iterator[letters.Piece]:
    """Write the text of a PartitionSpec."""
    entries, unreduced, reduced = _parts(sharding)
    if not (entries or unreduced or reduced):
        yield letters.Letter("P()", letters.unsharded_words(sharding))
        return
    items = [list(_written(entry, sharding)) for entry in entries]
    partial = letters.partial_words(unreduced, sharding.unreduced_kind)
    for key, axes, words in (("unreduced", unreduced, partial), ("reduced", reduced, letters.REDUCED)):
        if axes:
            items.append(
                [letters.Letter(f"{key}={{{', '.join(map(repr, axes))}}}", words.format(letters.names_words(axes)))]
            )
    if sharding.unreduced_kind != "sum":
        items.append([letters.Letter(f"unreduced_kind=jax.sharding.UnreducedKind.{sharding.unreduced_kind}", partial)])
    yield from letters.listed(items, "P(")
    yield ")"


def _written(entry: Any, sharding: Sharding) -> Iterator[letters.Piece]:
    if entry is None:
        yield letters.Letter("None", letters.NOT_SHARDED)
    elif entry is ...:
        yield letters.Letter("P.UNCONSTRAINED", "the compiler may shard this dimension in any way")
    elif isinstance(entry, str):
        yield letters.Letter(repr(entry), letters.axis_words(sharding, entry))
    else:
        yield from letters.listed(
            ([letters.Letter(repr(axis), letters.axis_words(sharding, axis))] for axis in entry), "("
        )
        yield ")"


def make(sharding: Sharding) -> Any:
    """Return the record as a `jax.sharding.PartitionSpec`."""
    parts = _parts(sharding)
    from shardviz import _jax

    try:
        return _jax.partition_spec(*parts, sharding.unreduced_kind)
    except AttributeError:
        raise SpecError(
            f"{sharding}: a PartitionSpec of this JAX has partial sums only; JAX 0.12 has partial maxima and minima too"
        ) from None


def _parts(sharding: Sharding) -> tuple[tuple[Any, ...], tuple[str, ...], tuple[str, ...]]:
    """Return a PartitionSpec's entries (`...` for UNCONSTRAINED), unreduced axes and reduced axes."""
    if sharding.spec is None:
        raise SpecError(f"{sharding}: a PartitionSpec cannot express it: {sharding.why}")
    if any(p is not None for p in sharding.priorities):
        raise SpecError(f"{sharding}: a PartitionSpec has no priorities, which Shardy has")
    if any(sharding.open) and sharding.replicated:
        names = " ".join(map(axis_text, sharding.replicated))
        raise SpecError(f"{sharding}: a PartitionSpec cannot keep {names} out of its unconstrained dimensions")
    wanted = set(sharding.mesh.manual)
    if {axis_text(a) for a in sharding.manual} != wanted:
        names = " ".join(map(axis_text, sharding.manual)) or "none"
        raise SpecError(
            f"{sharding}: a PartitionSpec cannot name manual axes, the mesh types them Manual; the sharding has "
            f"{names}, the mesh has {' '.join(sorted(wanted)) or 'none'}"
        )
    entries: list[Any] = []
    for dim, is_open in zip(sharding.spec.dims, sharding.open, strict=True):
        if dim and is_open:
            raise SpecError(
                f"{sharding}: a PartitionSpec cannot name the axes of an unconstrained dimension, and this dimension "
                f"has {' '.join(map(axis_text, dim))}"
            )
        axes = _axis_names(dim, sharding)
        entries.append(... if is_open else None if not axes else axes[0] if len(axes) == 1 else axes)
    return tuple(entries), _axis_names(sharding.unreduced, sharding), _axis_names(sharding.reduced, sharding)


def _axis_names(axes: tuple[Axis, ...], sharding: Sharding) -> tuple[str, ...]:
    for axis in axes:
        if not isinstance(axis, str):
            raise SpecError(
                f"{sharding}: a PartitionSpec has full axes only, and {axis_text(axis)!r} is a part; on a mesh where "
                f"{axis[0]!r} is two or more axes it can be said"
            )
    return tuple(str(axis) for axis in axes)
