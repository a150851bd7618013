"""The notations that people write: `P('data', None)`, `[data, ·]`, and the scaling book's `A[I_X, J_Y]`.

>>> mesh = DeviceMesh.of({"X": 2, "Y": 4})
>>> for text in ("P(('X', 'Y'), None)", "[X Y, ·]", "A[I_XY, J]"):
...     print(parse_short(text, mesh))
[X Y, ·]
[X Y, ·]
[X Y, ·]
>>> str(parse_short("C[I_X, K] {U_Y}", mesh)), str(parse_short("P(P.UNCONSTRAINED, unreduced={'Y'})", mesh))
('[X, ·] sum over Y', '[?] sum over Y')
"""

from __future__ import annotations

import ast
import re
from typing import Any

from shardviz.errors import ParseError, SpecError
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.record import Sharding
from shardviz.notation.spec import Axis, Spec, only_sums

_WHOLE = ("·", "-", "None", "_", "*", ".")  # a dimension that is not cut
_PART = re.compile(r"(.+):\(([0-9]{1,9})\)([0-9]{1,9})", re.DOTALL)
_BOOK = re.compile(r"[A-Za-z][\w']*\s*\[([^\[\]]*)\]\s*(?:\{\s*U_([^{}\s]+|\{[^{}]*\})\s*\})?", re.DOTALL)
_TAILS = re.compile(r"(?:\s+|(?<=\]))(sum over|manual|reduced)(?=\s)")
_LONGEST = 20_000


def parse_short(text: str, mesh: DeviceMesh, rank: int | None = None) -> Sharding:
    """Reads what people write.

    Raises:
        ParseError: if it is none of these notations.
        SpecError: if it does not fit the mesh.
    """
    plain = text.strip()
    if len(plain) > _LONGEST:
        raise ParseError(f"sharding text of {len(plain)} characters: at most {_LONGEST} are read")
    if plain.startswith("["):
        return _brackets(plain, mesh)
    if plain.startswith("("):
        return _python(plain, f"P{plain}" if re.match(r"\(\s*\)|.*,\s*\)$", plain, re.DOTALL) else plain, mesh, rank)
    if re.match(r"(?:[A-Za-z_]\w*\.)*(?:P|PartitionSpec)\s*\(", plain):
        return _python(plain, plain, mesh, rank)
    if found := _BOOK.fullmatch(plain):
        return _book(plain, found[1], found[2], mesh)
    raise ParseError(
        f"sharding {text[:200]!r}: expected P('data', None), [data, ·], A[I_data, J], HLO text in braces such as "
        '{devices=[2,4]<=[8]}, or #sdy.sharding<@mesh, [{"data"}, {}]>'
    )


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


def _brackets(text: str, mesh: DeviceMesh) -> Sharding:
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


def _book(text: str, inside: str, partial: str | None, mesh: DeviceMesh) -> Sharding:
    """Dimensions such as `I_X`; `I_XY` or `I_{X,Y}` for two axes; `{U_Z}` behind for a partial sum."""
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
        ways = [(word,)] if word in mesh.names else readings(word, tuple(mesh.names))
        if len(ways) != 1:
            have = ", ".join(map(repr, mesh.names)) or "none"
            more = f"; it can be read as {' or '.join(' '.join(w) for w in ways)}" if ways else ""
            raise SpecError(
                f"sharding {text!r}: {word!r} does not name axes of the mesh, which has {have}{more}. "
                "Write several as I_{X,Y}"
            )
        found.extend(ways[0])
    return tuple(found)


def readings(word: str, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The ways to read a word as axis names run together, each axis at most once."""
    if not word:
        return [()]
    if len(word) > 200:
        return []
    return [
        (name, *rest)
        for name in names
        if word.startswith(name)
        for rest in readings(word[len(name) :], tuple(n for n in names if n != name))
    ]


def _python(text: str, expression: str, mesh: DeviceMesh, rank: int | None) -> Sharding:
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
        name, before, size = (item.value for item in node.elts if isinstance(item, ast.Constant))
        return str(name), _number(before), _number(size)
    given = ast.get_source_segment(text, node) or type(node).__name__
    hint = f"; put the name in quotes, {given!r}" if isinstance(node, ast.Name) else ""
    raise ParseError(f"sharding {text!r}: an entry is None, an axis name or a tuple of axis names, not {given}{hint}")


def _number(value: Any) -> int:
    return int(value)


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
