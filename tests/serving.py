"""Servers that show notebooks, each a process of its own in a folder of its own, of which nothing is left."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Server:
    """A server that listens.

    Attributes:
        url: the address of the page that was asked for.
        pid: its process.
        log: the file of its own messages.
    """

    url: str
    pid: int
    log: Path

    def family(self) -> list[psutil.Process]:
        """All processes that it has started, and that these have."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).children(recursive=True)
        return []


@contextlib.contextmanager
def serving(
    folder: Path, command: list[str], port: str, page: str, seconds: float = 90, python: str = sys.executable
) -> Iterator[Server]:
    """A server for as long as the context lasts; nothing is left of it afterwards.

    Args:
        folder: where it runs, and has everything that it writes.
        command: a module of Python with its arguments.
        port: the option that takes the port.
        page: what is asked for, below the server's root.
        seconds: how long it may take to listen.
        python: who runs it.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [python, "-m", *command, f"{port}={number}"],
            cwd=folder,
            env=environment(folder, python),
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
    server = Server(f"http://127.0.0.1:{number}/{page}", process.pid, log)
    try:
        deadline = time.monotonic() + seconds
        while not _listens(number):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)
        yield server
    finally:
        family = server.family()
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()
        for each in family:  # kernels that outlived their server
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(family, timeout=10)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def environment(folder: Path, python: str = sys.executable) -> dict[str, str]:
    """The environment of a server that has all its folders in this one."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "IPYTHON", "XDG_", "PYTEST_"))}
    own = {"HOME": folder, "IPYTHONDIR": folder / "ipython", "MPLCONFIGDIR": folder / "matplotlib"}
    own |= {f"JUPYTER_{name.upper()}_DIR": folder / name for name in ("config", "data", "runtime")}
    own |= {f"JUPYTERLAB_{name.upper()}_DIR": folder / name for name in ("settings", "workspaces")}
    # In a checkout that is not installed the kernel finds the package all the same.
    path = os.pathsep.join(filter(None, (str(ROOT), kept.pop("PYTHONPATH", None))))
    package = {"PYTHONPATH": path} if sys.executable == python else {}
    return {**kept, **{name: str(path) for name, path in own.items()}, **package, "NO_PROXY": "127.0.0.1"}
