"""A schedule for a program that has none: the program's own order, with about the fusions that a compiler makes of it.

A collective begins when its operand is there, and is waited for where its result is first needed:

    program     a = dot(x)     g = all-gather(w)     b = dot(a)     c = dot(b, g)
    schedule    begin g        a                     b              end g        c

Bytes of main memory are those of fusions:

| what | in memory |
|---|---|
| products, reductions, gathers, sorts, kernels | read their operands and write their results: one fusion each |
| a scatter of one element into each row | is a comparison with each index, element by element |
| a pad that spreads the elements | reads and writes main memory, and is part of nothing |
| what is computed element by element | is computed where it is read, from what it comes from |
| ... of a product, for another product or for a collective | is written by the product, in its own place |
| ... for two fusions, of more bytes than it has twice itself | is written by the first, and read by the second |
| ... ... more than three times, where the first is a matrix product, which gives no operand | is written before that |
| ... from pads that spread the elements, alone (an interleaving) | ... of no more bytes, is computed again |
| ... for a product, of more elements than each array that it comes from (an outer product) | is written |
| ... for a slice that leaves elements out between | is written, before it is broadcast |
| ... for a barrier | is written |
| ... for a product of what is gathered, or whose sum is scattered: mostly a loop over its parts | is written |
| ... for a collective, a loop, or as a result | is written |
| slices | read their part; updates in place write theirs |
| a reduction of what a fusion gives or reads, element by element | is that fusion's too |
| a softmax of a product of fewer bytes, up to the exponentials and their sums | is the product's, which gives these |
| a loop's first values that never change and come from nothing in memory | are computed inside |
| ... that the loop fills, part by part | are not written |
| what fusions and collectives hand on to each other | stays in a chip's own memory, if that has room |
| a convolution's images, and what has their shape | are read and written in whole tiles by a TPU (`graph.tiles`) |

So are what XLA's passes make of collectives: the same again is none, two all-reduces that are only added up are one,
and one of which only slices are used is a reduce-scatter. What is gathered in float32 for products alone goes between
TPUs as bfloat16, to which their products round it.

An array is held from where it is written until it is read last, and what is returned to the end. What is updated in its
place, what a loop hands on, an all-reduce of what nothing else reads, and a result of a donated argument's size lie
where that lay. Work that frees more than it gives is done when its operands are there. `alive_bytes` are the sums.

>>> from shardviz.graph.operations import Block, Operation, GraphValue
>>> block = Block()
>>> x, w = block.arguments = tuple(GraphValue(block, i, (4,), "float32", None) for i in range(2))
>>> work = lambda operation: Scheduled(kind="work", name=operation.kind)
>>> listing = ScheduleBuilder(lambda value: (4,), lambda value: 16.0, work)
>>> listing.open(block)
>>> def op(kind, *operands):
...     operation = Operation(kind, operands, block, None)
...     operation.results = (GraphValue(operation, 0, (4,), "float32", None),)
...     listing.add(operation, entries.get(kind, ()))
...     return operation.results[0]
>>> pair = Scheduled(kind="begin", name="g", collective="g"), Scheduled(kind="end", name="g")
>>> entries = {"all-gather": pair, "dot": (Scheduled(kind="work", name="dot"),)}
>>> a, g = op("dot", x), op("all-gather", w)
>>> c = op("dot", op("tanh", op("dot", a)), g)
>>> " ".join(f"{e.kind}:{e.name}:{e.hbm_bytes:g}" for e in listing.close((c,)))
'begin:g:0 work:dot:32 work:dot:32 end:g:0 work:dot:48'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from shardviz.graph.flops import PRODUCTS
from shardviz.graph.operations import Block, Dims, GraphValue, Operation
from shardviz.graph.tiles import image_padding
from shardviz.records.schedule import Schedule, Scheduled
from shardviz.records.values import take_donated

_KERNELS = PRODUCTS | frozenset(
    ("reduce", "reduce-window", "select-and-scatter", "gather", "scatter", "sort", "fft", "custom-call", "top-k",
     "topk", "rng-bit-generator", "cholesky", "triangular-solve", "concatenate")
)  # fmt: skip
"""Operations that are fusions of their own."""
_VIEWS = frozenset(("bitcast", "reshape", "opt-barrier", "sharding", "sharding-constraint", "copy", "after-all"))
"""Operations whose results are their operands."""
_SLICES = frozenset(("slice", "dynamic-slice", "all-slice"))


_LARGEST, _STEP = 128 * 2**20, 8 * 2**20
"""Bytes of the largest memory that a chip has for values, and in what steps rooms are told apart."""
_DOTS = PRODUCTS - {"convolution"}
_FREE = frozenset(("transpose", "broadcast", "broadcast-in-dim", "convert"))
"""What a product does with its operands as it reads them."""
_TURNS = frozenset(("transpose", "bitcast", "reshape", "copy"))
_OPEN = frozenset(("", "reduce"))
"""Kinds of fusions that can give more results."""
_NONE: frozenset[str] = frozenset()


@dataclass(eq=False, slots=True)
class _Slot:
    """A place in a block's schedule: what is done there, and what can begin behind it."""

    scope: _Scope
    number: int
    done: list[Scheduled | _Fusion] = field(default_factory=list)
    begun: list[Scheduled] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Scope:
    """A block that is read: its slots, arrays and collectives, and the ends of what was begun and not waited for."""

    is_loop: bool
    arguments: list[_ListedArray] = field(default_factory=list)
    nodes: list[_ListedArray] = field(default_factory=list)
    collectives: dict[Any, tuple[GraphValue, ...]] = field(default_factory=dict)
    slots: list[_Slot] = field(default_factory=list)
    waiting: dict[str, Scheduled] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.slot(())

    def slot(self, done: Iterable[Scheduled | _Fusion]) -> _Slot:
        self.slots.append(_Slot(self, len(self.slots), [*done]))
        return self.slots[-1]


class _Held(NamedTuple):
    """Bytes that are held, as of `Scheduled`."""

    whole: float
    padding: float
    rounded: float
    on_chip: dict[Any, float]
    """Of what collectives take or give the rooms are negative."""


@dataclass(eq=False, slots=True)
class _Fusion:
    """Work, and the bytes that it reads and writes; `kind` is that of its operation, empty for element by element. As a
    compiler would have it, it is done `early` where it needs more memory than it gives."""

    entry: Scheduled
    kind: str = ""
    read: dict[_ListedArray, float] = field(default_factory=dict)
    written: float = 0.0
    gives: list[_ListedArray] = field(default_factory=list)
    result: GraphValue | None = None
    on_chip: dict[int, float] = field(default_factory=dict)
    computed: set[_ListedArray] = field(default_factory=set)
    roots: list[tuple[_ListedArray, float | None, bool]] = field(default_factory=list)
    slot: _Slot | None = None
    early: _Slot | None = None

    def scheduled(self, padding_of: Callable[[GraphValue], float]) -> Scheduled:
        """Its entry, with these bytes."""
        moved = [*self.read.items(), *((node, node.size) for node in self.gives)]
        padding = sum(size * padding_of(node.value) for node, size in moved)
        own = sum(self.read.values()) + self.written
        return replace(self.entry, hbm_bytes=own, padding_bytes=padding, on_chip=self.on_chip)

    def keep(self, room: int, size: float) -> None:
        """Notes that bytes stay on a chip that has so much room."""
        self.on_chip[room] = self.on_chip.get(room, 0.0) + size


@dataclass(eq=False, slots=True)
class _ListedArray:
    """An array: in memory, or to be computed from others where it is read."""

    value: GraphValue
    size: float  # bytes on one device
    slot: _Slot  # behind which it can be computed
    begun: frozenset[str] = _NONE  # the collectives that must have ended before
    operands: Sequence[_ListedArray] = ()  # from which `operation` computes it element by element
    operation: Any = None
    fusion: _Fusion | None = None  # what computes it, or computed it first
    reader: _Fusion | None = None  # the last that read it and could do more with it
    product: _Fusion | None = None  # the first product that computes it
    over: Any = None  # of an all-reduce's result: over which devices it is
    sent: tuple[str, ...] = ()  # the collectives that take it
    is_gathered: bool = False  # it is an all-gather's result
    in_memory: bool = False  # it is there, or will be when something reads it
    written: bool = False  # that is counted
    stored: bool = False  # it is for a loop, or a result
    is_slice: bool = False  # no more than its own bytes of anything are read for it
    is_summed: bool = False  # it is a reduction's, which is there when all of its fusion is done
    place: _ListedArray = field(init=False)  # the array in whose place it lies, mostly its own
    last: int = 0  # the slot at which it is needed last
    room: int = 0  # a chip with so many bytes of its own memory for values keeps it there; 0 for none

    def __post_init__(self) -> None:
        self.place = self
        self.slot.scope.nodes.append(self)

    @property
    def made(self) -> int:
        """The slot at which it is written."""
        return ((self.fusion and (self.fusion.early or self.fusion.slot)) or self.slot).number

    def need(self, slot: _Slot) -> None:
        """Notes that it is needed at a slot; in another block than its own when that runs, which is next."""
        node = self
        while node.place is not node:
            node = node.place
        own = node.slot.scope
        node.last = max(node.last, slot.number if slot.scope is own else len(own.slots))


class ScheduleBuilder:
    """The schedule of a program, made as its operations are read in order."""

    def __init__(
        self,
        shape_of: Callable[[Any], Dims],
        bytes_of: Callable[[Any], float],
        entry_of: Callable[[Any], Scheduled],
    ):
        """Reads nothing yet.

        Args:
            shape_of, bytes_of: array → the shape, and the bytes, of one device's part.
            entry_of: operation that has no entries → that of its work, where it is a fusion of its own.
        """
        self._shape_of, self._bytes_of, self._entry_of = shape_of, bytes_of, entry_of
        self._padded: dict[Dims, float] = {}
        self._nodes: dict[GraphValue, _ListedArray] = {}
        self._scopes: list[_Scope] = []

    def open(self, block: Block, initial: Sequence[GraphValue] = ()) -> None:
        """Begins a block that has a schedule of its own: the main one, a loop's body, a branch. Of what a loop begins
        with (`initial`), what stays the same and comes from nothing in memory is computed inside."""
        self._scopes.append(_Scope(bool(initial)))
        for value in block.arguments:
            self._there(value)
            self._scopes[-1].arguments.append(self._nodes[value])
        for value, first, last in zip(block.arguments, initial, block.returned, strict=False):
            if value is last and not _comes_from_memory(self._node(first)):
                self._nodes[value] = self._node(first)

    def close(self, returned: Iterable[GraphValue], donated: Iterable[float] = ()) -> Schedule:
        """Ends it; its schedule. Results take the places of donated arguments, given as bytes on one device."""
        nodes = [*map(self._node, returned)]
        for node in filter(_comes_from_memory, nodes):
            self._store(node)
        scope = self._scopes.pop()
        _keep_on_chip([entry for slot in scope.slots for entry in (*slot.done, *slot.begun)])
        alive = self._alive(scope, nodes, [*donated])
        rows = [
            (entry, held) for slot, held in zip(scope.slots, alive, strict=True) for entry in (*slot.done, *slot.begun)
        ]
        done = (e.scheduled(self._padding_of) if isinstance(e, _Fusion) else e for e, _ in rows)
        entries = [_held(entry, held) for entry, (_, held) in zip(done, rows, strict=True)]
        moving = (e for e in entries if e.kind != "work" or e.flops or e.hbm_bytes or e.opaque)
        return (*moving, *(_held(entry, alive[-1]) for entry in scope.waiting.values()))

    def _alive(self, scope: _Scope, returned: list[_ListedArray], donated: list[float]) -> list[_Held]:
        """Bytes that are held at each of a block's slots, of what is made in it."""
        arguments = {*scope.arguments}
        last: dict[_ListedArray, _Fusion] = {}
        fusions = [each for slot in scope.slots for each in slot.done if isinstance(each, _Fusion)]
        for fusion in fusions:
            own = (node for node in fusion.read if node.slot.scope is scope and node not in arguments)
            last.update(dict.fromkeys(own, fusion))
        for fusion in fusions:
            freed = sum(node.size for node in fusion.read if last.get(node) is fusion)
            if freed > sum(node.size for node in fusion.gives) and fusion.slot is not None:
                ready = max((node.made for node in fusion.read if node.slot.scope is scope), default=0)
                fusion.early = scope.slots[ready] if ready + 1 < fusion.slot.number else None
            if (at := fusion.early or fusion.slot) is not None:
                for node in fusion.read:
                    node.need(at)
        elsewhere = {*arguments}
        carried = zip(returned, scope.arguments, strict=False) if scope.is_loop else ()
        elsewhere.update(node.place for node, before in carried if before.last <= node.place.made)
        for node in returned:
            node.need(scope.slots[-1])
            if not self._scopes and node.place not in elsewhere and take_donated(donated, node.place.size):
                elsewhere.add(node.place)
        ends = len(scope.slots)
        changes: dict[int | str, list[float]] = {}
        for node in scope.nodes:
            if node.written and node.place is node and node.slot.scope is scope and node not in elsewhere:
                padding, less = node.size * self._padding_of(node.value), node.size / 2 * _is_rounded(node.value)
                sizes: dict[int | str, float] = {"whole": node.size, "padding": padding, "rounded": less}
                if node.room:
                    moved = -1 if node.sent or node.begun else 1
                    sizes[moved * node.room] = node.size + padding - less
                for what, size in sizes.items():
                    if size:
                        row = changes.setdefault(what, [0.0] * (ends + 1))
                        row[node.made] += size
                        row[max(node.last, node.made) + 1] -= size
        sums = {what: [*accumulate(row[:-1])] for what, row in changes.items()}
        whole, padding, less = (sums.pop(what, [0.0] * ends) for what in ("whole", "padding", "rounded"))
        on_chip = ({room: row[n] for room, row in sums.items() if row[n] > 0} for n in range(ends))
        return [_Held(*each) for each in zip(whole, padding, less, on_chip, strict=True)]

    def same(self, values: Iterable[GraphValue], others: Iterable[GraphValue]) -> None:
        """Values are the same as others: a called block's arguments, what a call gives."""
        for value, other in zip(values, others, strict=False):
            self._nodes[value] = self._node(other)

    def add(self, operation: Operation, entries: Iterable[Scheduled], over: Any = None, partial: float = 0.0) -> None:
        """Adds an operation.

        Args:
            operation: it stands after those whose results it uses.
            entries: what it does: nothing for what is computed element by element; of work one entry; of a collective
                a `begin` and its `end`; of a loop that; of what runs a block as a whole that block's schedule.
            over: of a collective: over which devices it is, and how; None where it is like no other.
            partial: of a matrix product: bytes of its partial sums that are held beside its result.
        """
        kind, entries = operation.kind, tuple(entries)
        if kind == "opt-barrier":
            self._compute(map(self._node, operation.operands))
        if kind in _VIEWS and not entries:
            self.same(operation.results, operation.operands)
            return
        operands = [self._node(value) for value in operation.operands]
        if kind == "slice" and operation.spreads:
            self._compute(map(_behind, operands))
        if entries and all(entry.kind in ("begin", "end") for entry in entries):
            self._begin(operation, operands, entries, over)
        elif kind == "add" and self._is_one_sum(operation, operands):
            self.same(operation.results, operation.operands[1:])
        elif kind == "multiply" and any(map(_is_one, operation.operands)):
            self.same(operation.results, [v for v in operation.operands if not _is_one(v)] or operation.operands)
        elif operation.blocks:
            self._run(operation, operands, entries)
        elif kind == "dynamic-update-slice":
            self._update(operation, operands)
        elif self._is_kernel(operation) or entries:
            entry = entries[0] if entries else self._entry_of(operation)
            self._kernel(operation, operands, entry)
            if partial:
                beside = _ListedArray(operation.results[0], partial, self._scopes[-1].slots[-1])
                beside.written = True
        else:
            slot, begun = self._ready(operands)
            for value in operation.results:
                node = self._nodes[value] = self._array(value, slot, begun, operands, operation)
                node.is_slice = kind in _SLICES

    def _is_kernel(self, operation: Operation) -> bool:
        """Whether an operation is a fusion of its own."""
        if operation.kind == "pad":
            return operation.spreads
        return operation.kind in _KERNELS and not (operation.kind == "scatter" and operation.compares)

    def _array(self, value: GraphValue, slot: _Slot, *args: Any) -> _ListedArray:
        return _ListedArray(value, self._bytes_of(value), slot, *args)

    def _padding_of(self, value: GraphValue) -> float:
        return self._padded.get(self._shape_of(value), 0.0) if self._padded else 0.0

    def _there(self, value: GraphValue) -> None:
        """A value that is in memory from the block's begin on."""
        node = self._nodes[value] = self._array(value, self._scopes[-1].slots[0])
        node.in_memory = node.written = True

    def _node(self, value: GraphValue) -> _ListedArray:
        if value not in self._nodes:
            self._there(value)
        return self._nodes[value]

    def _ready(self, nodes: Iterable[_ListedArray]) -> tuple[_Slot, frozenset[str]]:
        """Behind which slot of the block nodes are there, and after which collectives."""
        scope, slot, begun = self._scopes[-1], self._scopes[-1].slots[0], _NONE
        for node in nodes:
            if node.slot.scope is scope:
                slot = node.slot if node.slot.number > slot.number else slot
                begun = begun | node.begun if node.begun else begun
        return slot, begun

    def _begin(self, operation: Operation, operands: list[_ListedArray], entries: Schedule, over: Any) -> None:
        """A collective: what it takes is in memory, and so is what it gives. The same again is none."""
        scope = self._scopes[-1]
        for node in operands:
            self._to_memory(node)
        first = (
            operation.results if over is None else scope.collectives.setdefault((over, *operands), operation.results)
        )
        if first is not operation.results:
            self.same(operation.results, first)
            return
        slot, before = self._ready(operands)
        for node in operands:
            node.need(slot)
        scatters = operation.kind == "all-reduce" and all(map(self._is_sliced, operation.results))
        narrows = operation.kind == "all-gather" and all(map(_is_rounded, operation.results))
        for entry in entries:
            if entry.kind == "begin":
                slot.begun.append(
                    replace(entry, after=(*sorted(before), *entry.after), scatters=scatters, narrows=narrows)
                )
            else:
                scope.waiting[entry.name] = entry
        names = frozenset(entry.name for entry in entries if entry.kind == "begin")
        for node in operands:
            node.sent = (*node.sent, *names)
        for value in operation.results:
            self._there(value)
            node = self._nodes[value]
            node.is_gathered = operation.kind == "all-gather"
            node.slot, node.begun, node.over = slot, names, over if operation.kind == "all-reduce" else None
            if operation.kind == "all-reduce" and len(operands) == 1 and self._is_taken(operands[0]):
                node.place = operands[0].place

    def _is_taken(self, node: _ListedArray) -> bool:
        """Whether a collective alone uses what this step itself writes: its result may lie there."""
        return node.fusion is not None and node.slot.scope is self._scopes[-1] and len(node.value.uses) == 1

    def _is_sliced(self, value: GraphValue) -> bool:
        """Whether nothing but slices of a value are used, of no more than half of it."""
        users = [user for user, _ in value.uses]
        return bool(users) and all(
            isinstance(user, Operation)
            and user.kind in _SLICES
            and 2 * self._bytes_of(user.results[0]) <= self._bytes_of(value)
            for user in users
        )

    def _is_scattered(self, value: GraphValue) -> bool:
        """Whether a value is added up over devices and each keeps a slice of the sum."""
        users = [user for user, _ in value.uses if isinstance(user, Operation)]
        sums = (all(map(self._is_sliced, user.results)) for user in users if user.kind == "all-reduce")
        return any(user.kind == "reduce-scatter" for user in users) or any(sums)

    def _is_one_sum(self, operation: Operation, operands: list[_ListedArray]) -> bool:
        """Whether two all-reduces are added up and used for nothing else: the second does for both."""
        first, second = operands
        waiting = self._scopes[-1].waiting
        alike = first.over is not None and first.over == second.over and first is not second
        alone = all(len(value.uses) == 1 for value in operation.operands)
        if not (alike and alone and first.begun and first.begun <= waiting.keys() and second.begun <= waiting.keys()):
            return False
        after = [name for entry in first.slot.begun if entry.name in first.begun for name in entry.after]
        first.slot.begun = [entry for entry in first.slot.begun if entry.name not in first.begun]
        second.slot.begun = [
            replace(entry, after=(*entry.after, *after)) if entry.name in second.begun else entry
            for entry in second.slot.begun
        ]
        for name in first.begun:
            del waiting[name]
        return True

    def _run(self, operation: Operation, operands: list[_ListedArray], entries: Schedule) -> None:
        """A loop, or the branches of a conditional, which take and give what is in memory."""
        body, loops = operation.blocks[-1], operation.kind == "while"
        for place, node in enumerate(operands):
            stays = loops and (body.returned[place] is body.arguments[place] or _is_filled(body.returned[place]))
            if not stays or _comes_from_memory(node):
                self._store(node)
        slot = self._slot(operands, entries)
        for node in operands:
            node.need(slot)
        for place, (value, last) in enumerate(zip(operation.results, body.returned, strict=False)):
            if loops and not _comes_from_memory(self._node(last)):
                self._nodes[value] = self._node(last)
                continue
            self._there(value)
            self._nodes[value].slot = slot
            if not loops:
                continue
            first, stays = operands[place], last is body.arguments[place]
            if first.written and (stays or not (self._is_kept(first) or first in operands[:place])):
                self._nodes[value].place = first.place

    def _slot(self, nodes: Iterable[_ListedArray], done: Iterable[Scheduled | _Fusion]) -> _Slot:
        """A new slot, which waits for the collectives whose results are needed."""
        scope, (_, begun) = self._scopes[-1], self._ready(nodes)
        ends = [scope.waiting.pop(name) for name in sorted(begun) if name in scope.waiting]
        return scope.slot([*ends, *done])

    def _kernel(self, operation: Operation, operands: list[_ListedArray], entry: Scheduled) -> None:
        kind, fusion = operation.kind, None
        if kind == "convolution":
            laid = operation.convolution
            for value, dims in ((operation.array(0), laid.input), (operation.result, laid.output)):
                self._padded.setdefault(shape := self._shape_of(value), image_padding(shape, dims))
        if kind == "reduce":
            fusion = self._fusion_behind(operands[0], _OPEN | PRODUCTS) or self._softmax_behind(operands[0])
        if kind in _DOTS and (self._is_scattered(operation.results[0]) or _is_gathered(operands)):
            self._compute(operands)
        if kind in _DOTS:
            self._compute(node for node in operands if self._is_spread(node))
        if fusion is None:
            fusion = _Fusion(entry, kind)
            for node in operands:
                if (product := self._product_behind(node)) is not None:
                    self._make(product, node)
            if kind == "pad":
                operands = [self._for_itself(node) if _comes_from_memory(node) else node for node in operands]
            fusion.slot = self._slot(operands, (fusion,))
        limit = sum(self._bytes_of(value) for value in operation.results) if kind == "gather" else None
        for place, node in enumerate(operands):
            self._read(fusion, node, limit if place == 0 else None, kind in _DOTS)
        for value in operation.results:
            node = self._nodes[value] = self._array(value, fusion.slot or self._scopes[-1].slots[-1])
            node.in_memory, node.fusion, node.is_summed = True, fusion, kind == "reduce"
            node.stored = kind == "pad"  # which a TPU's compiler hardly ever keeps in a chip's own memory
            fusion.result = fusion.result or value

    def _update(self, operation: Operation, operands: list[_ListedArray]) -> None:
        """An array that is updated in its place: the part is read and written."""
        whole, part, *_ = operands
        self._to_memory(whole)
        fusion = self._product_behind(part)
        if fusion is None:
            fusion = _Fusion(self._entry_of(operation), operation.kind)
            fusion.slot = self._slot(operands, (fusion,))
        self._read(fusion, part)
        fusion.written += part.size
        if whole.fusion is None:
            target = whole
            self._there(operation.results[0])
            whole = self._node(operation.results[0])
            whole.place = whole if self._is_kept(target) else target.place
        self._nodes[operation.results[0]] = whole
        whole.slot = fusion.slot or whole.slot

    def _is_kept(self, node: _ListedArray) -> bool:
        """Whether an array stays as it is, as an argument of the program does."""
        return node.place in self._scopes[0].arguments

    def _store(self, node: _ListedArray) -> None:
        """Puts an array into memory, where it stays."""
        node.stored = True
        self._to_memory(node)

    def _to_memory(self, node: _ListedArray) -> None:
        if not node.in_memory:
            fusion = node.fusion or self._product_behind(node) or self._fusion_behind(node, _OPEN)
            if fusion is None:
                fusion = _Fusion(self._entry_of(node.operation))
                fusion.slot = self._slot((node,), (fusion,))
            self._make(fusion, node)
        self._write(node)

    def _make(self, fusion: _Fusion, node: _ListedArray) -> None:
        """Has a fusion go on to compute an array, which is in memory when that is done."""
        self._read(fusion, node)
        node.in_memory, node.fusion, node.slot, node.begun = True, fusion, fusion.slot or node.slot, _NONE

    def _compute(self, nodes: Iterable[_ListedArray]) -> None:
        """Puts what is computed of arrays in memory there too."""
        for node in nodes:
            at = _behind(node)
            if not at.in_memory and _comes_from_memory(at):
                self._to_memory(node)

    def _write(self, node: _ListedArray) -> None:
        if not node.written and node.fusion is not None:
            node.fusion.written += node.size
            node.fusion.gives.append(node)
        node.written = True

    def _is_spread(self, node: _ListedArray) -> bool:
        """Whether an array has more elements than each of several that it is computed from, as an outer product."""
        sizes = [math.prod(self._shape_of(each.value)) for each in _memory(node)]
        return len(sizes) > 1 and max(sizes) < math.prod(self._shape_of(node.value))

    def _for_itself(self, node: _ListedArray) -> _ListedArray:
        """An array in memory for what is part of nothing; others interleave it again, if that takes no more bytes."""
        again = node
        if not node.in_memory and _is_interleaved(node) and _read_again(node) <= 2 * node.size:
            again = self._array(node.value, node.slot, node.begun, node.operands, node.operation)
        self._to_memory(again)
        return again

    def _product_behind(self, node: _ListedArray) -> _Fusion | None:
        """The product that writes what is computed of its result in its own place: everything else is there then."""
        if node.in_memory or node.fusion is not None:
            return None
        fusion = self._fusion_behind(node, PRODUCTS)
        if fusion is None or not any(each.fusion is fusion and node.size <= each.size for each in _memory(node)):
            return None
        return fusion

    def _fusion_behind(self, node: _ListedArray, kinds: frozenset[str]) -> _Fusion | None:
        """A fusion that gives or reads what a node is computed from, and can go on to compute the node."""
        slot, waiting = node.slot, self._scopes[-1].waiting
        if slot.scope is not self._scopes[-1] or any(name in waiting for name in node.begun):
            return None
        memory = list(_memory(node))
        for fusion in (*(each.fusion for each in memory), *(each.reader for each in memory)):
            if fusion is None or fusion.kind not in kinds or fusion.slot is None:
                continue
            there = fusion.slot.scope is slot.scope and fusion.slot.number >= slot.number
            if there and not any(each.is_summed and each.fusion is fusion for each in memory):
                return fusion
        return None

    def _softmax_behind(self, node: _ListedArray) -> _Fusion | None:
        """The product that goes on to compute a node, where it has reduced its own rows for it and is of fewer bytes.

        It gives the node then, in place of its own result, where nothing has read that yet.
        """
        memory = [*_memory(node)]
        for product in memory:
            fusion = product.fusion
            if fusion is None or fusion.kind not in _DOTS or product.is_summed or not self._is_open(fusion):
                continue
            reduced = any(each.is_summed and each.fusion is fusion for each in memory)
            if reduced and product.size < node.size and not product.written and self._is_computed_once(fusion, node):
                self._make(fusion, node)
                return fusion
        return None

    def _is_computed_once(self, fusion: _Fusion, node: _ListedArray) -> bool:
        """Whether no other operation of a node's kind computes the same of a product, in another layout."""
        values, seen = [fusion.result] if fusion.result else [], set[Operation]()
        while values:
            users = {user for user, _ in values.pop().uses if isinstance(user, Operation)} - seen
            if any(user.kind == node.operation.kind and user is not node.operation for user in users):
                return False
            seen |= users
            values += [v for user in users - {node.operation} if user.kind not in _KERNELS for v in user.results]
        return True

    def _is_shared(self, node: _ListedArray, fusion: _Fusion) -> bool:
        """Whether another fusion computes a node too, and to compute it twice takes more bytes than to write it."""
        if not any(each not in (None, fusion) and self._is_open(each) for each in (node.fusion, node.product)):
            return False
        again = _read_again(node)
        if _is_interleaved(node):
            return 2 * node.size < again
        return 3 * node.size < again if self._is_open(node.product) else 2 * node.size <= again

    def _is_open(self, fusion: _Fusion | None) -> bool:
        """Whether a fusion is in a block that is still read."""
        return fusion is not None and fusion.slot is not None and fusion.slot.scope in self._scopes

    def _write_apart(self, node: _ListedArray) -> None:
        """Has a node written by the first that computed it; before a product, which gives none of its operands."""
        first = node.product
        if first is not None and first.slot is not None and self._is_open(first):
            own = _Fusion(self._entry_of(node.operation))
            own.slot = first.slot
            own.slot.done.insert(own.slot.done.index(first), own)
            roots, first.roots = first.roots, []
            for each in first.computed:
                each.fusion = None if each.fusion is first else each.fusion
                each.product = None if each.product is first else each.product
            first.read.clear()
            first.computed.clear()
            self._read(own, node)
            node.fusion, node.in_memory = own, True
            for root in roots:
                self._read(first, *root)
        node.in_memory = True

    def _read(self, fusion: _Fusion, node: _ListedArray, limit: float | None = None, feeds: bool = False) -> None:
        """Counts what a fusion reads for an array; `feeds`: it is a product's operand."""
        nodes = [(node, limit)]
        fusion.roots.append((node, limit, feeds))
        while nodes:
            node, limit = nodes.pop()
            if node.in_memory:
                if node.fusion is not fusion:
                    self._write(node)
                    size = node.size if limit is None else min(limit, node.size)
                    fusion.read[node] = max(size, fusion.read.get(node, 0.0))
                    if fusion.kind in _OPEN:
                        node.reader = fusion
                continue
            if node in fusion.computed:
                continue
            if self._is_shared(node, fusion):
                self._write_apart(node)
                nodes.append((node, limit))
                continue
            node.fusion = node.fusion or fusion
            if feeds and not self._is_open(node.product):
                node.product = fusion
            fusion.computed.add(node)
            if node.is_slice:
                limit = node.size if limit is None else min(limit, node.size)
            nodes += [(each, limit) for each in node.operands]


def _is_one(value: GraphValue) -> bool:
    """Whether all elements of a value are one number, 1."""
    while (maker := value.maker) is not None and (maker.kind in _FREE or maker.kind == "reshape"):
        value = maker.operands[0]
    if maker is None or maker.kind != "constant" or value.shape:
        return False
    try:
        return float(maker.constant) == 1.0
    except ValueError:
        return False


def _is_rounded(value: GraphValue) -> bool:
    """Whether a value is of float32 and nothing but matrix products use it, which on a TPU take bfloat16."""
    return value.dtype == "float32" and _is_multiplied(value)


def _is_multiplied(value: GraphValue) -> bool:
    """Whether nothing but matrix products use a value, as it is or turned over."""
    users = [user for user, _ in value.uses]
    return bool(users) and all(
        isinstance(user, Operation)
        and (user.kind in PRODUCTS or (user.kind in _TURNS and _is_multiplied(user.results[0])))
        for user in users
    )


def _held(entry: Scheduled, more: _Held) -> Scheduled:
    """An entry while so many bytes more are held."""
    body = tuple(_held(inner, more) for inner in entry.body)
    on_chip, sent = {**entry.alive_on_chip}, {**entry.alive_sent}
    for room, size in more.on_chip.items():
        kept = on_chip if room > 0 else sent
        kept[abs(room)] = kept.get(abs(room), 0.0) + size
    return replace(
        entry,
        alive_bytes=(entry.alive_bytes or 0.0) + more.whole,
        alive_padding=max(0.0, entry.alive_padding + more.padding),
        alive_rounded=max(0.0, entry.alive_rounded + more.rounded),
        alive_on_chip=on_chip,
        alive_sent=sent,
        body=body,
    )


def _memory(node: _ListedArray) -> Iterator[_ListedArray]:
    """The arrays in memory that a node is computed from."""
    seen, nodes = {node}, [node]
    for each in nodes:
        if each.in_memory:
            yield each
            continue
        for operand in each.operands:
            if operand not in seen:
                seen.add(operand)
                nodes.append(operand)


def _behind(node: _ListedArray) -> _ListedArray:
    """What an array is turned, converted or broadcast from."""
    while not node.in_memory and node.operation.kind in _FREE and node.operands:
        node = node.operands[0]
    return node


def _is_interleaved(node: _ListedArray) -> bool:
    """Whether an array is computed from pads alone that spread the elements."""
    return all(each.fusion is not None and each.fusion.kind == "pad" for each in _memory(node))


def _read_again(node: _ListedArray) -> float:
    """Bytes that are read where a node is computed again; of what it takes slices of, these."""
    read: dict[_ListedArray, float] = {}
    nodes = [(node, math.inf)]
    for each, limit in nodes:
        if each.in_memory:
            read[each] = max(read.get(each, 0.0), min(limit, each.size))
        else:
            limit = min(limit, each.size) if each.is_slice else limit
            nodes += [(operand, limit) for operand in each.operands if read.setdefault(operand, 0.0) == 0.0]
    return sum(read.values())


def _keep_on_chip(rows: Sequence[Scheduled | _Fusion]) -> None:
    """Notes how large a chip's own memory has to be to keep what fusions and collectives hand on to each other.

    What lives shortest goes first, and then what is smallest, each beside what is there already.
    """
    begins = {row.name: n for n, row in enumerate(rows) if isinstance(row, Scheduled) and row.kind == "begin"}
    makers: dict[_ListedArray, _Fusion] = {}
    readers: dict[_ListedArray, list[tuple[_Fusion, float]]] = {}
    places: dict[_ListedArray, list[int]] = {}
    for place, row in enumerate(rows):
        if not isinstance(row, _Fusion):
            continue
        for node in row.gives:
            makers[node] = row
        for node, size in row.read.items():
            readers.setdefault(node, []).append((row, size))
        for node in (*row.gives, *row.read):
            places.setdefault(node, []).append(place)
    lives = []
    for node, used in places.items():
        used += [begins[name] for name in (*node.begun, *node.sent) if name in begins]
        handed = (node in makers or node.begun) and len(used) > 1
        if handed and not node.stored and 0 < node.size <= _LARGEST:
            lives.append((max(used) - min(used), node.size, min(used), node))
    taken = np.array([math.inf if isinstance(row, Scheduled) and row.kind == "loop" else 0.0 for row in rows])
    for length, size, place, node in sorted(lives, key=lambda life: life[:3]):
        around = taken[place : place + length + 1]
        needed = around.max() + size
        if needed <= _LARGEST:
            around += size
            room = node.room = int(-(-needed // _STEP) * _STEP)
            if node in makers:
                makers[node].keep(room, size)
            for reader, read in readers.get(node, ()):
                reader.keep(room, read)


def _is_filled(value: GraphValue) -> bool:
    """Whether a value is another whose parts are written in their place."""
    maker = value.maker
    while maker is not None and maker.kind != "while" and len(maker.blocks) == 1:  # what it calls
        value = maker.blocks[0].returned[value.index]
        maker = value.maker
    return maker is not None and maker.kind == "dynamic-update-slice"


def _is_gathered(nodes: Iterable[_ListedArray]) -> bool:
    return any(each.is_gathered for node in nodes for each in _memory(node))


def _comes_from_memory(node: _ListedArray) -> bool:
    return next(_memory(node), None) is not None
