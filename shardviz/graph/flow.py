"""What is made of what in one program: in which pass of a train step an operation outside a derivative stands.

JAX's name stack tells what is inside a derivative (`shardviz.records.phases`). What stands outside may come before it
(a batch made ready) or after it (the optimizer), and there the values tell:

    tokens ── one-hot ──▶ jvp ... ──▶ transpose ... ──▶ clip ──▶ add ──▶ parameters
              forward     forward     backward          update   ▲ update
                                      moment ── x 0.9 ───────────┘ update

An operation outside that a gradient reaches, past no other derivative, is the optimizer's part, `update`; what is
rematerialised belongs to the gradient. One that no gradient reaches and whose result a derivative uses, or that uses
the forward pass's, is `forward`. One with neither is `update` too.

>>> flow = Flow()
>>> batch, loss, gradient, clipped, moment = (flow.made_of([]) for _ in range(5))
>>> flow.mark(loss, "forward"), flow.mark(gradient, "backward")
(None, None)
>>> for maker, user in [(batch, loss), (loss, gradient), (gradient, clipped), (moment, clipped)]:
...     flow.connect([maker], [user])
>>> flow.phase([batch]), flow.phase([clipped]), flow.phase([moment])
('forward', 'update', 'update')
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from itertools import product
from typing import Any, Protocol

from shardviz.graph.operations import Block, Graph, Operation, Value
from shardviz.kept import cached_property


class Flow:
    """What is made of what; a value is a number."""

    def __init__(self) -> None:
        self._users: list[list[int]] = []
        self._makers: list[list[int]] = []
        self._inside: dict[int, str] = {}

    def made_of(self, makers: Sequence[int], phase: str = "update") -> int:
        """A new value, made of others in the pass that its operation's name stack says."""
        number = len(self._users)
        self._users.append([])
        self._makers.append(list(makers))
        for maker in makers:
            self._users[maker].append(number)
        self.mark(number, phase)
        return number

    def mark(self, value: int, phase: str) -> None:
        """Says in which pass a value is made, by its operation's name stack."""
        if phase != "update":
            self._inside[value] = phase

    def connect(self, makers: Sequence[int], users: Sequence[int]) -> None:
        """From element to element where both have as many; else from each to each."""
        alike = len(makers) == len(users)
        for maker, user in zip(makers, users, strict=True) if alike else product(makers, users):
            self._users[maker].append(user)
            self._makers[user].append(maker)

    def carry(self, made: Sequence[int], carried: Sequence[int]) -> None:
        """What a loop's body hands to the next iteration. A gradient does not reach into that."""
        for maker, user in zip(made, carried, strict=False):
            self._makers[user].append(maker)

    def phase(self, values: Iterable[int]) -> str:
        """`forward` or `update`, for the results of an operation outside a derivative. Ask when all is connected."""
        after, forward = self._sides
        values = list(values)
        return "forward" if not after.intersection(values) and forward.intersection(values) else "update"

    def enters(self, values: Iterable[int]) -> bool:
        """Whether a derivative uses values, or what is made of them."""
        waiting, seen = list(values), set(values)
        while waiting:
            for value in self._users[waiting.pop()]:
                if value in self._inside:
                    return True
                if value not in seen:
                    seen.add(value)
                    waiting.append(value)
        return False

    @cached_property
    def _sides(self) -> tuple[set[int], set[int]]:
        """What a gradient reaches past no other derivative; and what the forward pass reaches, or reaches any of it."""
        gradients = [v for v, phase in self._inside.items() if phase != "forward"]
        passed = [v for v, phase in self._inside.items() if phase == "forward"]
        after = self._reached(gradients, self._users, set())
        return after, self._reached(passed, self._users, set()) | self._reached(self._inside, self._makers, after)

    def _reached(self, starts: Iterable[int], following: list[list[int]], but: Set[int]) -> set[int]:
        """What the starts lead to through values that are outside and not in `but`, the starts left out."""
        found: set[int] = set()
        waiting = list(starts)
        while waiting:
            for value in following[waiting.pop()]:
                if value not in found and value not in but and value not in self._inside:
                    found.add(value)
                    waiting.append(value)
        return found


class Names(Protocol):
    """What a front end knows of name stacks."""

    def phase_at(self, operation: Any, place: Any) -> str:
        """The pass that an operation's name stack says, in a block that is entered at a place."""
        ...

    def place_inside(self, operation: Any, place: Any) -> Any:
        """The place at which the blocks of an operation are entered."""
        ...


_ENTERED = frozenset(("while", "call", "conditional", "manual-computation", "named-computation"))
Calls = tuple[Operation, ...]


class GraphFlow(Flow):
    """The `Flow` of a graph; a fusion, an asynchronous computation and the like are taken as wholes."""

    def __init__(self, graph: Graph, names: Names, *, by_calls: bool = True):
        """Reads the graph.

        Args:
            graph: the program.
            names: of its operations.
            by_calls: tell the values of a function apart by the calls that lead to it; else each is one for all calls.
        """
        super().__init__()
        self._names, self._by_calls = names, by_calls
        self._numbers: dict[Calls, dict[Value, int]] = {}
        self._done: set[Block] = set()
        self._read(graph.entry, (), None)

    def phase_of(self, values: Iterable[Value], calls: Calls = ()) -> str:
        """`forward` or `update`, for the results of an operation outside a derivative that is reached by calls."""
        return self.phase(self._of(values, calls))

    def is_used_inside(self, argument: Value) -> bool:
        """Whether a derivative uses an argument of the program, or what is made of it."""
        return self.enters(self._of([argument], ()))

    def has(self, block: Block) -> bool:
        """Whether a block was read, and is no part of a whole."""
        return block in self._done

    def _of(self, values: Iterable[Value], calls: Calls) -> list[int]:
        known, found = self._numbers.setdefault(calls, {}), []
        for value in values:
            number = known.get(value)
            if number is None:
                number = known[value] = self.made_of(())
            found.append(number)
        return found

    def _read(self, block: Block, calls: Calls, place: Any) -> None:
        self._done.add(block)
        known, phase_at = self._numbers.setdefault(calls, {}), self._names.phase_at
        for operation in block.operations:
            kind = operation.kind
            try:
                operands = [known[value] for value in operation.operands]
            except KeyError:  # what was not made here
                operands = self._of(operation.operands, calls)
            if kind in _ENTERED:
                self._enter(operation, operands, calls, place)
            elif kind == "opt-barrier":
                self.connect(operands, self._of(operation.results, calls))
            elif operation.results:
                stands_in = "update" if kind == "constant" else phase_at(operation, place)
                number = self.made_of(operands, stands_in)
                for result in operation.results:
                    known[result] = number

    def _enter(self, operation: Operation, operands: list[int], calls: Calls, place: Any) -> None:
        results, loop = self._of(operation.results, calls), operation.kind == "while"
        inside = (*calls, operation) if self._by_calls and operation.kind == "call" else calls
        place = self._names.place_inside(operation, place)
        for number, block in enumerate(operation.blocks):
            arguments = self._of(block.arguments, inside)
            given = operands if operation.kind != "conditional" else self._of(operation.given(block), calls)
            self.connect(given, arguments)
            if self._by_calls or block not in self._done:
                self._read(block, inside, place)
            if loop and number == 0:  # the condition
                continue
            ends = self._of(block.returned, inside)
            self.connect(ends, results)
            if loop:
                self.carry(ends, arguments)
