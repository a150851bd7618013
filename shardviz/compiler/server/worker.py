"""The compile server's stand-in where there is no fork: a `loky` worker that runs a job to its end.

It answers later, as nothing watches the compiler's dumps, and stopping a job costs a new worker; else all is the same.
"""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

from shardviz.compiler.server import dumps
from shardviz.compiler.server.job import run_in_worker

_POLL = 0.02
_turn = threading.Lock()


def submit(job: Any, timeout: float, memory_limit: float) -> None:
    """Runs a `client.Job` in a worker process, watched by a thread."""
    stop = threading.Event()
    job._stop = stop.set
    threading.Thread(
        target=_watch, args=(job, timeout, memory_limit, stop), name="shardviz-compile", daemon=True
    ).start()


def _watch(job: Any, timeout: float, memory_limit: float, stop: threading.Event) -> None:
    from loky import get_reusable_executor

    with _turn:
        if stop.is_set():
            job.end("stopped", {})
            return
        folder = dumps.new_folder()
        executor = get_reusable_executor(max_workers=1, timeout=300)
        future = executor.submit(run_in_worker, str(folder), job.request)
        job.state, job.begun, started = "running", True, time.monotonic()
        state, details = "", {}
        while not future.done() and not state:
            stop.wait(_POLL)
            used = _memory(executor)
            if stop.is_set():
                state = "stopped"
            elif time.monotonic() - started > timeout:
                state, details = "timeout", {"limit": timeout}
            elif used > memory_limit:
                state, details = "memory", {"limit": memory_limit, "used": used}
        if state:
            executor.shutdown(wait=True, kill_workers=True)
        else:
            error = future.exception()
            if error is not None:  # the worker died, or never got the job; only the future can report it
                state, details = "crashed", {"how": f"ended without an answer ({type(error).__name__})"}
            else:
                refused = future.result()
                state, details = ("done", {}) if refused is None else ("refused", {"error": refused})
        _finish(job, state, details, folder)


def _finish(job: Any, state: str, details: dict[str, Any], folder: Path) -> None:
    log = folder / "stderr"
    details["stderr"] = log.read_text(errors="replace") if log.exists() else ""
    if state in ("done", "refused"):
        for milestone in job.request.milestones:
            if dumps.complete(folder / "dumps", milestone, job.request.devices, ended=True):
                job.reached(milestone, dumps.read(folder / "dumps", milestone, job.request.devices), details["stderr"])
    shutil.rmtree(folder, ignore_errors=True)
    job.end(state, details)


def _memory(executor: Any) -> float:
    import psutil

    try:
        return sum(psutil.Process(pid).memory_info().rss for pid in list(executor._processes or ()))
    except psutil.Error:
        return 0.0
