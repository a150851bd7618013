"""The arrays, fusions and slots of a listed schedule (`foresee.listed`), and what an array is computed from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from shardviz.graph.operations import GraphValue
from shardviz.graph.uses import FREE
from shardviz.records.schedule import Scheduled


@dataclass(eq=False, slots=True)
class Slot:
    """A position in a block's schedule: what is done there, and what begins behind it."""

    scope: Scope
    number: int
    done: list[Scheduled | Fusion] = field(default_factory=list)
    begun: list[Scheduled] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Scope:
    """A block that is read: its slots, arrays and collectives, and the ends of collectives that nothing has waited
    for."""

    is_loop: bool
    arguments: list[ListedArray] = field(default_factory=list)
    nodes: list[ListedArray] = field(default_factory=list)
    collectives: dict[Any, tuple[GraphValue, ...]] = field(default_factory=dict)
    slots: list[Slot] = field(default_factory=list)
    waiting: dict[str, Scheduled] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.slot(())

    def slot(self, done: Iterable[Scheduled | Fusion]) -> Slot:
        self.slots.append(Slot(self, len(self.slots), [*done]))
        return self.slots[-1]


@dataclass(eq=False, slots=True)
class Fusion:
    """Work, and the bytes that it reads and writes. `kind` is its operation's, empty if it computes element by element.
    `early` is the slot where a compiler would put it to free more memory than it takes."""

    entry: Scheduled
    kind: str = ""
    read: dict[ListedArray, float] = field(default_factory=dict)
    on_tpus: float = 0.0  # bytes that only a TPU moves
    gives: list[ListedArray] = field(default_factory=list)
    parts: list[ListedArray] = field(default_factory=list)  # that it writes into other arrays
    relaid: list[ListedArray] = field(default_factory=list)  # arguments that a TPU copies for it, in other tiles
    result: GraphValue | None = None
    on_chip: dict[int, float] = field(default_factory=dict)
    computed: set[ListedArray] = field(default_factory=set)
    roots: list[tuple[ListedArray, float | None, bool]] = field(default_factory=list)
    slot: Slot | None = None
    early: Slot | None = None

    def scheduled(self, padding_of: Callable[[GraphValue], float]) -> Scheduled:
        """Return its entry, with these bytes."""
        moved = [*self.read.items(), *((node, node.size) for node in (*self.gives, *self.parts))]
        padding = self.on_tpus + sum(size * padding_of(node.value) for node, size in moved)
        own = self.entry.hbm_bytes + sum(size for _, size in moved)
        on_chip = {**self.entry.on_chip, **self.on_chip}
        return replace(self.entry, hbm_bytes=own, padding_bytes=padding, on_chip=on_chip)

    def keep(self, room: int, size: float) -> None:
        """Note that bytes stay on a chip with so much memory of its own."""
        self.on_chip[room] = self.on_chip.get(room, 0.0) + size


@dataclass(eq=False, slots=True)
class ListedArray:
    """An array that is in memory, or that is computed from others where it is read."""

    value: GraphValue
    size: float  # bytes on one device
    slot: Slot  # behind which it can be computed
    begun: frozenset[str] = frozenset()  # the collectives that must have ended before
    operands: Sequence[ListedArray] = ()  # from which `operation` computes it element by element
    operation: Any = None
    fusion: Fusion | None = None  # what computes it, or computed it first
    reader: Fusion | None = None  # the last that read it and could do more with it
    product: Fusion | None = None  # the first product that computes it
    over: Any = None  # of an all-reduce's result: over which devices it is
    sent: tuple[str, ...] = ()  # the collectives that take it
    is_gathered: bool = False  # it is an all-gather's result
    in_memory: bool = False  # it is there, or will be when something reads it
    written: bool = False  # that is counted
    stored: bool = False  # it is for a loop, or a result
    is_slice: bool = False  # no more than its own bytes of anything are read for it
    is_summed: bool = False  # it is a reduction's, which is there when all of its fusion is done
    updates: ListedArray | None = None  # the program's argument that it is, updated: in its place or in a copy
    place: ListedArray = field(init=False)  # the array in whose place it lies, mostly its own
    last: int = 0  # the slot at which it is needed last
    room: int = 0  # a chip with so many bytes of its own memory for values keeps it there; 0 for none

    def __post_init__(self) -> None:
        self.place = self
        self.slot.scope.nodes.append(self)

    @property
    def written_at(self) -> int:
        """The slot at which it is written."""
        return ((self.fusion and (self.fusion.early or self.fusion.slot)) or self.slot).number

    def need(self, slot: Slot) -> None:
        """Note that it is needed at a slot. A slot of another block counts as the next slot of its own block."""
        node = self
        while node.place is not node:
            node = node.place
        own = node.slot.scope
        node.last = max(node.last, slot.number if slot.scope is own else len(own.slots))


def computed_from(node: ListedArray) -> Iterator[ListedArray]:
    """Yield a node and all nodes that it is computed from, up to the arrays in memory."""
    seen, nodes = {node}, [node]
    for each in nodes:
        yield each
        if not each.in_memory:
            for operand in each.operands:
                if operand not in seen:
                    seen.add(operand)
                    nodes.append(operand)


def in_memory_of(node: ListedArray) -> Iterator[ListedArray]:
    """Yield the arrays in memory that a node is computed from."""
    if node.in_memory:  # as most are
        return iter((node,))
    return (each for each in computed_from(node) if each.in_memory)


def behind(node: ListedArray) -> ListedArray:
    """Return the array that a node is transposed, converted or broadcast from."""
    while not node.in_memory and node.operation.kind in FREE and node.operands:
        node = node.operands[0]
    return node


def is_interleaved(node: ListedArray) -> bool:
    """Return whether an array is computed only from pads that insert values between elements."""
    return all(each.fusion is not None and each.fusion.kind == "pad" for each in in_memory_of(node))


def bytes_read_again(node: ListedArray, most: float = math.inf) -> float:
    """Return the bytes that are read where a node is computed again: whole arrays, or the largest slice of each. Once
    they are more than `most`, the rest is not counted: a chain of thousands of operations is asked at each of them."""
    read, total = set[ListedArray](), 0.0
    waiting = {math.inf: [node]}  # bytes of a slice → what it is of; the largest first, so that a node is visited once
    while waiting:
        limit = max(waiting)
        nodes = waiting.pop(limit)
        for each in nodes:
            if each in read:
                continue
            read.add(each)
            if each.in_memory:
                total += min(limit, each.size)
                if total > most:
                    return total
                continue
            part = min(limit, each.size) if each.is_slice else limit
            (nodes if part == limit else waiting.setdefault(part, [])).extend(each.operands)
    return total


def any_gathered(nodes: Iterable[ListedArray]) -> bool:
    return any(each.is_gathered for node in nodes for each in in_memory_of(node))


def comes_from_memory(node: ListedArray) -> bool:
    return next(in_memory_of(node), None) is not None
