"""The compile server: a process of one thread with jax imported and no backend made, which forks one for each job.

The kernel (`client.py`) sends `(number, folder)`, the request pickled in the folder, and hears `("started", number,
pid)` and `("ended", number, exit code, what the compiler raised, why there was no process)`. When the kernel is gone,
the server kills its children, removes the folder and ends.
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
from shardviz.processes import dumps, faults
from shardviz.processes.job import REQUEST, refusal

_POLL = 0.003
_IDLE = 1.0

_REFUSAL_BYTES = 60_000
"""How much of a compiler's refusal is told: a pipe holds it, so that a child need not wait for its reader."""


def main(descriptor: str, root: str) -> None:
    """Runs the server on an inherited socket's descriptor; `root`, the folder for jobs, is removed at the end."""
    _plain_signals()
    kernel = os.getppid()
    _jax.preload()
    gc.freeze()  # else the first collection in a child writes to, and so copies, every page that it shares
    dumps.sweep_folders()
    line = Connection(int(descriptor))
    children: dict[int, tuple[int, int]] = {}  # process → its job, and where it says what the compiler raised
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
                    with open(words, "rb") as pipe:
                        refused = (pipe.read(_REFUSAL_BYTES) or b"").decode("utf-8", errors="replace")
                    line.send(("ended", number, os.waitstatus_to_exitcode(status), refused, ""))
    except (EOFError, OSError):
        return
    finally:
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(root, ignore_errors=True)


def _fork(folder: Path, line: Connection) -> tuple[int, int]:
    """A child that does a folder's job, and the pipe for the compiler's refusal; an `OSError` for no process."""
    words, say = os.pipe()
    os.set_blocking(words, False)  # what the compiler has begun may hold the other end
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
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            line.close()
            code = _work(folder, say)
        finally:
            os._exit(code)
    os.close(say)
    return pid, words


def _work(folder: Path, say: int) -> int:
    """Does the job of a folder in this process, which is there for it alone, its output going there too and the
    compiler's refusal to `say`; gives the exit code."""
    try:
        os.environ.update(TMPDIR=str(folder), TMP=str(folder))  # libtpu's and others' files, which go with the folder
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
    """Asks Linux to kill this process when the server is gone, however it goes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != server:
        os._exit(1)


def _plain_signals() -> None:
    """Takes back what a process inherits of its parent's signals: one that ignores SIGCHLD cannot wait for a child."""
    for name in ("SIGCHLD", "SIGTERM", "SIGHUP", "SIGABRT", "SIGSEGV"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
