"""Other hosts than JupyterLab, each a server of its own in folders of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def serving(folder: Path, command: list[str], port: str, page: str, seconds: float = 90) -> Iterator[str]:
    """A server for as long as the context lasts; nothing is left of it afterwards.

    Args:
        folder: where it runs, and has everything that it writes.
        command: a module of Python with its arguments.
        port: the option that takes the port.
        page: what is asked for, below the server's root.

    Yields:
        The page's address.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    url = f"http://127.0.0.1:{number}/{page}"
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *command, f"{port}={number}"],
            cwd=folder,
            env=_environment(folder),
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
    try:
        deadline = time.monotonic() + seconds
        while not _listens(number):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)
        yield url
    finally:
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        for each in (*family, *([psutil.Process(process.pid)] if process.poll() is None else [])):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def _environment(folder: Path) -> Mapping[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("IPYTHON", "XDG_", "PYTEST_"))}
    own = {"HOME": folder, "IPYTHONDIR": folder / "ipython", "JUPYTER_CONFIG_DIR": folder / "config"}
    own |= {"JUPYTER_DATA_DIR": folder / "data", "JUPYTER_RUNTIME_DIR": folder / "runtime"}
    path = os.pathsep.join(filter(None, (str(ROOT), kept.get("PYTHONPATH"))))
    return {**kept, **{name: str(path) for name, path in own.items()}, "PYTHONPATH": path, "NO_PROXY": "127.0.0.1"}
