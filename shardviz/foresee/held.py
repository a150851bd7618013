"""Bytes that a device holds while a listed schedule (`foresee.listed`) runs, and which a chip's own memory keeps.

An array is held from where it is written until it is read last; results have their places from begin to end, and
what is held before one is written may lie there. As compilers have it,

| what | lies where another lay |
|---|---|
| what is updated in its place, what a loop hands on | that |
| an all-reduce of what nothing else reads | its operand |
| what a reduction's fusion gives besides, of what nothing needs any more, of the same shape | that operand |
| a result of a donated argument's size | the argument |

What a loop fills while it still reads the donated argument, as a scan over a cache does, is copied there in the end; on
a TPU so is what is gathered as a result. Both are held until then. What a collective takes and what it gives are there
together when it is waited for. Work that frees more than it takes is done when its operands are there: a gradient is
gone once its parameter is updated.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from shardviz.foresee.listed_arrays import Fusion, ListedArray, Scope
from shardviz.graph.flops import PRODUCTS
from shardviz.graph.operations import Block, GraphValue
from shardviz.records.schedule import Scheduled
from shardviz.records.values import BESIDE, IN_PLACE, take_donated

_LARGEST, _STEP = 128 * 2**20, 8 * 2**20
"""Bytes of the largest memory that a chip has for values, and in what steps rooms are told apart."""
_TRIED = 16
"""Places of results that are tried for an array."""
_PASSES = frozenset(("transpose", "bitcast", "reshape", "copy", "concatenate", "collective-permute"))


class Held(NamedTuple):
    """Bytes that are held, as in `Scheduled`."""

    whole: float
    padding: float
    rounded: float
    on_chip: dict[Any, float]
    """Of what collectives take or give the rooms are negative."""


def in_donated(
    scope: Scope, returned: list[ListedArray], donated: list[float]
) -> tuple[set[ListedArray], list[ListedArray]]:
    """Return the results that take the memory of donated arguments (given as bytes), and the arrays that are copied:
    arguments that are updated and not donated, and results that a loop fills while it still reads all donated arguments
    of their size."""
    placed, copied, arguments = set[ListedArray](), list[ListedArray](), {*scope.arguments}
    for result in dict.fromkeys(node.place for node in returned):
        if result in arguments or not take_donated(donated, result.size):
            continue
        if renewal(scope, result) == BESIDE:
            copied.append(result)
        else:
            placed.add(result)
    return placed, copied + [node for node in scope.nodes if node.updates is not None and node not in placed]


def renewal(scope: Scope, result: ListedArray) -> str:
    """Return how a result's memory is written: an argument is updated there (`IN_PLACE`), or a loop fills it while it
    still reads all arguments of its size (`BESIDE`); empty otherwise."""
    if result.updates is not None:
        return IN_PLACE
    slot = scope.slots[result.written_at]
    if not any(isinstance(each, Scheduled) and each.kind == "loop" for each in slot.done):
        return ""
    alike = [each for each in scope.arguments if each.size == result.size]
    return BESIDE if alike and all(each.last >= slot.number for each in alike) else ""


def gathered_results(scope: Scope, returned: list[ListedArray]) -> list[ListedArray]:
    """Return the gathered results that nothing else reads. A TPU copies them to their own memory at the end."""
    fusions = [each for slot in scope.slots for each in slot.done if isinstance(each, Fusion)]
    read = {node for fusion in fusions for node in fusion.read}
    gathered = (node for node in dict.fromkeys(returned) if node.is_gathered and node.begun and not node.sent)
    return [node for node in gathered if node not in read]


def alive_at(
    scope: Scope,
    returned: list[ListedArray],
    placed: set[ListedArray],
    gathered: list[ListedArray],
    padding_of: Callable[[GraphValue], float],
    *,
    inside: bool,
) -> list[Held]:
    """Return the bytes that are held at each slot of a block, of the arrays made in it. `placed`: results in the memory
    of donated arguments. `gathered`: results that a TPU copies to their memory. `inside`: the block is inside
    another."""
    arguments = {*scope.arguments}
    rows = ((slot.number, each) for slot in scope.slots for each in slot.done if isinstance(each, Scheduled))
    waited = {each.name: number for number, each in rows if each.kind == "end"}
    _run(scope, placed)
    read: dict[str, int] = {}  # collective → where fusions read its result last, some early
    for node in scope.nodes:
        for name in node.begun:
            read[name] = max(read.get(name, 0), node.place.last)
    for node in scope.nodes:
        for name in node.sent:
            end = waited.get(name, 0)
            node.need(scope.slots[min(end, read.get(name) or end)])
    elsewhere = arguments | placed
    carried = zip(returned, scope.arguments, strict=False) if scope.is_loop else ()
    elsewhere.update(node.place for node, before in carried if before.last <= node.place.written_at)
    for node in returned:
        node.need(scope.slots[-1])
    lives = list[_Life]()
    for node in scope.nodes:
        if node.written and node.place is node and node.slot.scope is scope and node not in elsewhere:
            late = max((waited.get(name, 0) for name in node.begun), default=0) if node.fusion is None else 0
            begin = max(node.written_at, late)
            lives.append(_Life(node, begin, max(node.last, begin)))
    lives = _in_operands(lives, scope)
    if not inside:
        lives = _beside_results(lives, {node.place for node in returned})
    ends = {node: max(waited.get(name, 0) for name in node.begun) for node in gathered}
    lives += [_Life(node, end, len(scope.slots) - 1, on_tpus=True) for node, end in ends.items()]
    copies = ((slot.number, each) for slot in scope.slots for each in slot.done if isinstance(each, Fusion))
    for number, node in ((number, node) for number, each in copies for node in each.relaid):
        is_argument = node in arguments
        lives.append(_Life(node, number, number + is_argument, on_tpus=True))
        if not is_argument and node.last < number:
            lives.append(_Life(node, number, number, on_tpus=True))
    return _sums(lives, len(scope.slots), padding_of)


class _Life(NamedTuple):
    """An array in its own memory, from one slot to another."""

    node: ListedArray
    begin: int
    end: int
    in_result: bool = False
    """On a TPU, which stores it as bfloat16, it lies in the place of a result."""
    on_tpus: bool = False
    """Nothing but a TPU holds it there, beside the place that it is copied to."""


def _in_operands(lives: list[_Life], scope: Scope) -> list[_Life]:
    """Return the lives after a reduction's fusion has put its other results into the memory of an operand of the same
    shape that nothing needs any more."""
    own = {life.node: life for life in lives}
    fusions = (each for slot in scope.slots for each in slot.done if isinstance(each, Fusion))
    for fusion in (each for each in fusions if each.kind == "reduce"):
        read = [own[node.place] for node in fusion.read if node.place in own]
        for node in (node for node in fusion.gives if node in own):
            at = own[node].begin
            for life in read:
                if life.begin < life.end == at == node.written_at and _is_alike(life.node.value, node.value):
                    own[life.node] = life._replace(end=at - 1)
                    read.remove(life)
                    break
    return [*own.values()]


def _is_alike(one: GraphValue, other: GraphValue) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _run(scope: Scope, placed: set[ListedArray]) -> None:
    """Note when fusions run, and that their operands are needed until then. `placed` results have their memory
    already."""
    arguments = {*scope.arguments}
    last: dict[ListedArray, Fusion] = {}
    fusions = [each for slot in scope.slots for each in slot.done if isinstance(each, Fusion)]
    for fusion in fusions:
        own = (node for node in fusion.read if node.slot.scope is scope and node not in arguments)
        last.update(dict.fromkeys(own, fusion))
    for fusion in fusions:
        freed = sum(node.size for node in fusion.read if last.get(node) is fusion)
        taken = sum(node.size for node in fusion.gives if node.place not in placed)
        if freed > taken and fusion.slot is not None:
            ready = max((node.written_at for node in fusion.read if node.slot.scope is scope), default=0)
            fusion.early = scope.slots[ready] if ready + 1 < fusion.slot.number else None
        if (at := fusion.early or fusion.slot) is not None:
            for node in fusion.read:
                node.need(at)


def _beside_results(lives: list[_Life], results: set[ListedArray]) -> list[_Life]:
    """Return the lives of arrays with their own memory, if results have theirs from the beginning.

    What is held before a result is written lies in its place, one array at a time, the largest first, each where little
    room is left over; what may lie in a chip's own memory after the others. Few places are tried for each, those first
    that were not tried for long, so that the work grows as the program does.
    """
    places: dict[float, deque[int]] = {}  # size → the slots at which each place of it is taken, as bits
    for life in sorted((life for life in lives if life.node in results), key=lambda life: life.node.size):
        places.setdefault(life.node.size, deque()).append(_slots(life))
    sizes = [*places]
    beside = [life._replace(begin=0) for life in lives if life.node in results]
    for life in sorted(lives, key=lambda life: (life.node.room > 0, -life.node.size)) if places else lives:
        if life.node in results:
            continue
        is_halved = is_rounded(life.node.value)
        enough = sizes[bisect_left(sizes, life.node.size / (1 + is_halved)) :]
        if not _takes_a_place([places[size] for size in enough[:_TRIED]], _slots(life)):
            beside.append(life)
        elif is_halved:
            beside.append(life._replace(in_result=True))
    return beside


def _takes_a_place(places: list[deque[int]], slots: int) -> bool:
    """Return whether one of the first places tried is free at these slots, and take it."""
    tries = _TRIED
    for alike in places:
        for _ in range(min(tries, len(alike))):
            tries -= 1
            taken = alike.popleft()
            alike.append(taken if taken & slots else taken | slots)
            if not taken & slots:
                return True
    return False


def _slots(life: _Life) -> int:
    """Return the slots of a life as bits."""
    return ((1 << (life.end - life.begin + 1)) - 1) << life.begin


def _sums(lives: list[_Life], slots: int, padding_of: Callable[[GraphValue], float]) -> list[Held]:
    """Return the bytes that are held at each slot."""
    changes: dict[int | str, list[float]] = {}
    for node, begin, end, in_result, on_tpus in lives:
        padding, less = node.size * padding_of(node.value), node.size / 2 * is_rounded(node.value)
        if in_result:
            padding, less = 0.0, node.size
        sizes: dict[int | str, float] = {"whole": node.size, "padding": padding, "rounded": less}
        if on_tpus:
            sizes = {"padding": node.size}
        elif node.room:
            moved = -1 if node.sent or node.begun else 1
            sizes[moved * node.room] = node.size + padding - less
        for what, size in sizes.items():
            if size:
                row = changes.setdefault(what, [0.0] * (slots + 1))
                row[begin] += size
                row[end + 1] -= size
    sums = {what: [*accumulate(row[:-1])] for what, row in changes.items()}
    whole, padding, less = (sums.pop(what, [0.0] * slots) for what in ("whole", "padding", "rounded"))
    on_chip = ({room: row[n] for room, row in sums.items() if row[n] > 0} for n in range(slots))
    return [Held(*each) for each in zip(whole, padding, less, on_chip, strict=True)]


def while_held(entry: Scheduled, more: Held) -> Scheduled:
    """Return an entry with so many more bytes held."""
    body = tuple(while_held(inner, more) for inner in entry.body)
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


def keep_on_chip(rows: Sequence[Scheduled | Fusion], padding_of: Callable[[GraphValue], float]) -> None:
    """Note how large a chip's own memory must be to keep the arrays that fusions and collectives pass to each other.

    What lives shortest goes first, and then what is smallest, each beside what is there already.
    """
    begins = {row.name: n for n, row in enumerate(rows) if isinstance(row, Scheduled) and row.kind == "begin"}
    makers: dict[ListedArray, Fusion] = {}
    readers: dict[ListedArray, list[tuple[Fusion, float]]] = {}
    places: dict[ListedArray, list[int]] = {}
    for place, row in enumerate(rows):
        if not isinstance(row, Fusion):
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
        size = node.size * (1 + padding_of(node.value))
        if handed and not node.stored and 0 < size <= _LARGEST:
            lives.append((max(used) - min(used), size, min(used), node))
    taken = np.array([math.inf if isinstance(row, Scheduled) and row.kind == "loop" else 0.0 for row in rows])
    for length, size, place, node in sorted(lives, key=lambda life: life[:3]):
        around = taken[place : place + length + 1]
        needed = around.max() + size
        if needed <= _LARGEST:
            around += size
            room = node.room = int(-(-needed // _STEP) * _STEP)
            if node in makers:
                makers[node].keep(room, node.size)
            for reader, read in readers.get(node, ()):
                reader.keep(room, read)


def is_rounded(value: GraphValue) -> bool:
    """Return whether a float32 value is used only by matrix products, which take bfloat16 on a TPU: directly,
    transposed, permuted between devices, or passed on by a loop."""
    values, seen, multiplied = [value], {value}, False
    for each in values if value.dtype == "float32" else ():
        for user, place in each.uses:
            if isinstance(user, Block):
                if not user.callers or any(caller.kind != "while" for caller in user.callers):
                    return False
                same = [user.arguments[place], *(loop.results[place] for loop in user.callers)]
            elif user.kind in PRODUCTS:
                same, multiplied = (), True
            elif user.kind in _PASSES:
                same = user.results
            elif user.kind == "while":
                same = user.blocks[-1].arguments[place : place + 1]
            else:
                return False
            values += [other for other in same if other not in seen]
            seen.update(same)
    return multiplied
