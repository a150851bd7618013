"""Collectives: as the partitioner makes them, and as a target runs them."""

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
    """The axes of a collective in plain text: `data, model`, `no axis`, or `irregular groups`."""
    if axes is None:
        return "irregular groups"
    return ", ".join(map(axis_text, axes)) or "no axis"


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One collective operation of the program, as one device runs it.

    Attributes:
        kind: `all-gather`, `all-reduce`, `reduce-scatter`, `all-to-all`, `collective-permute`, `ragged-all-to-all`
            or `collective-broadcast`.
        axes: the mesh axes that its groups span, major to minor; a part of an axis as (name, sizes before it, size);
            None where the groups are no product of axes.
        dtype: the element type of what is moved, NumPy's name.
        shape: the shape of its result on one device.
        operand_bytes: bytes that go in, on one device, each time.
        result_bytes: bytes that come out, on one device, each time.
        count: how often it runs in a step, the trip counts of enclosing loops multiplied in; None where not known.
        groups: the replica groups (or source-target pairs) as HLO spells them; empty where the level has none.
        source: the innermost line of the person's code that it stems from.
        name_stack: JAX's name stack.
        phase: `forward`, `backward`, `rematerialised` (recomputed for the backward pass), or `update` (the optimizer's
            part: what is done with the gradients, and what is done for that alone).
        origin: `user` (written in the program) or `partitioner`.
        name: the instruction's name.
        operand: the argument or instruction that it moves.
        group_size: devices in a group.
        conditional: it stands in a branch that may not run; `count` then is the most that it can be.
        seconds, formula: the time of one run on the target and how it was computed; None where no target was given.
        before, after: how its operand and its result are sharded; where the partitioner takes several for one
            resharding, how the array is sharded before the first and after the last. None where the level does not say.
        array: the shape of the whole array that it moves, all devices together; None where the level does not say.
        made_by, read_by: the operations that make its operand and read its result, past other reshards: `dot_general`,
            `reshape`; `made_by` is empty for what the program is given.
        facts: what is so of it: `loop-invariant` (it stands in a loop that gives it the same operand each time),
            `stack` (only slices of its result are read, one in each run of a loop), `sliced` (only a part of its result
            is read), `undone` (the reshards that follow bring back the sharding before it), `asked` (a sharding
            constraint of the program asks for it), `accumulated` (a loop adds what it gives to a total in each run, and
            reads that nowhere else), `windowed` (it is part of a product that XLA computes piece by piece, while the
            next piece is on its way).
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
    made_by: str = ""
    read_by: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> float | None:
        """Operand bytes on one device over the whole step; None where the count is not known."""
        return None if self.count is None else self.operand_bytes * self.count

    @property
    def total_seconds(self) -> float | None:
        """The time on the target over the whole step; None where the time of a run or the count is not known."""
        return None if self.seconds is None or self.count is None else self.seconds * self.count

    @property
    def assumed_bytes(self) -> float:
        """Operand bytes on one device over the whole step; one run where the count is not known."""
        return self.operand_bytes * (1 if self.count is None else self.count)

    @property
    def sent_bytes(self) -> float:
        """Bytes that one device sends in a run, if none goes twice; in a group of unknown size, as in a large one."""
        others = 1.0 if not self.group_size else 1.0 - 1.0 / self.group_size
        if self.kind == "all-gather":
            return self.result_bytes * others
        if self.kind in ("collective-permute", "collective-broadcast"):
            return self.operand_bytes
        return self.operand_bytes * others * (2 if self.kind == "all-reduce" else 1)

    @property
    def assumed_sent_bytes(self) -> float:
        """Bytes that one device sends over the whole step; one run where the count is not known."""
        return self.sent_bytes * (1 if self.count is None else self.count)

    @property
    def assumed_seconds(self) -> float:
        """The time over the whole step; one run where the count is not known, none where the time is not."""
        return (self.seconds or 0.0) * (1 if self.count is None else self.count)


@dataclass(frozen=True, kw_only=True)
class TargetCollective:
    """A collective of the optimised program, as the target runs it, and what of the partitioner's it carries out.

    Attributes:
        collective: its kind, axes, bytes and count, as the optimised program has them.
        stands_for: the names of the partitioner's collectives that it carries out; empty for one that the target's
            compiler added.
        how: what was done to them: `combined` (several are one), `split` (one is several: parts, a loop's
            iterations apart, or the same again), `moved` (out of a loop, so that it runs less often), `turned` (into
            another kind: an all-reduce of which each device keeps a part into a reduce-scatter), `converted` (to
            another element type), `asynchronous` (begun and ended apart), `fused` (inside a kernel), `added`. Empty: as
            partitioned.
    """

    collective: Collective
    stands_for: tuple[str, ...] = ()
    how: tuple[str, ...] = ()


def runs_as(name: str, runs: Iterable[TargetCollective]) -> tuple[TargetCollective, ...]:
    """Those of a target's collectives that carry out the partitioner's of this name; empty where none is known to."""
    return tuple(run for run in runs if name in run.stands_for)


_PLACES = ("loop", "conditional")
_ORIGINS = ("user", "partitioner")
_SHOWN = 8


def in_loop(c: Collective) -> bool:
    """Whether a collective stands in a loop: it runs more or less than once in a step, or JAX's names say so."""
    return c.count != 1 or "while" in c.name_stack.split("/")


class Collectives(tuple[Collective, ...]):
    """A report's collectives: a tuple that can be asked for some of them, or whether there are others.

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
        """`lines`: file → line number → text of the source."""
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
        """Those that are all of what is given.

        Args:
            kind: `all-gather`, ..., or several; None for any.
            axes: the mesh axes that it spans, exactly these: a name, several, or `a,b`; a part of an axis counts as it.
            inside: `loop` (it runs more than once in a step, or as often as a loop of unknown length) or `conditional`.
            origin: `user` or `partitioner`.
            larger_than: the larger of operand and result, in bytes on one device in one run, is above it: `100 MB`.
            phase: `forward`, `backward`, `rematerialised` or `update`.
            line: a pattern of the source line, such as `model.py:*` or `*attention.py:64`.
            dtype: the element type, NumPy's name.

        Raises:
            ShardvizError: for a kind, place or origin that does not exist, or an amount that cannot be read.
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
        """Whether all match: true or false in an `assert`; its text lists those that do not.

        Args:
            kind, where: as `where`.

        Raises:
            ShardvizError: as `where`.
        """
        fit = {id(c) for c in self.where(kind, **where)}
        return Only(f"only({where_text(kind, where)})", Collectives((c for c in self if id(c) not in fit), self.lines))

    def listed(self) -> str:
        """Each in a line of text, the most bytes first: what, how much, where."""
        ranked = sorted(self, key=lambda c: -c.assumed_bytes)
        lines = [f"  {self._words(c)}" for c in ranked[:_SHOWN]]
        return "\n".join(lines + ([f"  … and {len(ranked) - _SHOWN:,} more"] if len(ranked) > _SHOWN else []))

    def _words(self, c: Collective) -> str:
        text = c.source.text_in(self.lines) if c.source else ""
        where = f", {c.source.short}" if c.source else ""
        sizes = f"{format_bytes(c.operand_bytes)} → {format_bytes(c.result_bytes)} × {format_count(c.count)}"
        return f"{c.kind} over {axes_words(c.axes)}, {c.dtype} {sizes}, {c.origin}'s{where}  {text}".rstrip()


def where_text(kind: Any, where: Mapping[str, Any]) -> str:
    """The arguments of `where` as a person wrote them."""
    return ", ".join(([repr(kind)] if kind is not None else []) + [f"{k}={v!r}" for k, v in where.items()])


def _check_allowed(argument: str, name: str, allowed: Sequence[str]) -> None:
    if name not in allowed:
        raise ShardvizError(f"{argument}={name!r}: there is no such; expected one of {', '.join(map(repr, allowed))}")


class Only:
    """The answer of `Collectives.only`, true where all collectives match; `asked` is what they should, `others` are
    those that do not."""

    failed: ClassVar[list[Only]] = []
    """The last that were asked and were false; what shows failed assertions empties it."""

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
        return f"{self.asked}: {plural(count, 'collective')} {'does' if count == 1 else 'do'} not match\n" + (
            self.others.listed()
        )
