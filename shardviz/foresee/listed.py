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
| ... for a barrier, or for a join of arrays but a convolution's | is written |
| ... for a product of what is gathered, or whose sum is scattered: mostly a loop over its parts | is written |
| ... for a collective, a loop, or as a result | is written |
| a gather of large slices, and a join of what it gives | is a loop on a TPU, and read where it is by a convolution |
| a large array that the function closes over | is read as an argument is, unless all its elements are equal |
| slices | read their part; updates in place, and scatters with one index, write theirs |
| ... a part of an image's features, of a convolution | is written alone, and then into its place |
| some features of an image, for a convolution | are written before it |
| an argument that is updated and not donated, a result that lies in no donated place yet (`graph.held`) | is copied |
| a result that is gathered, and that nothing else reads | is copied by a TPU |
| a reduction of what a fusion gives or reads, element by element | is that fusion's too |
| a softmax in float32 of a product in bfloat16 that is masked or scaled in float32 | the product writes exponentials |
| a loop's first values that never change and come from nothing in memory | are computed inside |
| ... that the loop fills, part by part | are not written |
| an argument of which a gather or a kernel reads rows, and which lies otherwise (`tiles`) | is copied by a TPU |
| what fusions and collectives hand on to each other | stays in a chip's own memory, if that has room |
| a convolution's images, and what has their shape | are read and written in whole tiles by a TPU (`tiles`) |

So are what XLA's passes make of collectives: the same again is none, two all-reduces that are only added up are one,
and one of which each device of a group keeps a slice is a reduce-scatter, but not if both are a person's own. What is
gathered or permuted in float32 for products alone goes between TPUs as bfloat16, to which their products round it.

What is held meanwhile is told in `graph.held`; `alive_bytes` are the sums.

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
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from shardviz.foresee.held import alive_at, gathered_results, in_donated, is_rounded, keep_on_chip, renewal, while_held
from shardviz.foresee.listed_arrays import (
    Fusion,
    ListedArray,
    Scope,
    Slot,
    any_gathered,
    behind,
    bytes_read_again,
    comes_from_memory,
    computed_from,
    in_memory_of,
    is_interleaved,
)
from shardviz.foresee.tiles import Images, laid_for_rows, ragged_as_dense
from shardviz.graph.flops import PRODUCTS
from shardviz.graph.operations import Block, Dims, GraphValue, Operation
from shardviz.graph.uses import calls_around, is_filled, is_one, is_one_update, readers
from shardviz.layouts import itemsize
from shardviz.records.schedule import Schedule, Scheduled

_KERNELS = PRODUCTS | frozenset(
    ("reduce", "reduce-window", "select-and-scatter", "gather", "scatter", "sort", "fft", "custom-call", "top-k",
     "topk", "rng-bit-generator", "cholesky", "triangular-solve")
)  # fmt: skip
"""Operations that are fusions of their own."""
_VIEWS = frozenset(("bitcast", "reshape", "opt-barrier", "sharding", "sharding-constraint", "copy", "after-all"))
"""Operations whose results are their operands."""
_SLICES = frozenset(("slice", "dynamic-slice", "all-slice"))
_NARROWED = frozenset(("all-gather", "collective-permute"))
"""Collectives that go between TPUs as bfloat16 where products alone use what they give."""
_GATHERED, _PART = 2**18, 128
"""Elements of the largest slice that a TPU gathers at once, and in what parts its last two dimensions come: as found
with libtpu, for v5e and v5p, in 2 and 4 bytes."""
_DOTS = PRODUCTS - {"convolution"}
_TILE = 8 * 128
"""Elements up to which reading a constant is not counted: a register of a TPU has so many. Not measured."""
_OPEN = frozenset(("", "reduce"))
"""Kinds of fusions that can give more results."""
_NONE: frozenset[str] = frozenset()


class ScheduleBuilder:
    """Builds a program's schedule while its operations are read in order."""

    def __init__(
        self, shape_of: Callable[[Any], Dims], bytes_of: Callable[[Any], float], entry_of: Callable[[Any], Scheduled]
    ):
        """Reads nothing yet.

        Args:
            shape_of, bytes_of: array → the shape, and the bytes, of one device's part.
            entry_of: operation that has no entries → that of its work, where it is a fusion of its own.
        """
        self._shape_of, self._bytes_of, self._entry_of = shape_of, bytes_of, entry_of
        self._images = Images()
        self._nodes: dict[GraphValue, ListedArray] = {}
        self._scopes: list[Scope] = []
        self._laid: set[ListedArray] = set()  # arguments and results that a TPU has copied, laid otherwise
        self._sums: dict[GraphValue, int] = {}  # how many all-reduces one after the other a value of its block needs
        self.renewals: list[str] = []  # how each result of the main block is written, as of `held.renewal`

    def open(self, block: Block, initial: Sequence[GraphValue] = ()) -> None:
        """Begin a block with its own schedule: the main block, a loop's body, a branch. An initial value of a loop that
        does not change and is computed from nothing in memory is computed inside."""
        self._scopes.append(Scope(bool(initial)))
        for value in block.arguments:
            self._put_in_memory(value)
            self._scopes[-1].arguments.append(self._nodes[value])
        for value, first, last in zip(block.arguments, initial, block.returned, strict=False):
            if value is last and not comes_from_memory(self._node(first)):
                self._nodes[value] = self._node(first)

    def close(self, returned: Iterable[GraphValue], donated: Iterable[float] = ()) -> Schedule:
        """End the block, and return its schedule. Results take the memory of donated arguments, given as bytes on one
        device."""
        nodes, is_main = [*map(self._node, returned)], len(self._scopes) == 1
        for node in nodes:
            if is_main or comes_from_memory(node):
                self._store(node)
        placed, copied = in_donated(self._scopes[-1], nodes, [*donated])
        if is_main:
            self.renewals = [renewal(self._scopes[-1], node.place) for node in nodes]
        for node in copied:
            copy = self._copy(node.value.maker, parts=[node])
            copy.slot = self._slot((node,), (copy,))
            self._read(copy, node.updates or node)
        gathered = gathered_results(self._scopes[-1], nodes) if is_main else []
        if gathered:
            self._slot(gathered, [self._copy(node.value.maker, on_tpus=2 * node.size) for node in gathered])
        scope = self._scopes.pop()
        keep_on_chip([entry for slot in scope.slots for entry in (*slot.done, *slot.begun)], self._padding_of)
        alive = alive_at(scope, nodes, placed, gathered, self._padding_of, inside=bool(self._scopes))
        rows = [
            (entry, held) for slot, held in zip(scope.slots, alive, strict=True) for entry in (*slot.done, *slot.begun)
        ]
        done = (e.scheduled(self._padding_of) if isinstance(e, Fusion) else e for e, _ in rows)
        entries = [while_held(entry, held) for entry, (_, held) in zip(done, rows, strict=True)]
        moving = (e for e in entries if e.kind != "work" or e.flops or e.moved(0.0, tiles=True) or e.opaque)
        return (*moving, *(while_held(entry, alive[-1]) for entry in scope.waiting.values()))

    def free(self) -> None:
        """Release all arrays and fusions."""
        for scope in {node.slot.scope for node in self._nodes.values()}:
            for node in scope.nodes:
                del node.place, node.fusion, node.reader, node.product
            for slot in scope.slots:
                slot.done.clear()
            for each in (scope.arguments, scope.nodes, scope.slots, scope.collectives):
                each.clear()
        self._nodes.clear()

    def _copy(self, operation: Any, **moved: Any) -> Fusion:
        """Return the copy of an array for an operation. `moved` are the fusion's fields for the bytes moved."""
        return Fusion(replace(self._entry_of(operation), name="copy"), **moved)

    def same(self, values: Iterable[GraphValue], others: Iterable[GraphValue]) -> None:
        """Note that values are the same arrays as others, such as a called block's arguments or a call's results."""
        for value, other in zip(values, others, strict=False):
            self._nodes[value] = self._node(other)
            if other in self._sums:
                self._sums[value] = self._sums[other]

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
        sums = max([self._sums.get(value, 0) for value in operation.operands], default=0) if self._sums else 0
        if sums := sums + (kind == "all-reduce" or bool(operation.blocks)):
            self._sums.update(dict.fromkeys(operation.results, sums))
        if kind == "opt-barrier":
            self._compute(map(self._node, operation.operands))
        if kind in _VIEWS and not entries:
            self.same(operation.results, operation.operands)
            return
        if kind == "constant" and operation.results[0].elements > _TILE and operation.is_data:
            self._put_in_memory(operation.results[0])
            return
        operands = [self._node(value) for value in operation.operands]
        if kind == "concatenate" and not self._is_kernel(operation):
            for node in filter(comes_from_memory, operands):
                self._to_memory(node)
        if kind == "slice" and operation.spreads:
            self._compute(map(behind, operands))
        if entries and all(entry.kind in ("begin", "end") for entry in entries):
            self._begin(operation, operands, entries, over)
        elif kind == "add" and self._is_one_sum(operation, operands):
            self.same(operation.results, operation.operands[1:])
        elif kind == "multiply" and any(map(is_one, operation.operands)):
            self.same(operation.results, [v for v in operation.operands if not is_one(v)] or operation.operands)
        elif operation.blocks:
            self._run(operation, operands, entries)
        elif kind == "dynamic-update-slice":
            self._update(operation, *operands[:2])
        elif kind == "scatter" and is_one_update(operation):
            self._update(operation, operands[0], operands[2])
        elif self._is_kernel(operation) or entries:
            entry = entries[0] if entries else self._entry_of(operation)
            self._kernel(operation, operands, entry)
            if partial:
                beside = ListedArray(operation.results[0], partial, self._scopes[-1].slots[-1])
                beside.written = True
        else:
            slot, begun = self._ready(operands)
            for value in operation.results:
                node = self._nodes[value] = self._array(value, slot, begun, operands, operation)
                node.is_slice = kind in _SLICES

    def _is_kernel(self, operation: Operation) -> bool:
        """Return whether an operation is its own fusion."""
        if operation.kind == "pad":
            return operation.spreads
        if operation.kind == "concatenate":
            users = [user for user, _ in operation.results[0].uses]
            memory = [each for value in operation.operands for each in in_memory_of(self._node(value))]
            makers = [each.value.maker for each in memory]
            looped = any(maker is not None and self._loops(maker) for maker in makers)
            return not looped and any(isinstance(user, Operation) and user.kind == "convolution" for user in users)
        return operation.kind in _KERNELS and not (operation.kind == "scatter" and operation.compares)

    def _loops(self, operation: Operation) -> bool:
        """Return whether a TPU gathers in a loop, because its slices are large even with their last two dimensions in
        parts."""
        if operation.kind != "gather":
            return False
        sizes = [n for n in map(min, operation.slice_sizes, self._shape_of(operation.operands[0])) if n > 1]
        return math.prod(sizes[:-2]) * math.prod(min(size, _PART) for size in sizes[-2:]) > _GATHERED

    def _reads_rows(self, operation: Operation) -> bool:
        """Return whether an operation is a kernel, or looks up rows or columns of a matrix, such as a table of
        embeddings."""
        if operation.kind == "gather":
            return len(operation.slice_sizes) == 2 and math.prod(operation.slice_sizes) > 1
        is_kernel = operation.kind == "ragged-dot" and ragged_as_dense(operation, self._shape_of) == (1, 0)
        return is_kernel or operation.kind == "custom-call"

    def _lay_in_rows(self, node: ListedArray, operation: Operation) -> None:
        """Let a TPU copy an argument or result whose layout is not in the rows that an operation reads or writes."""
        size = itemsize(node.value.dtype)
        if node not in self._laid and (laid := laid_for_rows(self._shape_of(node.value), size)):
            self._laid.add(node)
            copy = self._copy(operation, on_tpus=sum(laid) * size, relaid=[node])
            copy.slot = self._slot((node,), (copy,))

    def _array(self, value: GraphValue, slot: Slot, *args: Any) -> ListedArray:
        return ListedArray(value, self._bytes_of(value), slot, *args)

    def _padding_of(self, value: GraphValue) -> float:
        return self._images.padding(self._shape_of(value)) if self._images else 0.0

    def _put_in_memory(self, value: GraphValue) -> None:
        """Add a value that is in memory from the beginning of the block."""
        node = self._nodes[value] = self._array(value, self._scopes[-1].slots[0])
        node.in_memory = node.written = True

    def _node(self, value: GraphValue) -> ListedArray:
        if value not in self._nodes:
            self._put_in_memory(value)
        return self._nodes[value]

    def _ready(self, nodes: Iterable[ListedArray]) -> tuple[Slot, frozenset[str]]:
        """Return the slot of the block behind which nodes are computed, and the collectives that must have ended."""
        scope, slot, begun = self._scopes[-1], self._scopes[-1].slots[0], _NONE
        for node in nodes:
            if node.slot.scope is scope:
                slot = node.slot if node.slot.number > slot.number else slot
                begun = begun | node.begun if node.begun else begun
        return slot, begun

    def _begin(self, operation: Operation, operands: list[ListedArray], entries: Schedule, over: Any) -> None:
        """Begin a collective. Its operands and results are in memory. A repeated collective is left out."""
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
        slices = {self._slices(value) for value in operation.results} if operation.kind == "all-reduce" else {0}
        narrows = operation.kind in _NARROWED and all(map(is_rounded, operation.results))
        for entry in entries:
            if entry.kind == "begin":
                sums = self._sums[operation.results[0]] if operation.kind == "all-reduce" else 0
                after = (*sorted(before), *entry.after)
                slot.begun.append(replace(entry, after=after, slices=min(slices), narrows=narrows, sums_before=sums))
            else:
                scope.waiting[entry.name] = entry
        names = frozenset(entry.name for entry in entries if entry.kind == "begin")
        for node in operands:
            node.sent = (*node.sent, *names)
        for value in operation.results:
            self._put_in_memory(value)
            node = self._nodes[value]
            node.is_gathered = operation.kind == "all-gather"
            node.slot, node.begun, node.over = slot, names, over if operation.kind == "all-reduce" else None
            if operation.kind == "all-reduce" and len(operands) == 1 and self._is_taken(operands[0]):
                node.place = operands[0].place

    def _is_taken(self, node: ListedArray) -> bool:
        """Return whether only a collective reads an array that this step writes, so that its result may take the
        memory."""
        return node.fusion is not None and node.slot.scope is self._scopes[-1] and len(node.value.uses) == 1

    def _slices(self, value: GraphValue) -> int:
        """Return the number of slices of a value, if only single slices are read, also in what calls the function that
        returns it; 0 otherwise."""
        used = set[int]()
        for user, _, in_loop in readers(value, calls_around(value.block), lambda op: op.kind in _VIEWS):
            size = self._bytes_of(user.results[0]) if user and user.kind in _SLICES and not in_loop else 0.0
            if not size:
                return 0
            used.add(round(self._bytes_of(value) / size))
        return used.pop() if len(used) == 1 else 0

    def _is_scattered(self, value: GraphValue) -> bool:
        """Return whether a value is summed over devices and each device keeps a slice of the sum."""
        users = [user for user, _ in value.uses if isinstance(user, Operation)]
        sums = (min(map(self._slices, user.results), default=0) > 1 for user in users if user.kind == "all-reduce")
        return any(user.kind == "reduce-scatter" for user in users) or any(sums)

    def _is_one_sum(self, operation: Operation, operands: list[ListedArray]) -> bool:
        """Return whether two all-reduces are only added to each other, so that the second does the work of both."""
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

    def _run(self, operation: Operation, operands: list[ListedArray], entries: Schedule) -> None:
        """Add a loop, or the branches of a conditional; their operands and results are in memory."""
        body, loops = operation.blocks[-1], operation.kind == "while"
        for place, node in enumerate(operands):
            stays = loops and (body.returned[place] is body.arguments[place] or is_filled(body.returned[place]))
            if not stays or comes_from_memory(node):
                self._store(node)
        slot = self._slot(operands, entries)
        for node in operands:
            node.need(slot)
        for place, (value, last) in enumerate(zip(operation.results, body.returned, strict=False)):
            if loops and not comes_from_memory(self._node(last)):
                self._nodes[value] = self._node(last)
                continue
            self._put_in_memory(value)
            self._nodes[value].slot = slot
            if not loops:
                continue
            first, stays = operands[place], last is body.arguments[place]
            if first.written and (stays or not (self._is_kept(first) or first in operands[:place])):
                self._nodes[value].place = first.place
            elif self._is_kept(first):
                self._nodes[value].updates = first

    def _slot(self, nodes: Iterable[ListedArray], done: Iterable[Scheduled | Fusion]) -> Slot:
        """Return a new slot, which waits for the collectives whose results are needed."""
        scope, (_, begun) = self._scopes[-1], self._ready(nodes)
        ends = [scope.waiting.pop(name) for name in sorted(begun) if name in scope.waiting]
        return scope.slot([*ends, *done])

    def _kernel(self, operation: Operation, operands: list[ListedArray], entry: Scheduled) -> None:
        kind, fusion = operation.kind, None
        if kind == "convolution":
            laid = operation.convolution
            self._images.note(self._shape_of(operation.array(0)), laid.input)
            self._images.note(self._shape_of(operation.result), laid.output)
            for node in filter(self._takes_features, operands):
                self._write_alone(node)
        if self._reads_rows(operation):
            for node in operands:
                if node in self._scopes[0].arguments:
                    self._lay_in_rows(node, operation)
        if kind == "reduce":
            fusion = self._fusion_behind(operands[0], _OPEN | PRODUCTS) or self._softmax_behind(operands[0])
        if kind in _DOTS and (self._is_scattered(operation.results[0]) or any_gathered(operands)):
            self._compute(operands)
        if kind in _DOTS:
            self._compute(node for node in operands if self._is_spread(node))
        if fusion is None:
            fusion = Fusion(entry, kind)
            for node in operands:
                if (product := self._product_behind(node)) is not None:
                    self._make(product, node)
            if kind == "pad":
                operands = [self._for_itself(node) if comes_from_memory(node) else node for node in operands]
            fusion.slot = self._slot(operands, (fusion,))
        limit = sum(self._bytes_of(value) for value in operation.results) if kind == "gather" else None
        if limit is not None and self._loops(operation):
            fusion.on_tpus = 2 * limit + operands[0].size
        for place, node in enumerate(operands):
            self._read(fusion, node, limit if place == 0 else None, kind in _DOTS)
        for value in operation.results:
            node = self._nodes[value] = self._array(value, fusion.slot or self._scopes[-1].slots[-1])
            node.in_memory, node.fusion, node.is_summed = True, fusion, kind == "reduce"
            node.stored = kind == "pad"  # which a TPU's compiler hardly ever keeps in a chip's own memory
            fusion.result = fusion.result or value
            if kind == "scatter" and len(value.shape) == 2:
                self._lay_in_rows(node, operation)

    def _update(self, operation: Operation, whole: ListedArray, part: ListedArray) -> None:
        """Add an update in place: the part is read and written."""
        self._to_memory(whole)
        fusion = self._product_behind(part)
        apart = fusion is not None and fusion.kind == "convolution" and self._has_fewer_features(part, whole)
        if apart and not part.in_memory:
            self._write_alone(part)
        if fusion is None or apart:
            fusion = Fusion(self._entry_of(operation), operation.kind)
            fusion.slot = self._slot([*map(self._node, operation.operands)], (fusion,))
        self._read(fusion, part)
        fusion.parts.append(part)
        if whole.fusion is None:
            target = whole
            self._put_in_memory(operation.results[0])
            whole = self._node(operation.results[0])
            if self._is_kept(target):
                whole.updates = target
            else:
                whole.place = target.place
        self._nodes[operation.results[0]] = whole
        whole.slot = fusion.slot or whole.slot

    def _is_kept(self, node: ListedArray) -> bool:
        """Return whether an array must not change, such as an argument of the program."""
        return node.place in self._scopes[0].arguments

    def _store(self, node: ListedArray) -> None:
        """Put an array into memory for the rest of the block, and what lies in the same place before it."""
        node.stored = node.place.stored = True
        self._to_memory(node)

    def _to_memory(self, node: ListedArray) -> None:
        if not node.in_memory:
            fusion = node.fusion or self._product_behind(node) or self._fusion_behind(node, _OPEN)
            self._make(fusion or self._alone(node), node)
        self._write(node)

    def _alone(self, node: ListedArray) -> Fusion:
        """Return a fusion that computes only this array."""
        fusion = Fusion(self._entry_of(node.operation))
        fusion.slot = self._slot((node,), (fusion,))
        return fusion

    def _takes_features(self, node: ListedArray) -> bool:
        """Return whether an array is computed from only some features of an image."""
        slices = (each for each in computed_from(node) if each.is_slice and not each.in_memory)
        return any(self._has_fewer_features(each, each.operands[0]) for each in slices)

    def _has_fewer_features(self, part: ListedArray, whole: ListedArray) -> bool:
        one, all_ = self._shape_of(part.value), self._shape_of(whole.value)
        return len(one) > 2 and one[-1] < all_[-1]

    def _write_alone(self, node: ListedArray) -> None:
        """Let an own fusion write an array."""
        self._make(self._alone(node), node)
        self._write(node)

    def _make(self, fusion: Fusion, node: ListedArray) -> None:
        """Let a fusion also compute an array, which is in memory afterwards."""
        self._read(fusion, node)
        node.in_memory, node.fusion, node.slot, node.begun = True, fusion, fusion.slot or node.slot, _NONE

    def _compute(self, nodes: Iterable[ListedArray]) -> None:
        """Put arrays into memory that are computed from arrays in memory."""
        for node in nodes:
            at = behind(node)
            if not at.in_memory and comes_from_memory(at):
                self._to_memory(node)

    def _write(self, node: ListedArray) -> None:
        if not node.written and node.fusion is not None:
            node.fusion.gives.append(node)
        node.written = True

    def _is_spread(self, node: ListedArray) -> bool:
        """Return whether an array has more elements than each of several arrays that it is computed from, as an outer
        product."""
        sizes = [math.prod(self._shape_of(each.value)) for each in in_memory_of(node)]
        return len(sizes) > 1 and sum(sizes) < math.prod(self._shape_of(node.value))

    def _for_itself(self, node: ListedArray) -> ListedArray:
        """Return an array in memory for an operation that is part of no fusion. Others compute it again if that takes
        no more bytes."""
        again = node
        if not node.in_memory and is_interleaved(node) and bytes_read_again(node, 2 * node.size) <= 2 * node.size:
            again = self._array(node.value, node.slot, node.begun, node.operands, node.operation)
        self._to_memory(again)
        return again

    def _product_behind(self, node: ListedArray) -> Fusion | None:
        """Return the product that writes an array computed from its result in place of the result, if all other
        operands are there."""
        if node.in_memory or node.fusion is not None:
            return None
        fusion = self._fusion_behind(node, PRODUCTS)
        if fusion is None or not any(each.fusion is fusion and node.size <= each.size for each in in_memory_of(node)):
            return None
        return fusion

    def _fusion_behind(self, node: ListedArray, kinds: frozenset[str]) -> Fusion | None:
        """Return a fusion that writes or reads what a node is computed from, and can also compute the node."""
        slot, waiting = node.slot, self._scopes[-1].waiting
        if slot.scope is not self._scopes[-1] or any(name in waiting for name in node.begun):
            return None
        memory = list(in_memory_of(node))
        for fusion in (*(each.fusion for each in memory), *(each.reader for each in memory)):
            if fusion is None or fusion.kind not in kinds or fusion.slot is None:
                continue
            there = fusion.slot.scope is slot.scope and fusion.slot.number >= slot.number
            if there and not any(each.is_summed and each.fusion is fusion for each in memory):
                return fusion
        return None

    def _softmax_behind(self, node: ListedArray) -> Fusion | None:
        """Return the product that writes a softmax's exponentials in place of its own result, if one does.

        It has reduced its own rows, in a larger type than its own: a mask, a scale or a bias comes after the
        conversion. Where the conversion comes last, XLA moves it behind the reduction and keeps the product's result.
        """
        memory = [*in_memory_of(node)]
        for product in memory:
            fusion = product.fusion
            if fusion is None or fusion.kind not in _DOTS or product.is_summed or not self._is_open(fusion):
                continue
            rows = [each for each in memory if each.is_summed and each.fusion is fusion]
            types = {behind(self._node(each.value.maker.operands[0])).value.dtype for each in rows}
            if not types or product.value.dtype in types or product.size >= node.size or product.written:
                continue
            if self._is_computed_once(fusion, node):
                self._make(fusion, node)
                return fusion
        return None

    def _is_computed_once(self, fusion: Fusion, node: ListedArray) -> bool:
        """Return whether no other operation of the same kind computes the same from a product, in another layout."""
        values, seen = [fusion.result] if fusion.result else [], set[Operation]()
        while values:
            users = {user for user, _ in values.pop().uses if isinstance(user, Operation)} - seen
            if any(user.kind == node.operation.kind and user is not node.operation for user in users):
                return False
            seen |= users
            values += [v for user in users - {node.operation} if user.kind not in _KERNELS for v in user.results]
        return True

    def _is_shared(self, node: ListedArray, fusion: Fusion) -> bool:
        """Return whether another fusion also computes a node, and computing it twice takes more bytes than writing
        it."""
        if not any(each not in (None, fusion) and self._is_open(each) for each in (node.fusion, node.product)):
            return False
        again = bytes_read_again(node, 3 * node.size)
        if not 2 * node.size <= again <= 3 * node.size:  # as most are; what follows tells them apart in between
            return again > 2 * node.size
        if is_interleaved(node):
            return 2 * node.size < again
        return 3 * node.size < again if self._is_open(node.product) else 2 * node.size <= again

    def _is_open(self, fusion: Fusion | None) -> bool:
        """Return whether a fusion is in a block that is still read."""
        return fusion is not None and fusion.slot is not None and fusion.slot.scope in self._scopes

    def _write_apart(self, node: ListedArray) -> None:
        """Let the first fusion that computed a node write it. A product does not write its operands, so an own fusion
        before it does."""
        first = node.product
        if first is not None and first.slot is not None and self._is_open(first):
            own = Fusion(self._entry_of(node.operation))
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

    def _read(self, fusion: Fusion, node: ListedArray, limit: float | None = None, feeds: bool = False) -> None:
        """Count the bytes that a fusion reads for an array. `feeds`: the array is a product's operand."""
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
