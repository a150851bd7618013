"""The identification of intermediates by variable, expression or line, which survives other edits of the source.

A report numbers intermediates (`dot_general.3`), and another plan may number them differently. The user's own words are
stable: `h`, or `h @ p["w1"]`, at a line. A plan names the intermediates that it constrains in this way. It also records
the line's text, by which the line is found again after lines were added above it.

>>> Intermediate.of("h", line="model.py:64")
Intermediate(name='h', line='model.py:64', text='', function='')
>>> print(_)
h at model.py:64
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from shardviz._jax import Line, Made
from shardviz.errors import SpecError, excerpt
from shardviz.notation import Spec
from shardviz.notation.spec import memory_of
from shardviz.records import Frame, Value
from shardviz.records.phases import phase
from shardviz.records.source import is_own


@dataclass(frozen=True)
class Intermediate:
    """A value inside a function, named by the user."""

    name: str = ""  # the variable that it is assigned to, or its expression; empty for what its line makes
    line: str = ""  # `model.py:64`; empty where the name is enough
    text: str = ""  # of that line, which goes before its number; empty where it is not known
    function: str = ""  # that the line is in; empty where it is not known

    @classmethod
    def of(cls, what: Any, line: str = "", text: str = "", function: str = "") -> Intermediate:
        """Return the intermediate that a user names by a variable, an expression, a value of `report.intermediates`, or
        None for the line's result. Raises SpecError if it names no place, or a place that another plan moves."""
        if isinstance(what, Intermediate):
            return what
        if isinstance(what, Value):
            return _of_value(what)
        name = "" if what is None else what
        if not isinstance(name, str) or not isinstance(line, str) or not (name.strip() or line.strip()):
            raise SpecError(
                f"constrain({what!r}, line={line!r}): expected a variable such as 'h', an expression, or one of "
                "report.intermediates; or None with line='model.py:64'"
            )
        name = name.strip()
        if name and parsed(name, "eval") is None:
            raise SpecError(
                f"constrain({excerpt(name)!r}): this is the name of an operation in one report, and another plan may "
                "give it another number; give the variable, the expression, or the value itself: "
                f"plan.constrain(report.value({excerpt(name)!r}), ...)",
                argument=name,
            )
        if line and not line.rpartition(":")[2].isdecimal():
            raise SpecError(f"constrain(line={excerpt(line)!r}): expected a file and a line, such as 'model.py:64'")
        return cls(name, line.strip(), text, function)

    def __str__(self) -> str:
        return f"{self.name} at {self.line}" if self.name and self.line else self.name or self.line


def _of_value(value: Value) -> Intermediate:
    frame, what = value.source, value.label or value.name
    if frame is None:
        raise SpecError(
            f"constrain({what!r}): no line of your code is known for it; name a variable or an expression",
            argument=value.name,
        )
    if phase(value.name_stack) == "backward":
        raise SpecError(
            f"constrain({what!r}): it is made by the backward pass of {frame.short}; constrain the value of that line, "
            "and its gradient is constrained alike",
            argument=value.name,
        )
    text = linecache.getline(frame.file, frame.line)
    name = value.label
    if not name and frame.columns is None and _IN_LIBRARY.search(value.name_stack):
        raise SpecError(
            f"constrain({what!r}): a function of a library makes it on its way, called at {frame.short}; constrain "
            "what that line makes",
            argument=value.name,
        )
    if frame.columns is not None and not name:
        name = text.encode()[slice(*frame.columns)].decode(errors="replace")
    return Intermediate(name, frame.short, text.strip(), frame.function)


_IN_LIBRARY = re.compile(r"/p?jit\([^/]*\)+/[^/]*$")


def as_propagated(name: str, values: Sequence[Value], propagated: Callable[[], Sequence[Value]]) -> Value | None:
    """Return the propagated report's value of this name, which knows its columns; None if there is none."""
    value = next((v for v in values if v.name == name), None)
    if value is None or (value.source and value.source.columns):
        return value

    def origin(v):
        return (v.source, v.op, v.shape, v.name_stack)

    place = [v.name for v in values if origin(v) == origin(value)].index(name)
    alike = [v for v in propagated() if origin(v) == origin(value)]
    return alike[place] if place < len(alike) else value


def parsed(text: str, mode: str = "exec") -> Any:
    """Return the syntax tree; None for text that is no Python, such as `dot_general.3`, or a cell with IPython's own
    syntax."""
    try:
        return ast.parse(text, mode=mode)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@dataclass(frozen=True)
class Constrain:
    """A value inside a function, and its constraint."""

    value: Intermediate
    spec: Spec  # the dimensions that it leaves out are not sharded
    open: tuple[int, ...] = ()  # the dimensions that are left to the compiler, as `P.UNCONSTRAINED` leaves them

    @classmethod
    def of(cls, value: Intermediate, spec: Any) -> Constrain:
        """Return the constraint of a spec, which may contain `P.UNCONSTRAINED`. Raises SpecError for a spec that a
        constraint cannot have."""
        constraint, opened = Spec.with_open(None if spec is None else getattr(spec, "spec", spec))
        if constraint.unreduced or constraint.reduced or memory_of(constraint):
            raise SpecError(
                f"constrain {str(value)!r} to {constraint}: a constraint says along which axes dimensions are sharded, "
                "and nothing of partial sums or memories",
                argument=value.name or value.line,
            )
        return cls(value, constraint, tuple(d for d, is_open in enumerate(opened) if is_open))


@dataclass(frozen=True)
class Extent:
    """An extent of a source file: from a line (from 1) and a column (from 0, in UTF-8 bytes) to an end."""

    first: int
    start: int
    last: int
    end: int

    @classmethod
    def of(cls, node: Any) -> Extent:
        """Return the extent of a node of Python's syntax tree."""
        return cls(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)

    def has(self, line: Line) -> bool:
        """Return whether what is at work lies in it."""
        inside = (self.first, self.start) <= (line.first, line.start)
        return inside and (line.last, line.end) <= (self.last, self.end)


@dataclass(frozen=True)
class Target:
    """An `Intermediate` found in the source: its variable (possibly empty), and the extents of its expression and
    statement."""

    file: str
    function: str
    line: int
    variable: str
    expression: Extent
    statement: Extent

    @property
    def frame(self) -> Frame:
        return Frame(self.file, self.line, self.function)

    @property
    def text(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    @property
    def label(self) -> str:
        """The variable, or the expression's text."""
        return self.variable or " ".join(extract(self.file, self.expression).split())


def extract(file: str, extent: Extent) -> str:
    """Return the source text of a part of a file."""
    lines = [line.encode() for line in linecache.getlines(file)[extent.first - 1 : extent.last]]
    if not lines:
        return ""
    lines[-1] = lines[-1][: extent.end]
    lines[0] = lines[0][extent.start :]
    return b"".join(lines).decode(errors="replace")


def located(wanted: Intermediate, operations: Sequence[Made]) -> Target:
    """Return the place in the source where a value is made. Raises SpecError if there is no such value, or several."""
    places = {(line.file, line.first, line.function): None for row in operations for line in row.lines if line.first}
    targets = list(_targets(wanted, places))
    if wanted.text:
        targets = _nearest(wanted, targets)
    if len(targets) == 1:
        return targets[0]
    if not targets:
        raise _lost(wanted, places)
    several = "; ".join(
        f"{t.frame.short} in {t.function}: {linecache.getline(t.file, t.line).strip()}" for t in targets[:8]
    )
    raise SpecError(
        f"constrain {str(wanted)!r}: it is made in {len(targets)} places ({several}); say which with line=",
        argument=wanted.name or wanted.line,
    )


def _targets(wanted: Intermediate, places: Iterable[tuple[str, int, str]]) -> Iterator[Target]:
    """Yield the places in the given lines that make a value of this name; each statement once."""
    seen, tree = set[tuple[str, Extent]](), parsed(wanted.name, "eval")
    name = wanted.name if tree is None else ast.unparse(tree)  # whatever its spaces and quotes
    for file, number, function in places:
        for statement in _statements_at(file, number):
            extent = Extent.of(statement)
            if (file, extent) in seen or not _fits(wanted, file, number, statement):
                continue
            for variable, expression in _named(statement, name):
                seen.add((file, extent))
                line = number if not wanted.name else expression.lineno
                yield Target(file, function, line, variable, Extent.of(expression), extent)
                break


def _fits(wanted: Intermediate, file: str, number: int, statement: ast.stmt) -> bool:
    """Return whether a statement is at the requested line, by the line's text if known, else by its number."""
    numbers = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    if wanted.text:
        base = wanted.line.rpartition(":")[0]
        near = not base or Frame(file, 1).short.rpartition(":")[0] == base.replace("\\", "/").rsplit("/", 1)[-1]
        return near and any(linecache.getline(file, n).strip() == wanted.text for n in numbers)
    if not wanted.line:
        return True
    path = file.replace("\\", "/")
    asked = wanted.line.replace("\\", "/")
    return any(Frame(file, n).short == asked or f"/{path}:{n}".endswith(f"/{asked}") for n in numbers)


def _nearest(wanted: Intermediate, targets: list[Target]) -> list[Target]:
    """Return, of lines with the same text, those in the same function and at the same number, if there are any."""
    number = _number(wanted.line)
    for same in (lambda t: t.function == wanted.function, lambda t: t.line == number):
        if kept := [t for t in targets if same(t)]:
            targets = kept
    return targets


def _named(statement: ast.stmt, name: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield (variable, expression) for each part of a statement with this name; without a name, for what it assigns."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    plain = [t.id for t in targets if isinstance(t, ast.Name)] if len(targets) == 1 else []
    value = getattr(statement, "value", None)
    if not name or name in plain:
        if isinstance(statement, ast.AugAssign):
            yield (plain[0] if plain else ""), statement  # type: ignore[misc]  # the operation is the whole of it
        elif isinstance(value, ast.expr):
            yield (plain[0] if plain else ""), value
    if not name:
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.NamedExpr) and isinstance(node.target, ast.Name) and node.target.id == name:
            yield name, node.value
        elif isinstance(node, ast.expr) and not isinstance(node, ast.Name | ast.Constant) and ast.unparse(node) == name:
            yield "", node


def constraint_calls(file: str, line: int) -> list[ast.Call]:
    """Return the calls of `with_sharding_constraint` with a value and a spec in the statements of a line."""
    nodes = (node for statement in _statements_at(file, line) for node in ast.walk(statement))
    calls = [node for node in nodes if isinstance(node, ast.Call) and len(node.args) == 2]
    return [call for call in calls if ast.unparse(call.func).endswith("with_sharding_constraint")]


def _statements_at(file: str, line: int) -> list[ast.stmt]:
    """Return the statements of a line; empty if the source is unknown."""
    every = _statements(file, "".join(linecache.getlines(file)))
    return [node for first, last, node in every if first <= line <= last]


@lru_cache(maxsize=64)
def _statements(file: str, text: str) -> tuple[tuple[int, int, ast.stmt], ...]:
    """Return (first line, last line, statement) of every statement without inner statements."""
    plain = "\n".join("pass" if line.startswith(("%", "!")) else line for line in text.split("\n"))  # IPython's own
    tree = parsed(plain)
    nodes = () if tree is None else ast.walk(tree)
    simple = (node for node in nodes if isinstance(node, ast.stmt) and not hasattr(node, "body"))
    return tuple((node.lineno, node.end_lineno or node.lineno, node) for node in simple)


def _number(line: str) -> int:
    """Return the number of a line such as `model.py:12`; 0 if it has none, which an edited session file may contain."""
    digits = line.rpartition(":")[2]
    return int(digits) if digits.isdecimal() else 0


def _lost(wanted: Intermediate, places: Iterable[tuple[str, int, str]]) -> SpecError:
    """Return the error about a value that no longer exists: the values that exist instead, and how to remove the
    constraint."""
    number = _number(wanted.line)
    near = sorted(places, key=lambda at: (at[2] != wanted.function, abs(at[1] - number) if number else 0))
    lines = dict.fromkeys((file, line) for file, line, _ in near if is_own(file))
    named: dict[str, str] = {}
    for file, number in lines:
        for statement in _statements_at(file, number):
            for variable, _ in _named(statement, ""):
                named.setdefault(variable, Frame(file, number).short)
    there = ", ".join(f"{v} ({at})" for v, at in list(named.items())[:12] if v) or "none with a name"
    text = f" ({wanted.text})" if wanted.text else ""
    return SpecError(
        f"constrain {str(wanted)!r}{text}: the function makes no such value any more, or never did; there are {there}. "
        "Name one of these, or take the constraint away with plan.unconstrain",
        argument=wanted.name or wanted.line,
    )


def runs(target: Target, operations: Sequence[Made]) -> list[tuple[int, int]]:
    """Return the last operation of each evaluation of an expression: (its number, the index of the line among its
    lines)."""
    last: dict[tuple[int, int], tuple[int, int]] = {}
    for row in operations:
        for level, line in enumerate(row.lines):
            if line.file == target.file and target.expression.has(line):
                last[line.frame, line.run] = row.number, level
                break
    return sorted(last.values())
