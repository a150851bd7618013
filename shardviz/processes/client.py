"""Jobs of the compile server: started, watched through the compilers' dumps, and ended.

A few compiles run at once; a trial, for which somebody waits, does not wait for them.

One thread, the keeper, does all of this: it starts the server, requests processes from it, reads the compilers' dumps
and ends jobs. Other threads send it orders. An interrupt of the kernel reaches only the main thread, so it never leaves
a job half submitted or a server half started.

Each job has a folder and a process. The server (`main.py`), a process of one thread with jax imported and no backend,
forks the process. If the server dies before a job's process has started, the job is given once to the next server.

A fork of the kernel lacks the keeper's thread. It forgets the server, which continues for the kernel, and starts its
own server when needed. It cannot wait for the kernel's jobs.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import pickle
import queue
import shutil
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
from shardviz.caching import cached_property
from shardviz.processes import dumps, faults, starting
from shardviz.processes.future import Job, Milestone
from shardviz.processes.job import ANSWER, REQUEST, Request, Trial

DEFAULT_TIMEOUT = 600.0

SILENCE = 60.0
"""Seconds after which a server that has not started a job's process is considered hung."""

STILL = 20.0
"""Seconds with hardly any CPU time after which a compiler is considered hung."""

_POLL, _SELDOM = 0.003, 0.1
"""Seconds between two looks at the running jobs: a hundredth of the youngest job's age, within these bounds."""
_TRIES = 2
_END = 5.0
_WAIT = 1.0
"""Seconds that `tried` waits at a time; an exception can be raised on its thread between two waits."""


class _ServerLost(Exception):
    """The compile server has ended, or does not answer."""


class _Child:
    """A job's process in the server: its exit code (negative for a signal, None while it runs), the compiler's error
    (`words`), and why no process could be started (`trouble`)."""

    def __init__(self, server: _Server):
        self._server = server
        self.pid: int | None = None
        self.code: int | None = None
        self.words = self.trouble = ""
        self._worked = 0.0, 0.0  # seconds of CPU time, and when these last grew by enough

    @cached_property
    def _seen(self) -> Any:
        import psutil

        return psutil.Process(self.pid)

    @property
    def memory(self) -> float:
        """Bytes of memory; 0 if the system does not report it, as without /proc."""
        import psutil

        try:
            return self._seen.memory_info().rss
        except (psutil.Error, OSError):
            return 0.0

    def is_still(self) -> bool:
        """Return whether it and its children had less than a hundredth of a core for `STILL` seconds. A call may read
        their CPU time anew."""
        import psutil

        seconds, since = self._worked
        now = time.monotonic()
        if not since or now - since > STILL / 4:  # seldom, since its children must be searched for
            try:
                times = [each.cpu_times() for each in (self._seen, *self._seen.children(recursive=True))]
            except (psutil.Error, OSError):
                return False
            worked = sum(each.user + each.system for each in times)
            if not since or worked - seconds > (now - since) / 100:  # who waits for a lock may look again and again
                self._worked = worked, now
        return now - self._worked[1] > STILL

    def kill(self) -> None:
        deadline = time.monotonic() + _END
        while self.code is None and not self.trouble:
            if self.pid is not None:
                starting.end_group(self.pid)
            if time.monotonic() > deadline:
                raise _ServerLost("does not answer")
            self._server.hear(0.1)


class _Server:
    """The compile server, its folder, and the connection to it. Raises OSError if the system refuses resources."""

    def __init__(self) -> None:
        self.root = dumps.new_folder()
        self.children: dict[int, _Child] = {}
        with contextlib.ExitStack() as undo:  # removes the folder after an error
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
        child = self.children[number] = _Child(self)
        try:
            self.line.send((number, str(folder)))
        except OSError as error:
            raise _ServerLost from error
        return child

    def hear(self, seconds: float = 0.0) -> None:
        """Receive the server's messages. Raises _ServerLost."""
        while message := self._message(seconds):
            kind, number, *rest = message
            child, seconds = self.children[number], 0.0
            if kind == "started":
                (child.pid,) = rest
            else:
                child.code, child.words, child.trouble = rest
                del self.children[number]

    def _message(self, seconds: float) -> Any:
        try:
            return self.line.recv() if self.line.poll(seconds) else None
        except (EOFError, OSError) as error:
            raise _ServerLost from error

    def end(self, wait: float) -> str:
        """End the server and all its processes; return its standard error."""
        self.line.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=wait)
        for leader in (self.process.pid, *(c.pid for c in self.children.values() if c.pid is not None)):
            starting.end_group(leader)  # also the children of a server that died without ending them
        self.process.wait()
        words = ""
        with contextlib.suppress(OSError):  # a server that ends normally removes its folder
            words = (self.root / "server-stderr").read_text(encoding="utf-8", errors="replace")
        shutil.rmtree(self.root, ignore_errors=True)
        return words

    def forget(self) -> None:
        self.line.close()
        self.process.returncode = 0  # the server is not this process's child


@dataclass(kw_only=True)
class _Task:
    """A job that is waiting or running."""

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
    doing: str = ""

    @property
    def compiles(self) -> bool:
        """Whether it counts among the compiles that run at once."""
        return isinstance(self.job.request, Request)

    @property
    def stderr(self) -> str:
        """The last 200,000 bytes of the process's standard error so far."""
        if self.folder is None:
            return ""
        try:
            with (self.folder / "stderr").open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 200_000))
                return log.read().decode("utf-8", errors="replace")
        except OSError:
            return ""


class _Keeper:
    """The thread that owns the server and the jobs; other threads send it orders."""

    def __init__(self) -> None:
        self.orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.server: _Server | None = None
        self.waiting: list[_Task] = []
        self.running: list[_Task] = []
        self.at_once = max(1, (os.cpu_count() or 2) // 2)
        self.calls: dict[int, Future[None]] = {}
        self.finishers = ThreadPoolExecutor(4, thread_name_prefix="shardviz-report")
        self.closing = False
        self.only = threading.Lock()
        self.thread = threading.Thread(target=self._run, name="shardviz-compile-server", daemon=True)

    # On any thread.

    def live(self) -> bool:
        """Return whether the keeper takes orders."""
        return not self.closing and (self.thread.is_alive() or self.thread.ident is None)

    def begin(self) -> None:
        if not self.thread.is_alive():
            self.thread.start()

    def close(self) -> None:
        """End the server, all jobs, and the thread."""
        self.orders.put(lambda: setattr(self, "closing", True))
        if self.thread.ident is not None:
            self.thread.join(timeout=2 * _END)

    def forget(self) -> None:
        self.closing = True
        if self.server is not None:
            self.server.forget()

    # On the keeper's thread.

    def _run(self) -> None:
        if not self.only.acquire(blocking=False):  # an interrupted start was repeated, and the first thread runs
            return
        try:
            while not self.closing:
                try:
                    self._work()
                except _ServerLost:
                    self._lost("was lost with the compile server, which ended unexpectedly")
        finally:
            self.closing = True
            while not self.orders.empty():
                self.orders.get()()
            self._lost("was ended with the compile server", wait=_END, again=False)
            self.finishers.shutdown(wait=False)

    def _work(self) -> None:
        """Process an order, start waiting jobs and watch running ones. Raises _ServerLost; other errors end a job."""
        with contextlib.suppress(queue.Empty):
            self.orders.get(timeout=self._pause)()
        if self.server is not None:
            self.server.hear()
        for task in [] if self.closing else list(self.waiting):
            if not task.compiles or sum(other.compiles for other in self.running) < self.at_once:
                self.waiting.remove(task)
                self.running.append(task)
        for task in list(self.running):
            try:
                self._watch(task) if task.process else self._begin(task)
            except _ServerLost:
                raise
            except Exception as error:  # noqa: BLE001 - otherwise the thread dies silently and callers wait for ever
                self._end(task, "failed", error=faults.words(error, task.doing, task.folder or dumps.base()))

    @property
    def _pause(self) -> float | None:
        """Seconds until the next look at the running jobs; None if there are none."""
        if not self.running:
            return _POLL if self.waiting else None
        now = time.monotonic()
        youngest = min(now - task.begun if task.begun else 0.0 for task in self.running)
        return min(_SELDOM, max(_POLL, youngest / 100))

    def start(self) -> None:
        """Start the server if there is none; the first job reports errors."""
        with contextlib.suppress(Exception):
            self._need()

    def _need(self) -> _Server:
        if self.server is None:
            if not hasattr(os, "fork"):
                raise OSError("this system has no fork; use Linux, macOS or WSL")
            self.server = _Server()
        return self.server

    def stop(self, number: int) -> None:
        """Stop a job that has not ended."""
        for task in [task for task in self.waiting if task.number == number]:
            self.waiting.remove(task)
            self._answer(task, "stopped")
        for task in [task for task in self.running if task.number == number]:
            with contextlib.suppress(_ServerLost):  # `_work` reports it
                self._end(task, "stopped")

    def _begin(self, task: _Task) -> None:
        task.doing = "the compile server could not be started"
        server = self._need()
        task.doing, task.folder = "no process could be started for the compiler", server.root / f"job-{task.number}"
        task.folder.mkdir(parents=True)
        (task.folder / REQUEST).write_bytes(task.payload)
        task.tries, task.asked = task.tries + 1, time.monotonic()
        task.process = server.begin(task.number, task.folder)
        task.doing = "reading what the compiler wrote"

    def _watch(self, task: _Task) -> None:
        """Report a job's milestones, and end it when it is done or exceeds a limit."""
        process, request, folder = task.process, task.job.request, task.folder
        assert process is not None and request is not None and folder is not None
        if process.pid is None:
            if process.trouble:
                self._end(task, "failed", error=process.trouble)
            elif (seconds := time.monotonic() - task.asked) > SILENCE:
                self._lost(f"was ended with the compile server, which had not answered for {seconds:.0f} s")
            return
        if not task.begun:
            task.begun = time.monotonic()
            task.job.pid, task.job.state, task.job.begun = process.pid, "running", True
        code, wanted = process.code, request.milestones
        full = self._reach(task, request, folder, ended=code == 0) if isinstance(request, Request) else None
        if wanted and wanted[-1] in task.sent:
            self._end(task, "done")
        elif code is None:
            if time.monotonic() - task.begun > task.timeout:
                self._end(task, "timeout", limit=task.timeout)
            elif (used := process.memory) > task.memory_limit:
                self._end(task, "memory", limit=task.memory_limit, used=used)
            elif task.compiles and process.is_still():
                if task.tries < _TRIES:
                    self._again(task)
                else:
                    self._end(task, "crashed", how=f"did nothing for {STILL:g} s, twice")
        elif full or (isinstance(request, Request) and (full := faults.of_files(folder, task.stderr))):
            self._end(task, "failed", error=f"the compiler could not write down what it made: {full}")
        elif code == 0 and (not wanted or "compiled" in task.sent):
            self._end(task, "done")
        elif process.words:
            self._end(task, "refused", error=process.words)
        else:
            self._end(task, "crashed", code=code)

    def _again(self, task: _Task) -> None:
        """Start a job's process once more; milestones that were reported are not reported again."""
        assert task.process is not None and task.folder is not None
        task.process.kill()
        shutil.rmtree(task.folder, ignore_errors=True)
        self.running.remove(task)
        task.process, task.folder, task.begun = None, None, 0.0
        self.waiting.insert(0, task)

    def _reach(self, task: _Task, request: Request, folder: Path, *, ended: bool) -> str | None:
        """Report the milestones that a compiler has reached; return an error if its files cannot be completed."""
        platform = request.topology.platform if request.topology else "cpu"
        for milestone in request.milestones:
            if milestone in task.sent:
                continue
            if not dumps.complete(folder / "dumps", milestone, request.devices, ended=ended, platform=platform):
                break  # an option may disable a pass; then a later milestone is read without this one
            stderr = task.stderr
            if fault := faults.of_files(folder, stderr):
                return fault
            task.sent.add(milestone)
            texts = dumps.read(folder / "dumps", milestone, request.devices)
            task.job.state = milestone
            self._tell(task, task.job.reached, milestone, texts, stderr)
        return None

    def _end(self, task: _Task, state: str, **details: Any) -> None:
        if task in self.running:
            self.running.remove(task)
        try:
            details["stderr"] = task.stderr
            if state == "done" and task.folder is not None and (task.folder / ANSWER).exists():
                details["answer"] = (task.folder / ANSWER).read_bytes()
            if task.process is not None:
                task.process.kill()
        finally:
            if task.folder is not None:
                shutil.rmtree(task.folder, ignore_errors=True)
            self._answer(task, state, **details)
        if state == "failed" and not self.running:  # restart, since the server has the system limits of its start
            self._lost("")

    def _answer(self, task: _Task, state: str, **details: Any) -> None:
        self._tell(task, task.job.end, state, details)
        self.calls.pop(task.number, None)

    def _tell(self, task: _Task, act: Callable[..., None], *rest: Any) -> None:
        """Call a job's method after earlier calls for this job: of a compile on another thread, of a trial here, since
        each of those threads may be reading a report and waiting for a trial."""
        if not task.compiles:
            act(*rest)
            return
        before, done = self.calls.get(task.number), Future[None]()
        self.calls[task.number] = done

        def call() -> None:
            try:
                act(*rest)
            finally:
                done.set_result(None)

        def begin(_: Future[None] | None = None) -> None:
            try:
                self.finishers.submit(call)
            except RuntimeError:  # the system refuses a thread, or the kernel is ending
                call()

        begin() if before is None else before.add_done_callback(begin)

    def _lost(self, how: str, wait: float = 0.5, again: bool = True) -> None:
        """End the server; jobs whose process has not started are given to the next server, once."""
        server, self.server = self.server, None
        tasks, self.running, self.waiting = self.running + self.waiting, [], []
        words = ""
        with contextlib.suppress(Exception):
            words = "" if server is None else server.end(wait)
        for task in tasks:
            task.process = task.folder = None
            if again and not task.begun and task.tries < _TRIES:
                self.waiting.append(task)
            else:
                self._answer(task, "crashed", how=how, stderr=words)


_lock = threading.Lock()
_keeper: _Keeper | None = None
_forgotten: list[_Keeper] = []
_numbers = itertools.count(1)


def _running_keeper() -> _Keeper:
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
    """Start the compile server without waiting for it, if it is not running; the first job reports errors."""
    with contextlib.suppress(RuntimeError):
        keeper = _running_keeper()
        keeper.orders.put(keeper.start)


def shutdown() -> None:
    """End the compile server, all its jobs and its files. The next job starts another server."""
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
    """Start a compile or a trial with limits on seconds (default 600) and bytes (default 3/4 of the machine's memory).
    `on_milestone` is called with the `Job`, a milestone's name and its texts, on another thread. Errors of the system
    end the job with an error."""
    job = Job(request, on_milestone)
    begin(job, timeout=timeout, memory_limit=memory_limit)
    return job


def tried(trial: Trial, timeout: float, memory_limit: float | None = None) -> Job:
    """Run a trial in its own process and wait for its end; the limits are `submit`'s."""
    job = submit(trial, timeout=timeout, memory_limit=memory_limit)
    try:
        while not job.done():
            with contextlib.suppress(TimeoutError):
                job.exception(_WAIT)
    finally:
        job.stop()  # if the waiting was interrupted
    return job


def begin(job: Job, *, timeout: float | None = None, memory_limit: float | None = None) -> None:
    """Start a `Job` that exists already; an interrupt during this call stops it."""
    job.created = time.monotonic()
    try:
        payload = pickle.dumps(job.request, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - whatever pickling raises
        job.end("crashed", {"how": f"ended without an answer, because its job cannot be pickled ({error!r})"})
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
    if not keeper.live():  # it may have ended before it read this order
        job.end("crashed", {"how": "was lost with the compile server"})


def _three_quarters() -> float:
    """Return three quarters of the machine's memory; infinity if the system does not report it."""
    import psutil

    try:
        return 0.75 * psutil.virtual_memory().total
    except (psutil.Error, OSError):
        return float("inf")
