"""A recorder of the operations that a function's own lines request during tracing, which can also mark their results.

A function is differentiated, mapped and put into loops while it is traced. The user's operations can be told from JAX's
derived ones only while a user's line runs. `Watch` records each operation that the function's code requests, with the
active lines, innermost first. It can also put a sharding constraint on some results at once, as if the user had written
`with_sharding_constraint` around the expression; JAX's own rules then apply to it in the backward pass, inside loops
and under `vmap`. Such a mark says "replicated" and has a number in its name stack, by which `marked_text` finds it; its
real spec is written later.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from shardviz._jax.jaxprs import every_equation
from shardviz._jax.tracing import here, target_mesh, thread_value


@dataclass(frozen=True)
class Line:
    """An active place in the user's code: its lines (from 1) and columns (from 0, in UTF-8 bytes, the last one
    excluded), a number for each call of the function (`frame`), and how often execution has jumped back (`run`), which
    tells the iterations of Python loops apart."""

    file: str
    function: str
    first: int
    last: int
    start: int
    end: int
    frame: int
    run: int


@dataclass(frozen=True)
class Made:
    """An operation that the user's code requested: the number of operations before it, its primitive or the jitted
    function that it calls, its result's shape and type (None if it has several results), the active lines, innermost
    first, the mesh axes of the enclosing `shard_map`s, and whether these leave any axis (`whole`)."""

    number: int
    op: str
    shape: tuple[int, ...] | None
    dtype: str
    lines: tuple[Line, ...]
    manual: frozenset[str]
    whole: bool


class Watch:
    """A recorder for one trace: the operations, in order (`made`), and the numbers of those whose result is not what
    the variable then holds (`misses`). It is given a test for the user's files, the marks to put on each operation's
    result, and for some operations the (line number in `Made.lines`, variable) of the assignment."""

    def __init__(
        self,
        is_own: Callable[[str], bool],
        marks: Mapping[int, Collection[str]] | None = None,
        variables: Mapping[int, tuple[int, str]] | None = None,
    ):
        self.made: list[Made] = []
        self.misses: set[int] = set()
        self._marks, self._variables = marks or {}, variables or {}
        self._is_own = is_own
        self._own: dict[int, tuple[CodeType, tuple[tuple[int | None, ...], ...] | None]] = {}
        self._frames: dict[int, _CallFrame] = {}
        self._waiting: list[tuple[int, FrameType, int, str, Any]] = []
        self._inside = False

    def bind(self, bind: Callable[..., Any], primitive: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Run an operation, and record it if the user's code asks for it."""
        if self._inside or (primitive.name == "sharding_constraint" and _of_a_mark()):
            return bind(primitive, *args, **params)
        self._inside = True
        try:
            out = bind(primitive, *args, **params)
            return self._record(primitive, params, out, sys._getframe(2))
        finally:
            self._inside = False

    def close(self) -> None:
        """Process the pending operations, and release the function's frames."""
        for waiting in self._waiting:
            self._look(*waiting)
        self._waiting.clear()
        self._frames.clear()

    def _record(self, primitive: Any, params: dict[str, Any], out: Any, frame: FrameType | None) -> Any:
        lines, at = list[Line](), dict[int, tuple[FrameType, int]]()
        below: FrameType | None = None
        while frame is not None:
            places = self._places(frame.f_code)
            if places is not None:
                lines.append(self._line(frame, below, places))
                at[id(frame)] = frame, frame.f_lasti
            below, frame = frame, frame.f_back
        for waiting in [w for w in self._waiting if id(w[1]) in at and at[id(w[1])][1] != w[2]]:
            self._waiting.remove(waiting)
            self._look(*waiting)
        number = len(self.made)
        single = out[0] if isinstance(out, list | tuple) and len(out) == 1 else out
        aval = getattr(single, "aval", None)
        inside = jax.sharding.get_abstract_mesh()
        manual = frozenset(inside.manual_axes)
        name = params.get("name") if primitive.name in ("jit", "pjit") else None
        self.made.append(
            Made(
                number,
                name if isinstance(name, str) else primitive.name,
                None if aval is None else tuple(getattr(aval, "shape", ())),
                str(getattr(aval, "dtype", "")),
                tuple(lines),
                manual,
                not manual or bool(set(inside.axis_names) - manual),
            )
        )
        for mark in self._marks.get(number, ()):
            with jax.named_scope(mark):
                single = jax.lax.with_sharding_constraint(single, NamedSharding(target_mesh(), PartitionSpec()))
            out = type(out)([single]) if isinstance(out, list | tuple) else single
        if number in self._variables:
            level, variable = self._variables[number]
            frames = list(at.values())
            self._waiting.append((number, *frames[level], variable, single))
        return out

    def _look(self, number: int, frame: FrameType, _: int, variable: str, value: Any) -> None:
        if frame.f_locals.get(variable, value) is not value:
            self.misses.add(number)

    def _places(self, code: CodeType) -> tuple[tuple[int | None, ...], ...] | None:
        """Return for each instruction its first and last line, and its first and last column; None for code outside the
        traced function."""
        key = id(code)  # a code object hashes all of its contents at each lookup; kept here, its id stays its own
        if key not in self._own:
            self._own[key] = code, tuple(code.co_positions()) if self._is_own(code.co_filename) else None
        return self._own[key][1]

    def _line(self, frame: FrameType, below: FrameType | None, places: tuple[tuple[int | None, ...], ...]) -> Line:
        call_frame = self._frames.get(id(frame))
        if call_frame is None:
            call_frame = self._frames[id(frame)] = _CallFrame(frame, len(self._frames))
        first, last, start, end = (n or 0 for n in places[frame.f_lasti // 2])
        run = call_frame.run_at(frame.f_lasti, below)
        code = frame.f_code
        return Line(code.co_filename, code.co_qualname, first, last, start, end, call_frame.number, run)


def _of_a_mark() -> bool:
    """Return whether what JAX does now stands for a mark, as in the backward pass."""
    from jax._src import source_info_util

    return _MARK.search(str(source_info_util.current_name_stack())) is not None


class _CallFrame:
    """A running call of a function. It holds the frame, so that no other call can get the frame's id."""

    def __init__(self, frame: FrameType, number: int):
        self.frame, self.number = frame, number
        self.run, self._at, self._below = 0, -1, None

    def run_at(self, at: int, below: FrameType | None) -> int:
        """Return the run that the call is in, at an instruction that has called another function."""
        if at < self._at or (at == self._at and below is not self._below):
            self.run += 1
        self._at, self._below = at, below
        return self.run


_numbers = itertools.count(1)
"""JAX keys its trace cache by its settings. We change the number of profiling runs, which has no effect below 1."""
_lock = threading.Lock()
_watching: list[Any] = []
"""The original `Primitive.bind`, once for each active `passing` on any thread."""


@contextlib.contextmanager
def passing(*, watch: Watch | None = None, **by: Any) -> Iterator[None]:
    """Intercept tracing on this thread inside the context, and ignore JAX's cached traces. `reconstrain` returns a
    constraint's new spec from (source info, spec), or None to drop it; `checkpointing` is a `Checkpointing`; `watch` is
    notified of each operation. Arguments that are None intercept nothing."""
    from jax._src import config, core

    by = {name: each for name, each in {**by, "watch": watch}.items() if each is not None}
    if not by:
        yield
        return
    with _lock:
        theirs = _watching[0] if _watching else core.Primitive.bind
        _watching.append(theirs)
        core.Primitive.bind = _telling(theirs)
    try:
        with contextlib.ExitStack() as stack:
            for name, each in by.items():
                stack.enter_context(thread_value(name, each))
            stack.enter_context(config.pgle_profiling_runs(-next(_numbers)))
            yield
    finally:
        with _lock:
            _watching.pop()
            if not _watching:
                core.Primitive.bind = theirs
        if watch is not None:
            watch.close()


def _telling(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def bind(self: Any, *args: Any, **params: Any) -> Any:
        reconstrain = getattr(here, "reconstrain", None)
        if reconstrain is not None and self.name == "sharding_constraint" and not _of_a_mark():
            changed = _reconstrained(params, reconstrain)
            if changed is None:
                return args[0]
            params = changed
        if (checkpointing := getattr(here, "checkpointing", None)) is not None:
            return checkpointing.bind(watched_bind, self, args, params)
        return watched_bind(self, *args, **params)

    def watched_bind(self: Any, *args: Any, **params: Any) -> Any:
        watch = getattr(here, "watch", None)
        return theirs(self, *args, **params) if watch is None else watch.bind(theirs, self, args, params)

    return bind


def _reconstrained(params: dict[str, Any], reconstrain: Callable[[Any, Any], Any]) -> dict[str, Any] | None:
    """Return a constraint's parameters with its new spec; None if it is dropped."""
    from jax._src import source_info_util

    sharding = params["sharding"]
    if not isinstance(sharding, NamedSharding):
        return params
    spec = reconstrain(source_info_util.current(), sharding.spec)
    if spec is None or spec is sharding.spec:
        return None if spec is None else params
    return params | {"sharding": NamedSharding(sharding.mesh, spec), "unconstrained_dims": _unconstrained(spec)}


def _unconstrained(spec: PartitionSpec) -> frozenset[int]:
    return frozenset(d for d, entry in enumerate(spec) if entry is PartitionSpec.UNCONSTRAINED)


_MARK = re.compile(r"shardviz_mark_(\d+)_(\d+)")
_LEFT_OUT = re.compile(r"shardviz_mark_\d+_\d+/|/shardviz_mark_\d+_\d+|shardviz_mark_\d+_\d+")


def mark(number: int, run: int) -> str:
    """Return a mark's name in a name stack: the number of the marked value, and of the operation that makes it."""
    return f"shardviz_mark_{number}_{run}"


def marked_text(text: str) -> tuple[int, str] | None:
    """Return the number of the mark in a name stack, or in text around it, and the text without the mark; None if there
    is no mark."""
    match = _MARK.search(text)
    return None if match is None else (int(match[1]), _LEFT_OUT.sub("", text))


def marks_in(jaxpr: Any) -> set[tuple[int, int]]:
    """Return (number, run) of every mark in a jaxpr, nested ones too."""
    constraints = (e for e in every_equation(jaxpr) if e.primitive.name == "sharding_constraint")
    marks = (_MARK.search(str(e.source_info.name_stack)) for e in constraints)
    return {(int(mark[1]), int(mark[2])) for mark in marks if mark}
