"""Jobs at work: begun, watched by what their compilers write down, and ended, a few side by side.

They run in the compile server, a process of one thread with jax imported and no backend made, which forks a child for
each job. Where there is no fork, a thread of the kernel does the same and starts a process for each (`worker.py`).

Messages from the kernel: `("run", number, request, timeout, memory_limit)` with the request pickled, and `("stop",
number)`. Messages to it: `("ready", pid)`, `("started", number, pid)`, `("milestone", number, name, texts, stderr)`,
`("end", number, state, details)`, and `("alive",)` now and then. When the kernel is gone the server kills its children,
removes the folder and ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from shardviz import _jax
from shardviz.processes import dumps, faults
from shardviz.processes.channel import Channel
from shardviz.processes.job import Request, Trial, refusal

_POLL = 0.003
_IDLE = 1.0
_SIGN = 5.0
"""Seconds after which the kernel is told that the server is at work."""

REFUSAL_BYTES = 60_000
"""How much of a compiler's refusal is told: a pipe holds it, so that a child need not wait for its reader."""


class Process(Protocol):
    """A process that does one job.

    `poll` gives its exit code, negative for a signal, and None while it runs; `kill` ends it and waits until it is
    gone; `refused` is what the compiler raised, once the process has ended, and empty for nothing; `release` closes
    what belongs to it here.
    """

    pid: int

    def poll(self) -> int | None: ...
    def kill(self) -> None: ...
    def refused(self) -> str: ...
    def release(self) -> None: ...


Begin = Callable[[Path, Request | Trial], Process]


@dataclass(kw_only=True)
class _Running:
    """A job that waits for its turn, or is at work."""

    job: int
    payload: bytes
    timeout: float
    memory_limit: float
    request: Request | Trial | None = None
    process: Process | None = None
    folder: Path = Path()
    started: float = 0.0
    sent: set[str] = field(default_factory=set)
    memory: Any = None


class Jobs:
    """Runs jobs, a few at a time, until the kernel is gone.

    Args:
        channel: the line to the kernel.
        root: the folder for the jobs' folders; removed at the end.
        at_once: how many jobs run side by side.
        begin: starts the process of a job, given its folder and the request.
    """

    def __init__(self, channel: Channel, root: Path, at_once: int, begin: Begin):
        self.channel, self.root, self.at_once, self._begin = channel, root, at_once, begin
        self.waiting: list[_Running] = []
        self.running: list[_Running] = []
        self._signed = time.monotonic()

    def serve(self, wanted: Callable[[], bool]) -> None:
        """Answers until the kernel closes the line or `wanted` no longer holds."""
        try:
            while wanted():
                for message in self.channel.pump(_POLL if self.running else _IDLE):
                    self.take(message)
                while self.waiting and len(self.running) < self.at_once:
                    self.begin(self.waiting.pop(0))
                for running in list(self.running):
                    self.watch(running)
                if time.monotonic() - self._signed > _SIGN:
                    self.tell("alive")
        except (EOFError, OSError):
            return
        finally:
            for running in self.running:
                if running.process is not None:
                    running.process.kill()
            shutil.rmtree(self.root, ignore_errors=True)

    def tell(self, *message: Any) -> None:
        """Gives a message to be sent to the kernel."""
        self.channel.put(message)
        self._signed = time.monotonic()

    def take(self, message: tuple[Any, ...]) -> None:
        """Acts on a message of the kernel."""
        kind, job, *rest = message
        if kind == "run":
            payload, timeout, memory_limit = rest
            self.waiting.append(_Running(job=job, payload=payload, timeout=timeout, memory_limit=memory_limit))
        elif kind == "stop":
            for running in [r for r in self.waiting if r.job == job]:
                self.waiting.remove(running)
                self.tell("end", job, "stopped", {})
            for running in [r for r in self.running if r.job == job]:
                self.end(running, "stopped")

    def begin(self, running: _Running) -> None:
        """Starts the process of a job; where the system gives none, the job ends with what it said."""
        try:
            request = running.request = pickle.loads(running.payload)
        except Exception as error:  # noqa: BLE001 - whatever unpickling raises
            self.tell("end", running.job, "refused", {"error": f"the job cannot be read: {error!r}"})
            return
        running.payload = b""
        running.folder = self.root / f"job-{running.job}"
        running.started = time.monotonic()
        self.running.append(running)
        try:
            running.folder.mkdir(parents=True)
            running.process = self._begin(running.folder, request)
        except (OSError, RuntimeError) as error:
            what = faults.words(error, "no process could be started for the compiler", running.folder)
            self.end(running, "failed", error=what)
            return
        self.tell("started", running.job, running.process.pid)

    def watch(self, running: _Running) -> None:
        """Sends what a job's compiler has finished, and ends the job when it is done, or has gone too far."""
        process, request = running.process, running.request
        assert process is not None and request is not None
        code = process.poll()
        wanted = request.milestones
        try:
            full = self.reach(running, request, ended=code == 0) if isinstance(request, Request) else None
        except OSError as error:
            self.end(running, "failed", error=faults.words(error, "reading what the compiler wrote", running.folder))
            return
        if wanted and wanted[-1] in running.sent:
            self.end(running, "done")
        elif code is None:
            if time.monotonic() - running.started > running.timeout:
                self.end(running, "timeout", limit=running.timeout)
            elif (used := _memory(running)) > running.memory_limit:
                self.end(running, "memory", limit=running.memory_limit, used=used)
        elif full or (isinstance(request, Request) and (full := faults.of_files(running.folder, _said(running)))):
            self.end(running, "failed", error=f"the compiler could not write down what it made: {full}")
        elif code == 0 and (not wanted or "compiled" in running.sent):  # what does not fit is not finished
            self.end(running, "done")
        elif refused := process.refused():
            self.end(running, "refused", error=refused)
        else:
            self.end(running, "crashed", code=code)

    def reach(self, running: _Running, request: Request, *, ended: bool) -> str | None:
        """Sends the milestones that a compiler has reached since it was last looked at.

        Returns:
            What keeps its files from being whole, where something does: then nothing is sent.
        """
        folder = running.folder / "dumps"
        platform = request.topology.platform if request.topology else "cpu"
        for milestone in request.milestones:
            if milestone in running.sent:
                continue
            if not dumps.complete(folder, milestone, request.devices, ended=ended, platform=platform):
                break  # an option may keep a pass from running, and what comes later is read with what came before
            stderr = _said(running)
            if full := faults.of_files(running.folder, stderr):
                return full
            running.sent.add(milestone)
            texts = dumps.read(folder, milestone, request.devices, passes=request.passes)
            self.tell("milestone", running.job, milestone, texts, stderr)
        return None

    def end(self, running: _Running, state: str, **details: Any) -> None:
        """Ends a job: its process, its folder, and the kernel's waiting."""
        if running.process is not None:
            running.process.kill()
        self.running.remove(running)
        details["stderr"] = _said(running)
        shutil.rmtree(running.folder, ignore_errors=True)
        self.tell("end", running.job, state, details)


def _said(running: _Running) -> str:
    """What a job's process has written to its standard error so far, the end of it if it is long."""
    try:
        with (running.folder / "stderr").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 200_000))
            return log.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def _memory(running: _Running) -> float:
    """Bytes that a job's process takes; 0 where the system does not say, as without /proc."""
    import psutil

    try:
        if running.memory is None:
            assert running.process is not None
            running.memory = psutil.Process(running.process.pid)
        return running.memory.memory_info().rss
    except (psutil.Error, OSError):
        return 0.0


class Forked:
    """A job in a fork of this process.

    Args:
        folder: the job's.
        request: what to do.
        channel: what the child has to close.
    """

    def __init__(self, folder: Path, request: Request | Trial, channel: Channel):
        said, say = os.pipe()
        server, self._code, self._said = os.getpid(), None, said
        sys.stderr.flush()
        try:
            self.pid = os.fork()
        except OSError:
            os.close(said)
            os.close(say)
            raise
        if self.pid == 0:
            _work(folder, request, channel, server, say)
        os.close(say)
        os.set_blocking(said, False)

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._wait(os.WNOHANG)

    def kill(self) -> None:
        """Ends it and waits until it is gone."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._wait(0)
        self.release()

    def refused(self) -> str:
        """What the compiler raised, once the process has ended; empty for nothing."""
        try:
            return os.read(self._said, REFUSAL_BYTES).decode("utf-8", errors="replace")
        except OSError:
            return ""

    def release(self) -> None:
        """Closes what belongs to it here."""
        if self._said >= 0:
            os.close(self._said)
            self._said = -1

    def _wait(self, how: int) -> int | None:
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, how)
            except ChildProcessError:  # somebody else has waited for it
                pid, status = self.pid, 1 << 8
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code


def _work(folder: Path, request: Request | Trial, channel: Channel, server: int, say: int) -> None:
    """A child's whole life: compile, and leave an exit code behind. Never returns."""
    code = 1
    try:
        _die_with(server)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        channel.close()
        code = work(folder, request, say)
    finally:
        os._exit(code)


def work(folder: Path, request: Request | Trial, say: int) -> int:
    """Does a job in this process, which is there for it alone.

    Args:
        folder: the job's; standard output and error go there, and so do the compiler's own files.
        request: what to do.
        say: the descriptor that the compiler's refusal is written to.

    Returns:
        The exit code.
    """
    try:
        os.environ.update(TMPDIR=str(folder), TMP=str(folder))  # libtpu's and others' files, which go with the folder
        log = os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 2)
        os.dup2(log, 1)
        refused = refusal(folder, request)
    except OSError as error:
        refused = faults.words(error, "the compiler's process could not write", folder)
    if refused is None:
        return 0
    os.write(say, refused.encode("utf-8", errors="replace")[:REFUSAL_BYTES])
    return 1


def _die_with(server: int) -> None:
    """Asks Linux to kill this process when the server is gone, however it goes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != server:
        os._exit(1)


def plain_signals() -> None:
    """Takes back what a process inherits of its parent's signals: one that ignores SIGCHLD cannot wait for a child."""
    for name in ("SIGCHLD", "SIGTERM", "SIGHUP", "SIGABRT", "SIGSEGV"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, [])


def main(descriptor: str, root: str, at_once: str) -> None:
    """Runs the server on an inherited socket.

    Args:
        descriptor: the socket's file descriptor.
        root: the folder for jobs; removed at the end.
        at_once: how many jobs run side by side.
    """
    plain_signals()
    parent = os.getppid()
    _jax.preload()
    dumps.sweep_folders()
    channel = Channel(socket.socket(fileno=int(descriptor)))
    begin = lambda folder, request: Forked(folder, request, channel)  # noqa: E731
    jobs = Jobs(channel, Path(root), int(at_once), begin)
    jobs.tell("ready", os.getpid())
    jobs.serve(lambda: os.getppid() == parent)
