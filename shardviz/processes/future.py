"""A running compile as a future, which reports milestones, can be stopped, and describes failures."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from shardviz.errors import (
    CompileCrashed,
    CompileError,
    CompileMemoryLimit,
    CompileRefused,
    CompileStopped,
    CompileTimeout,
)
from shardviz.processes import faults, starting
from shardviz.processes.job import Request, Trial

Texts = dict[str, str]
Milestone = Callable[["Job[Any]", str, Texts], None]

T = TypeVar("T")


class Job(Future[T]):
    """A compile; its result is milestone → stage → text. Only the process that created it can wait for it, not a fork.

    `state` is `queued`, `running`, the last milestone reached, then `done`, `stopped`, `crashed`, `timeout`, `memory`,
    `refused`, or `failed` if the system refused resources. `texts` has the milestones reached so far, `stderr` the
    compiler's standard error up to the last milestone or the end. `pid` is the compiling process while it runs, and
    `begun` is whether it has started. `answer` are the bytes that a `Trial` returned.
    """

    def __init__(self, request: Request | Trial | None = None, on_milestone: Milestone | None = None):
        super().__init__()
        self._owner = os.getpid()
        self.request, self.on_milestone = request, on_milestone
        self.state, self.stderr = "queued", ""
        self.pid: int | None = None
        self.begun = False
        self.texts: dict[str, Texts] = {}
        self.answer: bytes | None = None
        self.created = time.monotonic()
        self.ended: float | None = None
        self._stop: Callable[[], None] = lambda: None

    def result(self, timeout: float | None = None) -> T:
        self._check_owner()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._check_owner()
        return super().exception(timeout)

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            self._condition = threading.Condition()  # in a fork, a thread of the parent may hold the old one
            if self._state != "FINISHED":
                raise CompileStopped(
                    f"this compile belongs to process {self._owner}, of which this process is a fork, and only that "
                    "process gets its result; submit the compile again here"
                )

    @property
    def elapsed(self) -> float:
        """Seconds from the job's submission to its end, or until now."""
        return (self.ended or time.monotonic()) - self.created

    def stop(self) -> None:
        """Stop the compile; the future ends with `CompileStopped`. Does nothing after the end."""
        if not self.done():
            self._stop()

    def cancel(self) -> bool:
        """Stop the compile; return True if it had not ended."""
        running = not self.done()
        self.stop()
        return running

    def reached(self, milestone: str, texts: Texts, stderr: str) -> None:
        """Store a milestone's texts and the standard error so far, and call `on_milestone`."""
        self.texts[milestone], self.stderr = texts, stderr
        if self.on_milestone is not None:
            self.on_milestone(self, milestone, texts)

    def end(self, state: str, details: dict[str, Any]) -> None:
        """End the future with the texts or an error."""
        if self.done():
            return
        self.stderr, self.answer = details.get("stderr", self.stderr), details.get("answer")
        self.ended, self.pid = time.monotonic(), None
        self.state = state
        try:
            self.conclude(None if state == "done" else _error(state, details, self.stderr))
        except Exception as error:  # noqa: BLE001 - otherwise callers would wait for ever
            self.finish(error)

    def conclude(self, error: CompileError | None) -> None:
        """Set the future's result or error."""
        self.finish(self.texts if error is None else error)

    def finish(self, outcome: Any) -> None:
        """End the future, once, with a result or an error."""
        with contextlib.suppress(InvalidStateError):
            if isinstance(outcome, BaseException):
                self.set_exception(outcome)
            else:
                self.set_result(outcome)


def _error(state: str, details: dict[str, Any], stderr: str) -> CompileError:
    if state == "stopped":
        return CompileStopped("the compile was stopped", stderr=stderr)
    if state == "timeout":
        return CompileTimeout(
            f"the compile took longer than its limit of {details['limit']:g} s and was stopped; give a larger timeout",
            stderr=stderr,
        )
    if state == "memory":
        gb = 1e-9
        return CompileMemoryLimit(
            f"the compile used {details['used'] * gb:.2f} GB, more than its limit of {details['limit'] * gb:.2f} GB, "
            "and was stopped; give program.submit or sv.explore a larger memory_limit, or fewer devices or layers",
            stderr=stderr,
        )
    if state == "failed":
        return CompileError(f"{details['error']}. Your notebook is not affected", stderr=stderr)
    flags = starting.in_the_way()
    hint = f"; XLA_FLAGS has {flags}, without which XLA runs the passes that are needed here" if flags else ""
    if state == "refused":
        return CompileRefused(f"the compiler refused the program: {details['error']}{hint}", stderr=stderr)
    return CompileCrashed(_crash(details, stderr, hint), stderr=stderr)


_FATAL = re.compile(r"F\d{4} |.*Check failed|terminate called|  what\(\)")


def _crash(details: dict[str, Any], stderr: str, hint: str) -> str:
    code = details.get("code")
    how = details.get("how") or "ended without an answer"
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        how = f"was ended by {name}" + (
            " (killed from outside, perhaps by the system when memory ran out)" if name == "SIGKILL" else ""
        )
    elif code:
        how = f"ended with exit code {code}"
    elif code == 0:
        how = "ended without having written down the program"
    fatal = [line.strip() for line in stderr.splitlines() if _FATAL.match(line)]
    why = fatal[-1] if fatal else ""
    if (fault := faults.refusal_in(stderr)) and fault not in why:
        why += f" ({fault})" if why else fault
    why = f": {why}" if why else ""
    return f"the compiler's process {how}{why}{hint}. Your notebook is not affected; the next compile starts afresh"
