"""A slow simulation of a schedule, written another way: time goes on from one change to the next, all trips one by one.

It knows nothing of `Walk`: what is under way has so much left and goes on at a rate; at each step the next end is
found, everything goes on until then, and whoever can begin begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

TINY = 1e-12


def instructions(tasks: Sequence[Any]) -> Iterator[Any]:
    """The tasks in a row, loops written out."""
    for task in tasks:
        if task.kind == "loop":
            for _ in range(task.trips):
                yield from instructions(task.body)
        else:
            yield task


@dataclass
class Transfer:
    """What was begun."""

    task: Any
    after: list[Transfer]
    left: float
    running: bool = False
    done: bool = False


@dataclass
class State:
    """Everything that goes on."""

    now: float = 0.0
    links: list[Transfer] = field(default_factory=list)
    copies: list[Transfer] = field(default_factory=list)
    newest: dict[str, Transfer] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)


def simulated(tasks: Sequence[Any]) -> tuple[float, dict[str, float]]:
    """Seconds, and how long each lane is busy."""
    state = State()
    for task in instructions(tasks):
        if task.kind == "work":
            seconds = max(task.products, task.hbm) + task.launch
            if seconds:
                until(state, state.now + seconds, 1 - task.hbm / seconds, None)
                add(state, "compute", seconds)
        elif task.kind == "begin":
            after = [state.newest[name] for name in task.after if name in state.newest]
            made = state.newest[task.name] = Transfer(task, after, task.seconds if task.lanes else task.hbm)
            (state.links if task.lanes else state.copies).append(made)
            settle(state)
        elif task.name in state.newest:
            wait(state, state.newest[task.name])
    for transfer in [*state.links, *state.copies]:
        wait(state, transfer)
    return state.now, state.busy


def add(state: State, lane: str, seconds: float) -> None:
    state.busy[lane] = state.busy.get(lane, 0.0) + seconds


def wait(state: State, transfer: Transfer) -> None:
    start = state.now
    until(state, math.inf, 1.0, transfer)
    if state.now > start:
        add(state, "waits", state.now - start)


def settle(state: State) -> None:
    """Ends what has nothing left, and begins what is first on all its lanes."""
    changed = True
    while changed:
        changed = False
        taken: set[str] = set()
        for transfer in [t for t in state.links if not t.done]:
            lanes = set(transfer.task.lanes)
            if not transfer.running and not lanes & taken and all(t.done for t in transfer.after):
                transfer.running = changed = True
            if transfer.running and transfer.left <= TINY:
                transfer.done = changed = True
            else:
                taken |= lanes
        while state.copies and state.copies[0].left <= TINY:
            state.copies.pop(0).done = True
            changed = True


def until(state: State, end: float, share: float, wanted: Transfer | None) -> None:
    """Goes on to a time, or until what is wanted is done, with a share of HBM's bandwidth for copies."""
    settle(state)
    while state.now < end - TINY and not (wanted is not None and wanted.done):
        running = [t for t in state.links if t.running and not t.done]
        steps = [t.left for t in running]
        if state.copies and share > 1e-9:
            steps.append(state.copies[0].left / share)
        step = min([end - state.now, *steps])
        assert step < math.inf, "waits for what never ends"
        for transfer in running:
            transfer.left -= step
            for lane in transfer.task.lanes:
                add(state, lane, step)
        if state.copies and share > 1e-9:
            state.copies[0].left -= step * share
        state.now += step
        settle(state)
