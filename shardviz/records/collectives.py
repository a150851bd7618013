"""Collectives: as the partitioner creates them, and as a target runs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

from shardviz.errors import ShardvizError
from shardviz.notation import Axis, Spec
from shardviz.notation.spec import axis_name, axis_text
from shardviz.records.amounts import format_bytes, format_count, plural
from shardviz.records.limits import amount_of
from shardviz.records.values import Frame, SourceText

KINDS = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "ragged-all-to-all",
    "collective-broadcast",
)


def axes_words(axes: tuple[Axis, ...] | None) -> str:
    """Write the axes of a collective: `data, model`, `no axis`, or `irregular groups`."""
    if axes is None:
        return "irregular groups"
    return ", ".join(map(axis_text, axes)) or "no axis"


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One collective operation of the program, on one device.

    Attributes:
        kind: one of `KINDS`, such as `all-gather`.
        axes: the mesh axes that its groups span, major to minor; a part of an axis as (name, sizes before it, size);
            None if no mesh axes express the groups.
        dtype: the element type, by NumPy's name.
        shape: the shape of its result on one device.
        operand_bytes: bytes of its operand on one device, per run.
        result_bytes: bytes of its result on one device, per run.
        count: runs in a step, the product of the enclosing loops' trip counts; None if unknown.
        groups: the replica groups (or source-target pairs) as HLO spells them; empty if the level has none.
        source: the innermost line of the user's code that it comes from.
        name_stack: JAX's name stack.
        phase: `forward`, `backward`, `rematerialised` (recomputed for the backward pass), or `update` (the optimizer:
            work on the gradients, and work only for that).
        origin: `user` (written in the program) or `partitioner`.
        name: the instruction's name.
        operand: its operand, an argument or instruction.
        group_size: devices in a group.
        conditional: whether it is in a branch that may not run; `count` is then the maximum.
        seconds, formula: the seconds of one run on the target, and their formula; None without a target.
        before, after: the specs of its operand and its result. If several collectives perform one resharding, the specs
            before the first and after the last. None if the level does not know them.
        array: the global shape of the array; None if the level does not know it.
        constraint: the line of the sharding constraint that gives the array its sharding `after`, if that is another
            line than `source`.
        made_by, read_by: the operations that compute its operand and read its result, beyond other reshardings:
            `dot_general`, `reshape`; `made_by` is empty for an argument of the program.
        facts: properties: `loop-invariant` (its loop gives it the same operand each time), `stack` (its result is only
            read in slices, one per iteration of a loop), `sliced` (only a part of its result is read), `summed` (its
            result is only summed over the gathered dimension), `undone` (following reshardings restore the sharding
            before it), `asked` (a sharding constraint of the program requires it), `accumulated` (a loop adds its
            result to a total in each iteration, and does not read it elsewhere), `narrowed` (its result is cast to a
            narrower type before anything else reads it), `widened` (its operand was cast from a narrower type),
            `windowed` (it is part of a product that XLA computes piece by piece, while it transfers the next piece).
    """

    kind: str
    axes: tuple[Axis, ...] | None
    dtype: str
    shape: tuple[int, ...]
    operand_bytes: float
    result_bytes: float
    count: int | None
    groups: str = ""
    source: Frame | None = None
    name_stack: str = ""
    phase: str = "update"
    origin: str = "partitioner"
    name: str = ""
    operand: str = ""
    group_size: int | None = None
    conditional: bool = False
    seconds: float | None = None
    formula: str | None = None
    before: Spec | None = None
    after: Spec | None = None
    array: tuple[int, ...] | None = None
    constraint: Frame | None = None
    made_by: str = ""
    read_by: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()

    @property
    def lines_text(self) -> str:
        """Its line, and that of the constraint that it follows: `f.py:4 (for the constraint at f.py:5)`."""
        constraint = f" (for the constraint at {self.constraint.short})" if self.constraint else ""
        return f"{self.source.short if self.source else ''}{constraint}".strip()

    @property
    def total_bytes(self) -> float | None:
        """Operand bytes on one device in a step; None if the count is unknown."""
        return None if self.count is None else self.operand_bytes * self.count

    @property
    def total_seconds(self) -> float | None:
        """Seconds on the target in a step; None if the seconds of a run or the count are unknown."""
        return None if self.seconds is None or self.count is None else self.seconds * self.count

    @property
    def assumed_bytes(self) -> float:
        """Operand bytes on one device in a step; an unknown count is taken as one run."""
        return self.operand_bytes * (1 if self.count is None else self.count)

    @property
    def sent_bytes(self) -> float:
        """Bytes that one device sends in a run, each byte once; an unknown group size is taken as large."""
        others = 1.0 if not self.group_size else 1.0 - 1.0 / self.group_size
        if self.kind == "all-gather":
            return self.result_bytes * others
        if self.kind in ("collective-permute", "collective-broadcast"):
            return self.operand_bytes
        return self.operand_bytes * others * (2 if self.kind == "all-reduce" else 1)

    @property
    def assumed_sent_bytes(self) -> float:
        """Bytes that one device sends in a step; an unknown count is taken as one run."""
        return self.sent_bytes * (1 if self.count is None else self.count)

    @property
    def assumed_seconds(self) -> float:
        """Seconds in a step; an unknown count is taken as one run, unknown seconds as 0."""
        return (self.seconds or 0.0) * (1 if self.count is None else self.count)


@dataclass(frozen=True, kw_only=True)
class TargetCollective:
    """A collective of the optimised program, and the partitioner's collectives that it carries out.

    Attributes:
        collective: its kind, axes, bytes and count in the optimised program.
        stands_for: the names of the partitioner's collectives that it carries out; empty for a collective that the
            target's compiler added.
        how: the compiler's changes: `combined` (several became one), `split` (one became several: parts, separate
            iterations, or repetitions), `moved` (out of a loop, so that it runs less often), `turned` (into another
            kind, such as an all-reduce into a reduce-scatter because each device keeps only a part), `converted` (to
            another element type), `asynchronous` (separate start and end), `fused` (inside a kernel), `added`. Empty:
            unchanged.
    """

    collective: Collective
    stands_for: tuple[str, ...] = ()
    how: tuple[str, ...] = ()


def runs_as(name: str, runs: Iterable[TargetCollective]) -> tuple[TargetCollective, ...]:
    """Return the target's collectives that carry out the partitioner's collective of this name."""
    return tuple(run for run in runs if name in run.stands_for)


_PLACES = ("loop", "conditional")
_ORIGINS = ("user", "partitioner")
_SHOWN = 8


def in_loop(c: Collective) -> bool:
    """Return whether a collective is in a loop: it does not run exactly once in a step, or JAX's name stack shows the
    loop."""
    return c.count != 1 or "while" in c.name_stack.split("/")


class Collectives(tuple[Collective, ...]):
    """A report's collectives: a tuple with methods to select some of them, and to test that there are no others.

    >>> one = Collective(kind="all-reduce", axes=("data",), dtype="float32", shape=(), operand_bytes=4, result_bytes=4,
    ...                  count=1)
    >>> from dataclasses import replace
    >>> both = Collectives((one, replace(one, kind="all-gather", source=Frame("model.py", 7))))
    >>> len(both.where("all-gather")), bool(both.only(axes="data"))
    (1, True)
    >>> both.only("all-reduce", axes="data")
    only('all-reduce', axes='data'): 1 collective does not match
      all-gather over data, float32 4 B → 4 B × 1, partitioner's, model.py:7
    """

    lines: SourceText

    def __new__(cls, of: Iterable[Collective] = (), lines: SourceText | None = None) -> Self:
        """Create the tuple; `lines` is file → line number → text of the source."""
        self = super().__new__(cls, of)
        self.lines = lines or {}
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Collectives, (tuple(self), self.lines)

    def where(
        self,
        kind: str | Sequence[str] | None = None,
        *,
        axes: str | Sequence[str] | None = None,
        inside: str | None = None,
        origin: str | None = None,
        larger_than: str | float | None = None,
        phase: str | None = None,
        line: str | None = None,
        dtype: str | None = None,
    ) -> Collectives:
        """Return the collectives that match all arguments.

        Args:
            kind: `all-gather`, ..., or several; None for any.
            axes: exactly these mesh axes: a name, several, or `a,b`; a part of an axis counts as the axis.
            inside: `loop` (it runs more than once in a step, or in a loop of unknown length) or `conditional`.
            origin: `user` or `partitioner`.
            larger_than: a lower bound of the larger of operand and result, in bytes per device and run: `100 MB`.
            phase: `forward`, `backward`, `rematerialised` or `update`.
            line: a pattern of the source line, such as `model.py:*` or `*attention.py:64`.
            dtype: the element type, by NumPy's name.

        Raises:
            ShardvizError: for an unknown kind, place or origin, or an amount that cannot be read.
        """
        kinds = None if kind is None else {kind} if isinstance(kind, str) else set(kind)
        for name in sorted(kinds or ()):
            _check_allowed("kind", name, KINDS)
        if inside is not None:
            _check_allowed("inside", inside, _PLACES)
        if origin is not None:
            _check_allowed("origin", origin, _ORIGINS)
        names = None
        if axes is not None:
            names = {a.strip() for a in axes.split(",")} if isinstance(axes, str) else set(axes)
        least = None if larger_than is None else amount_of(larger_than, "B", "larger_than")

        def wanted(c: Collective) -> bool:
            return (
                (kinds is None or c.kind in kinds)
                and (names is None or (c.axes is not None and {axis_name(a) for a in c.axes} == names))
                and (inside != "loop" or in_loop(c))
                and (inside != "conditional" or c.conditional)
                and (origin is None or c.origin == origin)
                and (least is None or max(c.operand_bytes, c.result_bytes) > least)
                and (phase is None or c.phase == phase)
                and (dtype is None or c.dtype == dtype)
                and (line is None or (c.source is not None and fnmatchcase(c.source.short, line)))
            )

        return Collectives((c for c in self if wanted(c)), self.lines)

    def only(self, kind: str | Sequence[str] | None = None, **where: Any) -> Only:
        """Return whether all collectives match, for an `assert`; the answer's text lists those that do not.

        Args:
            kind, where: the arguments of `where`.

        Raises:
            ShardvizError: as for `where`.
        """
        fit = {id(c) for c in self.where(kind, **where)}
        return Only(f"only({where_text(kind, where)})", Collectives((c for c in self if id(c) not in fit), self.lines))

    def listed(self) -> str:
        """Return a line of text for each collective, most bytes first: kind, axes, bytes and source line."""
        ranked = sorted(self, key=lambda c: -c.assumed_bytes)
        lines = [f"  {self._words(c)}" for c in ranked[:_SHOWN]]
        return "\n".join(lines + ([f"  … and {len(ranked) - _SHOWN:,} more"] if len(ranked) > _SHOWN else []))

    def _words(self, c: Collective) -> str:
        text = c.source.text_in(self.lines) if c.source else ""
        where = f", {c.lines_text}" if c.source else ""
        sizes = f"{format_bytes(c.operand_bytes)} → {format_bytes(c.result_bytes)} × {format_count(c.count)}"
        return f"{c.kind} over {axes_words(c.axes)}, {c.dtype} {sizes}, {c.origin}'s{where}  {text}".rstrip()


def where_text(kind: Any, where: Mapping[str, Any]) -> str:
    """Return the arguments of `where` as Python text."""
    return ", ".join(([repr(kind)] if kind is not None else []) + [f"{k}={v!r}" for k, v in where.items()])


def _check_allowed(argument: str, name: str, allowed: Sequence[str]) -> None:
    if name not in allowed:
        raise ShardvizError(f"{argument}={name!r}: expected one of {', '.join(map(repr, allowed))}")


class Only:
    """The answer of `Collectives.only`, true if all match; `asked` is the question, `others` do not match."""

    failed: ClassVar[list[Only]] = []
    """The last answers that were false; the pytest plugin shows and clears them."""

    def __init__(self, asked: str, others: Collectives):
        self.asked, self.others = asked, others

    def __bool__(self) -> bool:
        if self.others:
            del self.failed[:-8]
            self.failed.append(self)
        return not self.others

    def __repr__(self) -> str:
        count = len(self.others)
        if not count:
            return f"{self.asked}: all match"
        verb = "does" if count == 1 else "do"
        return f"{self.asked}: {plural(count, 'collective')} {verb} not match\n{self.others.listed()}"
