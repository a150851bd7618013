"""Tasks done by other processes: our own workers (`loky`'s), or those of any `concurrent.futures.Executor`.

A task is `function(shared value, task)`, a pure function of small pickles. What many tasks need (a program, say) stands
in a `Shared`, which a worker reads once. Functions may be written in a notebook: cloudpickle sends them.

    with Workers() as pool:
        for key, answer in answers(score, Shared(program), {"a": plan_a, "b": plan_b}, pool):
            ...  # as they are done

A worker that dies costs time alone: the tasks that it may have had are done again, one at a time. A task that kills its
worker then too is `Lost`, as is one whose answer cannot be read.
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
import uuid
import weakref
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import CodeType
from typing import Any, Generic, TypeVar

import cloudpickle
import loky
import psutil

from shardviz import _jax
from shardviz.errors import ShardvizError
from shardviz.kept import cached_property
from shardviz.processes import starting
from shardviz.program.contexts import Contexts

_TRIES = 2
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
    words; `unread`: it did not even begin, since the worker cannot read it."""

    why: str
    unread: bool = False


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


def run(shared: Shared | Arrived | Stored, payload: bytes, wanted: Mapping[str, str], call: str = "") -> bytes:
    """Does a task in a worker: pickled, whether it returned, and what, or what it raised. The payload is JAX's settings
    where the task was given, the function and the task, pickled; `wanted` the versions that the worker must have;
    `call` another text for each call, as dask gives a call that is like an earlier one the earlier one's end."""
    if (here := versions()) != dict(wanted):
        wrong = ", ".join(f"{n} {here.get(n)} in place of {v}" for n, v in wanted.items() if here.get(n) != v)
        return packed((True, Lost(f"this worker has {wrong}; give workers of the same versions")))
    try:
        contexts, function, task = pickle.loads(payload)
        value = shared.value
    except Exception as error:  # noqa: BLE001  # a module that is not there, say
        why = f"what was sent to a worker cannot be read there: {type(error).__name__}: {error}"
        return packed((True, Lost(why, unread=True)))
    try:
        with contexts.around():
            return packed((True, function(value, task)))
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a person's function may raise anything: it is told
        return _packed_error(error)


def _itself(shared: Arrived) -> Arrived:
    return shared


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


class Tasks(Generic[K]):
    """Tasks that are being done elsewhere.

    Attributes:
        left: how many are not done.
    """

    def __init__(self, function: Callable[[Any, Any], Any], shared: Shared, executor: Any):
        """No task yet. `function` is called with the shared value and a task, in a worker of `executor`: `Workers`,
        another `concurrent.futures.Executor`, a client of `dask.distributed`, or another object with `get_executor()`.
        Raises ShardvizError if the executor is none."""
        self._function, self._shared = function, shared
        self._executor = executor_of(executor)
        self._wanted, self._contexts = versions(), Contexts.here()
        self._tasks: dict[K, Any] = {}
        self._waiting: deque[K] = deque()
        self._suspects: deque[K] = deque()  # what a worker that died was at
        self._running: dict[Future[Any], K] = {}
        self._deaths: Counter[K] = Counter()
        self._own: Workers | None = None

    @property
    def left(self) -> int:
        """How many tasks are not done."""
        return len(self._tasks)

    @property
    def futures(self) -> tuple[Future[Any], ...]:
        return tuple(self._running)

    def put(self, key: K, task: Any) -> None:
        """Gives a task. Raises Exception: whatever pickling it raises."""
        self._tasks[key] = packed((self._contexts, self._function, task))
        self._waiting.append(key)
        self._submit()

    def done(self, seconds: float | None = None) -> Iterator[tuple[K, Any]]:
        """Waits until a task is done, or so many seconds; yields the keys and answers of those that are. Raises
        Exception: what a task raised."""
        if not self._tasks:
            return
        finished, _ = wait(self._running, seconds, FIRST_COMPLETED)
        errors = {f: CancelledError() if f.cancelled() else f.exception() for f in finished}
        for future, error in errors.items():
            if not isinstance(error, BrokenExecutor):
                yield from self._taken(self._running.pop(future), future, error)
        broken = next((error for error in errors.values() if isinstance(error, BrokenExecutor)), None)
        if broken is not None:  # and with it all that the executor had
            yield from self._after_break(broken)
        self._submit()

    def cancel(self) -> None:
        """Drops what is not done; what a worker is at goes on there."""
        for future in self._running:
            future.cancel()
        self._running.clear()
        self._tasks.clear()
        self._waiting.clear()
        self._suspects.clear()
        if self._own is not None:
            self._own.stop()

    def _taken(self, key: K, future: Future[Any], error: BaseException | None) -> Iterator[tuple[K, Any]]:
        if error is None:
            del self._tasks[key]
            yield key, _unpacked(future.result())
        elif _is_the_clusters(error):  # dask blames whatever its worker had
            yield from self._died(key, f"{type(error).__name__}: {error}")
        else:
            raise error

    def _died(self, key: K, why: str) -> Iterator[tuple[K, Lost]]:
        """Tries once more, alone, what may have killed its worker; then it is lost."""
        self._deaths[key] += 1
        if self._deaths[key] < _TRIES:
            self._suspects.append(key)
        else:
            del self._tasks[key]
            yield key, Lost(why)

    def _after_break(self, error: BaseException) -> Iterator[tuple[K, Any]]:
        """Goes on where an executor does nothing more: with what its workers may have been at, one at a time."""
        had = list(self._running.values())
        self._running.clear()
        if not isinstance(self._executor, Workers):  # any of many: workers of our own find out
            self._executor = self._own = Workers()
            self._waiting.extend(had)
            return
        for key in had:
            yield from self._died(key, f"its worker {_end(error)}, and so did the one that tried it again, alone")

    def _submit(self) -> None:
        """Gives the workers what they can do now: our own are given no more tasks than they are, so that it is known
        what one that dies was at."""
        most = self._executor.count if isinstance(self._executor, Workers) else sys.maxsize
        while self._waiting and len(self._running) < most:
            self._give(self._waiting.popleft())
        if self._suspects and not self._running:
            self._give(self._suspects.popleft())

    @cached_property
    def _at_cluster(self) -> Any:
        """The shared value where dask keeps it, which makes it again where it was lost; else the value.

        All workers get it at once: dask would rather queue a task where the value is than give it to an idle worker.
        Where that comes to no end, as when a worker dies meanwhile, they get it when they need it.
        """
        client: Any = getattr(self._executor, "_client", None)
        if not hasattr(client, "replicate"):
            return self._shared
        kept = client.submit(_itself, self._shared)
        with contextlib.suppress(TimeoutError):
            client.replicate(kept, callback_timeout=_REPLICATED)
        return kept

    def _give(self, key: K) -> None:
        local = isinstance(self._executor, Workers | ProcessPoolExecutor)
        shared = self._shared.stored if local else self._at_cluster
        try:
            future = self._executor.submit(run, shared, self._tasks[key], self._wanted, uuid.uuid4().hex)
        except BrokenExecutor as error:
            future = Future[Any]()
            future.set_exception(error)
        self._running[future] = key


def answers(
    function: Callable[[Any, Any], Any], shared: Shared, tasks: Mapping[K, Any], executor: Any
) -> Generator[tuple[K, Any], None, None]:
    """The answers to tasks, as they are done: keys, and what the function returned, or `Lost`; close it to cancel the
    rest. Arguments and errors as `Tasks` has them; what a task raises is raised."""
    batch = Tasks[K](function, shared, executor)
    try:
        for key, task in tasks.items():
            batch.put(key, task)
        while batch.left:
            yield from batch.done()
    finally:
        batch.cancel()


def executor_of(executor: Any) -> Executor:
    """The executor that a person gave. Raises ShardvizError if it is none."""
    candidate = executor.get_executor() if hasattr(executor, "get_executor") else executor
    if not callable(getattr(candidate, "submit", None)):
        raise ShardvizError(
            f"executor={type(executor).__name__}: expected a concurrent.futures.Executor, a dask.distributed client or "
            "None"
        )
    return candidate


def _unpacked(answer_bytes: bytes) -> Any:
    try:
        good, answer = pickle.loads(answer_bytes)
    except Exception as error:  # noqa: BLE001  # whatever a person's objects raise when they are unpickled
        return Lost(f"what a worker answered cannot be read here: {type(error).__name__}: {error}")
    if not good:
        raise answer
    return answer


def _is_the_clusters(error: BaseException) -> bool:
    """Whether an error is the cluster's, not the task's: dask's are told by where they are defined."""
    return isinstance(error, CancelledError) or type(error).__module__.partition(".")[0] in ("distributed", "dask")


def _end(error: BaseException) -> str:
    """How a worker ended, in words: loky has `{SIGKILL(-9)}` or `{EXIT(1)}` among its own."""
    code = re.search(r"\{(\w+)\((-?\d+)\)", str(error))
    if code is None:
        return "ended"
    return f"ended with exit code {code[2]}" if code[1] == "EXIT" else f"was ended by {code[1]}"


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
