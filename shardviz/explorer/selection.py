"""The one value that is looked at, and how it stays the same value when a report of another level comes.

Arguments and outputs have the same name everywhere. An intermediate does not: what Shardy's propagation calls
`dot_general.0` XLA's partitioner calls `dot_general.44`, and what it calls `dot_general.0` is another value. So what a
person chose is remembered with the report that it was chosen in, and looked up in every new report by `counterpart`:
what both levels know of a value is the source line, the name stack (which function, which loop, forward or backward),
the operation, the shape and the element type, so these say which it is.

>>> def made(name, shape, dtype, name_stack=""):
...     return Value(name=name, shape=shape, dtype=dtype, spec=None, op="add", name_stack=name_stack)
>>> one = made("add.0", (8, 4), "float32", "jit(f)/jvp()/add")
>>> other = made("add.7", (8, 4), "float32", "jit(f)/jvp()/add")
>>> counterpart(one, [one], [made("add.0", (8,), "int32"), other])
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
    """The value that is looked at: its name in the newest report, empty where there is none; a remark where there is
    doubt how it came to it; and the intermediate that the person chose, with the report that it was chosen in."""

    name: str = ""
    remark: str = ""
    chosen: tuple[Value, Report] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, name: str, report: Report) -> Selection:
        """The value of this name in a report."""
        outer = any(v.name == name for v in (*report.arguments, *report.outputs))
        intermediate = None if outer else next((v for v in report.intermediates if v.name == name), None)
        return cls(name, chosen=None if intermediate is None else (intermediate, report))

    def carried(self, report: Report) -> Selection:
        """The same value in another report: always from what the person chose, so that no error adds to another."""
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
    """A value of another report, by name; its place, from 1, among those alike, how many these are, and whether they
    differ in how they are sharded, so that it matters which it is."""

    name: str
    place: int
    alike: int
    differ: bool


def counterpart(value: Value, here: Sequence[Value], there: Sequence[Value], *, names: bool = False) -> Match | None:
    """The value among another report's intermediates (`there`) that is this one of its own report's (`here`): of those
    alike the one of the same name (with `names`), variable or place; None where the compiler merged it, or made it up
    at its own level."""
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
    """The values that what is known of both cannot tell from `value`, in the program's order: as Shardy's are listed;
    XLA lists in another one, but numbers alike instructions in it."""
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
