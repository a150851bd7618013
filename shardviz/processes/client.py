"""The kernel's side of the compile server: starts it when first needed, and turns its messages into futures.

One thread, the keeper, has the server: it alone starts it, speaks with it and mourns it. Whoever wants a compile leaves
an order and wakes it. So an interrupt of the kernel, which reaches the main thread only, leaves no message half sent
and no server half started; a job that no process has been at when the server dies is given to the next one, once; and
a server that says nothing for long is ended.

A fork of the kernel has no threads but its own. It forgets the server, which goes on working for the kernel, and starts
another when it wants one; what the kernel has asked for is not the fork's to wait for.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import pickle
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardviz import _jax
from shardviz.processes import dumps, faults, starting
from shardviz.processes.channel import Channel
from shardviz.processes.future import Job, Milestone
from shardviz.processes.job import Request, Trial

DEFAULT_TIMEOUT = 600.0

SILENCE = 120.0
"""Seconds without a word after which a server that has jobs is taken to hang: it says every few that it lives."""

START = 300.0
"""The same while it starts."""

_LOOK = 1.0  # seconds after which the keeper looks after the server where it hears nothing
_TRIES = 2
_END = 5.0


class _Process:
    """The compile server proper, a process that forks."""

    def __init__(self, descriptor: int, root: Path, log: Path):
        with log.open("wb") as stderr:
            self.process = starting.python(
                f"{__package__}.main",
                [str(descriptor), str(root), str(_at_once())],
                pass_fds=(descriptor,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )

    def runs(self) -> bool:
        return self.process.poll() is None

    def end(self, wait: float) -> None:
        """Waits until it has ended; after that time it is killed, with its children."""
        if self.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=wait)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its children, if it went without them
        self.process.wait()

    def forget(self) -> None:
        """Lets go of it in a fork of the kernel."""
        self.process.returncode = 0  # not this process's child


class _Thread:
    """The compile server where there is no fork, a thread that starts processes."""

    def __init__(self, channel: Channel, root: Path):
        from shardviz.processes.main import Jobs
        from shardviz.processes.worker import Spawned

        self.channel = channel
        self.jobs = Jobs(channel, root, _at_once(), functools.partial(Spawned, root))
        self.thread = threading.Thread(target=self._serve, name="shardviz-compile-jobs", daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        dumps.sweep_folders()
        self.jobs.tell("ready", os.getpid())
        try:
            self.jobs.serve(lambda: True)
        finally:
            self.channel.close()

    def runs(self) -> bool:
        return self.thread.is_alive()

    def end(self, wait: float) -> None:
        self.thread.join(wait)

    def forget(self) -> None:
        for running in self.jobs.running:  # they are another process's children
            if running.process is not None:
                running.process.release()
        self.channel.close()


def _at_once() -> int:
    return max(1, (os.cpu_count() or 2) // 2)


class _Server:
    """A running compile server, its folder, and the line to it.

    Raises:
        OSError, RuntimeError: if the system gives no room, process or thread.
    """

    def __init__(self, wake: Any):
        self.root = dumps.new_folder()
        self.log = self.root / "server-stderr"
        self.ready = False
        with contextlib.ExitStack() as undo:  # an error or an interrupt leaves nothing behind
            undo.callback(shutil.rmtree, self.root, ignore_errors=True)
            ours, theirs = starting.socket_pair()
            self.channel = Channel(ours, wake)
            undo.callback(self.channel.close)
            if forks():
                with theirs:
                    self.runner: _Process | _Thread = _Process(theirs.fileno(), self.root, self.log)
            else:
                self.runner = _Thread(Channel(theirs), self.root)
            undo.pop_all()

    def end(self, wait: float) -> str:
        """Ends it and leaves nothing behind; gives what it wrote to its standard error."""
        self.channel.close()
        self.runner.end(wait)
        said = ""
        with contextlib.suppress(OSError):  # the server takes its folder along when it ends in good order
            said = self.log.read_text(encoding="utf-8", errors="replace")
        shutil.rmtree(self.root, ignore_errors=True)
        return said

    def forget(self) -> None:
        """Closes what belongs to it here, in a fork of the kernel."""
        self.channel.close()
        self.runner.forget()


@dataclass
class _Given:
    """A job that is not done, the server that was asked for it last, and how many were."""

    job: Job
    message: tuple[Any, ...]
    server: _Server | None = None
    tries: int = 0


class _Keeper:
    """Has the server, on a thread of its own; everybody else leaves orders."""

    def __init__(self) -> None:
        self.wake, self._awake = starting.socket_pair()
        self._awake.setblocking(False)
        self.orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.server: _Server | None = None
        self.given: dict[int, _Given] = {}
        self.told: dict[int, Future[Any]] = {}
        self.finishers = ThreadPoolExecutor(4, thread_name_prefix="shardviz-report")
        self.heard = 0.0
        self.closing = False
        self.only = threading.Lock()
        self.thread = threading.Thread(target=self._run, name="shardviz-compile-server", daemon=True)

    # On any thread.

    def live(self) -> bool:
        """Whether it takes orders."""
        return not self.closing and (self.thread.is_alive() or self.thread.ident is None)

    def begin(self) -> None:
        """Starts its thread.

        Raises:
            RuntimeError: if the system gives no thread.
        """
        if not self.thread.is_alive():
            self.thread.start()

    def order(self, call: Callable[[], None]) -> None:
        """Has the keeper do something soon."""
        self.orders.put(call)
        with contextlib.suppress(OSError):  # it is awake already, or gone
            self._awake.send(b"!")

    def close(self) -> None:
        """Ends the server, all its jobs, and this."""
        self.order(self._close)
        if self.thread.ident is not None:
            self.thread.join(timeout=2 * _END)

    def forget(self) -> None:
        """Lets go of the server, in a fork of the kernel, where this thread is not."""
        self.closing = True
        if self.server is not None:
            self.server.forget()
        self.wake.close()
        self._awake.close()

    # On the keeper's thread.

    def _run(self) -> None:
        if not self.only.acquire(blocking=False):  # who started it was interrupted, and it was started again
            return
        try:
            self._work()
        finally:
            self.closing = True
            if self.server is not None:
                self._lost("was ended with the compile server", wait=_END, again=False)
            for number in list(self.given):
                self._end(number, "crashed", {"how": "was lost with the compile server"})
            self.finishers.shutdown(wait=False)
            self.wake.close()
            self._awake.close()

    def _work(self) -> None:
        while not self.closing:
            while not self.orders.empty():
                self.orders.get()()
            if self.closing:
                break
            if self.server is None and self.given:
                self.need()
            if self.server is None:
                self._doze()
            else:
                self._attend(self.server)

    def _close(self) -> None:
        self.closing = True

    def _doze(self) -> None:
        """Waits for an order where there is no server."""
        self.wake.setblocking(True)
        try:
            self.wake.recv(4096)
        except OSError:
            time.sleep(_LOOK)

    def need(self) -> None:
        """Starts the server if there is none, and gives it what is to be done."""
        if self.server is None:
            try:
                self.server = _Server(self.wake)
            except (OSError, RuntimeError) as error:
                what = faults.words(error, "the compile server could not be started", dumps.base())
                for number in list(self.given):
                    self._end(number, "failed", {"error": what})
                return
            self.heard = time.monotonic()
        for given in self.given.values():
            if given.server is not self.server:
                if not any(g.server is self.server for g in self.given.values()):
                    self.heard = time.monotonic()  # it had nothing to say before
                given.server = self.server
                given.tries += 1
                self.server.channel.put(given.message)

    def take(self, number: int, given: _Given) -> None:
        """Takes a job in."""
        self.given[number] = given
        self.need()

    def stop(self, number: int) -> None:
        """Stops a job that is not done."""
        if number in self.given:
            if self.server is None:
                self._end(number, "stopped", {})
            else:
                self.server.channel.put(("stop", number))

    def _attend(self, server: _Server) -> None:
        """Speaks with the server for a moment."""
        try:
            waits = bool(self.given) or server.channel.unsent
            messages = server.channel.pump(_LOOK if waits else None)
            for message in messages:
                self._hear(server, *message)
        except (EOFError, OSError):
            self._lost("was lost with the compile server, which ended unexpectedly")
            return
        now = time.monotonic()
        if messages or not self.given:
            self.heard = now
        elif not server.runner.runs():
            self._lost("was lost with the compile server, which ended unexpectedly")
        elif now - self.heard > (SILENCE if server.ready else START):
            self._lost(f"was ended with the compile server, which had said nothing for {now - self.heard:.0f} s")

    def _hear(self, server: _Server, kind: str, *rest: Any) -> None:
        if kind == "ready":
            server.ready = True
        elif rest and (given := self.given.get(rest[0])) is not None:
            number, *more = rest
            job = given.job
            if kind == "started":
                job.pid, job.state, job.begun = more[0], "running", True
            elif kind == "milestone":
                job.state = more[0]
                self._do(number, job.reached, *more)
            elif kind == "end":
                self._end(number, *more)

    def _end(self, number: int, state: str, details: dict[str, Any]) -> None:
        job = self.given.pop(number).job
        self._do(number, job.end, state, details)
        self.told.pop(number, None)

    def _do(self, number: int, act: Callable[..., None], *rest: Any) -> None:
        """Has a job told something, after what it was told before, on a thread that may take its time."""
        before = self.told.get(number)
        try:
            self.told[number] = self.finishers.submit(_after, before, act, *rest)
        except RuntimeError:  # the system gives no thread, or the kernel is ending
            _after(before, act, *rest)

    def _lost(self, how: str, wait: float = 0.5, again: bool = True) -> None:
        """Ends the server and what it was doing; what no process was at is given to the next one, once."""
        server, self.server = self.server, None
        assert server is not None
        said = server.end(wait)
        for number, given in list(self.given.items()):
            if again and not given.job.begun and given.tries < _TRIES:
                continue
            self._end(number, "crashed", {"how": how, "stderr": said})


def _after(previous: Future[Any] | None, act: Callable[..., None], *rest: Any) -> None:
    """Runs `act` after what came before it for the same job."""
    if previous is not None:
        previous.exception()
    act(*rest)


_lock = threading.Lock()
_keeper: _Keeper | None = None
_forgotten: list[_Keeper] = []
_numbers = itertools.count(1)


def forks() -> bool:
    """Whether jobs run in forked children here; `SHARDVIZ_COMPILE=spawn` has each run in a Python of its own."""
    return hasattr(os, "fork") and os.environ.get("SHARDVIZ_COMPILE", "fork") == "fork"


def _here() -> _Keeper:
    """The keeper, at work.

    Raises:
        OSError, RuntimeError: if the system gives no thread, or no socket to wake it.
    """
    global _keeper
    with _lock:
        if _keeper is None or not _keeper.live():
            _keeper = _Keeper()
        _keeper.begin()
        return _keeper


def _after_fork() -> None:
    global _keeper, _lock
    _lock = threading.Lock()
    keeper, _keeper = _keeper, None
    if keeper is not None:
        _forgotten.append(keeper)
        keeper.forget()
    _jax.let_fork_end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def start() -> None:
    """Starts the compile server, if it is not running, without waiting for it; what fails, the first job will say."""
    with contextlib.suppress(OSError, RuntimeError):
        keeper = _here()
        keeper.order(keeper.need)


def shutdown() -> None:
    """Ends the compile server, all its jobs and its files. The next job starts another."""
    global _keeper
    with _lock:
        keeper, _keeper = _keeper, None
    if keeper is not None:
        keeper.close()


atexit.register(shutdown)


def submit(
    request: Request | Trial,
    *,
    timeout: float | None = None,
    memory_limit: float | None = None,
    on_milestone: Milestone | None = None,
) -> Job:
    """Starts a compile, or a trial.

    Args:
        request: what to compile, or to try.
        timeout: seconds that it may take; 600 if not given.
        memory_limit: bytes that its process may use; three quarters of the machine's if not given.
        on_milestone: called with the job, the milestone's name and its texts, on another thread.

    Returns:
        The `Job`; what the system does not give ends it with an error.
    """
    job = Job(request, on_milestone)
    begin(job, timeout=timeout, memory_limit=memory_limit)
    return job


def begin(job: Job, *, timeout: float | None = None, memory_limit: float | None = None) -> None:
    """Starts a `Job` that was made before; who is interrupted in this has stopped it.

    Args:
        job: the job; it is begun once.
        timeout, memory_limit: as `submit`.
    """
    number = next(_numbers)
    try:
        payload = pickle.dumps(job.request, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - whatever pickling raises
        job.end("crashed", {"how": f"ended without an answer, for it cannot be given its job ({error!r})"})
        return
    limit = _three_quarters() if memory_limit is None else memory_limit
    message = ("run", number, payload, DEFAULT_TIMEOUT if timeout is None else timeout, limit)
    try:
        keeper = _here()
    except (OSError, RuntimeError) as error:
        job.end("failed", {"error": faults.words(error, "the compile server could not be started", dumps.base())})
        return
    job._stop = lambda: keeper.order(lambda: keeper.stop(number))
    try:
        keeper.order(lambda: keeper.take(number, _Given(job, message)))
    except BaseException:
        job.stop()
        raise


def _three_quarters() -> float:
    """Three quarters of the machine's memory; no limit where the system does not say how much that is."""
    import psutil

    try:
        return 0.75 * psutil.virtual_memory().total
    except (psutil.Error, OSError):
        return float("inf")
