"""Jobs of the compile server: begun, watched by what their compilers write down, and ended, a few side by side.

One thread, the keeper, has all of it: it alone starts the server, asks it for processes, reads what the compilers wrote
and ends jobs. Whoever wants a compile leaves an order. So an interrupt of the kernel, which reaches the main thread
only, leaves no job half given and no server half started.

Each job has a folder and a process. The server (`main.py`), a process of one thread with jax imported and no backend
made, forks the process. A job that no process has been at when the server dies is given to the next server, once.

A fork of the kernel has no threads but its own. It forgets the server, which goes on working for the kernel, and starts
another when it wants one; what the kernel has asked for is not the fork's to wait for.
"""

from __future__ import annotations

import atexit
import contextlib
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
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from shardviz import _jax
from shardviz.processes import dumps, faults, starting
from shardviz.processes.future import Job, Milestone
from shardviz.processes.job import REQUEST, Request, Trial

DEFAULT_TIMEOUT = 600.0

SILENCE = 300.0
"""Seconds after which a server that has not begun a job is taken to hang."""

_POLL = 0.003
_TRIES = 2
_END = 5.0


class _Child:
    """A job's process that the server has forked, or is to fork: its exit code, negative for a signal, None while it
    runs; what the compiler raised (`words`); why there is no process (`trouble`)."""

    def __init__(self, server: _Server):
        self._server = server
        self.pid: int | None = None
        self.code: int | None = None
        self.words = self.trouble = ""

    def kill(self) -> None:
        """Ends it and waits until it is gone. An `EOFError` or `OSError` if the server is gone, or does not answer."""
        deadline = time.monotonic() + _END
        while self.code is None and not self.trouble:
            if self.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise OSError("the compile server does not answer")
            self._server.hear(0.1)


class _Server:
    """The compile server, which forks, its folder, and the line to it. An `OSError` where the system gives no room."""

    def __init__(self) -> None:
        self.root = dumps.new_folder()
        self.children: dict[int, _Child] = {}
        with contextlib.ExitStack() as undo:  # an error leaves nothing behind
            undo.callback(shutil.rmtree, self.root, ignore_errors=True)
            ours, theirs = starting.socket_pair()
            with ours, theirs, (self.root / "server-stderr").open("wb") as stderr:
                self.process = starting.python(
                    f"{__package__}.main",
                    [str(theirs.fileno()), str(self.root)],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                )
                self.line = Connection(ours.detach())
            undo.pop_all()

    def begin(self, number: int, folder: Path) -> _Child:
        """Asks for a process for a job."""
        child = self.children[number] = _Child(self)
        self.line.send((number, str(folder)))
        return child

    def hear(self, seconds: float = 0.0) -> None:
        """Takes in what the server has said. An `EOFError` or `OSError` if it is gone."""
        while self.line.poll(seconds):
            kind, number, *rest = self.line.recv()
            child, seconds = self.children[number], 0.0
            if kind == "started":
                (child.pid,) = rest
            else:
                child.code, child.words, child.trouble = rest
                del self.children[number]

    def end(self, wait: float) -> str:
        """Ends it and all its processes; gives what it wrote to its standard error."""
        self.line.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=wait)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its children, if it went without them
        self.process.wait()
        words = ""
        with contextlib.suppress(OSError):  # the server takes its folder along when it ends in good order
            words = (self.root / "server-stderr").read_text(encoding="utf-8", errors="replace")
        shutil.rmtree(self.root, ignore_errors=True)
        return words

    def forget(self) -> None:
        """Lets go of it in a fork of the kernel."""
        self.line.close()
        self.process.returncode = 0  # not this process's child


@dataclass(kw_only=True)
class _Task:
    """A job that is not done: it waits for its turn, or is at work."""

    number: int
    job: Job
    payload: bytes
    timeout: float
    memory_limit: float
    process: _Child | None = None
    folder: Path | None = None
    asked: float = 0.0
    begun: float = 0.0
    sent: set[str] = field(default_factory=set)
    tries: int = 0
    memory: Any = None

    @property
    def stderr(self) -> str:
        """What its process has written to its standard error so far, the end of it if it is long."""
        if self.folder is None:
            return ""
        try:
            with (self.folder / "stderr").open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 200_000))
                return log.read().decode("utf-8", errors="replace")
        except OSError:
            return ""

    @property
    def used(self) -> float:
        """Bytes that its process takes; 0 where the system does not say, as without /proc."""
        import psutil

        try:
            if self.memory is None:
                assert self.process is not None
                self.memory = psutil.Process(self.process.pid)
            return self.memory.memory_info().rss
        except (psutil.Error, OSError):
            return 0.0


class _Keeper:
    """Has the server and the jobs, on a thread of its own; everybody else leaves orders."""

    def __init__(self) -> None:
        self.orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.server: _Server | None = None
        self.waiting: list[_Task] = []
        self.running: list[_Task] = []
        self.at_once = max(1, (os.cpu_count() or 2) // 2)
        self.told: dict[int, Future[Any]] = {}
        self.finishers = ThreadPoolExecutor(4, thread_name_prefix="shardviz-report")
        self.closing = False
        self.only = threading.Lock()
        self.thread = threading.Thread(target=self._run, name="shardviz-compile-server", daemon=True)

    # On any thread.

    def live(self) -> bool:
        """Whether it takes orders."""
        return not self.closing and (self.thread.is_alive() or self.thread.ident is None)

    def begin(self) -> None:
        """Starts its thread; a `RuntimeError` if the system gives none."""
        if not self.thread.is_alive():
            self.thread.start()

    def close(self) -> None:
        """Ends the server, all its jobs, and this."""
        self.orders.put(lambda: setattr(self, "closing", True))
        if self.thread.ident is not None:
            self.thread.join(timeout=2 * _END)

    def forget(self) -> None:
        """Lets go of the server and the jobs, in a fork of the kernel, where this thread is not."""
        self.closing = True
        if self.server is not None:
            self.server.forget()

    # On the keeper's thread.

    def _run(self) -> None:
        if not self.only.acquire(blocking=False):  # who started it was interrupted, and it was started again
            return
        try:
            while not self.closing:
                self._work()
        finally:
            self.closing = True
            while not self.orders.empty():
                self.orders.get()()
            self._lost("was ended with the compile server", wait=_END, again=False)
            for task in (*self.running, *self.waiting):
                self._answer(task, "crashed", how="was lost with the compile server")
            self.finishers.shutdown(wait=False)

    def _work(self) -> None:
        """Takes an order, begins what waits and looks after what runs."""
        with contextlib.suppress(queue.Empty):
            self.orders.get(timeout=_POLL if self.running or self.waiting else None)()
        try:
            if self.server is not None:
                self.server.hear()
            while self.waiting and len(self.running) < self.at_once and not self.closing:
                self._begin(self.waiting.pop(0))
            for task in list(self.running):
                self._watch(task)
        except (EOFError, OSError):
            self._lost("was lost with the compile server, which ended unexpectedly")

    def start(self) -> None:
        """Starts the server, if there is none; what fails, the first job will say."""
        with contextlib.suppress(OSError):
            self._need()

    def _need(self) -> _Server:
        if self.server is None:
            if not hasattr(os, "fork"):
                raise OSError("this system has no fork; use Linux, macOS or WSL")
            self.server = _Server()
        return self.server

    def stop(self, number: int) -> None:
        """Stops a job that is not done."""
        for task in [task for task in self.waiting if task.number == number]:
            self.waiting.remove(task)
            self._answer(task, "stopped")
        for task in [task for task in self.running if task.number == number]:
            with contextlib.suppress(EOFError, OSError):  # the server is gone, which it says itself
                self._end(task, "stopped")

    def _begin(self, task: _Task) -> None:
        """Has a process begin a job; where the system gives none, the job ends with what it said."""
        self.running.append(task)
        task.tries += 1
        doing, place = "the compile server could not be started", dumps.base()
        try:
            server = self._need()
            doing, place = "no process could be started for the compiler", server.root / f"job-{task.number}"
            place.mkdir(parents=True)
            task.asked, task.folder = time.monotonic(), place
            (place / REQUEST).write_bytes(task.payload)
            task.process = server.begin(task.number, place)
        except BrokenPipeError:  # the server is gone, which it says itself
            return
        except OSError as error:
            self._end(task, "failed", error=faults.words(error, doing, place))

    def _watch(self, task: _Task) -> None:
        """Tells what a job's compiler has finished, and ends the job when it is done, or has gone too far."""
        process, request, folder = task.process, task.job.request, task.folder
        if process is None or folder is None or request is None:
            return
        if process.pid is None:
            if process.trouble:
                self._end(task, "failed", error=process.trouble)
            elif (seconds := time.monotonic() - task.asked) > SILENCE:
                self._lost(f"was ended with the compile server, which had said nothing for {seconds:.0f} s")
            return
        if not task.begun:
            task.begun = time.monotonic()
            task.job.pid, task.job.state, task.job.begun = process.pid, "running", True
        code, wanted = process.code, request.milestones
        try:
            full = self._reach(task, request, folder, ended=code == 0) if isinstance(request, Request) else None
        except OSError as error:
            self._end(task, "failed", error=faults.words(error, "reading what the compiler wrote", folder))
            return
        if wanted and wanted[-1] in task.sent:
            self._end(task, "done")
        elif code is None:
            if time.monotonic() - task.begun > task.timeout:
                self._end(task, "timeout", limit=task.timeout)
            elif (used := task.used) > task.memory_limit:
                self._end(task, "memory", limit=task.memory_limit, used=used)
        elif full or (isinstance(request, Request) and (full := faults.of_files(folder, task.stderr))):
            self._end(task, "failed", error=f"the compiler could not write down what it made: {full}")
        elif code == 0 and (not wanted or "compiled" in task.sent):
            self._end(task, "done")
        elif process.words:
            self._end(task, "refused", error=process.words)
        else:
            self._end(task, "crashed", code=code)

    def _reach(self, task: _Task, request: Request, folder: Path, *, ended: bool) -> str | None:
        """Tells the milestones that a compiler has reached since it was last looked at; none, and what it is, where
        something keeps its files from being whole."""
        platform = request.topology.platform if request.topology else "cpu"
        for milestone in request.milestones:
            if milestone in task.sent:
                continue
            if not dumps.complete(folder / "dumps", milestone, request.devices, ended=ended, platform=platform):
                break  # an option may keep a pass from running, and what comes later is read with what came before
            stderr = task.stderr
            if full := faults.of_files(folder, stderr):
                return full
            task.sent.add(milestone)
            texts = dumps.read(folder / "dumps", milestone, request.devices)
            task.job.state = milestone
            self._tell(task, task.job.reached, milestone, texts, stderr)
        return None

    def _end(self, task: _Task, state: str, **details: Any) -> None:
        """Ends a job: its process, its folder, and the waiting for it."""
        self.running.remove(task)
        stderr = task.stderr
        try:
            if task.process is not None:
                task.process.kill()
        finally:
            if task.folder is not None:
                shutil.rmtree(task.folder, ignore_errors=True)
            self._answer(task, state, **details, stderr=stderr)

    def _answer(self, task: _Task, state: str, **details: Any) -> None:
        self._tell(task, task.job.end, state, details)
        self.told.pop(task.number, None)

    def _tell(self, task: _Task, act: Callable[..., None], *rest: Any) -> None:
        """Has a job told something, after what it was told before, on a thread that may take its time."""
        before = self.told.get(task.number)
        try:
            self.told[task.number] = self.finishers.submit(_after, before, act, *rest)
        except RuntimeError:  # the system gives no thread, or the kernel is ending
            _after(before, act, *rest)

    def _lost(self, how: str, wait: float = 0.5, again: bool = True) -> None:
        """Ends the server and what it was doing; what no process was at is given to the next one, once."""
        if self.server is None:
            return
        server, self.server = self.server, None
        running, self.running = self.running, []
        words = server.end(wait)
        for task in reversed(running):
            task.process = task.folder = None
            if again and not task.begun and task.tries < _TRIES:
                self.waiting.insert(0, task)
            else:
                self._answer(task, "crashed", how=how, stderr=words)


def _after(previous: Future[Any] | None, act: Callable[..., None], *rest: Any) -> None:
    """Runs `act` after what came before it for the same job."""
    if previous is not None:
        previous.exception()
    act(*rest)


_lock = threading.Lock()
_keeper: _Keeper | None = None
_forgotten: list[_Keeper] = []
_numbers = itertools.count(1)


def _running_keeper() -> _Keeper:
    """The keeper, at work; a `RuntimeError` if the system gives no thread."""
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
    with contextlib.suppress(RuntimeError):
        keeper = _running_keeper()
        keeper.orders.put(keeper.start)


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
    """Starts a compile, or a trial, which may take so many seconds (600) and bytes (three quarters of the machine's);
    `on_milestone` gets the `Job`, a milestone's name and its texts, on another thread. What the system does not give
    ends it with an error."""
    job = Job(request, on_milestone)
    begin(job, timeout=timeout, memory_limit=memory_limit)
    return job


def tried(trial: Trial, timeout: float, memory_limit: float | None = None) -> Job:
    """Something tried in a process of its own, to its end; limits as of `submit`."""
    job = submit(trial, timeout=timeout, memory_limit=memory_limit)
    try:
        job.exception()
    finally:
        job.stop()  # where the waiting was interrupted
    return job


def begin(job: Job, *, timeout: float | None = None, memory_limit: float | None = None) -> None:
    """Starts a `Job` that was made before; who is interrupted in this has stopped it."""
    job.created = time.monotonic()
    try:
        payload = pickle.dumps(job.request, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - whatever pickling raises
        job.end("crashed", {"how": f"ended without an answer, for it cannot be given its job ({error!r})"})
        return
    task = _Task(
        number=next(_numbers),
        job=job,
        payload=payload,
        timeout=DEFAULT_TIMEOUT if timeout is None else timeout,
        memory_limit=_three_quarters() if memory_limit is None else memory_limit,
    )
    try:
        keeper = _running_keeper()
    except RuntimeError as error:
        job.end("failed", {"error": faults.words(error, "the compile server could not be started", dumps.base())})
        return
    job._stop = lambda: keeper.orders.put(lambda: keeper.stop(task.number))
    try:
        keeper.orders.put(lambda: keeper.waiting.append(task))
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
