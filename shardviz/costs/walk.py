"""A walk of a schedule with its times: what runs when, on which lane, and what the chip waits for.

The chip does one piece of work after the other, in the schedule's order. Other operations overlap: a collective on
lanes of links, after earlier ones on these lanes; or a copy within main memory, in the bandwidth that the work leaves.
Trips of a loop are walked until one begins in the same state as the previous one, usually the second. The remaining
trips are equal to it and are multiplied.

>>> layer = (Task("begin", "gather", lanes=("ICI",), seconds=2.0), Task("work", "dot", products=3.0),
...          Task("end", "gather"), Task("begin", "sum", lanes=("ICI",), seconds=1.0), Task("end", "sum"))
>>> walk = Walk([Task("loop", "layers", trips=80, body=layer)])
>>> walk.now
320.0
>>> for task, lane, begin, seconds, trips, _ in walk.events:
...     print(lane, task.name, begin, seconds, trips)
ICI gather 0.0 2.0 80
compute dot 0.0 3.0 80
ICI sum 3.0 1.0 80
waits sum 3.0 1.0 80
more trips layers 4.0 316.0 1
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardviz.notation import Axis
from shardviz.records.schedule import Scheduled

COMPUTE, WAITS, COPIES, FOLDED = "compute", "waits", "HBM copies", "more trips"
_MOST_TRIPS = 64
_ALIKE = 1e-9


@dataclass(slots=True)
class _Span:
    """The time in which an operation has its links, and the operation that it had to wait for, if any."""

    task: Task
    begin: float
    ahead: _Span | None


@dataclass(slots=True)
class Task:
    """An entry of a schedule with its times on a machine.

    Attributes:
        kind, name, after, trips: as in `Scheduled`; unknown trips are 1.
        products, hbm: for work, the seconds of its FLOPs and of its bytes; for a copy within main memory `hbm`.
        launch: for work, the idle seconds before it begins.
        lanes, seconds: for `begin`, its links and its duration; no lanes for a copy within main memory.
        body: for `loop`.
        what, bound, axes, entry: the facts for its events.
    """

    kind: str
    name: str
    products: float = 0.0
    hbm: float = 0.0
    launch: float = 0.0
    lanes: tuple[str, ...] = ()
    seconds: float = 0.0
    after: tuple[str, ...] = ()
    trips: int = 1
    body: tuple[Task, ...] = ()
    what: str = ""
    bound: str = ""
    axes: tuple[Axis, ...] | None = None
    entry: Scheduled | None = None


class Walk:
    """A walk over tasks: the time reached in seconds (`now`); (task, lane, begin, seconds, trips, more) of each event,
    and (begin, entry) of each entry with known `alive_bytes`, in order. Both are empty if no events are requested."""

    def __init__(self, tasks: Sequence[Task], *, events: bool = True):
        """Walk a schedule. If no two trips of a loop begin in the same state, some are walked and the others are taken
        to equal the last."""
        self.now, self.events, self.alive = 0.0, list[list[Any]](), list[tuple[float, Scheduled]]()
        self._noted = events
        self._free: dict[str, float] = {}  # a lane of links → when it has nothing more to do
        self._ends: dict[str, float] = {}  # what was begun → when it ends
        self._spans: dict[str, _Span] = {}  # a lane of links, or what was begun → the last on it, or its own
        self._begun: dict[str, Task] = {}
        self._copies: deque[list[Any]] = deque()  # the task, the seconds of HBM that it still needs, when it began
        self._walk(tasks)
        for task in list(self._begun.values()):  # the step ends when all that it began has ended
            self._end(task)

    def _walk(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            begin = self.now
            if task.kind == "work":
                self._work(task)
            elif task.kind == "begin":
                self._begin(task)
            elif task.kind == "end":
                self._end(task)
            else:
                self._loop(task)
            if self._noted and task.entry is not None and task.entry.alive_bytes is not None:
                self.alive.append((self.now if task.kind == "loop" else begin, task.entry))

    def _work(self, task: Task) -> None:
        seconds = max(task.products, task.hbm) + task.launch
        if not seconds:
            return
        self._note(task, COMPUTE, self.now, seconds)
        self._copy(self.now, self.now + seconds, 1.0 - task.hbm / seconds)
        self.now += seconds

    def _begin(self, task: Task) -> None:
        self._begun[task.name] = task
        begin = max([self.now, *(self._ends.get(name, 0.0) for name in task.after)])
        if not task.lanes:
            self._ends.pop(task.name, None)
            self._copies.append([task, task.hbm, None])
            return
        lane = max(task.lanes, key=lambda lane: self._free.get(lane, 0.0))
        ahead = self._spans[lane] if self._free.get(lane, 0.0) > begin else None
        begin = max(begin, self._free.get(lane, 0.0))
        self._ends[task.name] = begin + task.seconds
        span = self._spans[task.name] = _Span(task, begin, ahead)
        for lane in task.lanes:
            self._free[lane], self._spans[lane] = begin + task.seconds, span
            if task.seconds:
                self._note(task, lane, begin, task.seconds)

    def _end(self, task: Task) -> None:
        began = self._begun.get(task.name)
        if began is None:
            return
        ahead = 0.0
        for copy, seconds, _ in self._copies if not began.lanes else ():
            ahead += seconds
            if copy.name == task.name:
                self._ends[task.name] = self.now + ahead
        wait = self._ends.get(task.name, 0.0) - self.now
        if wait <= 0:
            return
        self._note_wait(began, self.now + wait)
        self._copy(self.now, self.now + wait, 1.0)
        self.now += wait

    def _note_wait(self, task: Task, end: float) -> None:
        """Record a wait. While another operation has the links that a task needs, the wait is for that operation."""
        span, parts = self._spans.get(task.name), []
        while span is not None and span.ahead is not None and span.begin > self.now:
            parts.append((span.task, span.begin, end))
            span, end = span.ahead, span.begin
        parts.append((task if span is None else span.task, self.now, end))
        for waited, begin, until in reversed(parts):
            self._note(waited, WAITS, begin, until - begin)

    def _copy(self, begin: float, end: float, share: float) -> None:
        """Advance the copies while a share of HBM's bandwidth is free."""
        now = begin
        while self._copies and share > _ALIKE and (now < end or not self._copies[0][1]):
            copy = self._copies[0]
            task, seconds = copy[0], copy[1]
            copy[2] = now if copy[2] is None else copy[2]
            needs = seconds / share
            if now + needs > end * (1 + 1e-12):
                copy[1] -= (end - now) * share
                return
            now = min(now + needs, end)
            self._ends[task.name] = now
            if now > copy[2]:
                self._note(task, COPIES, copy[2], now - copy[2])
            self._copies.popleft()

    def _state(self) -> dict[Any, float]:
        """Return the running operations with their remaining seconds, and the copies with their begin."""
        under_way = {name: at - self.now for of in (self._free, self._ends) for name, at in of.items() if at > self.now}
        for place, (_, seconds, begun) in enumerate(self._copies):
            under_way |= {place: seconds} if begun is None else {place: seconds, ("begun", place): self.now - begun}
        return under_way

    def _loop(self, loop: Task) -> None:
        before: dict[Any, float] | None = None
        last, mark = self.now, 0
        for trip in range(loop.trips):
            state, length = self._state(), self.now - last
            if trip >= _MOST_TRIPS or (before is not None and _alike(state, before, _ALIKE * length)):
                return self._repeat(loop, loop.trips - trip, length, mark)
            before, last, mark = state, self.now, len(self.events)
            self._walk(loop.body)
        return None

    def _repeat(self, loop: Task, times: int, length: float, mark: int) -> None:
        """Add further trips equal to the last one, whose events are those from `mark` on."""
        for event in self.events[mark:]:
            event[4] *= times + 1
        more = times * length
        if more:
            self._note(loop, FOLDED, self.now, more, times)
        for times_of in (self._free, self._ends):
            for name, at in times_of.items():
                if at > self.now:
                    times_of[name] = at + more
        under_way: dict[int, _Span] = {}
        for span in self._spans.values():
            while span is not None and id(span) not in under_way:
                under_way[id(span)] = span
                span = span.ahead if span.begin > self.now else None
        for span in under_way.values():
            span.begin += more
        for copy in self._copies:
            copy[2] = None if copy[2] is None else copy[2] + more
        self.now += more

    def _note(self, task: Task, lane: str, begin: float, seconds: float, more: int = 0) -> None:
        if self._noted:
            self.events.append([task, lane, begin, seconds, 1, more])


def _alike(one: Mapping[Any, float], other: Mapping[Any, float], within: float) -> bool:
    return one.keys() == other.keys() and all(abs(at - other[name]) <= within for name, at in one.items())
