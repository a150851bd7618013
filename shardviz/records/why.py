"""Why a value is sharded as it is, and why a collective exists: causes, chains from causes, and contests.

All answers are tried: a source is a cause if Shardy, run without it, leaves the value without the axis.
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
        role: `argument` or `output` (its spec), `constraint` (`with_sharding_constraint`), `type` (an operation's type
            over Explicit axes) or `shard_map` (its in_specs or out_specs).
        name: the tree path of an argument or output; the line of any other source, `model.py:20`.
        dimension: the array's dimension, from 0.
        axis: the mesh axis.
        spec: the full spec that contains the axis.
        source: the line; None for an argument or output.
        places: the number of the argument or output, or the numbers of the operations that the line creates (forward,
            backward, ...); distinguishes sources of one name.
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
        """The source's identity, independent of the rest of its spec."""
        return self.role, self.places, self.dimension, self.axis

    @property
    def lead(self) -> str:
        """The words before its name in a sentence: `the constraint at`; empty for an argument."""
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
        verdict: `needed`: if only this source is removed, the value lacks the axis. `one of several`: each of these
            sources alone brings the axis, and without all of them the value lacks it. `only together`: the needed
            source brings the axis only with this source. `not tried`: removed together with others, but not alone.
        enough: whether it brings the axis if no other source that reaches the value has the axis; None if not tried.
    """

    source: Source
    verdict: str
    enough: bool | None = None


@dataclass(frozen=True, kw_only=True)
class End:
    """A value on a chain: its name (tree path, variable or operation), the dimension with the axis, spec and shape."""

    name: str
    dimension: int
    spec: Spec
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Hop:
    """A step of a chain: an operation that propagates an axis from a dimension of one value to a dimension of another.

    Attributes:
        op: the operation, as JAX calls it; `call`, `loop`, `branch` at a boundary.
        rule: its rule as einsum, `([i, k], [k, j])->([i, j])`; empty at a boundary, which propagates all dimensions.
        words: the dimension's role in the operation.
        before, after: the two values; `before` is nearer to the cause.
        source: the line.
        backwards: whether the step goes from a result to an operand.
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
    """The end of an axis's propagation towards a value. `last` is the last value that has the axis, `next` the first
    that lacks it, `op` the operation between them, `words` the reason, and `source` the line."""

    last: End
    next: End
    op: str
    words: str
    source: Frame | None


@dataclass(frozen=True, kw_only=True)
class AxisWhy:
    """Why one mesh axis shards a value in a dimension, or does not (`dimension` is None). `causes` are ordered nearest
    first. `chain` starts at the first cause; it is empty if the value itself is the cause. `stops` has, for a missing
    axis, the ends of its propagation. `notes` lists sources that were not tried."""

    value: str
    axis: str
    dimension: int | None
    causes: tuple[Cause, ...] = ()
    chain: tuple[Hop, ...] = ()
    stops: tuple[ChainStop, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A program's work on one device in a step, with loops of unknown length counted once. `bytes` are operand bytes of
    all collectives, `flops` are of matrix products, `held` are bytes of the arguments. `seconds` are the target's; None
    without a target, or if unknown."""

    bytes: float
    collectives: int
    flops: float
    held: float
    seconds: float | None = None


OUTCOMES = ("chosen is cheaper", "wanted is cheaper", "a tie", "depends on the machine", "not possible")
_ALIKE = 0.005


def outcome(chosen: Effect, wanted: Effect) -> str:
    """Return the cheaper of two effects: by seconds if a target was given, otherwise by bytes moved and FLOPs.
    Differences below 0.5 % are a tie. If one moves less and the other computes less, the machine decides."""
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
    """Two shardings that an operation's operands and result request, of which it can have only one.

    Attributes:
        op: the operation, as JAX calls it.
        value: the value whose sharding is contested.
        dimension: the dimension that is contested.
        rule: the operation's rule as einsum.
        words: what each value requested, and how many of the operation's arrays were sharded in that way.
        wanted_by: the name of the value that requested the other sharding.
        chosen_spec, wanted_spec: the value's spec, and the spec that it does not have.
        chosen, wanted: the effects on the full program; None for a requested sharding that is not possible.
        verdict: one of `OUTCOMES`.
        reason: why the requested sharding is not possible; empty if it is possible.
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
class TriedChange:
    """Specs that were tried to avoid a collective; the full program was propagated with them. `text` is the change,
    `before` and `after` are the program's effects without and with it. `removed` is whether it removes the collective.
    `added` describes collectives that are new or move more. `verdict` is one of `OUTCOMES`, or `chosen` for the
    unchanged plan. `losing` and `gaining` are the sources that lose and get the axis."""

    text: str
    before: Effect
    after: Effect
    removed: bool
    added: tuple[str, ...] = ()
    verdict: str = "a tie"
    losing: tuple[Source, ...] = ()
    gaining: tuple[Source, ...] = ()


NEEDS = ("partial sums", "disagree", "unsharded", "constraint", "output", "boundary", "said", "other")


@dataclass(frozen=True, kw_only=True)
class Need:
    """Why a collective exists.

    Attributes:
        kind: `partial sums`, `disagree` (an operation's arrays have incompatible shardings), `unsharded` (an
            operation needs a dimension that is not sharded), `constraint`, `output`, `boundary` (a loop, a function
            or a shard_map fixes the sharding), `said` (the program contains the collective), or `other`.
        op: the operation that needs it, as JAX calls it.
        words: the reason, in a sentence or two.
        rule: the operation's rule as einsum; empty if it has none.
        source: the operation's line.
        value: the name of the array that is resharded.
        before, after: its specs before and after all collectives of the resharding.
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
    """The common part of all answers, which shows itself as text, HTML and Markdown. `axes` has an answer for each
    requested mesh axis, or each axis of a collective. `contest` has competing shardings. `tried` is the number of
    Shardy's runs, and `seconds` their time."""

    program: str
    mesh: DeviceMesh
    axes: tuple[AxisWhy, ...] = ()
    contest: tuple[Contest, ...] = ()
    source: Any = field(default_factory=dict)
    tried: int = 0
    seconds: float = 0.0

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The causes of all axes; each axis's nearest cause is first."""
        return tuple(cause for each in self.axes for cause in each.causes)

    @property
    def chain(self) -> tuple[Hop, ...]:
        """The steps of all axes' chains, one chain after the other."""
        return tuple(hop for each in self.axes for hop in each.chain)

    def axis(self, name: str) -> AxisWhy:
        """Return the answer for an axis.

        Raises:
            ShardvizError: if the question did not include the axis.
        """
        for each in self.axes:
            if each.axis == name:
                return each
        asked = ", ".join(repr(each.axis) for each in self.axes)
        raise ShardvizError(f"axis {name!r}: this answer has no such axis; it has {asked or 'none'}")

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the answer as JSON text; specs are written as PartitionSpecs."""
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
        """Compare two propagated reports of the program: with a source's axis, and without it.

        Args:
            cause: a cause of this answer, or any `Source`.

        Raises:
            ShardvizError: for a shard_map's specs, which determine the shapes inside it, and if the answer no longer
                has its program.
        """
        source = cause.source if isinstance(cause, Cause) else cause
        if self.ask is None:
            raise ShardvizError("this answer no longer has its program; ask again: program.why(plan, value)")
        return self.ask(source)


@dataclass(frozen=True, repr=False, kw_only=True)
class CollectiveWhy(WhyAnswer):
    """Why a collective exists, and the changes that would avoid it.

    Attributes:
        collective: the collective.
        need: the operation that needs it, and the reason.
        changes: the tried changes, best first.
    """

    collective: Collective
    need: Need
    changes: tuple[TriedChange, ...] = ()


def plain(record: Any) -> Any:
    """Return records as plain data for JSON: a spec as text, a line as `file:line`."""
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
