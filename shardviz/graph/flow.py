"""What is made of what in one program: in which pass of a train step an operation outside a derivative stands.

JAX's name stack tells what is inside a derivative (`shardviz.records.phases`). What stands outside may come before it
(a batch made ready) or after it (the optimizer), and there the values tell:

    tokens ── one-hot ──▶ jvp ... ──▶ transpose ... ──▶ clip ──▶ add ──▶ parameters
              forward     forward     backward          update   ▲ update
                                      moment ── x 0.9 ───────────┘ update

An operation outside that a gradient reaches, past no other derivative, is the optimizer's part, `update`; what is
rematerialised belongs to the gradient. One that no gradient reaches and whose result a derivative uses, or that uses
the forward pass's, is `forward`. One with neither is `update` too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import product
from typing import Any

from shardviz.caching import cached_property
from shardviz.graph.operations import Block, Graph, GraphValue, Operation
from shardviz.graph.origins import At

_ENTERED = frozenset(("while", "call", "conditional", "manual-computation", "named-computation"))
Calls = tuple[Operation, ...]
_Edges = Mapping[At, Sequence[At]]


class Flow:
    """The data flow of a program: which values each value is computed from. A fusion or an asynchronous computation
    counts as one operation."""

    def __init__(
        self, graph: Graph, phase_at: Callable[[Any, Any], str], place_inside: Callable[[Any, Any], Any] | None = None
    ):
        """Read the graph. `phase_at` returns the pass of an operation inside a block at a place. `place_inside` returns
        the place of an operation's blocks; if it is given, a function's values are distinguished by its calls."""
        self._phase_at, self._place_inside = phase_at, place_inside
        self._users, self._makers = defaultdict[At, list[At]](list), defaultdict[At, list[At]](list)
        self._inside: dict[At, str] = {}  # what a derivative makes, and in which pass
        self._done: set[Block] = set()
        self._read(graph.entry, (), None)

    def phase_of(self, values: Iterable[GraphValue], calls: Calls = ()) -> str:
        """Return `forward` or `update` for the results of an operation outside of the derivative, which is reached by
        calls."""
        after, forward = self._sides
        nodes = [_node(value, calls) for value in values]
        return "forward" if not after.intersection(nodes) and forward.intersection(nodes) else "update"

    def is_used_inside(self, argument: GraphValue) -> bool:
        """Return whether the derivative uses an argument of the program, or a value computed from it."""
        users = self._users
        return any(
            self._inside.keys() & users.get(at, ()) for at in (At(argument), *self._reached([At(argument)], users))
        )

    def has(self, block: Block) -> bool:
        """Return whether a block was read on its own; blocks of single operations are not."""
        return block in self._done

    @cached_property
    def _sides(self) -> tuple[set[At], set[At]]:
        """Return the values computed from gradients outside of the derivative, and those that the forward pass computes
        or is computed from."""
        gradients = [at for at, phase in self._inside.items() if phase != "forward"]
        passed = [at for at, phase in self._inside.items() if phase == "forward"]
        after = self._reached(gradients, self._users)
        return after, self._reached(passed, self._users) | self._reached(self._inside, self._makers, after)

    def _reached(self, starts: Iterable[At], following: _Edges, but: Set[At] = frozenset()) -> set[At]:
        """Return what the starts lead to, through values outside of the derivative and not in `but`, without the
        starts."""
        reached: set[At] = set()
        waiting = list(starts)
        while waiting:
            for at in following.get(waiting.pop(), ()):
                if at not in reached and at not in but and at not in self._inside:
                    reached.add(at)
                    waiting.append(at)
        return reached

    def _connect(self, makers: Sequence[GraphValue], above: Calls, users: Sequence[GraphValue], below: Calls) -> None:
        """Connect each maker with the user at its position; if their numbers differ, each maker with each user."""
        alike = len(makers) == len(users)
        for maker, user in zip(makers, users, strict=True) if alike else product(makers, users):
            one, other = _node(maker, above), _node(user, below)
            self._users[one].append(other)
            self._makers[other].append(one)

    def _read(self, block: Block, calls: Calls, place: Any) -> None:
        self._done.add(block)
        for operation in block.operations:
            if operation.kind in _ENTERED:
                self._enter(operation, calls, place)
            elif operation.kind == "opt-barrier":
                self._connect(operation.operands, calls, operation.results, calls)
            elif operation.results:
                phase = "update" if operation.kind == "constant" else self._phase_at(operation, place)
                result = At(operation.results[0], calls)  # which stands for all of them
                makers = [_node(value, calls) for value in operation.operands]
                if phase != "update":
                    self._inside[result] = phase
                    makers = [at for at in makers if at not in self._inside]  # nothing is followed within a derivative
                for at in makers:
                    self._users[at].append(result)
                    self._makers[result].append(at)

    def _enter(self, operation: Operation, calls: Calls, place: Any) -> None:
        by_calls = self._place_inside is not None
        inside = (*calls, operation) if by_calls and operation.kind == "call" else calls
        place = self._place_inside and self._place_inside(operation, place)
        for number, block in enumerate(operation.blocks):
            self._connect(operation.block_operands(block), calls, block.arguments, inside)
            if by_calls or block not in self._done:
                self._read(block, inside, place)
            if operation.kind == "while" and number == 0:  # the condition
                continue
            self._connect(block.returned, inside, operation.results, calls)
            if operation.kind == "while":  # a gradient does not reach into what is handed to the next iteration
                for end, argument in zip(block.returned, block.arguments, strict=False):
                    self._makers[At(argument, inside)].append(_node(end, inside))


def _node(value: GraphValue, calls: Calls) -> At:
    """Return the node of a value. Each result of an operation that counts as single depends on all of its operands, so
    its first result stands for all."""
    maker = value.maker
    if maker is None or maker.kind in _ENTERED or maker.kind == "opt-barrier":
        return At(value, calls)
    is_result = value.index < len(maker.results) and maker.results[value.index] is value  # not what a start passes on
    return At(maker.results[0] if is_result else value, calls)
