"""A lowered program under a plan, propagated repeatedly with an axis removed or forced.

Every operation of the module has a number that Shardy's passes preserve, so that each run's values can be matched. A
source is a place that states an axis: an argument's or output's spec, or a constraint. Only the axis is removed there:
`{"model", "data"}` without `model` is `{"data"}`, as closed or open as before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from shardviz import _jax
from shardviz._jax.mlir import ir, sdy
from shardviz.caching import cached_property
from shardviz.causes.links import RULES, Links, Node, NodeKey, number_of, tag
from shardviz.notation import Spec
from shardviz.notation.sdy import axis as sdy_axis
from shardviz.notation.spec import axis_name
from shardviz.propagate.lower import Lowered
from shardviz.propagate.propagate import RESHARDS, prepared, run
from shardviz.records import PlanRecord
from shardviz.records.why import Source
from shardviz.stablehlo import module as stablehlo

_SETTLED = f"func.func({RESHARDS})"
_WITH_RULES = f"func.func({RESHARDS}),{RULES}"
_MANUAL = 2**16  # the arrays of a manual computation that a source's place can tell apart


class Forced(NamedTuple):
    """A constraint on an array to test its cost: the operation's number, and which of its results (or operands)."""

    tag: int
    place: int
    spec: Spec
    operand: bool = False


@dataclass(eq=False)
class Perturbed:
    """A program under a plan, which can be propagated without a source or with another one.

    Use it with the program's lock held and its context entered: `with trial.lowered.entered():`. It counts Shardy's
    runs, and calls `pause` before each run if it is set.
    """

    lowered: Lowered
    bound: PlanRecord
    runs: int = 0
    pause: Callable[[], None] | None = field(default=None, repr=False)
    _answers: dict[Any, bool] = field(default_factory=dict, repr=False)

    @cached_property
    def module(self) -> ir.Operation:
        """The module before propagation, numbered."""
        module = prepared(self.lowered, self.bound)
        tag(module)
        return module

    @cached_property
    def base(self) -> Links:
        """The graph of the unchanged plan, propagated."""
        return self.links(())

    # Sources.

    def sources(self, axis: str) -> list[Source]:
        """Return every place that states an axis."""
        return [
            replace(each, dimension=d, axis=axis)
            for each in self.shardings
            for d, axes in enumerate(each.spec.dims)
            if axis in map(axis_name, axes)
        ]

    @cached_property
    def shardings(self) -> list[Source]:
        """Every stated sharding, before a dimension and an axis are chosen."""
        nowhere = {"dimension": -1, "axis": ""}
        ends = [
            Source(
                role=role, name=array.name, spec=stablehlo.spec_of(entry[stablehlo.SHARDING]), places=(n,), **nowhere
            )
            for role in stablehlo.ENDS
            for n, (array, entry) in enumerate(self._entries(self.module, role))
            if stablehlo.SHARDING in entry
        ]
        lines: dict[Any, Source] = {}  # a line's constraint, on the way forward and on the way back
        for op in _jax.walk(self.module):
            if op.name == "sdy.sharding_constraint":
                maker = op.operands[0].owner
                typed = self.lowered.traced.types and not isinstance(maker, ir.Block)
                same = typed and maker.location.attr == op.location.attr  # pyright: ignore[reportAttributeAccessIssue]
                role, written = "type" if same else "constraint", [op.attributes["sharding"]]
            elif op.name == "sdy.manual_computation":
                role, written = "shard_map", _of_manual(op)
            else:
                continue
            frame, number = stablehlo.place_of(op.location, self.lowered.locations).frame, number_of(op)
            for n, attribute in enumerate(written):
                place = manual_place(number, n) if role == "shard_map" else number
                key = role, number if frame is None or role == "type" else frame.bare, str(attribute)
                places = (*(lines[key].places if key in lines else ()), place)
                name = "an unknown line" if frame is None else frame.short
                stands = {"role": role, "name": name, "source": frame, "places": places}
                lines[key] = Source(spec=stablehlo.spec_of(attribute), **stands, **nowhere)
        return [*ends, *lines.values()]

    def _entries(self, module: ir.Operation, role: str) -> list[tuple[Any, dict[str, Any]]]:
        traced = self.lowered.traced
        arrays = traced.arguments if role == "argument" else traced.outputs
        return list(
            zip(
                arrays,
                stablehlo.attributes_of(stablehlo.main_of(module), stablehlo.ENDS[role], len(arrays)),
                strict=True,
            )
        )

    # Runs.

    def links(self, removed: Collection[Source]) -> Links:
        """Return the graph of the program propagated without some sources."""
        return Links(self.run(removed, _WITH_RULES), self.lowered.locations)

    def holds(self, key: NodeKey, dim: int, axis: str, removed: Collection[Source]) -> bool:
        """Return whether a value's dimension has an axis without some sources."""
        asked = key, dim, axis, frozenset(s.key for s in removed)
        if asked not in self._answers:
            cut = Links(self.run(removed, _SETTLED), self.lowered.locations).dim(key, dim)
            self._answers[asked] = cut is not None and cut.carries(axis)
        return self._answers[asked]

    def run(self, removed: Collection[Source], then: str) -> ir.Operation:
        """Return a copy of the module without some sources, after propagation and further passes."""
        module = self.changed(removed)
        run(module, then)
        self.runs += 1
        return module

    def changed(
        self, removed: Collection[Source], added: Sequence[Source] = (), forced: Sequence[Forced] = ()
    ) -> ir.Operation:
        """Return a copy of the module, not propagated, without some sources and with others. The shapes inside a
        shard_map follow from its specs, so the specs stay, and a constraint without the axis separates them from the
        array."""
        if self.pause is not None:
            self.pause()
        module = self.module.clone()
        edits: dict[str, dict[int, list[tuple[Source, bool]]]] = {}
        for source, put in (*((s, False) for s in removed), *((s, True) for s in added)):
            for place in source.places:
                edits.setdefault(source.role, {}).setdefault(place, []).append((source, put))
        for each in forced:
            (op,) = _numbered(module, (each.tag,))
            _constrain(op, each.place, stablehlo.sharding(each.spec, len(each.spec.dims)), operand=each.operand)
        for place, changes in edits.pop("shard_map", {}).items():
            _free(module, place, changes)
        for role in edits.keys() & stablehlo.ENDS:
            entries = self._entries(module, role)
            for place, changes in edits.pop(role).items():
                array, entry = entries[place]
                entry[stablehlo.SHARDING] = _edited(
                    entry.get(stablehlo.SHARDING) or stablehlo.sharding(Spec(), len(array.shape)), changes
                )
            stablehlo.set_attributes(stablehlo.main_of(module), stablehlo.ENDS[role], (entry for _, entry in entries))
        inside = {place: changes for of in edits.values() for place, changes in of.items()}
        for op in _numbered(module, inside) if inside else ():
            op.attributes["sharding"] = _edited(op.attributes["sharding"], inside[number_of(op)])
        stablehlo.verify(module)
        return module


def manual_place(number: int, array: int) -> int:
    """Return one number for an array of a manual computation, from the operation's number and the array's position."""
    return number * _MANUAL + array


def places_of(node: Node) -> list[tuple[str, int]]:
    """Return the places where the sources of a value's sharding may be: a role and a position each."""
    key = node.key
    if key.kind in stablehlo.ENDS:
        return [(key.kind, key.place)]
    own = [(role, key.tag) for role in ("constraint", "type") if key.kind == "result"]
    return own + [("shard_map", manual_place(s.number, s.array)) for s in node.steps if s.kind == "manual"]


def edited(spec: Spec, source: Source, put: bool) -> Spec:
    """Return a spec with a source's axis appended to its dimension, or removed from it."""
    dims = list(spec.dims)
    kept = tuple(a for a in dims[source.dimension] if axis_name(a) != source.axis)
    dims[source.dimension] = (*kept, source.axis) if put else kept
    return spec.with_dims(tuple(dims))


def _edited(attribute: Any, changes: Sequence[tuple[Source, bool]], closed: Collection[int] = ()) -> Any:
    """Return a `#sdy.sharding` with sources' axes added or removed. All dimensions but the `closed` ones stay open, and
    priorities are unchanged."""
    spec = stablehlo.spec_of(attribute)
    for source, put in changes:
        spec = edited(spec, source, put)
    old = [sdy.DimensionShardingAttr(d) for d in sdy.TensorShardingAttr(attribute).dimension_shardings]
    new = []
    for d, (axes, was) in enumerate(zip(spec.dims, old, strict=True)):
        inner = ", ".join([*map(sdy_axis, axes), *([] if was.is_closed or d in closed else ["?"])])
        new.append(f"{{{inner}}}" + (f"p{was.priority}" if inner and was.priority is not None else ""))
    before = ", ".join(str(d).removeprefix("#sdy<dimension_sharding").removesuffix(">") for d in old)
    return ir.Attribute.parse(str(attribute).replace(f"[{before}]", f"[{', '.join(new)}]", 1))


def _of_manual(op: ir.Operation) -> list[Any]:
    """Return the shardings of a manual computation's operands, then of its results."""
    return [*stablehlo.shardings_of(op, "in_shardings"), *stablehlo.shardings_of(op, "out_shardings")]


def _free(module: ir.Operation, place: int, changes: Sequence[tuple[Source, bool]]) -> None:
    """Insert a constraint without the sources' axes between a manual computation and one of its arrays."""
    number, array = divmod(place, _MANUAL)
    (op,) = _numbered(module, (number,))
    free = _edited(_of_manual(op)[array], changes, closed=[source.dimension for source, _ in changes])
    operands = len(op.operands)
    _constrain(op, array if array < operands else array - operands, free, operand=array < operands)


def _constrain(op: ir.Operation, place: int, written: Any, *, operand: bool) -> None:
    value = op.operands[place] if operand else op.results[place]
    uses = [(op, place)] if operand else [(use.owner, use.operand_number) for use in value.uses]
    constraint = ir.Operation.create(
        "sdy.sharding_constraint",
        results=[value.type],
        operands=[value],
        attributes={"sharding": written},
        loc=op.location,
    )
    at = next(n for n, each in enumerate(op.block.operations) if each.operation == op)
    ir.InsertionPoint(op.block.operations[at if operand else at + 1]).insert(constraint)
    for owner, number in uses:
        owner.operands[number] = constraint.results[0]


def _numbered(module: ir.Operation, numbers: Collection[int]) -> list[ir.Operation]:
    """Return a module's operations with one of these numbers."""
    return [op for op in _jax.walk(module) if number_of(op) in numbers]
