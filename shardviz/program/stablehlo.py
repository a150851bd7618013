"""A StableHLO module read in program order: every call, loop, branch and manual computation entered where it stands.

A `Walker` knows what stands around the operation that it visits: how often it runs in a step, the mesh axes that are
manual there, the calls that led to it. How often a `stablehlo.while` runs can be told of the loops that `lax.scan` and
`fori_loop` make, and of all others that end on counters which start at constants (see `shardviz.records.trips`).

A `ModuleFlow` is such a reading: what is made of what, by which `records.phases` says in which pass of a train step an
operation stands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardviz.notation import Axis
from shardviz.program.lower import Lowered
from shardviz.program.module import Place, dtype_of, place_of, within
from shardviz.records.phases import Flow, phase
from shardviz.records.trips import Scalar, trips_of

RETURNS = frozenset(("stablehlo.return", "func.return", "sdy.return"))
"""What ends a block."""

ENTERED = frozenset(
    (
        *("func.call", "stablehlo.while", "stablehlo.case", "stablehlo.if"),
        *("sdy.manual_computation", "sdy.named_computation"),
    )
)
"""What a `Walker` goes into; of other operations the regions, such as a reduction's, are no part of the program."""


_CONSTANTS = frozenset(("stablehlo.constant", "sdy.constant"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What stands around an operation.

    Attributes:
        count: how often it runs in a step; None where a loop around it has no known trip count.
        times: the same, with loops of unknown trip count taken once.
        trips: the trip count of the loop that was entered last.
        calls: the calls that led to it, the outermost first.
        manual: the mesh axes of the manual computations around it.
        conditional: whether it is in a branch.
        place: where the call or manual computation is whose name stack its own continues; None in the main function.
    """

    count: int | None = 1
    times: int = 1
    trips: int | None = 1
    calls: tuple[ir.Operation, ...] = ()
    manual: tuple[Axis, ...] = ()
    conditional: bool = False
    place: Place | None = None


PLACES = "places"
"""Where what is known of locations has them by what stands around them."""


class Walker:
    """One reading of a module.

    Attributes:
        module: the module.
        functions: symbol → function.
        around: what stands around the operation that is visited.
        unknown_loops: how many loops were entered whose trip count could not be found.
    """

    def __init__(self, module: ir.Operation, locations: dict[Any, Any]):
        """Reads nothing yet.

        Args:
            module: the module.
            locations: what is known of each source location, and as `PLACES` by the place around it, filled as they
                are met; they are the same in all modules of a program.
        """
        self.module = module
        self.functions = functions_of(module)
        self.around = Around()
        self.unknown_loops = 0
        self._locations = locations
        self._places: dict[Place | None, dict[Any, Place]] = locations.setdefault(PLACES, {})
        self._here = self._places.setdefault(None, {})

    @property
    def main(self) -> Any:
        """The main function's block."""
        return self.functions["main"].regions[0].blocks[0]

    def callee(self, call: ir.Operation) -> Any:
        """The block of the function that a `func.call` calls."""
        return self.functions[ir.FlatSymbolRefAttr(call.attributes["callee"]).value].regions[0].blocks[0]

    def visit(self, op: ir.Operation) -> None:
        """Reads an operation; what is in `ENTERED` goes on with `inside`."""
        raise NotImplementedError

    def read(self, block: Any) -> list[Any]:
        """Visits a block's operations in order; the values that it returns."""
        for op in block.operations:
            op = op.operation
            if op.name in RETURNS:
                return list(op.operands)
            self.visit(op)
        return []

    @contextmanager
    def inside(self, op: ir.Operation) -> Iterator[list[Any]]:
        """Goes into an operation: its blocks (a loop's condition before its body), to be read while this is entered."""
        around, here = self.around, self._here
        blocks = [self.callee(op)] if op.name == "func.call" else [region.blocks[0] for region in op.regions]
        self.around = entered = self._entered(op)
        if entered.place is not around.place:
            self._here = self._places.setdefault(entered.place, {})
        try:
            yield blocks
        finally:
            self.around, self._here = around, here

    def _entered(self, op: ir.Operation) -> Around:
        around, name = self.around, op.name
        if name == "func.call":
            return replace(around, calls=(*around.calls, op), place=self.caller(op))
        if name == "stablehlo.while":
            trips = trip_count(op, self.functions, around.calls)
            self.unknown_loops += trips is None
            count = None if trips is None or around.count is None else around.count * trips
            return replace(around, count=count, times=around.times * (1 if trips is None else trips), trips=trips)
        if name == "sdy.manual_computation":  # JAX names what is inside as it names a nested function's
            manual = (*around.manual, *sdy.ManualAxesAttr(op.attributes["manual_axes"]))
            return replace(around, manual=manual, place=self.caller(op))
        return around if name == "sdy.named_computation" else replace(around, conditional=True)

    def caller(self, op: ir.Operation) -> Place | None:
        """The place that what is inside a call or a manual computation continues."""
        return self.place(op)

    def place(self, op: ir.Operation) -> Place:
        """An operation's line and name stack, those of the calls around it in front."""
        key = op.location.attr  # attributes hash by identity, locations do not
        found = self._here.get(key)
        if found is None:
            found = self._here[key] = within(place_of(op.location, self._locations), self.around.place)
        return found


class ModuleFlow(Walker):
    """The `Flow` of a module: every result a value, those of a function once for each way to call it."""

    def __init__(self, module: ir.Operation, locations: dict[Any, Any]):
        super().__init__(module, locations)
        self._flow = Flow()
        self._known: dict[Any, int] = {}  # the number of each value of the function that is read
        self._values: dict[tuple[ir.Operation, ...], dict[Any, int]] = {(): self._known}
        self.read(self.main)

    def phase(self, op: ir.Operation, calls: tuple[ir.Operation, ...]) -> str:
        """`forward` or `update`, for an operation outside a derivative that is reached by `calls`."""
        self._known = self._values.setdefault(calls, {})
        return self._flow.phase(self._of(op.results))

    def enters(self, argument: Any) -> bool:
        """Whether a derivative uses an argument of the main function, or what is made of it."""
        self._known = self._values[()]
        return self._flow.enters(self._of([argument]))

    def visit(self, op: ir.Operation) -> None:
        flow, name = self._flow, op.name
        operands = self._of(op.operands)
        if name == "stablehlo.optimization_barrier":
            flow.connect(operands, self._of(op.results))
            return
        if name not in ENTERED:
            if results := list(op.results):
                stands_in = "update" if name in _CONSTANTS else phase(self.place(op).name_stack)
                number = flow.made_of(operands, stands_in)
                for result in results:
                    self._known[result] = number
            return
        results, around = self._of(op.results), self._known
        with self.inside(op) as blocks:
            self._known = around if name != "func.call" else self._values.setdefault(self.around.calls, {})
            loop = name == "stablehlo.while"
            for block in blocks:
                arguments = self._of(block.arguments)
                flow.connect(operands, arguments)
                ends = self._of(self.read(block))
                if loop and block == blocks[0]:  # the condition
                    continue
                flow.connect(ends, results)
                if loop:
                    flow.carry(ends, arguments)
        self._known = around

    def _of(self, values: Iterable[Any]) -> list[int]:
        known, found = self._known, []
        for value in values:
            number = known.get(value)
            if number is None:
                number = known[value] = self._flow.values()[0]
            found.append(number)
        return found


def only_updated(lowered: Lowered) -> frozenset[str]:
    """The arguments that nothing uses but the update of a train step, such as an optimizer's moments."""
    traced = lowered.traced
    if not traced.differentiated:
        return frozenset()
    with lowered.entered():
        main = functions_of(lowered.module.operation)["main"].regions[0].blocks[0]

        def phases(value: Any) -> set[str]:
            stacks = (place_of(use.owner.location, lowered.locations).name_stack for use in value.uses)
            return {phase(stack) for stack in stacks}

        return frozenset(
            argument.name
            for argument, value in zip(traced.arguments, main.arguments, strict=True)
            if phases(value) == {"update"}
        )


def functions_of(module: ir.Operation) -> dict[str, ir.Operation]:
    """A module's functions by their symbols."""
    return {
        ir.StringAttr(op.attributes["sym_name"]).value: op.operation
        for op in module.regions[0].blocks[0].operations
        if op.operation.name == "func.func"
    }


def trip_count(
    loop: ir.Operation, functions: Mapping[str, ir.Operation], calls: tuple[ir.Operation, ...] = ()
) -> int | None:
    """The number of times that the body of a `stablehlo.while` runs; None if it cannot be told.

    Args:
        loop: the loop.
        functions: the module's functions by their symbols.
        calls: the calls that lead to the loop, the outermost first.
    """
    condition, body = (region.blocks[0] for region in loop.regions)
    return trips_of(
        _Scalars(functions, (condition, body)),
        _Value(calls, _returned(condition)[0]),
        lambda index: _Value(calls, _returned(body)[index]),
        lambda index: _Value(calls, loop.operands[index]),
    )


class _Value(NamedTuple):
    """A value, and the calls by which the function is reached that it stands in."""

    calls: tuple[ir.Operation, ...]
    value: Any


class _Scalars:
    """Of what the scalars are made by which a loop ends: functions entered, and loops that pass them on."""

    def __init__(self, functions: Mapping[str, ir.Operation], blocks: tuple[Any, Any]):
        self._functions, self._blocks = functions, blocks

    def __call__(self, value: _Value) -> Scalar | None:
        before: _Value | None = value
        while before is not None:
            value = before
            before = self._passed(value)
        owner = value.value.owner
        try:
            tensor = ir.RankedTensorType(value.value.type)
        except ValueError:  # a token
            return None
        if math.prod(tensor.shape) != 1:
            return None
        dtype = dtype_of(str(tensor.element_type))
        if isinstance(owner, ir.Block):
            return Scalar("element", dtype, detail=_number(value.value)) if owner in self._blocks else None
        made = owner.operation
        if made.name in _CONSTANTS:
            return Scalar("constant", dtype, detail=_splat(made))
        kind, _, op = made.name.partition(".")
        direction = made.attributes["comparison_direction"] if op == "compare" else None
        return (
            None
            if kind != "stablehlo"
            else Scalar(
                op.replace("_", "-"),
                dtype,
                tuple(_Value(value.calls, operand) for operand in made.operands),
                None if direction is None else str(direction).strip("<>")[-2:],
            )
        )

    def _passed(self, value: _Value) -> _Value | None:
        """What a value is that is merely passed on."""
        owner, calls = value.value.owner, value.calls
        if isinstance(owner, ir.Block):
            return None if owner in self._blocks else _given(owner, _number(value.value), calls)
        made = owner.operation
        index = ir.OpResult(value.value).result_number
        if made.name in _SAME:
            return _Value(calls, made.operands[index])
        if made.name == "func.call":
            callee = self._functions[ir.FlatSymbolRefAttr(made.attributes["callee"]).value]
            return _Value((*calls, made), _returned(callee.regions[0].blocks[0])[index])
        return None


_SAME = frozenset(
    (
        *("stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.optimization_barrier"),
        *("sdy.sharding_constraint", "sdy.reshard"),
    )
)


def _given(block: Any, index: int, calls: tuple[ir.Operation, ...]) -> _Value | None:
    """What a block's argument is, of a function that was called, or of an outer loop that hands it on unchanged."""
    around = block.owner.operation
    if around.name == "func.func":
        return _Value(calls[:-1], calls[-1].operands[index]) if calls else None
    if around.name in ("sdy.manual_computation", "sdy.named_computation"):
        return _Value(calls, around.operands[index])
    if around.name == "stablehlo.while":
        body = around.regions[1].blocks[0]
        if _returned(body)[index] == body.arguments[index]:
            return _Value(calls, around.operands[index])
    return None


def _returned(block: Any) -> Any:
    return block.operations[len(block.operations) - 1].operands


def _number(argument: Any) -> int:
    return ir.BlockArgument(argument).arg_number


def _splat(constant: ir.Operation) -> Any:
    """The one number of a constant."""
    value = constant.attributes["value"]
    for kind in (ir.DenseIntElementsAttr, ir.DenseFPElementsAttr):
        try:
            return kind(value)[0]
        except ValueError:
            continue
        except TypeError:  # a float that Python has no bindings for, such as bfloat16
            return str(value).partition("<")[2].partition(">")[0]
    return math.nan
