"""A schedule for a program that has none: the program's own order, its collectives beside it.

A collective begins when its operand is there, and is waited for where its result is first needed:

    program     a = dot(x)     g = all-gather(w)     b = dot(a)     c = dot(b, g)
    schedule    begin g        a                     b              end g        c

>>> from shardviz.graph.operations import Block, Operation, Value
>>> block = Block()
>>> x, w = block.arguments = tuple(Value(block, i, (4,), "float32", None) for i in range(2))
>>> def op(kind, *operands):
...     made = Operation(kind, operands, block, None)
...     made.results = (Value(made, 0, (4,), "float32", None),)
...     block.operations.append(made)
...     return made.results[0]
>>> a, g = op("a", x), op("g", w)
>>> c = op("c", op("b", a), g)
>>> pair = lambda name: (Scheduled(kind="begin", name=name, collective=name), Scheduled(kind="end", name=name))
>>> entries = lambda o: pair("g") if o.kind == "g" else (Scheduled(kind="work", name=o.kind),)
>>> " ".join(f"{e.kind}:{e.name}" for e in listed(block, entries))
'begin:g work:a work:b end:g work:c'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from shardviz.graph.operations import Block, Value
from shardviz.records.schedule import Schedule, Scheduled


class _There(NamedTuple):
    """When a value is there: after which operation of the block (-1: from the start), and after which collectives."""

    place: int
    begun: frozenset[str]


def listed(block: Block, entries_of: Callable[[Any], Iterable[Scheduled]]) -> Schedule:
    """The schedule of a block.

    Args:
        block: its operations stand after those whose results they use.
        entries_of: operation → what it does; nothing for what costs nothing; of a collective a `begin` and its `end`;
            of what runs a block as a whole that block's schedule.
    """
    there: dict[Value, _There] = {}
    done: list[list[Scheduled]] = [[]]  # at the start, then with each operation
    begun: list[list[Scheduled]] = [[]]  # behind those
    waiting: dict[str, Scheduled] = {}
    for place, operation in enumerate(block.operations):
        entries, here = tuple(entries_of(operation)), list[Scheduled]()
        operands = [there[value] for value in operation.operands if value in there]
        last = max((value.place for value in operands), default=-1)
        names = frozenset[str]().union(*(value.begun for value in operands if value.begun))
        if not entries:
            result = _There(last, names)
        elif all(entry.kind in ("begin", "end") for entry in entries):
            result = _There(last, frozenset(e.name for e in entries if e.kind == "begin"))
            for entry in entries:
                if entry.kind == "begin":
                    begun[last + 1].append(replace(entry, after=(*sorted(names), *entry.after)))
                else:
                    waiting[entry.name] = entry
        else:
            here = [waiting.pop(name) for name in sorted(names) if name in waiting]
            here += entries
            result = _There(place, frozenset())
        done.append(here)
        begun.append([])
        for value in operation.results:
            there[value] = result
    rows = [entry for pair in zip(done, begun, strict=True) for part in pair for entry in part]
    return (*rows, *waiting.values())
