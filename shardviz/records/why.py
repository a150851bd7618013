"""Why a value is sharded as it is, and why a collective is there: causes, the chain from them, and the contest.

Everything here was tried: a cause is one since Shardy, run without it, leaves the value without the axis.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shardviz.display import Displayed
from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import axis_name
from shardviz.records.collectives import Collective
from shardviz.records.values import Frame, Value

_LEADS = {"output": "output", "constraint": "the constraint at", "type": "the type at", "shard_map": "the shard_map at"}


@dataclass(frozen=True, kw_only=True)
class Source:
    """A place where a mesh axis is written down for a dimension of an array.

    Attributes:
        role: `argument` or `output`, whose spec says it; `constraint` (`with_sharding_constraint`); `type`, an
            operation's type over Explicit axes; `shard_map`, its in_specs or out_specs.
        name: the tree path of an argument or output; the line of any other, `model.py:20`.
        dimension: which dimension of the array, from 0.
        axis: the mesh axis.
        spec: the whole spec that it stands in.
        source: the line; None for an argument or output.
        places: which argument or output, or the numbers of the operations that the line makes (one on the way forward,
            one on the way back, ...): what tells two of one name apart.
    """

    role: str
    name: str
    dimension: int
    axis: str
    spec: Spec
    source: Frame | None = None
    places: tuple[int, ...] = ()

    @property
    def key(self) -> tuple[str, tuple[int, ...], int, str]:
        """What it is the same source by, whatever else its spec says."""
        return self.role, self.places, self.dimension, self.axis

    @property
    def lead(self) -> str:
        """What stands before its name in a sentence: `the constraint at`; nothing before an argument's."""
        return _LEADS.get(self.role, "")

    @property
    def label(self) -> str:
        """`params['w1']`, `the constraint at model.py:20`."""
        return f"{self.lead} {self.name}".lstrip()

    @property
    def text(self) -> str:
        """`params['w1'] P(None, 'model')`, `the constraint at model.py:20 P('data', None)`."""
        return f"{self.label} {self.spec.canonical()}"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A source that an axis on a value comes from.

    Attributes:
        source: the source.
        verdict: `needed`: without it, and all else as it is, the value has not the axis. `one of several`: each of
            them brings the axis though the others were gone, and without all of them it is gone. `only together`: the
            needed one brings it only with this. `not tried`: it is taken away with the others, and was not tried alone.
        enough: whether it brings the axis while no other source that reaches the value has it; None if not tried.
    """

    source: Source
    verdict: str
    enough: bool | None = None


@dataclass(frozen=True, kw_only=True)
class End:
    """A value on a chain: its name (the tree path, the variable, or the operation that makes it), the dimension that
    carries the axis, its spec and shape."""

    name: str
    dimension: int
    spec: Spec
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Hop:
    """A step of a chain: an operation that hands an axis from a dimension of one value to one of another.

    Attributes:
        op: the operation, as JAX calls it; `call`, `loop`, `branch` at a boundary.
        rule: its rule as einsum, `([i, k], [k, j])->([i, j])`; empty at a boundary, which hands on all dimensions.
        words: what it does with the dimension.
        before, after: the values, that which is nearer to the cause first.
        source: the line.
        backwards: it goes from a result to an operand.
    """

    op: str
    rule: str
    words: str
    before: End
    after: End
    source: Frame | None
    backwards: bool = False


@dataclass(frozen=True, kw_only=True)
class ChainStop:
    """Where an axis ends on its way to a value: the last one that has it, the next one, which has it no more, the
    operation between them, why (`words`), and the line."""

    last: End
    next: End
    op: str
    words: str
    source: Frame | None


@dataclass(frozen=True, kw_only=True)
class AxisWhy:
    """Why one mesh axis is on a value, and in which dimension, or is not (None): its causes, the nearest first, and the
    chain from the first of them, empty where the value itself is the cause; of a missing axis where it ends on its way;
    and what was not tried."""

    value: str
    axis: str
    dimension: int | None
    causes: tuple[Cause, ...] = ()
    chain: tuple[Hop, ...] = ()
    stops: tuple[ChainStop, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a program does on one device in a step, loops of unknown length counted once: operand bytes of all
    collectives, their number, FLOPs of matrix products, bytes of the arguments, and seconds on the target (None where
    none was given, or it is not known)."""

    bytes: float
    collectives: int
    flops: float
    held: float
    seconds: float | None = None


OUTCOMES = ("chosen is cheaper", "wanted is cheaper", "a tie", "depends on the machine", "not possible")
_ALIKE = 0.005


def outcome(chosen: Effect, wanted: Effect) -> str:
    """Which of two is cheaper: by the step's seconds where a target was given, else by what moves and is computed; less
    than 0.5 % makes no difference. Where one moves less and the other computes less, only a target can tell."""
    if chosen.seconds is not None and wanted.seconds is not None:
        signs = {_sign(chosen.seconds, wanted.seconds)}
    else:
        signs = {_sign(chosen.bytes, wanted.bytes), _sign(chosen.flops, wanted.flops)}
    signs.discard(0)
    if not signs:
        return "a tie"
    return "depends on the machine" if len(signs) > 1 else OUTCOMES[0] if signs == {1} else OUTCOMES[1]


def _sign(chosen: float, wanted: float) -> int:
    if abs(chosen - wanted) <= _ALIKE * max(chosen, wanted):
        return 0
    return 1 if chosen < wanted else -1


@dataclass(frozen=True, kw_only=True)
class Contest:
    """Two shardings that an operation's operands and result ask for where it can have only one.

    Attributes:
        op: the operation, as JAX calls it.
        value: the value whose sharding is contested.
        dimension: the dimension that is contested.
        rule: the operation's rule as einsum.
        words: what each wanted, and how many of the operation's arrays were sharded so.
        wanted_by: the name of the value that wanted it otherwise.
        chosen_spec, wanted_spec: how the value is sharded, and would be.
        chosen, wanted: what the whole program costs so; None for a wanted one that is not possible.
        verdict: one of `OUTCOMES`.
        reason: why the wanted one is not possible; empty where it is.
        source: the line.
    """

    op: str
    value: str
    dimension: int
    rule: str
    words: str
    wanted_by: str
    chosen_spec: Spec
    wanted_spec: Spec
    chosen: Effect
    wanted: Effect | None
    verdict: str
    reason: str = ""
    source: Frame | None = None


@dataclass(frozen=True, kw_only=True)
class Way:
    """Specs that avoid a collective, or were tried to; the whole program was propagated with them.

    `text` is what to change, `before` and `after` what the program costs as it is, and so; `gone` whether the
    collective is gone then, `added` those that are there then and were not before, or move more, in words; `verdict`
    one of `OUTCOMES`, or `chosen`, the plan as it is; `taken` and `given` the sources that lose, and get, the axis.
    """

    text: str
    before: Effect
    after: Effect
    gone: bool
    added: tuple[str, ...] = ()
    verdict: str = "a tie"
    taken: tuple[Source, ...] = ()
    given: tuple[Source, ...] = ()


NEEDS = ("partial sums", "disagree", "uncut", "constraint", "output", "boundary", "said", "other")


@dataclass(frozen=True, kw_only=True)
class Need:
    """Why a collective is there.

    Attributes:
        kind: `partial sums`, `disagree` (an operation's arrays are sharded in incompatible ways), `uncut` (an
            operation needs a dimension whole), `constraint`, `output`, `boundary` (a loop, a function or a shard_map
            says how it takes it), `said` (it stands in the program), or `other`.
        op: the operation that needs it, as JAX calls it.
        words: why, in a sentence or two.
        rule: the operation's rule as einsum; empty where there is none.
        source: the operation's line.
        value: the name of what is moved.
        before, after: how it is sharded before and after all collectives that bring it to where it is needed.
    """

    kind: str
    op: str
    words: str
    rule: str
    source: Frame | None
    value: str
    before: Spec | None
    after: Spec | None


@dataclass(frozen=True, repr=False, kw_only=True)
class WhyAnswer(Displayed):
    """What every answer has: an answer for each mesh axis that was asked for, or that a collective moves along; where
    shardings compete; how often Shardy was run for it, and for how many seconds. It shows itself as text, HTML and
    Markdown."""

    program: str
    mesh: DeviceMesh
    axes: tuple[AxisWhy, ...] = ()
    contest: tuple[Contest, ...] = ()
    source: Any = field(default_factory=dict)
    tried: int = 0
    seconds: float = 0.0

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The causes of all axes, the nearest of each first."""
        return tuple(cause for each in self.axes for cause in each.causes)

    @property
    def chain(self) -> tuple[Hop, ...]:
        """The steps of all axes' chains, one chain after the other."""
        return tuple(hop for each in self.axes for hop in each.chain)

    def axis(self, name: str) -> AxisWhy:
        """The answer for an axis.

        Raises:
            ShardvizError: if it was not asked for.
        """
        for each in self.axes:
            if each.axis == name:
                return each
        asked = ", ".join(repr(each.axis) for each in self.axes)
        raise ShardvizError(f"axis {name!r} was not asked for; asked were {asked or 'none'}")

    def to_json(self, *, indent: int | None = None) -> str:
        """The answer as JSON text; specs as PartitionSpecs are written."""
        fields = {name: plain(getattr(self, name)) for name in self.__dataclass_fields__ if name not in _APART}
        return json.dumps({"shardviz_why": 1, "mesh": dict(self.mesh.shape)} | fields, indent=indent)


_APART = ("mesh", "source", "ask")


@dataclass(frozen=True, repr=False, kw_only=True)
class Why(WhyAnswer):
    """Why a value is sharded as it is.

    Attributes:
        value: the value.
        role: `argument`, `output` or `intermediate`.
        also: other values of the same name, by line.
    """

    value: Value
    role: str
    also: tuple[str, ...] = ()
    ask: Callable[[Source], Any] | None = field(default=None, compare=False)

    def without(self, cause: Cause | Source) -> Any:
        """What changes in the whole program if a source did not say its axis: a `Comparison` of two propagated reports.

        Args:
            cause: a cause of this answer, or any `Source`.

        Raises:
            ShardvizError: for a shard_map's specs, from which the shapes inside it follow; if the answer has no program
                any more.
        """
        source = cause.source if isinstance(cause, Cause) else cause
        if self.ask is None:
            raise ShardvizError("this answer has no program at hand; ask again: program.why(plan, value)")
        return self.ask(source)


@dataclass(frozen=True, repr=False, kw_only=True)
class CollectiveWhy(WhyAnswer):
    """Why a collective is there, and what would avoid it.

    Attributes:
        collective: the collective.
        need: which operation needs it, and why.
        ways: what would avoid it, tried, the best first.
    """

    collective: Collective
    need: Need
    ways: tuple[Way, ...] = ()


def plain(record: Any) -> Any:
    """Records as JSON has them: a spec as it is written, a line as `file:line`."""
    if isinstance(record, Spec):
        return str(record.canonical())
    if isinstance(record, Frame):
        return f"{record.file}:{record.line}"
    if isinstance(record, Collective):
        axes = None if record.axes is None else [axis_name(a) for a in record.axes]
        size = {"operand_bytes": record.operand_bytes, "count": record.count}
        return {"kind": record.kind, "axes": axes, "source": plain(record.source), "name": record.name, **size}
    if isinstance(record, Value):
        names = ("name", "label", "shape", "dtype", "spec", "source")
        return {name: plain(getattr(record, name)) for name in names}
    if isinstance(record, tuple | list):
        return [plain(each) for each in record]
    if hasattr(record, "__dataclass_fields__"):
        return {name: plain(getattr(record, name)) for name in record.__dataclass_fields__ if name != "places"}
    return record
