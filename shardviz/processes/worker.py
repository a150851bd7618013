"""Jobs where there is no fork: each runs in a Python of its own.

It listens to its standard input, which ends when the kernel does, however it ends: then it removes the kernel's folder
and itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

from shardviz import _jax
from shardviz.processes import starting
from shardviz.processes.main import REFUSAL_BYTES, plain_signals, work


class Spawned:
    """A process that does a job.

    Args:
        root: the kernel's folder.
        folder: the job's, with the request.

    Raises:
        OSError: if the system gives no process, or no room.
    """

    def __init__(self, root: Path, folder: Path):
        with (root / "workers-stderr").open("ab") as log:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "bufsize": 0}
            self._process = starting.python(__name__, [str(root), str(folder)], **pipes)
        self.pid = self._process.pid

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


def main(root: str, folder: str) -> None:
    """Does a job; ends with the kernel.

    Args:
        root: the kernel's folder.
        folder: the job's.
    """
    plain_signals()
    say = os.dup(1)
    threading.Thread(target=_watch, args=(root,), daemon=True).start()
    _jax.preload()
    os._exit(work(Path(folder), say))


def _watch(root: str) -> None:
    while os.read(0, 4096):
        pass
    shutil.rmtree(root, ignore_errors=True)
    os._exit(1)
