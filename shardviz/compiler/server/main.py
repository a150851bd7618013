"""The compile server's process: one thread, jax imported, no backend made. It forks a child for each job.

Messages from the kernel: `("run", id, request, timeout, memory_limit)`, `("stop", id)`. Messages to it:
`("started", id, pid)`, `("milestone", id, name, texts, stderr)`, `("end", id, state, details)`. When the kernel is gone
the server kills its children, removes the folder and ends.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from shardviz import _jax
from shardviz.compiler.server import dumps
from shardviz.compiler.server.job import Request, Trial, refusal

_POLL = 0.003
_IDLE = 1.0


@dataclass
class _Child:
    job: int
    request: Request | Trial
    timeout: float
    memory_limit: float
    pid: int = 0
    folder: Path = Path()
    started: float = 0.0
    sent: set[str] = field(default_factory=set)
    process: psutil.Process | None = None


class Server:
    """Runs jobs, a few at a time, until the kernel is gone."""

    def __init__(self, connection: Connection, root: Path, at_once: int):
        self.connection, self.root, self.at_once = connection, root, at_once
        self.waiting: list[_Child] = []
        self.running: list[_Child] = []
        self.parent = os.getppid()

    def serve(self) -> None:
        """Answers until the connection closes or the kernel's process has ended."""
        try:
            while os.getppid() == self.parent:
                timeout = _POLL if self.running else _IDLE
                if select.select([self.connection], [], [], timeout)[0]:
                    self.take(self.connection.recv())
                while self.waiting and len(self.running) < self.at_once:
                    self.begin(self.waiting.pop(0))
                for child in list(self.running):
                    self.watch(child)
        except (EOFError, OSError):
            return
        finally:
            for child in self.running:
                self.kill(child)
            shutil.rmtree(self.root, ignore_errors=True)

    def take(self, message: tuple[Any, ...]) -> None:
        """Acts on a message of the kernel."""
        if message[0] == "run":
            self.waiting.append(_Child(*message[1:]))
        elif message[0] == "stop":
            for child in [c for c in self.waiting if c.job == message[1]]:
                self.waiting.remove(child)
                self.connection.send(("end", child.job, "stopped", {}))
            for child in [c for c in self.running if c.job == message[1]]:
                self.end(child, "stopped")

    def begin(self, child: _Child) -> None:
        """Forks a child for a job."""
        child.folder = self.root / f"job-{child.job}"
        child.folder.mkdir(parents=True)
        child.started = time.monotonic()
        server = os.getpid()
        sys.stderr.flush()
        child.pid = os.fork()
        if child.pid == 0:
            _work(child, self.connection, server)
        child.process = psutil.Process(child.pid)
        self.running.append(child)
        self.connection.send(("started", child.job, child.pid))

    def watch(self, child: _Child) -> None:
        """Sends what a child's compiler has finished, and ends the child when it is done, or has gone too far."""
        pid, status = os.waitpid(child.pid, os.WNOHANG)
        ended = pid != 0
        finished = ended and os.waitstatus_to_exitcode(status) == 0
        wanted = child.request.milestones
        if isinstance(child.request, Request):
            self.tell(child, child.request, ended=finished)
        if wanted and wanted[-1] in child.sent:
            self.end(child, "done", alive=not ended)
        elif finished and (not wanted or "compiled" in child.sent):  # what does not fit is not finished
            self.end(child, "done", alive=False)
        elif ended:
            code = os.waitstatus_to_exitcode(status)
            refused = child.folder / "refused"
            if refused.exists():
                self.end(child, "refused", alive=False, error=refused.read_text())
            else:
                self.end(child, "crashed", alive=False, code=code)
        elif time.monotonic() - child.started > child.timeout:
            self.end(child, "timeout", limit=child.timeout)
        elif (used := _memory(child)) > child.memory_limit:
            self.end(child, "memory", limit=child.memory_limit, used=used)

    def tell(self, child: _Child, request: Request, *, ended: bool) -> None:
        """Sends the milestones that a compiler has reached since it was last looked at."""
        folder = child.folder / "dumps"
        platform = request.topology.platform if request.topology else "cpu"
        for milestone in request.milestones:
            if milestone not in child.sent and dumps.complete(
                folder, milestone, request.devices, ended=ended, platform=platform
            ):
                child.sent.add(milestone)
                texts = dumps.read(folder, milestone, request.devices)
                self.connection.send(("milestone", child.job, milestone, texts, _said(child)))

    def end(self, child: _Child, state: str, *, alive: bool = True, **details: Any) -> None:
        """Ends a job: its process, its folder, and the kernel's waiting."""
        if alive:
            self.kill(child)
        self.running.remove(child)
        details["stderr"] = _said(child)
        shutil.rmtree(child.folder, ignore_errors=True)
        self.connection.send(("end", child.job, state, details))

    def kill(self, child: _Child) -> None:
        """Kills a child and waits until it is gone."""
        try:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            return


def _said(child: _Child) -> str:
    """What a child has written to its standard error so far, the end of it if it is long."""
    log = child.folder / "stderr"
    return log.read_text(errors="replace")[-200_000:] if log.exists() else ""


def _memory(child: _Child) -> float:
    try:
        return child.process.memory_info().rss if child.process else 0.0
    except psutil.Error:
        return 0.0


def _work(child: _Child, connection: Connection, server: int) -> None:
    """A child's whole life: compile, and leave an exit code behind. Never returns."""
    code = 1
    try:
        _die_with(server)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        connection.close()
        log = os.open(child.folder / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 2)
        os.dup2(log, 1)
        refused = refusal(child.folder, child.request)
        if refused is not None:
            (child.folder / "refused.part").write_text(refused, errors="replace")
            (child.folder / "refused.part").rename(child.folder / "refused")
        code = 0 if refused is None else 1
    finally:
        os._exit(code)


def _die_with(server: int) -> None:
    """Asks Linux to kill this process when the server is gone, however it goes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != server:
        os._exit(1)


def main(descriptor: int, root: str, at_once: int) -> None:
    """Runs the server on an inherited socket.

    Args:
        descriptor: the socket's file descriptor.
        root: the folder for jobs; removed at the end.
        at_once: how many jobs run side by side.
    """
    _jax.preload()
    dumps.sweep_folders()
    connection = Connection(descriptor)
    connection.send(("ready", os.getpid()))
    Server(connection, Path(root), at_once).serve()
