"""Tasks done by other processes: our own workers (`loky`'s), or those of any `concurrent.futures.Executor`.

A task is `function(shared value, task)`, a pure function of small pickles. What many tasks need (a program, say) stands
in a `Shared`, which a worker reads once. Functions may be written in a notebook: cloudpickle sends them.

    with Workers() as pool:
        for key, answer in answers(score, Shared(program), {"a": plan_a, "b": plan_b}, pool):
            ...  # as they are done

A worker that dies costs time alone: what it may have had is done again, one task at a time, by a worker of our own. A
task that kills that too is `Lost`, as is one whose answer cannot be read.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import pickle
import platform
import re
import signal
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

import cloudpickle
import loky
import psutil

from shardviz import _jax
from shardviz.caching import cached_property
from shardviz.errors import ShardvizError
from shardviz.processes import starting
from shardviz.program.contexts import Contexts

_KEEPS = 8  # shared values of a worker
_IDLE = 60.0  # seconds after which a worker without a task ends
_REPLICATED = 30.0  # seconds that all of a cluster have to get a shared value at once
_PACKAGES = ("jax", "jaxlib")

WORTH = 8.0
"""Seconds of work left from which workers of our own pay: each takes about 2 to start."""

K = TypeVar("K")


@dataclass(frozen=True)
class Lost:
    """What came of a task that was not done, and why: it killed its worker, or one of both ends cannot read the other's
    words."""

    why: str


class _Pickler(cloudpickle.Pickler):
    """As cloudpickle, and what `jax.jit` has wrapped arrives whole, and code with the file that it stands in."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, CodeType):
            make, parts = self.dispatch_table[CodeType](obj)[:2]  # from 3.1.3 on, with a stand-in for the file
            return make, tuple(obj.co_filename if part == "<dynamic-code>" else part for part in parts)
        reduced = _jax.reduced(obj)
        return super().reducer_override(obj) if reduced is NotImplemented else reduced


def packed(value: Any) -> bytes:
    """A value as it travels. Raises Exception: whatever pickling it raises."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class Shared:
    """A value that many tasks need: it is pickled once, and a worker unpickles it once, however many tasks bring it."""

    def __init__(self, value: Any):
        self.value = value

    @cached_property
    def packed(self) -> bytes:
        """The value as it travels. Raises Exception: whatever pickling it raises."""
        return packed(self.value)

    @cached_property
    def stored(self) -> Stored:
        """The value in a file, as other processes of this machine get it; the file goes with this object."""
        file, path = tempfile.mkstemp(prefix="shardviz-")
        weakref.finalize(self, os.unlink, path)
        with open(file, "wb") as stream:
            stream.write(self.packed)
        return Stored(path)

    def __reduce__(self) -> Any:
        return Arrived, (self.packed,)


@dataclass(frozen=True)
class Arrived:
    """A shared value in a worker, as it came with a task."""

    packed: bytes

    @property
    def value(self) -> Any:
        return _unpickled(self.packed)


@dataclass(frozen=True)
class Stored:
    """A shared value in a file."""

    path: str

    @property
    def value(self) -> Any:
        return _unpickled_file(self.path)


@functools.lru_cache(_KEEPS)
def _unpickled(packed: bytes) -> Any:
    return pickle.loads(packed)


@functools.lru_cache(_KEEPS)
def _unpickled_file(path: str) -> Any:
    return pickle.loads(Path(path).read_bytes())


def can_travel(shared: Shared, tasks: Any = None) -> bool:
    """Whether a shared value and tasks can be pickled: a person's objects may hold locks, files and the like."""
    try:
        return bool(shared.packed) and bool(packed(tasks))
    except Exception:  # noqa: BLE001  # whatever they raise
        return False


def versions() -> dict[str, str]:
    """What must be the same in all workers, since their answers are compared with each other."""
    own = {"Python": platform.python_version().rpartition(".")[0], "shardviz": sys.modules["shardviz"].__version__}
    return own | {n: metadata.version(n) for n in _PACKAGES}


def run(shared: Shared | Arrived | Stored, payload: bytes, wanted: Mapping[str, str]) -> bytes:
    """Does a task in a worker: pickled, whether it returned, and what, or what it raised. The payload is JAX's settings
    where the task was given, the function and the task, pickled; `wanted` the versions that the worker must have."""
    if (here := versions()) != dict(wanted):
        wrong = ", ".join(f"{n} {here.get(n)} in place of {v}" for n, v in wanted.items() if here.get(n) != v)
        return packed((True, Lost(f"this worker has {wrong}; give workers of the same versions")))
    try:
        contexts, function, task = pickle.loads(payload)
        value = shared.value
    except Exception as error:  # noqa: BLE001  # a module that is not there, say
        why = f"what was sent to a worker cannot be read there: {type(error).__name__}: {error}"
        return packed((True, Lost(why)))
    try:
        with contexts.around():
            return packed((True, function(value, task)))
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a person's function may raise anything: it is told
        return _packed_error(error)


def _packed_error(error: BaseException) -> bytes:
    words = RuntimeError(f"{type(error).__name__}: {error}")
    try:
        packed_error = packed((False, error if isinstance(error, Exception) else words))
        pickle.loads(packed_error)
    except Exception:  # noqa: BLE001  # an error that cannot travel: its words can
        return packed((False, words))
    return packed_error


def begin(kernel: int, path: Sequence[str]) -> None:
    """Makes this process a worker of another one: it is not interrupted with it, writes nothing, ends with it, and
    finds modules where that does."""
    sys.path[:] = path
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for end, mode in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
        os.dup2(os.open(os.devnull, mode), end)

    def watch() -> None:
        while os.getppid() == kernel and psutil.pid_exists(kernel):
            time.sleep(0.5)
        os._exit(0)

    threading.Thread(target=watch, name="shardviz-watch", daemon=True).start()


def give(function: Callable[[Any, Any], Any], shared: Any, task: Any, executor: Executor) -> Future[bytes]:
    """Has `function` called with the shared value and a task, in a worker; `answer_of` the future is what came of it.
    Raises Exception: whatever pickling the task raises."""
    payload = packed((Contexts.here(), function, task))
    here = isinstance(executor, Workers | ProcessPoolExecutor) and isinstance(shared, Shared)
    try:
        return executor.submit(run, shared.stored if here else shared, payload, versions())
    except BrokenExecutor as error:
        future = Future[bytes]()
        future.set_exception(error)
        return future


def answer_of(future: Future[bytes]) -> Any:
    """What came of a task that is done: the answer, or `Lost`. Raises Exception: what it raised."""
    if (why := _ended(future)) is not None:
        return Lost(f"its worker ended {why}")
    try:
        good, answer = pickle.loads(future.result())
    except Exception as error:  # noqa: BLE001  # whatever a person's objects raise when they are unpickled
        return Lost(f"what a worker answered cannot be read here: {type(error).__name__}: {error}")
    if not good:
        raise answer
    return answer


def _ended(future: Future[bytes]) -> str | None:
    """How its worker ended, in a few words; None where it did its task. What the task raises is an answer."""
    error = None if future.cancelled() else future.exception()
    if error is None and not future.cancelled():
        return None
    codes = re.search(r"\{\w+\(-?\d+\).*\}", str(error))  # loky's
    return codes[0] if codes else f"({type(error).__name__})"


def answers(
    function: Callable[[Any, Any], Any], shared: Shared, tasks: Mapping[K, Any], executor: Any
) -> Generator[tuple[K, Any], None, None]:
    """The answers to tasks, as they are done: keys, and what the function returned, or `Lost`; close it to cancel the
    rest. `executor` is `Workers`, another `concurrent.futures.Executor`, a client of `dask.distributed`, or another
    object with `get_executor()`. Raises ShardvizError if it is none; Exception: what pickling a task, or a task,
    raises."""
    pool = executor_of(executor)
    value = _at_cluster(shared, getattr(pool, "_client", None))
    # our own workers are given no more tasks than they are, so that it is known what one that dies was at
    most = pool.count if isinstance(pool, Workers) else len(tasks)
    waiting, running = deque(tasks), dict[Future[bytes], K]()
    again: list[K] = []
    try:
        while waiting or running:
            while waiting and len(running) < most:
                key = waiting.popleft()
                running[give(function, value, tasks[key], pool)] = key
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                key = running.pop(future)
                if _ended(future) is None:
                    yield key, answer_of(future)
                else:
                    again.append(key)
        with Workers(1) as alone:
            for key in again:
                wait([future := give(function, shared, tasks[key], alone)])
                yield key, answer_of(future)
    finally:
        for future in running:
            future.cancel()


def _at_cluster(shared: Shared, client: Any) -> Any:
    """The shared value where dask keeps it, at all workers at once: dask would rather queue a task where the value is
    than give it to an idle worker. Where that does not end, as when a worker dies meanwhile, they get it when they need
    it. Without a client of dask's the value."""
    if not hasattr(client, "replicate"):
        return shared
    value = client.submit(_itself, shared)
    with contextlib.suppress(TimeoutError):
        client.replicate(value, callback_timeout=_REPLICATED)
    return value


def _itself(value: Any) -> Any:
    return value


def executor_of(executor: Any) -> Executor:
    """The executor that a person gave. Raises ShardvizError if it is none."""
    candidate = executor.get_executor() if hasattr(executor, "get_executor") else executor
    if not callable(getattr(candidate, "submit", None)):
        raise ShardvizError(
            f"executor={type(executor).__name__}: expected a concurrent.futures.Executor, a dask.distributed client or "
            "None"
        )
    return candidate


class Workers(Executor):
    """Processes of our own that do tasks, each one at a time.

    They start with the first task. Leaving a `with` block by an error, Ctrl-C included, stops all at once.
    """

    def __init__(self, count: int | None = None):
        """No process yet; as many as cores that this process may use if not given."""
        self.count = count or cores()
        self._pool: Any = None
        self._starts: list[Future[Any]] = []
        self._closed = False
        self._lock = threading.Lock()

    def begin(self) -> bool:
        """Starts them; whether the system gives processes, and what loky needs besides."""
        try:
            self._starts = [self.submit(os.getpid) for _ in range(self.count)]
        except (OSError, ImportError, NotImplementedError):
            return False
        return True

    @property
    def ready(self) -> bool:
        """Whether all are there, of those that have begun."""
        return all(each.done() for each in self._starts)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Has a worker call a function. Where one has died, all are started anew. Raises RuntimeError after `shutdown`
        or `stop`."""
        with self._lock:
            if self._closed:
                raise RuntimeError("these workers have been shut down")
            if self._pool is not None:
                try:
                    return self._pool.submit(fn, *args, **kwargs)
                except BrokenExecutor:
                    self._pool.shutdown(kill_workers=True)
            program, names = starting.inside(__name__, os.getpid(), [p for p in sys.path if isinstance(p, str)])
            self._pool = loky.ProcessPoolExecutor(
                self.count, timeout=_IDLE, initializer=exec, initargs=(program, names), env=_environment()
            )
            _watch_the_end()
            _ALL.add(self)
            return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No more tasks: workers end when those that were given are done, or now where these are cancelled."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=wait, kill_workers=cancel_futures)

    def stop(self) -> None:
        self.shutdown(cancel_futures=True)

    def __exit__(self, kind: Any, *_: Any) -> bool | None:
        self.shutdown(cancel_futures=kind is not None)
        return None


def _environment() -> dict[str, str]:
    """What is different in a worker's environment. Memory that a task takes is no leak."""
    own = {"PYTHONSAFEPATH": "1", "PYTHONWARNINGS": "ignore", "LOKY_MAX_MEMORY_LEAK_SIZE": "1e12"}
    return {n: v for n, v in starting.environment().items() if os.environ.get(n) != v} | own


_ALL: weakref.WeakSet[Workers] = weakref.WeakSet()


@functools.cache
def _watch_the_end() -> None:
    """Has all workers end when the program does, whatever they are at: loky waits for what they have been given."""

    def watch() -> None:
        threading.main_thread().join()
        for workers in list(_ALL):
            workers.stop()

    threading.Thread(target=watch, name="shardviz-end", daemon=True).start()


def free_cores() -> float:
    """How many cores nobody has used over the last minute, this process apart; all where that is not known."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 1.0
    return cores() - max(0.0, load - 1)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
