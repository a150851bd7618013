"""A lowered program under a plan, propagated again and again with something taken away, added or forced.

Every operation of the module carries a number that Shardy's passes leave where it is, so that a value is the same value
in every run. A source is a place where an axis is written down: an argument's or output's spec, a constraint. What is
taken away there is the axis alone: `{"model", "data"}` without `model` is `{"data"}`, as closed or open as it was.

>>> without('#sdy.sharding<@mesh, [{"data"}, {"model", "x", ?}]>', ['{"data"}', '{"model", "x", ?}'], {1: '{"x", ?}'})
'#sdy.sharding<@mesh, [{"data"}, {"x", ?}]>'
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy
from jax.extend.mlir.passmanager import PassManager

from shardviz import _jax
from shardviz.notation import Axis, Spec
from shardviz.notation.sdy import axis as sdy_axis
from shardviz.notation.spec import axis_name
from shardviz.program.graph import cut_of, functions_of
from shardviz.program.links import MANUAL, RULES, TAG, Key, Links, manual_place, number_of, tag
from shardviz.program.lower import Lowered, sdy_spec
from shardviz.program.module import MESH, attributes_of, main_of, place_of, spec_of
from shardviz.program.propagate import prepared
from shardviz.records import Frame, PlanRecord
from shardviz.records.why import Source

_RESHARDS = "sdy-close-shardings,func.func(sdy-insert-explicit-reshards{enable-full-version=true})"
PASSES = f"builtin.module(sdy-propagation-pipeline,{_RESHARDS})"
"""As far as a report's specs are decided: an operation whose operands disagree settles how it computes at last."""

_WITH_RULES = f"builtin.module(sdy-propagation-pipeline,{_RESHARDS},{RULES})"
_SHARDING = "sdy.sharding"
_MANUAL = "in_shardings", "out_shardings"


def without(text: str, dims: Sequence[str], changes: Mapping[int, str]) -> str:
    """A sharding's text with other dimensions.

    Args:
        text: the sharding, as MLIR prints it.
        dims: its dimensions, as MLIR prints them.
        changes: which dimension → its new text.
    """
    new = [changes.get(d, old) for d, old in enumerate(dims)]
    return text.replace(f"[{', '.join(dims)}]", f"[{', '.join(new)}]", 1)


def _dims(attribute: Any) -> list[Any]:
    return [sdy.DimensionShardingAttr(d) for d in sdy.TensorShardingAttr(attribute).dimension_shardings]


def changed(attribute: Any, dims: Mapping[int, tuple[Axis, ...]], closed: Collection[int] = ()) -> Any:
    """A `#sdy.sharding` with other axes in some dimensions; what is open stays open, and priorities stay.

    Args:
        attribute: the sharding.
        dims: which dimension → its new axes.
        closed: dimensions that are closed, whatever they were.
    """
    olds = _dims(attribute)
    texts = [str(d).removeprefix("#sdy<dimension_sharding").removesuffix(">") for d in olds]
    new = {}
    for d, axes in dims.items():
        opened = [] if olds[d].is_closed or d in closed else ["?"]
        priority = "" if olds[d].priority is None else f"p{olds[d].priority}"
        inner = ", ".join([*map(sdy_axis, axes), *opened])
        new[d] = "{" + inner + "}" + (priority if inner else "")
    return ir.Attribute.parse(without(str(attribute), texts, new))


class Said(NamedTuple):
    """A sharding that is written down; the fields are those of `Source`."""

    role: str
    name: str
    spec: Spec
    source: Frame | None
    places: tuple[int, ...]


class Forced(NamedTuple):
    """A constraint that is put on an array to see what it would cost.

    Attributes:
        tag: the number of the operation.
        place: which of its results or operands.
        spec: how it is to be cut.
        operand: whether it is what the operation takes; else it is what it gives.
    """

    tag: int
    place: int
    spec: Spec
    operand: bool = False


@dataclass(eq=False)
class Perturbed:
    """A program under a plan, to be asked what Shardy would make of it if something were otherwise.

    To be used with the program's lock held and its context entered: `with trial.entered():`.

    Attributes:
        lowered, bound: the program and the plan.
        runs: how often Shardy was run.
        pause: called before each run; None where nobody waits.
    """

    lowered: Lowered
    bound: PlanRecord
    runs: int = 0
    pause: Callable[[], None] | None = field(default=None, repr=False)
    _module: Any = field(default=None, repr=False)
    _base: Links | None = field(default=None, repr=False)
    _said: list[Said] | None = field(default=None, repr=False)
    _sources: list[Source] | None = field(default=None, repr=False)
    _answers: dict[Any, bool] = field(default_factory=dict, repr=False)

    def entered(self) -> Any:
        """Holds the program's lock and enters its context."""
        return self.lowered.entered()

    @property
    def module(self) -> ir.Operation:
        """The module before propagation, numbered."""
        if self._module is None:
            with ir.Location.unknown():
                self._module = prepared(self.lowered, self.bound)
                tag(self._module)
        return self._module

    @property
    def base(self) -> Links:
        """The plan as it is, propagated."""
        if self._base is None:
            self._base = self.links(())
        return self._base

    # Sources.

    def sources(self, axis: str | None = None) -> list[Source]:
        """Every place where an axis is written down; those of one axis, where one is given."""
        if self._sources is None:
            self._sources = [
                Source(role=s.role, name=s.name, dimension=d, axis=a, spec=s.spec, source=s.source, places=s.places)
                for s in self.said
                for d, axes in enumerate(s.spec.dims)
                for a in dict.fromkeys(map(axis_name, axes))
            ]
        return [s for s in self._sources if axis in (None, s.axis)]

    @property
    def said(self) -> list[Said]:
        """Every sharding that is written down."""
        if self._said is None:
            with ir.Location.unknown():
                self._said = list(self._written())
        return self._said

    def _written(self) -> Iterator[Said]:
        traced = self.lowered.traced
        for role, which, arrays in (
            ("argument", "arg_attrs", traced.arguments),
            ("output", "res_attrs", traced.outputs),
        ):
            entries = attributes_of(main_of(self.module), which, len(arrays))
            for place, (array, entry) in enumerate(zip(arrays, entries, strict=True)):
                if _SHARDING in entry:
                    yield Said(role, array.name, spec_of(entry[_SHARDING]), None, (place,))
        lines: dict[Any, Said] = {}  # a line's constraint, on the way forward and on the way back
        for op in self._holding():
            frame, number = place_of(op.location, self.lowered.locations).frame, number_of(op)
            if op.name == "sdy.sharding_constraint":
                role, said = "type" if self._is_type(op) else "constraint", [(number, op.attributes["sharding"])]
            else:
                both = (s for w in _MANUAL for s in sdy.TensorShardingPerValueAttr(op.attributes[w]).shardings)
                role, said = "shard_map", [(manual_place(number, n), s) for n, s in enumerate(both)]
            for place, attribute in said:
                key = role, number if frame is None or role == "type" else frame.bare, str(attribute)
                old = lines.get(key)
                places = tuple(dict.fromkeys((*(old.places if old else ()), place)))
                name = "an unknown line" if frame is None else frame.short
                lines[key] = Said(role, name, spec_of(attribute), frame, places)
        yield from lines.values()

    def _is_type(self, op: ir.Operation) -> bool:
        maker = op.operands[0].owner
        if not self.lowered.traced.types or isinstance(maker, ir.Block):
            return False
        return maker.location.attr == op.location.attr

    def _holding(self) -> list[ir.Operation]:
        """The operations that hold shardings of their own."""
        found = []

        def visit(op: ir.Operation) -> Any:
            if op.name in ("sdy.sharding_constraint", "sdy.manual_computation"):
                found.append(op)
            return ir.WalkResult.ADVANCE

        _jax.walk(self.module, visit)
        return found

    # Runs.

    def links(self, gone: Collection[Source], given: Collection[Source] = ()) -> Links:
        """The program propagated without some sources and with others: their axis is put last into their dimension."""
        return Links(self.run(gone, given, _WITH_RULES), self.lowered.locations)

    def holds(self, key: Key, dim: int, axis: str, gone: Collection[Source], given: Collection[Source] = ()) -> bool:
        """Whether a value's dimension has an axis, propagated without some sources and with others."""
        asked = key, dim, axis, frozenset(s.key for s in gone), frozenset(s.key for s in given)
        if asked not in self._answers:
            spec = self.spec_in(self.run(gone, given), key)
            dims = () if spec is None else spec.dims
            self._answers[asked] = dim < len(dims) and any(axis_name(a) == axis for a in dims[dim])
        return self._answers[asked]

    def run(self, gone: Collection[Source], given: Collection[Source] = (), passes: str = PASSES) -> ir.Operation:
        """A copy of the module with sources changed, propagated."""
        with ir.Location.unknown():
            module = self.changed(gone, given)
            pipeline = PassManager.parse(passes)
            pipeline.enable_verifier(False)
            pipeline.run(module)
        self.runs += 1
        return module

    def changed(
        self, gone: Collection[Source], given: Collection[Source] = (), forced: Sequence[Forced] = ()
    ) -> ir.Operation:
        """A copy of the module, not propagated, without some sources and with others.

        The shapes inside a shard_map follow from its specs. So what its specs say is taken away around it alone: a
        constraint between it and what it takes or gives says the same but for the axis.

        Args:
            gone, given: the sources.
            forced: arrays that get a constraint, and which.
        """
        if self.pause is not None:
            self.pause()
        module = self.module.clone()
        with ir.Location.unknown():
            for each in forced:
                _force(module, each)
            around = [source for source in gone if source.role == "shard_map"]
            for place in dict.fromkeys(place for source in around for place in source.places):
                _freed(module, place, [source for source in around if place in source.places])
        changes: dict[tuple[str, int], list[tuple[bool, Source]]] = {}
        for put, sources in ((False, gone), (True, given)):
            for source in sources:
                if source.role == "shard_map":
                    continue
                role = source.role if source.role in ("argument", "output") else "inside"
                for place in source.places:
                    changes.setdefault((role, place), []).append((put, source))
        main = main_of(module)
        for role, which in (("argument", "arg_attrs"), ("output", "res_attrs")):
            if any(kind == role for kind, _ in changes):
                arrays = self.lowered.traced.arguments if role == "argument" else self.lowered.traced.outputs
                entries = attributes_of(main, which, len(arrays))
                for (kind, place), edits in changes.items():
                    if kind == role:
                        old = entries[place].get(_SHARDING) or _closed(len(arrays[place].shape))
                        entries[place][_SHARDING] = _edited(old, edits)
                main.attributes[which] = ir.ArrayAttr.get([ir.DictAttr.get(e) for e in entries])
        inside = {place: edits for (kind, place), edits in changes.items() if kind == "inside"}
        if inside:
            for op in _numbered(module, inside):
                op.attributes["sharding"] = _edited(op.attributes["sharding"], inside[number_of(op)])
        module.verify()  # Shardy ends the process when it is given what the verifier would have refused
        return module

    def spec_in(self, module: ir.Operation, key: Key) -> Spec | None:
        """How a value is cut in a propagated module; None where it is whole, or no more there."""
        main = main_of(module)
        if key.kind in ("argument", "output") and not key.calls:
            which = "arg_attrs" if key.kind == "argument" else "res_attrs"
            entries = attributes_of(main, which, key.place + 1) if which in main.attributes else []
            entry = entries[key.place] if key.place < len(entries) else {}
            return spec_of(entry[_SHARDING]) if _SHARDING in entry else None
        found = _value(module, main, key)
        return None if found is None else cut_of(*found)


def _force(module: ir.Operation, forced: Forced) -> None:
    """Puts a constraint on an operation's result, wherever it is called from, or on what it takes as one operand."""
    (op,) = _numbered(module, (forced.tag,))
    sharding = ir.Attribute.parse(f"#sdy.sharding<@{MESH}, {sdy_spec(forced.spec, len(forced.spec.dims))}>")
    _constrained(op, forced.place, sharding, operand=forced.operand)


def _freed(module: ir.Operation, place: int, gone: Sequence[Source]) -> None:
    """Puts a constraint between a manual computation and one of its arrays that leaves sources' axes out."""
    number, n = divmod(place, MANUAL)
    (op,) = _numbered(module, (number,))
    shardings = [s for w in _MANUAL for s in sdy.TensorShardingPerValueAttr(op.attributes[w]).shardings]
    spec = spec_of(shardings[n])
    for source in gone:
        spec = edited(spec, source, False)
    which = [source.dimension for source in gone]
    sharding = changed(shardings[n], {d: spec.dims[d] for d in which}, closed=which)
    operands = len(op.operands)
    _constrained(op, n if n < operands else n - operands, sharding, operand=n < operands)


def _constrained(op: ir.Operation, place: int, sharding: Any, *, operand: bool) -> None:
    """Puts a constraint in front of one operand of an operation, or behind one of its results."""
    value = op.operands[place] if operand else op.results[place]
    uses = [(op, place)] if operand else [(use.owner, use.operand_number) for use in value.uses]
    made = ir.Operation.create(
        "sdy.sharding_constraint",
        results=[value.type],
        operands=[value],
        attributes={"sharding": sharding},
        loc=op.location,
    )
    block = op.block
    at = next(n for n, each in enumerate(block.operations) if each.operation == op)
    ir.InsertionPoint(block.operations[at if operand else at + 1]).insert(made)
    for owner, number in uses:
        owner.operands[number] = made.results[0]


def _value(module: ir.Operation, main: ir.Operation, key: Key) -> tuple[Any, tuple[Axis, ...]] | None:
    """A value by its key, and the axes that are manual around it."""
    function, around = main, []
    functions = functions_of(module)
    for number in key.calls:
        call = next(iter(_numbered(function, (number,))), None)
        if call is None:
            return None
        around.append(call)
        function = functions[ir.FlatSymbolRefAttr(call.attributes["callee"]).value]
    if key.kind.startswith("inside") and key.tag == -1:
        return function.regions[0].blocks[0].arguments[key.place], _manual(around)
    same = _numbered(function, (key.tag,))
    if not same:
        return None
    op = same[min(key.copy, len(same) - 1)]
    if key.kind == "result":
        return op.results[key.place], _manual([*around, op])
    block = op.regions[int(key.kind.removeprefix("inside "))].blocks[0]
    return block.arguments[key.place], _manual([*around, block.operations[0].operation])


def _manual(ops: Sequence[ir.Operation]) -> tuple[Axis, ...]:
    """The axes of the manual computations that operations stand in."""
    found: list[Axis] = []
    for op in ops:
        around = op.parent
        while around is not None and around.operation.name != "func.func":
            if around.operation.name == "sdy.manual_computation":
                found += [*sdy.ManualAxesAttr(around.attributes["manual_axes"])]
            around = around.operation.parent
    return tuple(found)


def edited(spec: Spec, source: Source, put: bool) -> Spec:
    """A spec with a source's axis put last into its dimension, or taken out of it."""
    dims = list(spec.dims)
    kept = tuple(a for a in dims[source.dimension] if axis_name(a) != source.axis)
    dims[source.dimension] = (*kept, source.axis) if put else kept
    return spec.with_dims(tuple(dims))


def _edited(attribute: Any, edits: Sequence[tuple[bool, Source]]) -> Any:
    spec = spec_of(attribute)
    for put, source in edits:
        spec = edited(spec, source, put)
    return changed(attribute, dict(enumerate(spec.dims)))


def _closed(rank: int) -> Any:
    return ir.Attribute.parse(f"#sdy.sharding<@{MESH}, [{', '.join(['{}'] * rank)}]>")


def _numbered(module: ir.Operation, numbers: Collection[int]) -> list[ir.Operation]:
    """The operations of a module that have one of these numbers."""
    found = []

    def visit(op: ir.Operation) -> Any:
        if TAG in op.attributes and number_of(op) in numbers:
            found.append(op)
        return ir.WalkResult.ADVANCE

    _jax.walk(module, visit)
    return found
