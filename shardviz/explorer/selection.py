"""The selected value, and its counterpart in a report of another level.

Arguments and outputs have the same name at every level. Intermediates do not: Shardy's `dot_general.0` may be XLA's
`dot_general.44`, and XLA's `dot_general.0` another value. So the user's choice is stored with its report, and
`counterpart` looks it up in each new report. It compares what both levels know: source line, name stack (function,
loop, forward or backward), operation, shape and element type.

>>> def value(name, shape, dtype, name_stack=""):
...     return Value(name=name, shape=shape, dtype=dtype, spec=None, op="add", name_stack=name_stack)
>>> one = value("add.0", (8, 4), "float32", "jit(f)/jvp()/add")
>>> other = value("add.7", (8, 4), "float32", "jit(f)/jvp()/add")
>>> counterpart(one, [one], [value("add.0", (8,), "int32"), other])
Match(name='add.7', place=1, alike=1, differ=False)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shardviz.judge.report import Report
from shardviz.records import Value


@dataclass(frozen=True)
class Selection:
    """The selected value.

    Attributes:
        name: its name in the newest report; empty if there is none.
        remark: a remark if the match is missing or ambiguous.
        chosen: the intermediate that the user selected, and its report.
    """

    name: str = ""
    remark: str = ""
    chosen: tuple[Value, Report] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, name: str, report: Report) -> Selection:
        """Return the selection of a report's value by name."""
        outer = any(v.name == name for v in (*report.arguments, *report.outputs))
        intermediate = None if outer else next((v for v in report.intermediates if v.name == name), None)
        return cls(name, chosen=None if intermediate is None else (intermediate, report))

    def carried(self, report: Report) -> Selection:
        """Return the same value in another report, always starting from the user's choice, so that errors do not add
        up."""
        if self.chosen is None:
            return self
        value, before = self.chosen
        names = (before.level == "propagated") == (report.level == "propagated")
        match = counterpart(value, before.intermediates, report.intermediates, names=names)
        line = f" of {value.source.short}" if value.source else ""
        what = f"{value.label or value.name} ({value.op or 'value'}{line}), selected at the {before.level} level,"
        remark = ""
        if match is None:
            remark = (
                f"{what} is not found at the {report.level} level: the compiler merged it into another value, or "
                "names no line for it. Select another value"
            )
        elif match.differ:
            remark = (
                f"{what} is one of {match.alike} here that are alike in line, operation and shape but not in "
                f"sharding; this is number {match.place} of them, in program order"
            )
        return Selection("" if match is None else match.name, remark, self.chosen)


@dataclass(frozen=True)
class Match:
    """The counterpart of a value in another report.

    Attributes:
        place: its position, from 1, among the similar values.
        alike: number of similar values.
        differ: whether these have different shardings, so that the position matters.
    """

    name: str
    place: int
    alike: int
    differ: bool


def counterpart(value: Value, here: Sequence[Value], there: Sequence[Value], *, names: bool = False) -> Match | None:
    """Return the value in another report (`there`) that corresponds to a value of its own report (`here`).

    Among similar values the name (with `names`), the variable or the position decides. None if the compiler merged the
    value, or created it at its own level.
    """
    alike = _alike(value, there)
    if not alike:
        return None
    named = [v for v in alike if v.name == value.name] if names else []
    labelled = [v for v in alike if value.label and v.label == value.label]
    sure = named or (labelled if len(labelled) == 1 else [])
    if sure:
        return Match(sure[0].name, alike.index(sure[0]) + 1, 1, False)
    siblings = [v.name for v in _alike(value, here)]
    place = siblings.index(value.name) if value.name in siblings else 0
    place = min(place, len(alike) - 1)
    differ = any((v.spec, v.sharding) != (alike[0].spec, alike[0].sharding) for v in alike)
    return Match(alike[place].name, place + 1, max(len(alike), len(siblings)), differ)


def _alike(value: Value, among: Iterable[Value]) -> list[Value]:
    """Return the values that are indistinguishable from `value`, in program order. XLA lists them in another order, but
    its numbers follow the program's."""
    alike = [v for v in among if _same(value, v)]
    parts = [re.fullmatch(r"(.*?)(\d+)", v.name) for v in alike]
    numbers = {v.name: int(p[2]) for v, p in zip(alike, parts, strict=True) if p}
    if len({p[1] for p in parts if p}) == 1 and None not in parts:
        alike.sort(key=lambda v: numbers[v.name])
    return alike


def _same(one: Value, other: Value) -> bool:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    scope, _, operation = one.name_stack.rpartition("/")
    other_scope, _, other_operation = other.name_stack.rpartition("/")
    if operation != other_operation and "" not in (operation, other_operation):
        return False
    if one.source is not None and other.source is not None:
        return one.source == other.source and scope == other_scope
    # A function that was lowered apart has lost the line that calls it, and its own name on the stack.
    scopes = [scope + "/", other_scope + "/"]
    if one.source is None and other.source is None:
        scopes.sort(key=len)
    elif other.source is None:
        scopes.reverse()
    return scopes[1].startswith(scopes[0])
