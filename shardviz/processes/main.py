"""The compile server: a process of one thread with jax imported and no backend, which forks a process per job.

The kernel (`client.py`) sends `(number, folder)`; the folder contains the pickled request. The server sends
`("started", number, pid)` and `("ended", number, exit code, the compiler's error, why no process could start)`. When
the kernel has ended, the server kills its children, removes the folder and ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import shutil
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from shardviz import _jax
from shardviz.processes import dumps, faults, starting
from shardviz.processes.job import REQUEST, refusal

_POLL = 0.003
_IDLE = 1.0

_REFUSAL_BYTES = 60_000
"""The most bytes of a compiler's error message: a pipe buffers this many, so that a child need not wait."""


def main(descriptor: str, root: str) -> None:
    """Run the server on an inherited socket's descriptor; `root`, the folder for jobs, is removed at the end."""
    _plain_signals()
    kernel = os.getppid()
    _jax.preload()
    gc.freeze()  # otherwise a child's first collection writes to every shared page, and so copies it
    dumps.sweep_folders()
    line = Connection(int(descriptor))
    children: dict[int, tuple[int, int]] = {}  # process → its job, and the pipe for the compiler's error
    try:
        while os.getppid() == kernel:
            if line.poll(_POLL if children else _IDLE):
                number, folder = line.recv()
                try:
                    pid, words = _fork(Path(folder), line)
                except OSError as error:
                    trouble = faults.words(error, "no process could be started for the compiler", Path(folder))
                    line.send(("ended", number, None, "", trouble))
                    continue
                children[pid] = number, words
                line.send(("started", number, pid))
            for pid, (number, words) in list(children.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    del children[pid]
                    starting.end_group(pid)
                    with open(words, "rb") as pipe:
                        refused = (pipe.read(_REFUSAL_BYTES) or b"").decode("utf-8", errors="replace")
                    line.send(("ended", number, os.waitstatus_to_exitcode(status), refused, ""))
    except (EOFError, OSError):
        return
    finally:
        for pid in children:
            starting.end_group(pid)
        shutil.rmtree(root, ignore_errors=True)


def _fork(folder: Path, line: Connection) -> tuple[int, int]:
    """Fork a child for a folder's job; return it and the pipe for the compiler's error. Raises OSError."""
    words, say = os.pipe()
    os.set_blocking(words, False)  # a process that the compiler started may keep the other end open
    server = os.getpid()
    sys.stderr.flush()
    try:
        pid = os.fork()
    except OSError:
        os.close(words)
        os.close(say)
        raise
    if pid == 0:
        code = 1
        try:
            _die_with(server)
            os.setpgid(0, 0)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            line.close()
            code = _work(folder, say)
        finally:
            os._exit(code)
    with contextlib.suppress(OSError):  # the child leads a group, so that processes of the compiler end with it
        os.setpgid(pid, pid)
    os.close(say)
    return pid, words


def _work(folder: Path, say: int) -> int:
    """Run a folder's job in this process, with its output in the folder and the compiler's error in the pipe `say`.
    Return the exit code."""
    try:
        os.environ.update(TMPDIR=str(folder), TMP=str(folder))  # temporary files are removed with the folder
        log = os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 2)
        os.dup2(log, 1)
        refused = refusal(folder, pickle.loads((folder / REQUEST).read_bytes()))
    except OSError as error:
        refused = faults.words(error, "the compiler's process could not write", folder)
    if refused is None:
        return 0
    os.write(say, refused.encode("utf-8", errors="replace")[:_REFUSAL_BYTES])
    return 1


def _die_with(server: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != server:
        os._exit(1)


def _plain_signals() -> None:
    """Reset inherited signal handling: a process that ignores SIGCHLD cannot wait for a child."""
    for name in ("SIGCHLD", "SIGTERM", "SIGHUP", "SIGABRT", "SIGSEGV"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
