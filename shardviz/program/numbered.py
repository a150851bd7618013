"""A reading of a propagated module that remembers which operation each of its rows is.

The module's operations are numbered (`shardviz.program.links`), so a row can be found again in any other run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardviz.program.chain import op_name
from shardviz.program.graph import MlirOperation
from shardviz.program.links import Key, Links, number_of
from shardviz.program.propagated import Reading
from shardviz.program.stablehlo import Around
from shardviz.records import Value


@dataclass(frozen=True, eq=False)
class Moved:
    """A collective as it stands in the module.

    Attributes:
        op: the operation.
        around: what stands around it.
    """

    op: MlirOperation
    around: Around


class Numbered(Reading):
    """A `Reading` with the key of every value, and the operation of every collective."""

    def __init__(self, *args: Any):
        self.keys: list[Key] = []
        self.moves: list[Moved] = []
        self._copies: Counter[tuple[tuple[int, ...], int]] = Counter()
        super().__init__(*args)

    def visit(self, op: MlirOperation) -> None:
        self._copies[self._tags(), number_of(op)] += 1
        super().visit(op)

    def key(self, op: MlirOperation) -> Key:
        """The key of the first result of the operation that is visited."""
        tags, number = self._tags(), number_of(op)
        return Key(tags, number, "result", 0, self._copies[tags, number] - 1)

    def _tags(self) -> tuple[int, ...]:
        return tuple(number_of(call) for call in self.around.calls)

    def _value(self, op: MlirOperation) -> None:
        before = len(self.values)
        super()._value(op)
        self.keys += [self.key(op)] * (len(self.values) - before)

    def _collective(self, op: MlirOperation) -> None:
        before = len(self.collectives)
        super()._collective(op)
        self.moves += [Moved(op, self.around)] * (len(self.collectives) - before)

    def _user_collective(self, op: MlirOperation, kind: str) -> None:
        before = len(self.collectives)
        super()._user_collective(op, kind)
        self.moves += [Moved(op, self.around)] * (len(self.collectives) - before)


_PARTS = frozenset(f"stablehlo.{op}" for op in ("dynamic_slice", "slice", "reshape", "transpose", "convert"))
"""What makes a part of an argument, or it in another form."""


def namer(links: Links, arguments: list[str], outputs: list[str], values: dict[Key, Value]) -> Callable[[int], str]:
    """What each node of a graph is called: its tree path, its variable, or the operation that makes it.

    What a loop, a branch or a function hands on is called as what it is given, a slice of an argument as a part of it.

    Args:
        links: the graph.
        arguments, outputs: tree paths.
        values: the report's values by key.
    """
    names: dict[int, str] = {}

    def named(node: int) -> str:
        if node not in names:
            names[node] = ""  # where a loop hands itself on
            names[node] = found(node)
        return names[node]

    def found(node: int) -> str:
        key = links.keys[node]
        if key.kind == "argument":
            return arguments[key.place]
        if key.kind == "output":
            return outputs[key.place]
        value = values.get(key)
        if value is not None and value.label:
            return value.label
        maker = links.maker(node)
        if maker is not None and maker.kind != "rule":
            inner = named(maker.ins[0])
            return f"{inner}, constrained" if maker.kind == "constraint" else inner
        if maker is not None:
            inner = named(maker.ins[0]) if maker.op.name in _PARTS else ""
            if inner.startswith(("a part of ", *arguments)):
                return inner if inner.startswith("a part of ") else f"a part of {inner}"
            return op_name(links, maker)
        for step in links.touching(node):
            if step.kind in ("loop", "call", "return", "manual") and node != step.ins[0]:
                return named(step.ins[0])
            if step.kind == "branch" and node == step.ins[0]:
                return named(step.ins[1])
        return "a value"

    return named
