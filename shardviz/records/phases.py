"""In which pass of a train step an operation stands: forward, backward, rematerialised, or the update.

JAX's name stack tells what is inside a derivative: `jvp(...)` is forward, `transpose(...)` backward, and there what
`jax.checkpoint` computes again is rematerialised.

>>> phase("jit(step)/transpose(jvp())/while/body/closed_call/checkpoint/rematted_computation/dot_general")
'rematerialised'
>>> phase("jit(step)/transpose(jvp())/dot_general"), phase("jit(step)/jvp()/dot_general"), phase("jit(step)/sub")
('backward', 'forward', 'update')

What stands outside may come before the derivative (a batch made ready) or after it (the optimizer), and there the
values tell:

    tokens ── one-hot ──▶ jvp ... ──▶ transpose ... ──▶ clip ──▶ add ──▶ parameters
              forward     forward     backward          update   ▲ update
                                      moment ── x 0.9 ───────────┘ update

An operation outside that a gradient reaches, past no other derivative, is the optimizer's part, `update`; what is
rematerialised belongs to the gradient. One that no gradient reaches and whose result a derivative uses, or that uses
the forward pass's, is `forward`. One with neither is `update` too.

>>> flow = Flow()
>>> batch, loss, gradient, clipped, moment = values = flow.values(5)
>>> flow.mark([loss], "forward"), flow.mark([gradient], "backward")
(None, None)
>>> for maker, user in [(batch, loss), (loss, gradient), (gradient, clipped), (moment, clipped)]:
...     flow.connect([maker], [user])
>>> flow.phase([batch]), flow.phase([clipped]), flow.phase([moment])
('forward', 'update', 'update')
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache
from itertools import product

from shardviz.kept import cached_property

_TRANSPOSE = re.compile(r"(?<![\w.])transpose\(")
_JVP = re.compile(r"(?<![\w.])jvp\(")


@lru_cache(maxsize=4096)
def _inside(name_stack: str) -> str:
    if _TRANSPOSE.search(name_stack):
        return "rematerialised" if "rematted_computation" in name_stack else "backward"
    return "forward" if _JVP.search(name_stack) else "update"


def is_differentiated(name_stacks: Iterable[str]) -> bool:
    """Whether any of a program's name stacks shows that it takes a derivative."""
    return any(_JVP.search(name) or _TRANSPOSE.search(name) for name in name_stacks)


def phase(name_stack: str, differentiated: bool = True) -> str:
    """Where in a train step an operation stands, from JAX's name stack.

    Args:
        name_stack: such as `jit(step)/transpose(jvp(layer))/dot_general`.
        differentiated: whether the program takes a derivative anywhere; where it does not, all is `forward`.

    Returns:
        `rematerialised` for what `jax.checkpoint` computes again on the way back (`rematted_computation` inside
        `transpose(...)`), `backward` inside `transpose(...)`, `forward` inside `jvp(...)`, and `update` for the rest:
        the optimizer's part, unless the values tell otherwise (see `Flow`).
    """
    return _inside(name_stack) if differentiated else "forward"


class Flow:
    """What is made of what in one program, HLO or StableHLO: in which pass an operation outside a derivative stands.

    A value is a number. What reads the program gives one to every result, and to each array that a loop, a call or a
    tuple hands on; says which are made of which; and marks those whose operation JAX's name stack puts inside a
    derivative.
    """

    def __init__(self) -> None:
        self._users: list[list[int]] = []
        self._makers: list[list[int]] = []
        self._inside: dict[int, str] = {}

    def values(self, count: int = 1) -> range:
        """New values."""
        first = len(self._users)
        if count == 1:  # most operations have one result
            self._users.append([])
            self._makers.append([])
        else:
            self._users.extend([] for _ in range(count))
            self._makers.extend([] for _ in range(count))
        return range(first, first + count)

    def made_of(self, makers: Sequence[int], phase: str = "update") -> int:
        """A new value, made of others in a pass that its operation's name stack says."""
        number = len(self._users)
        self._users.append([])
        self._makers.append(list(makers))
        for maker in makers:
            self._users[maker].append(number)
        if phase != "update":
            self._inside[number] = phase
        return number

    def mark(self, values: Iterable[int], phase: str) -> None:
        """Says in which pass values are made, by their operation's name stack."""
        if phase != "update":
            self._inside.update(dict.fromkeys(values, phase))

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
