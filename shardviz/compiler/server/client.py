"""The kernel's side of the compile server: starts it when first needed, and turns its messages into futures."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from shardviz.compiler.server.dumps import new_folder
from shardviz.compiler.server.job import Request, Trial
from shardviz.errors import (
    CompileCrashed,
    CompileError,
    CompileMemoryLimit,
    CompileRefused,
    CompileStopped,
    CompileTimeout,
)

Texts = dict[str, str]
Milestone = Callable[["Job", str, Texts], None]

DEFAULT_TIMEOUT = 600.0


class Job(Future[dict[str, Texts]]):
    """A compile under way; its result is milestone → stage → text.

    Attributes:
        state: `queued`, `running`, then `done`, `stopped`, `crashed`, `timeout`, `memory` or `refused`.
        stderr: what the compiler has written to its standard error, up to the last milestone or the end.
        pid: the process that compiles, while there is one.
        begun: whether a process has been at it.
        texts: what has been reached so far.
    """

    def __init__(self, request: Request | Trial, on_milestone: Milestone | None):
        super().__init__()
        self.request, self.on_milestone = request, on_milestone
        self.state, self.stderr, self.pid = "queued", "", None
        self.begun = False
        self.texts: dict[str, Texts] = {}
        self.created = time.monotonic()
        self.ended: float | None = None
        self._stop: Callable[[], None] = lambda: None

    @property
    def elapsed(self) -> float:
        """Seconds since the job was asked for, until it ended."""
        return (self.ended or time.monotonic()) - self.created

    def stop(self) -> None:
        """Stops the compile; the future ends with `CompileStopped`. After the end it does nothing."""
        if not self.done():
            self._stop()

    def cancel(self) -> bool:
        """As `stop`; True if the job had not ended."""
        running = not self.done()
        self.stop()
        return running

    def reached(self, milestone: str, texts: Texts, stderr: str) -> None:
        """Takes in a milestone with what the compiler has written by then, and calls `on_milestone`."""
        self.texts[milestone], self.stderr = texts, stderr
        if self.on_milestone is not None:
            self.on_milestone(self, milestone, texts)

    def end(self, state: str, details: dict[str, Any]) -> None:
        """Ends the future, with the texts or with what went wrong."""
        if self.done():
            return
        self.stderr = details.get("stderr", self.stderr)
        self.ended, self.pid = time.monotonic(), None
        self.state = state
        with contextlib.suppress(InvalidStateError):
            if state == "done":
                self.set_result(self.texts)
            else:
                self.set_exception(_error(state, details, self.stderr))


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
            "and was stopped; give a larger memory_limit, or fewer devices or layers",
            stderr=stderr,
        )
    if state == "refused":
        return CompileRefused(f"the compiler refused the program: {details['error']}", stderr=stderr)
    return CompileCrashed(_crash(details, stderr), stderr=stderr)


_FATAL = re.compile(r"F\d{4} |.*Check failed|terminate called|  what\(\)")


def _crash(details: dict[str, Any], stderr: str) -> str:
    code = details.get("code")
    how = details.get("how") or "ended without an answer"
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        how = f"was ended by {name}" + (
            " (killed from outside, perhaps by the system when memory ran out)" if name == "SIGKILL" else ""
        )
    elif code:
        how = f"ended with exit code {code}"
    said = [line.strip() for line in stderr.splitlines() if _FATAL.match(line)]
    why = f": {said[-1]}" if said else ""
    return f"the compiler's process {how}{why}. Your notebook is not affected; the next compile starts afresh"


class _Server:
    """A running compile server."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.root = new_folder()
        self.log = self.root / "server-stderr"
        try:
            self.process = _spawn(theirs.fileno(), self.root)
        finally:
            theirs.close()
        self.connection = Connection(ours.detach())
        self.jobs: dict[int, Job] = {}
        self.alive = True
        self.lock = threading.Lock()  # of `jobs`
        self.sending = threading.Lock()  # its own: a send may have to wait until the reader has read
        self.finishers = ThreadPoolExecutor(4, thread_name_prefix="shardviz-report")
        self.reader = threading.Thread(target=self._read, name="shardviz-compile-server", daemon=True)
        self.reader.start()

    def submit(self, number: int, job: Job, timeout: float, memory_limit: float) -> None:
        job._stop = lambda: self._send(("stop", number))
        with self.lock:
            self.jobs[number] = job
        self._send(("run", number, job.request, timeout, memory_limit))

    def _send(self, message: Any) -> None:
        try:
            with self.sending:
                self.connection.send(message)
        except OSError:  # the server is gone; the reader ends what was under way
            self._abandon()

    def _read(self) -> None:
        order: dict[int, Future[Any]] = {}
        try:
            while True:
                message = self.connection.recv()
                if message[0] == "ready":
                    continue
                kind, number, *rest = message
                job = self.jobs.get(number)
                if job is None:
                    continue
                if kind == "started":
                    job.pid, job.state, job.begun = rest[0], "running", True
                    continue
                if kind == "milestone":
                    job.state = rest[0]
                act = job.reached if kind == "milestone" else job.end
                order[number] = self.finishers.submit(_after, order.get(number), act, *rest)
                if kind == "end":
                    with self.lock:
                        self.jobs.pop(number, None)
                    order.pop(number, None)
        except (EOFError, OSError):
            self.alive = False
            said = ""
            with contextlib.suppress(OSError):  # the server takes its folder along when it ends in good order
                said = self.log.read_text(errors="replace")
            self._clean()
            self._abandon(said)
            self.finishers.shutdown(wait=False)

    def _abandon(self, said: str = "") -> None:
        with self.lock:
            jobs, self.jobs = list(self.jobs.values()), {}
        for job in jobs:
            job.end("crashed", {"how": "was lost with the compile server, which ended unexpectedly", "stderr": said})

    def _clean(self) -> None:
        """Leaves nothing behind: the server's process group, and the folder."""
        if self.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=2)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its children, if it went without them
        self.process.wait()
        shutil.rmtree(self.root, ignore_errors=True)
        self.connection.close()

    def close(self) -> None:
        """Ends the server and all its jobs."""
        # shutting the socket down wakes the reader, closing alone would not
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5)
        self.reader.join(timeout=10)


def _after(previous: Future[Any] | None, act: Callable[..., None], *rest: Any) -> None:
    """Runs `act` after what came before it for the same job."""
    if previous is not None:
        previous.exception()
    act(*rest)


def _spawn(descriptor: int, root: Path) -> subprocess.Popen[bytes]:
    program = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        "from shardviz.compiler.server.main import main; main(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))"
    )
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    at_once = max(1, (os.cpu_count() or 2) // 2)
    path = json.dumps([p for p in sys.path if isinstance(p, str)])
    with (root / "server-stderr").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", program, path, str(descriptor), str(root), str(at_once)],
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=environment,
            start_new_session=True,  # an interrupt of the kernel must not reach the server
        )


_lock = threading.Lock()
_server: _Server | None = None
_numbers = itertools.count(1)


def forks() -> bool:
    """Whether jobs run in forked children here."""
    return hasattr(os, "fork") and os.environ.get("SHARDVIZ_COMPILE") != "loky"


def start() -> None:
    """Starts the compile server, if it is not running, without waiting for it."""
    global _server
    if not forks():
        return
    with _lock:
        if _server is None or not _server.alive:
            if _server is None:
                atexit.register(shutdown)
            _server = _Server()


def shutdown() -> None:
    """Ends the compile server, all its jobs and its files. The next job starts another."""
    global _server
    with _lock:
        server, _server = _server, None
    if server is not None:
        server.close()


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
        The `Job`.
    """
    job = Job(request, on_milestone)
    if memory_limit is None:
        import psutil

        memory_limit = 0.75 * psutil.virtual_memory().total
    timeout = DEFAULT_TIMEOUT if timeout is None else timeout
    if not forks():
        from shardviz.compiler.server import worker

        worker.submit(job, timeout, memory_limit)
        return job
    start()
    with _lock:
        server = _server
    assert server is not None
    server.submit(next(_numbers), job, timeout, memory_limit)
    return job
