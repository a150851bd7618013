"""Jobs where there is no fork: each runs in a Python of its own, which has imported jax while it waited for one.

The kernel keeps one such process ahead of time. Each listens to its standard input, which ends when the kernel does,
however it ends: then it removes the kernel's folder and itself.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import threading
from pathlib import Path

from shardviz import _jax
from shardviz.processes import starting
from shardviz.processes.job import Request, Trial
from shardviz.processes.main import REFUSAL_BYTES, plain_signals, work

_REQUEST = "request"


class Spawned:
    """A process that waits for a job, then does it.

    Args:
        root: the kernel's folder.

    Raises:
        OSError: if the system gives no process.
    """

    def __init__(self, root: Path):
        with (root / "workers-stderr").open("ab") as log:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "bufsize": 0}
            self._process = starting.python(__name__, [str(root)], **pipes)
        self.pid = self._process.pid

    def give(self, folder: Path, request: Request | Trial) -> Spawned:
        """Has it do a job."""
        assert self._process.stdin is not None
        (folder / _REQUEST).write_bytes(pickle.dumps(request))
        self._process.stdin.write(os.fsencode(folder) + b"\n")
        return self

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """Ends it and waits until it is gone."""
        self._process.kill()
        self._process.wait()
        self.release()

    def refused(self) -> str:
        """What the compiler raised, once the process has ended; empty for nothing."""
        assert self._process.stdout is not None
        return (self._process.stdout.read(REFUSAL_BYTES) or b"").decode("utf-8", errors="replace")

    def release(self) -> None:
        """Closes what belongs to it here."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Spawner:
    """Starts the processes of jobs, and keeps one ahead."""

    def __init__(self, root: Path):
        self.root = root
        self.ahead: Spawned | None = Spawned(root)
        self.given: list[Spawned] = []

    def __call__(self, folder: Path, request: Request | Trial) -> Spawned:
        """Has a process do a job."""
        process, self.ahead = self.ahead, None
        if process is None or process.poll() is not None:
            if process is not None:
                process.kill()
            process = Spawned(self.root)
        self.given = [p for p in self.given if p.poll() is None] + [process]
        try:
            return process.give(folder, request)
        except BrokenPipeError:  # it died while it waited: then the job's process has ended without an answer
            return process
        finally:
            self.ahead = self._next()

    def _next(self) -> Spawned | None:
        try:
            return Spawned(self.root)
        except OSError:  # the next job will say so, if it still is so then
            return None

    def close(self) -> None:
        """Ends the process that waits."""
        if self.ahead is not None:
            self.ahead.kill()

    def release(self) -> None:
        """Closes what belongs to the processes here: they are another process's children."""
        for process in (*self.given, *filter(None, [self.ahead])):
            process.release()


def main(root: str) -> None:
    """Waits for a job and does it; ends with the kernel.

    Args:
        root: the kernel's folder.
    """
    plain_signals()
    say = os.dup(1)
    _jax.preload()
    folder = b""
    while not folder.endswith(b"\n"):
        piece = os.read(0, 4096)
        if not piece:
            _leave(root)
        folder += piece
    place = Path(os.fsdecode(folder[:-1]))
    threading.Thread(target=_watch, args=(root,), daemon=True).start()
    request = pickle.loads((place / _REQUEST).read_bytes())
    code = work(place, request, say)
    os._exit(code)


def _watch(root: str) -> None:
    while os.read(0, 4096):
        pass
    _leave(root)


def _leave(root: str) -> None:
    shutil.rmtree(root, ignore_errors=True)
    os._exit(1)
