"""Tasks done by other processes: our own workers, or those of any `concurrent.futures.Executor`.

A task is `function(shared value, task)`, a pure function of small pickles. What many tasks need (a program, say) stands
in a `Shared` and is sent to a worker once. Functions may be written in a notebook: cloudpickle sends their code.

    with Workers() as pool:
        for key, answer in answers(score, Shared(program), {"a": plan_a, "b": plan_b}, pool):
            ...  # as they are done

A worker that is killed costs time alone: another does its task. One that kills its worker twice is `Lost`.

Our workers are Pythons of their own that have imported shardviz, one a core, started as the compile server is: no
script is run anew in them. They end when the process that has them ends, however that is, and at once when stopped.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import pickle
import platform
import queue
import signal
import subprocess
import sys
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, TypeVar

import cloudpickle

from shardviz import _jax
from shardviz.compiler.server import starting
from shardviz.errors import ShardvizError
from shardviz.program.contexts import Contexts

_TRIES = 2
_KEEPS = 8  # shared values of a worker
WORTH = 8.0
"""Seconds of work left from which workers of our own pay: each takes about 2 to start."""
_PACKAGES = ("jax", "jaxlib")

K = TypeVar("K")


class WorkerLost(ShardvizError):
    """A task whose worker ended before it was done, and so did the next one's."""


@dataclass(frozen=True)
class Lost:
    """What came of a task that was not done: its worker died each time, or cannot read it, or is of other versions.

    Attributes:
        why: in words.
    """

    why: str


class _Pickler(cloudpickle.Pickler):
    """As cloudpickle, and what `jax.jit` has wrapped arrives whole."""

    def reducer_override(self, obj: Any) -> Any:
        found = _jax.reduced(obj)
        return super().reducer_override(obj) if found is NotImplemented else found


def packed(value: Any) -> bytes:
    """A value as it travels.

    Raises:
        Exception: whatever pickling it raises.
    """
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class Shared:
    """A value that many tasks need, sent to a worker once."""

    def __init__(self, value: Any = None, *, key: str = "", packed: bytes = b""):
        self.key = key or uuid.uuid4().hex
        self._packed = packed
        self._value = [] if packed else [value]

    @property
    def value(self) -> Any:
        """The value, unpacked when it is first asked for.

        Raises:
            Exception: whatever unpickling it raises.
        """
        if not self._value:
            self._value.append(pickle.loads(self._packed))
        return self._value[0]

    @property
    def packed(self) -> bytes:
        """The value as it travels.

        Raises:
            Exception: whatever pickling it raises.
        """
        if not self._packed:
            self._packed = packed(self.value)
        return self._packed

    def __reduce__(self) -> Any:
        return _keep, (self.key, self.packed)


_KEPT: OrderedDict[str, Shared] = OrderedDict()


def _keep(key: str, packed: bytes) -> Shared:
    """A shared value that arrived, or the one that was there already."""
    if key not in _KEPT:
        _KEPT[key] = Shared(key=key, packed=packed)
        while len(_KEPT) > _KEEPS:
            _KEPT.popitem(last=False)
    _KEPT.move_to_end(key)
    return _KEPT[key]


def versions() -> dict[str, str]:
    """What must be the same in all workers, since their answers are compared with each other."""
    own = {"Python": platform.python_version().rpartition(".")[0], "shardviz": sys.modules["shardviz"].__version__}
    return own | {n: metadata.version(n) for n in _PACKAGES}


def run(shared: Shared, payload: bytes, wanted: Mapping[str, str]) -> Any:
    """A task in a worker.

    Args:
        shared: what it needs besides.
        payload: JAX's settings where the task was given, the function and the task, pickled.
        wanted: the versions that the worker must have.
    """
    if (here := versions()) != dict(wanted):
        wrong = ", ".join(f"{n} {here.get(n)} in place of {v}" for n, v in wanted.items() if here.get(n) != v)
        return Lost(f"this worker has {wrong}; give workers of the same versions")
    try:
        contexts, function, task = cloudpickle.loads(payload)
        value = shared.value
    except Exception as error:  # noqa: BLE001  # a module that is not there, say
        return Lost(f"what was sent to a worker cannot be read there: {type(error).__name__}: {error}")
    with contexts.around():
        return function(value, task)


def answers(
    function: Callable[[Any, Any], Any], shared: Shared, tasks: Mapping[K, Any], executor: Any
) -> Generator[tuple[K, Any], None, None]:
    """The answers to tasks, as they are done; close it to cancel the rest.

    Args:
        function: called with the shared value and a task, in a worker; what it raises is raised here.
        shared: what all tasks need.
        tasks: key → task.
        executor: a `concurrent.futures.Executor`, a client of `dask.distributed`, or another object with
            `get_executor()`, whose workers have this JAX and shardviz.

    Yields:
        A key, and what the function returned, or `Lost`.

    Raises:
        ShardvizError: if the executor is none.
    """
    pool = executor_of(executor)
    wanted, contexts, futures = versions(), Contexts.here(), dict[Future[Any], K]()
    once = _scattered(executor, shared)
    tries: dict[K, int] = dict.fromkeys(tasks, 0)
    broken: list[K] = []
    left: list[K] = list(tasks)
    try:
        while left:
            for key in left:
                try:
                    futures[pool.submit(run, once, packed((contexts, function, tasks[key])), wanted)] = key
                except BrokenExecutor:
                    broken.append(key)
            left = []
            for future in as_completed(list(futures)):
                key = futures.pop(future)
                try:
                    yield key, future.result()
                except BrokenExecutor:
                    broken.append(key)
                except WorkerLost as error:
                    yield key, Lost(str(error))
                except Exception as error:
                    if not _is_lost(error):
                        raise
                    tries[key] += 1
                    once = shared  # what was handed out may have gone with the worker
                    if tries[key] < _TRIES and type(error).__name__ != "KilledWorker":  # dask has tried it again
                        left.append(key)
                    else:
                        yield key, Lost(f"{type(error).__name__}: {error}")
    finally:
        for future in futures:
            future.cancel()
    if broken:  # a pool that cannot go on: workers of our own do the rest
        with Workers() as own:
            yield from answers(function, shared, {key: tasks[key] for key in broken}, own)


def executor_of(executor: Any) -> Executor:
    """The executor that a person gave.

    Raises:
        ShardvizError: if it is none.
    """
    found = executor.get_executor() if hasattr(executor, "get_executor") else executor
    if not callable(getattr(found, "submit", None)):
        raise ShardvizError(
            f"executor={type(executor).__name__}: expected a concurrent.futures.Executor, a dask.distributed client or "
            "None"
        )
    return found


def _scattered(executor: Any, shared: Shared) -> Any:
    """The shared value, or where it is in a cluster: `dask.distributed` hands it to each worker once."""
    if callable(getattr(executor, "scatter", None)) and hasattr(executor, "get_executor"):
        return executor.scatter(shared, broadcast=True, hash=False)
    return shared


def _is_lost(error: BaseException) -> bool:
    """Whether an error is the cluster's, not the task's: dask's are told by where they are defined."""
    return (
        type(error).__module__.partition(".")[0] in ("distributed", "dask") or type(error).__name__ == "CancelledError"
    )


# Our own workers.


@dataclass(eq=False)
class _Item:
    """A call that waits for a worker."""

    future: Future[Any]
    payload: bytes
    shared: Sequence[Shared]


class Workers(Executor):
    """Processes of our own that do tasks, each one at a time.

    A worker starts with the first task for it. Leaving a `with` block by an error, Ctrl-C included, stops all at once.
    """

    def __init__(self, count: int | None = None):
        """No process yet.

        Args:
            count: how many workers at most; None for as many as cores that this process may use.

        Raises:
            ShardvizError: for a count below 1.
        """
        if count is not None and count < 1:
            raise ShardvizError(f"Workers({count}): one worker or more is needed")
        self.count = count or cores()
        self._items: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._working: set[_Worker] = set()
        self._lock = threading.Lock()
        self._waiting = 0
        self._closed = self._stopped = False

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes."""
        with self._lock:
            return tuple(w.process.pid for w in self._working)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Has a worker call a function; what `cloudpickle` pickles travels, a `Shared` to each worker once.

        Raises:
            RuntimeError: after `shutdown` or `stop`.
            Exception: whatever pickling raises.
        """
        pickled = io.BytesIO()
        pickler = _Sender(pickled)
        pickler.dump((fn, args, kwargs))
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("these workers have been shut down")
            self._waiting += 1
            self._items.put(_Item(future, pickled.getvalue(), tuple(pickler.shared)))
            if len(self._threads) < min(self.count, self._waiting):
                thread = threading.Thread(target=self._serve, name="shardviz-worker", daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No more tasks: workers end when those that were given are done."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
        if cancel_futures:
            self._cancel()
        for _ in threads:
            self._items.put(None)
        if wait:
            for thread in threads:
                thread.join()

    def stop(self) -> None:
        """Ends all workers at once; tasks that are not done are cancelled."""
        with self._lock:
            self._closed = self._stopped = True
            working = list(self._working)
        self._cancel()
        for worker in working:
            worker.kill()
        self.shutdown()

    def __exit__(self, kind: Any, *_: Any) -> bool | None:
        if kind is None:
            self.shutdown()
        else:
            self.stop()
        return None

    def _cancel(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                item = self._items.get_nowait()
                if item is not None:
                    item.future.cancel()

    def _serve(self) -> None:
        """One worker's thread: gives it one task after the other, and takes another worker where it dies."""
        worker: _Worker | None = None
        try:
            while (item := self._items.get()) is not None:
                if item.future.set_running_or_notify_cancel():
                    worker = self._done(item, worker)
                with self._lock:
                    self._waiting -= 1
        finally:
            self._forget(worker)

    def _done(self, item: _Item, worker: _Worker | None) -> _Worker | None:
        """Does a task; the worker that is there afterwards."""
        how = ""
        for _ in range(_TRIES):
            try:
                worker = worker or self._begin()
                good, answer = worker.ask(item)
            except (EOFError, OSError) as error:
                how = worker.ended() if worker is not None else str(error)
                self._forget(worker)
                worker = None
                if self._stopped:
                    break
                continue
            if good:
                item.future.set_result(answer)
            else:
                item.future.set_exception(answer)
            return worker
        item.future.set_exception(
            WorkerLost("stopped" if self._stopped else f"its worker {how}, and so did the one that tried again")
        )
        return None

    def _begin(self) -> _Worker:
        worker = _Worker()
        with self._lock:
            self._working.add(worker)
            stopped = self._stopped
        if stopped:
            worker.kill()
        return worker

    def _forget(self, worker: _Worker | None) -> None:
        if worker is not None:
            with self._lock:
                self._working.discard(worker)
            worker.close()


class Own:
    """Workers of our own for tasks that come in bits: started where enough work is left, and used once they are there.

    Attributes:
        most: how many tasks to hand out at once, of which the later may not be needed after the first.
    """

    def __init__(self, shared: Shared, worth: float = WORTH):
        """No process yet.

        Args:
            shared: what the tasks need.
            worth: seconds of work from which they are started.
        """
        self.most = 4 * cores()
        self._shared, self._worth = shared, worth
        self._pool: Workers | None = None
        self._starts: list[Future[Any]] = []
        self._never = cores() < 2

    def ready(self, left: float) -> Workers | None:
        """The workers, where they are there; else they are started if so many seconds of work are worth it."""
        if self._pool is None and not self._never and left > self._worth and free_cores() >= 1:
            try:
                _ = self._shared.packed
            except Exception:  # noqa: BLE001  # whatever a person's objects raise when they are pickled
                self._never = True
                return None
            self._pool = Workers()
            self._starts = [self._pool.submit(os.getpid) for _ in range(self._pool.count)]
        return self._pool if self._starts and all(each.done() for each in self._starts) else None

    def stop(self) -> None:
        """Ends them at once."""
        if self._pool is not None:
            self._pool.stop()
        self._never, self._starts = True, []


def free_cores() -> float:
    """How many cores nobody has used over the last minute, this process apart; all where that is not known."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 1.0
    return cores() - max(0.0, load - 1)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Sender(_Pickler):
    """Leaves a `Shared` out, and notes it: it is sent by itself."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file)
        self.shared: list[Shared] = []

    def persistent_id(self, obj: Any) -> str | None:
        if not isinstance(obj, Shared):
            return None
        self.shared.append(obj)
        return obj.key


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: str) -> Shared:
        return _KEPT[pid]


@dataclass(eq=False)
class _Worker:
    """A process, and what was sent to it."""

    process: subprocess.Popen[bytes] = field(init=False)
    has: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = starting.python(__name__, [], **pipes)
        _send(self.process.stdin, [p for p in sys.path if isinstance(p, str)])

    def ask(self, item: _Item) -> tuple[bool, Any]:
        """Has it do a task: whether it returned, and what, or what it raised.

        Raises:
            EOFError, OSError: if it has died.
        """
        for shared in item.shared:
            if shared.key not in self.has:
                _send(self.process.stdin, (shared.key, shared.packed))
            self.has[shared.key] = None
            self.has.move_to_end(shared.key)
            while len(self.has) > _KEEPS:
                self.has.popitem(last=False)
        _send(self.process.stdin, item.payload)
        return pickle.loads(_received(self.process.stdout))

    def ended(self) -> str:
        """How it ended."""
        code = self.process.wait()
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def kill(self) -> None:
        """Ends it, and what it started in its own group."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL) if hasattr(os, "killpg") else self.process.kill()

    def close(self) -> None:
        """Ends it and waits until it is gone."""
        self.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


_WORD = 8  # bytes that say how many follow


def _send(pipe: Any, message: Any) -> None:
    packed = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(len(packed).to_bytes(_WORD, "big") + packed)
    pipe.flush()


def _received(pipe: Any) -> bytes:
    size = pipe.read(_WORD)
    packed = pipe.read(int.from_bytes(size, "big")) if len(size) == _WORD else b""
    if len(size) < _WORD or len(packed) < int.from_bytes(size, "big"):
        raise EOFError("the other end is closed")
    return packed


def main() -> None:
    """A worker: does what comes until the other end closes, which ends it at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    given, answered = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what a person's function prints is no answer
    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(given, messages), daemon=True).start()
    sys.path[:] = messages.get()  # a person's modules are found as they are where the tasks come from
    for message in iter(messages.get, None):
        if isinstance(message, tuple):
            _keep(*message)
            continue
        _send(answered, _answered(message))


def _listen(pipe: Any, messages: queue.SimpleQueue[Any]) -> None:
    try:
        for _ in itertools.count():
            messages.put(pickle.loads(_received(pipe)))
    except (EOFError, OSError):
        os._exit(0)


def _answered(payload: bytes) -> tuple[bool, Any]:
    """Whether a call returned, and what, or what it raised, as it can be pickled."""
    try:
        fn, args, kwargs = _Unpickler(io.BytesIO(payload)).load()
        found = True, fn(*args, **kwargs)
        pickle.dumps(found)
    except Exception as error:  # noqa: BLE001  # a person's function may raise anything, and the caller gets it
        found = False, error
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # noqa: BLE001  # an error that cannot travel: its words can
            found = False, RuntimeError(f"{type(error).__name__}: {error}")
    return found


__all__: Iterable[str] = ("Lost", "Shared", "WorkerLost", "Workers", "answers", "executor_of", "run", "versions")
