"""Tasks in other processes: our own workers (`loky`'s), or those of any `concurrent.futures.Executor`.

A task is `function(shared value, task)`, a pure function with small pickles. A value that many tasks need, such as a
program, is wrapped in a `Shared`; each worker unpickles it once. cloudpickle sends functions, also those defined in a
notebook.

    with Workers() as pool:
        for key, answer in answers(score, Shared(program), {"a": plan_a, "b": plan_b}, pool):
            ...  # in the order of completion

If a worker dies, its tasks are repeated one by one in a worker of our own. A task that kills that worker too is `Lost`,
and so is a task whose answer cannot be unpickled.
"""

from __future__ import annotations

import atexit
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
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
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
from shardviz.errors import ANYTHING, ShardvizError
from shardviz.processes import starting
from shardviz.tracing.contexts import Contexts

_KEEPS = 8  # shared values that a worker caches
_IDLE = 60.0  # seconds after which an idle worker ends
_REPLICATED = 30.0  # timeout in seconds for replicating a shared value to all workers of a cluster
_PACKAGES = ("jax", "jaxlib")

WORTH = 8.0
"""Seconds of remaining work from which starting workers pays; each takes about 2 seconds to start."""

K = TypeVar("K")


@dataclass(frozen=True)
class Lost:
    """The answer of a failed task, and why it failed: it killed its worker, or could not be pickled or unpickled."""

    why: str


class _Pickler(cloudpickle.Pickler):
    """A cloudpickle pickler that also sends what `jax.jit` has wrapped, and keeps the file name of code objects."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, CodeType):
            make, parts = self.dispatch_table[CodeType](obj)[:2]  # from 3.1.3 on, with a stand-in for the file
            return make, tuple(obj.co_filename if part == "<dynamic-code>" else part for part in parts)
        reduced = _jax.reduced(obj)
        return super().reducer_override(obj) if reduced is NotImplemented else reduced


def packed(value: Any) -> bytes:
    """Pickle a value. Raises Exception: whatever pickling raises."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class Shared:
    """A value that many tasks need; pickled once, and unpickled once per worker."""

    def __init__(self, value: Any):
        self.value = value

    @cached_property
    def packed(self) -> bytes:
        """The pickled value. Raises Exception: whatever pickling raises."""
        return packed(self.value)

    @cached_property
    def nearby(self) -> Shared | Stored:
        """The value for processes on this machine: stored in a file that this object owns, or sent with each task if no
        file can be written."""
        try:
            file, path = tempfile.mkstemp(prefix="shardviz-")
            weakref.finalize(self, os.unlink, path)
            with open(file, "wb") as stream:
                stream.write(self.packed)
        except OSError:
            return self
        return Stored(path)

    def __reduce__(self) -> Any:
        return Arrived, (self.packed,)


@dataclass(frozen=True)
class Arrived:
    """A shared value in a worker that came with a task."""

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
    """Return whether a shared value and tasks can be pickled; users' objects may hold locks or open files."""
    try:
        return bool(shared.packed) and bool(packed(tasks))
    except ANYTHING:  # users' objects may raise any error
        return False


def versions() -> dict[str, str]:
    """Return the versions that all workers must have, because their answers are compared."""
    own = {"Python": platform.python_version().rpartition(".")[0], "shardviz": sys.modules["shardviz"].__version__}
    return own | {n: metadata.version(n) for n in _PACKAGES}


def run(shared: Shared | Arrived | Stored, payload: bytes, wanted: Mapping[str, str]) -> bytes:
    """Run a task in a worker and return the pickled pair (whether it returned, its value or error).

    `payload` is the pickled caller's JAX settings, function and task; `wanted` is the versions that the worker must
    have.
    """
    if (here := versions()) != dict(wanted):
        wrong = ", ".join(f"{n} {here.get(n)} in place of {v}" for n, v in wanted.items() if here.get(n) != v)
        return packed((True, Lost(f"this worker has {wrong}; give workers of the same versions")))
    try:
        contexts, function, task = pickle.loads(payload)
        value = shared.value
    except ANYTHING as error:  # a missing module, say
        why = f"the worker cannot unpickle the task: {type(error).__name__}: {error}"
        return packed((True, Lost(why)))
    try:
        with contexts.around():
            return packed((True, function(value, task)))
    except ANYTHING as error:  # a user's function may raise any error: the caller gets it
        return _packed_error(error)


def _packed_error(error: BaseException) -> bytes:
    words = RuntimeError(f"{type(error).__name__}: {error}")
    try:
        packed_error = packed((False, error if isinstance(error, Exception) else words))
        pickle.loads(packed_error)
    except ANYTHING:  # the error cannot be pickled, its text can
        return packed((False, words))
    return packed_error


def begin(kernel: int, path: Sequence[str]) -> None:
    """Turn this process into a worker of another process.

    The worker ignores Ctrl-C, writes nothing, imports from the same `path`, and ends with the other process. It leads a
    process group, so that processes started by a task end with it.
    """
    sys.path[:] = path
    os.setpgid(0, 0)
    atexit.register(lambda worker: starting.end_group(worker) if os.getpid() == worker else None, os.getpid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for end, mode in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
        os.dup2(os.open(os.devnull, mode), end)

    def watch() -> None:
        while os.getppid() == kernel and psutil.pid_exists(kernel):
            time.sleep(0.5)
        starting.end_group(os.getpid())

    threading.Thread(target=watch, name="shardviz-watch", daemon=True).start()


def give(function: Callable[[Any, Any], Any], shared: Any, task: Any, executor: Executor) -> Future[bytes]:
    """Submit a task to a worker; `answer_of` the future is its answer. Raises Exception: whatever pickling the task
    raises."""
    payload = packed((Contexts.here(), function, task))
    here = isinstance(executor, Workers | ProcessPoolExecutor) and isinstance(shared, Shared)
    try:
        return executor.submit(run, shared.nearby if here else shared, payload, versions())
    except (BrokenExecutor, OSError) as error:
        future = Future[bytes]()
        future.set_exception(error)
        return future


def answer_of(future: Future[bytes]) -> Any:
    """Return a finished task's answer, or `Lost`. Raises Exception: the task's own error."""
    if (why := _ended(future)) is not None:
        return Lost(f"its worker ended {why}")
    try:
        good, answer = pickle.loads(future.result())
    except ANYTHING as error:  # users' objects may raise any error when unpickled
        return Lost(f"the worker's answer cannot be unpickled: {type(error).__name__}: {error}")
    if not good:
        raise answer
    return answer


def _ended(future: Future[bytes]) -> str | None:
    """Return how the worker ended, in a few words; None if it did its task, or the task raised."""
    error = None if future.cancelled() else future.exception()
    if error is None and not future.cancelled():
        return None
    codes = re.search(r"\{\w+\(-?\d+\).*\}", str(error))  # loky's
    return codes[0] if codes else f"({type(error).__name__})"


def answers(
    function: Callable[[Any, Any], Any], shared: Shared, tasks: Mapping[K, Any], executor: Any
) -> Generator[tuple[K, Any], None, None]:
    """Yield (key, answer or `Lost`) for each task in the order of completion; close the generator to cancel the rest.

    `executor` is a `Workers`, another `concurrent.futures.Executor`, a `dask.distributed` client, or an object with
    `get_executor()`. Raises ShardvizError for any other object; Exception: whatever pickling a task, or a task itself,
    raises.
    """
    pool = executor_of(executor)
    value = _at_cluster(shared, getattr(pool, "_client", None))
    # our own workers get one task each, so that the task of a worker that dies is known
    most = pool.count if isinstance(pool, Workers) else len(tasks)
    waiting, running = deque(tasks), dict[Future[bytes], K]()
    again: list[K] = []
    try:
        while waiting or running:
            while waiting and len(running) < most:
                key = waiting.popleft()
                running[give(function, value, tasks[key], pool)] = key
            for future in _done(running, pool):
                key = running.pop(future)
                if _ended(future) is None:
                    yield key, answer_of(future)
                else:
                    again.append(key)
        with Workers(1) as alone:
            for key in again:
                (future,) = _done([give(function, shared, tasks[key], alone)], alone)
                yield key, answer_of(future)
    finally:
        for future in running:
            future.cancel()


def _done(futures: Iterable[Future[bytes]], pool: Executor) -> set[Future[bytes]]:
    """Wait for the first futures that are done. What a dead worker has started holds the pipes open by whose end loky
    notices its death, so it is ended meanwhile."""
    while not (done := wait(futures, timeout=1.0, return_when=FIRST_COMPLETED).done):
        if isinstance(pool, Workers):
            pool.end_orphans()
    return done


def _at_cluster(shared: Shared, client: Any) -> Any:
    """Return the shared value, replicated to all of a dask cluster's workers; without a dask client the value itself.

    dask queues a task where its data is rather than sending it to an idle worker. If replication does not finish, as
    when a worker dies meanwhile, workers fetch the value when they need it.
    """
    if not hasattr(client, "replicate"):
        return shared
    value = client.submit(_itself, shared)
    with contextlib.suppress(TimeoutError):
        client.replicate(value, callback_timeout=_REPLICATED)
    return value


def _itself(value: Any) -> Any:
    return value


def executor_of(executor: Any) -> Executor:
    """Return the executor behind the user's `executor`. Raises ShardvizError if there is none."""
    candidate = executor.get_executor() if hasattr(executor, "get_executor") else executor
    if not callable(getattr(candidate, "submit", None)):
        raise ShardvizError(
            f"executor={type(executor).__name__}: expected a concurrent.futures.Executor, a dask.distributed client or "
            "None"
        )
    return candidate


class Workers(Executor):
    """An executor of our own processes; each runs one task at a time.

    The processes start with the first task. Leaving a `with` block by an error, Ctrl-C included, kills them at once.
    """

    def __init__(self, count: int | None = None):
        """Prepare `count` workers; one per usable core if None."""
        self.count = count or cores()
        self._pool: Any = None
        self._starts: list[Future[Any]] = []
        self._leaders: set[int] = set()  # process ids of workers, which lead process groups
        self._closed = False
        self._lock = threading.Lock()

    def begin(self) -> bool:
        """Start the processes, and return whether the system allows them."""
        try:
            self._starts = [self.submit(os.getpid) for _ in range(self.count)]
        except (OSError, ImportError, RuntimeError):
            return False
        return True

    @property
    def ready(self) -> bool:
        """Whether all started processes are up."""
        return all(each.done() for each in self._starts)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function in a worker. If a worker has died, all are restarted. Raises RuntimeError after `shutdown` or
        `stop`."""
        with self._lock:
            if self._closed:
                raise RuntimeError("these workers have been shut down")
            if self._pool is not None:
                try:
                    return self._submit(fn, *args, **kwargs)
                except BrokenExecutor:
                    self._end(wait=True, kill=True)
            program, names = starting.inside(__name__, os.getpid(), [p for p in sys.path if isinstance(p, str)])
            self._pool = loky.ProcessPoolExecutor(
                self.count, timeout=_IDLE, initializer=exec, initargs=(program, names), env=_environment()
            )
            _watch_the_end()
            _ALL.add(self)
            return self._submit(fn, *args, **kwargs)

    def _submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        try:
            return self._pool.submit(fn, *args, **kwargs)
        finally:
            self._leaders.update(list(self._pool._processes))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more tasks; workers end after their tasks, or at once if these are cancelled."""
        self._closed = True
        if self._pool is not None:
            self._end(wait=wait, kill=cancel_futures)

    def _end(self, *, wait: bool, kill: bool) -> None:
        """End the processes, and kill the processes that dead workers left behind."""
        self._pool.shutdown(wait=wait, kill_workers=kill)
        self.end_orphans()

    def end_orphans(self) -> None:
        """Kill the processes that dead workers left behind."""
        for leader in filter(_is_dead, list(self._leaders)):
            self._leaders.discard(leader)
            starting.end_group(leader)

    def stop(self) -> None:
        self.shutdown(cancel_futures=True)

    def __exit__(self, kind: Any, *_: Any) -> bool | None:
        self.shutdown(cancel_futures=kind is not None)
        return None


def _is_dead(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _environment() -> dict[str, str]:
    """Return the environment variables that differ in a worker. Memory kept by a task is not treated as a leak."""
    own = {"PYTHONSAFEPATH": "1", "PYTHONWARNINGS": "ignore", "LOKY_MAX_MEMORY_LEAK_SIZE": "1e12"}
    return {n: v for n, v in starting.environment().items() if os.environ.get(n) != v} | own


_ALL: weakref.WeakSet[Workers] = weakref.WeakSet()


@functools.cache
def _watch_the_end() -> None:
    """Stop all workers when the program ends; loky would wait for their tasks."""

    def watch() -> None:
        threading.main_thread().join()
        for workers in list(_ALL):
            workers.stop()

    threading.Thread(target=watch, name="shardviz-end", daemon=True).start()


def free_cores() -> float:
    """Return the number of cores that other processes left idle over the last minute; all cores if the load is
    unknown."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 1.0
    return cores() - max(0.0, load - 1)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
