"""A dry run: a script runs unchanged, but the large programs that it dispatches are recorded and not computed.

A program is recorded if it runs on several devices, or if its arrays are larger than a bound. Other programs really
run. The results of a recorded program are `jax.Array`s of zeros with the shape, dtype and sharding of the real results.
They take no memory. A result that depends only on small known values, such as a counter, has its real value when it is
read. If the script does not say how a result is sharded, Shardy decides it, as in a real run.
"""

from __future__ import annotations

import contextlib
import gc
import math
import signal
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType, SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding

from shardviz import _jax, processes
from shardviz._jax import Ahead, Dispatched
from shardviz.caching import collection_paused
from shardviz.costs.machine import Machine, machine_of
from shardviz.diagnose.names import name_findings
from shardviz.errors import MeshError, ShardvizError, message_of
from shardviz.notation import DeviceMesh, Spec
from shardviz.records.amounts import plural
from shardviz.records.runs import RunArray, RunCall, RunNote, RunProgram, RunRecord, Transfer
from shardviz.records.source import innermost, is_own
from shardviz.records.values import Frame
from shardviz.runs.checkpoints import orbax_patches
from shardviz.runs.imports import patched_imports
from shardviz.runs.recorded import (
    ONE_DEVICE,
    argument_shardings,
    bytes_of,
    call_of,
    deciding_shardings,
    mesh_of,
    operations,
    replicated,
    shardy_sharding,
    taken,
    typed_sharding,
)
from shardviz.runs.rules import RulesSeen
from shardviz.runs.run import Run, RunStep
from shardviz.runs.shared import Beside, Identities, Seen
from shardviz.runs.values import Values
from shardviz.tracing.trees import names_of

SMALL = 16 << 20
"""Bytes of a program's arrays up to which it really runs, if it is on one device."""
LARGEST_FETCH = 1 << 30
"""Bytes of an array above which reading its values is refused."""

MOST_CALLS = 1000
"""Calls of one program, each with the same weights, after which a run that may end ends."""

_MANY = 100_000
"""New objects from which a trace is followed by a collection, as CPython makes some during such a trace."""

_SMALL_PROGRAM = 32
"""Operations of a program up to which it is compared with others of the same line."""

MOST_PROCESSES = 256
"""Processes of a job; 256 take JAX four seconds to start and 1 GB."""

_ENDS = getattr(signal, "SIGUSR1", None)
"""The signal that wakes the main thread, which may wait for another one."""


class RunEnds(BaseException):
    """Ends a script from inside a call, once its loop brings nothing new. It is no `Exception`, so that a script's
    `except Exception` does not catch it."""


@contextlib.contextmanager
def dry_run(
    target: str | None = None,
    *,
    steps: int | None = None,
    small: int = SMALL,
    command: str = "",
    process: tuple[int, int] | None = None,
) -> Iterator[Run]:
    """Run the code in the `with` block dry: what it compiles is recorded, and nothing large is computed or moved.

    Results of recorded programs are real `jax.Array`s of zeros, sharded as in a real run. Results that depend only on
    small known values, such as counters and cache positions, have their real values when they are read. At the end,
    also after an exception, JAX is as before: a function that was called in the block computes real results afterwards.

    Args:
        target: the machine that the run is for, such as `"tpu v5p:4x4x4"`: JAX gets as many simulated devices. None or
            `"cpu"` for the devices that JAX has.
        steps: end the block once a program was called this many times without a new program in between; None to run it
            to its end.
        small: bytes of a program's arrays up to which it really runs, if it is on one device.
        command: the command line, which the record shows.
        process: run as process i of n, `(i, n)`: `jax.process_index()`, `jax.process_count()`, `jax.local_devices()`
            and `device.process_index` are those of this process, and each process has equally many devices. JAX must
            not have started, and stays this process afterwards. `sv.compare` compares the runs of several processes.

    Yields:
        The `Run`, which is complete when the block has ended.

    Raises:
        MeshError: if JAX's backend has already started with fewer devices than the target; or if the number of devices
            does not divide by the number of processes.
        TargetError: if there is no such machine.
        ShardvizError: if this JAX dispatches programs in a way that shardviz does not know.

    Examples:
        >>> import jax, jax.numpy as jnp, shardviz as sv
        >>> with sv.dry_run() as run:
        ...     weights = jnp.ones((50_000, 20_000))  # 4 GB, of which none is allocated
        >>> weights.shape, run.programs[0].calls
        ((50000, 20000), 1)
    """
    if (missing := _jax.missing_seam()) is not None:
        raise ShardvizError(
            f"dry_run: JAX {jax.__version__} has no {missing}, which shardviz intercepts. Use JAX 0.10.2 "
            "to 0.12.0.1, or a newer shardviz"
        )
    machine = None if target in (None, "cpu") else machine_of(target)
    devices = _devices(machine) if process is None else _devices_of_process(machine, process)
    recorder = _Recorder(machine, steps=steps, small=small, devices=devices, command=command, process=process)
    run = Run(recorder.record())
    if recorder.devices > 1:
        processes.start()  # in which Shardy runs first
    try:
        patches = recorder.rules.patches | orbax_patches(recorder.note, recorder.restored)
        patches |= {"jax.experimental.multihost_utils": _jax.patch_multihost} if process else {}
        with (
            _jax.intercepted(recorder),
            _posing(machine, recorder),
            patched_imports(patches),
            _ended_from_threads(recorder),
        ):
            yield run
        recorder.ended = "the script ended"
    except RunEnds:
        recorder.ended = "steady"
    except SystemExit as error:
        recorder.ended = "the script ended" if not error.code else f"the script ended with exit code {error.code}"
        raise
    except Exception as error:
        recorder.ended = f"{type(error).__name__}: {message_of(error)}"
        raise
    except BaseException:  # Ctrl-C, say
        recorder.ended = "interrupted"
        raise
    finally:
        run.recorded, run.steps = recorder.record(), tuple(step.finished() for step in recorder.steps)
        run.same = recorder.identities.groups()
        run.beside = tuple(
            tuple(Beside(first, size.shape, str(size.dtype), size.nbytes) for first, size in step.beside)
            for step in recorder.steps
        )


@contextlib.contextmanager
def _ended_from_threads(recorder: _Recorder) -> Iterator[None]:
    """Let the signal `_ENDS` end the script inside the context, if this is the main thread. Another thread sends the
    signal when its loop is steady."""
    if _ENDS is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: Any) -> None:
        raise RunEnds

    before = signal.signal(_ENDS, end)
    try:
        yield
    finally:
        try:
            with recorder._lock:  # no thread is about to send it
                recorder._thread = None
        finally:
            signal.signal(_ENDS, before)


def _devices(machine: Machine | None) -> int:
    """Make JAX start with as many devices as the machine has. Return the number of devices."""
    if machine is None:
        return len(jax.devices())
    if not _jax.has_backend():
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", machine.size)
    if (there := len(jax.devices())) < machine.size:
        raise MeshError(
            f"dry_run({machine.text!r}): the machine has {machine.size} devices, JAX has started with {there} here. "
            "Restart the kernel and call this before anything else of JAX: "
            f'jax.config.update("jax_num_cpu_devices", {machine.size})'
        )
    return machine.size


def _devices_of_process(machine: Machine | None, process: Any) -> int:
    """Start JAX as process i of n, `(i, n)`, unless it has started. Return the number of devices of all processes."""
    total = machine.size if machine else max(1, jax.config.jax_num_cpu_devices)  # type: ignore[attr-defined]
    asked = f"dry_run(process={process!r})"
    match process:
        case (int(index), int(count)) if 0 <= index < count <= MOST_PROCESSES:
            pass
        case _:
            raise MeshError(f"{asked}: expected (i, n) with i from 0 to n - 1, and n up to {MOST_PROCESSES}")
    if not _jax.has_backend():
        if total % count:
            raise MeshError(
                f"{asked}: {plural(total, 'device')} cannot be shared equally by {count} processes; give another "
                "number of processes, another target, or another number of devices"
            )
        ids = list(range(total)) if machine is None or machine.ids().max() >= total else machine.ids().tolist()
        _jax.start_process(index, count, ids)
    elif _jax.process() != (index, count) or (machine and len(jax.devices()) != total):
        i, n = _jax.process()
        raise MeshError(
            f"{asked}: JAX has already started, as process {i} of {n} with {len(jax.devices())} devices; restart the "
            "kernel and call this before anything else of JAX"
        )
    return len(jax.devices())


def _posing(machine: Machine | None, recorder: _Recorder) -> contextlib.AbstractContextManager[None]:
    """Make JAX's devices look like a machine's inside the context, so that a script takes its branch for TPUs or
    GPUs."""
    if machine is None:
        return contextlib.nullcontext()
    chip, coords, slices = machine.chip, machine.coords().tolist(), machine.slices().tolist()
    at = dict(zip(machine.ids().tolist(), range(machine.size), strict=True))  # JAX's id → place in the machine's list
    attributes: dict[str, Any] = {"device_kind": lambda _: chip.device_kind}
    if (usable := machine.usable_bytes) is not None:
        attributes["memory_stats"] = lambda _: lambda: {"bytes_limit": int(usable), **recorder.memory()}
    if chip.kind == "tpu":
        attributes |= {
            "coords": lambda device: coords[at.get(device, device)][:3],
            "num_cores": lambda _: chip.cores_per_device,
            "core_on_chip": lambda device: coords[at.get(device, device)][3],
            "slice_index": lambda device: slices[at.get(device, device)],
        }
    return _jax.posing(chip.kind, attributes)


@dataclass(eq=False)
class _Step:
    """A program while its run goes on; `shardings` are those of its results."""

    number: int
    step: RunStep
    known: _jax.Known
    shardings: list[Any]
    committed: bool
    at: list[int] = field(default_factory=list)  # the numbers of its calls among all
    took: list[Any] = field(default_factory=list)  # weak references to the arguments and results of its last call
    gave: list[Any] = field(default_factory=list)
    new: set[int] = field(default_factory=set)  # the arguments that no program had before, not counting the first call
    onward: int = 0  # its last calls, one after the other, that were further steps
    beside: Sequence[tuple[Seen | None, _Size]] = ()  # what else was alive at the call at which that was most
    most_beside: int = 0

    def finished(self) -> RunStep:
        """Return the program with the number of its calls until now."""
        self.step.recorded = replace(self.step.recorded, calls=len(self.at))
        self.step.new = frozenset(self.new)
        return self.step


class _Recorder:
    """The handler that answers JAX's dispatch, and keeps what it saw."""

    def __init__(
        self, machine: Machine | None, *, steps: int | None, small: int, devices: int, command: str, process: Any
    ):
        self.machine, self.most, self.small, self.devices, self.command = machine, steps, small, devices, command
        self.process: tuple[int, int] | None = process
        self.steps: list[_Step] = []
        self.ended = ""
        self._by_key: dict[Any, _Step] = {}
        self._alike: dict[Any, _Step] = {}
        self._closed: list[Any] = []  # held, so that no other jaxpr has an identity of these
        self._traced: dict[Any, RunStep] = {}
        self._calls: list[RunCall] = []
        self._transfers: dict[tuple[str, Frame | None, str, str], Transfer] = {}
        self._notes: dict[RunNote, None] = {}
        self.rules = RulesSeen(_line)
        self.identities = Identities()
        self.alive = LiveArrays()
        self.values = Values()
        self._newest = 0
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = threading.current_thread()  # which is waited for

    @property
    def platforms(self) -> tuple[str, ...] | None:
        return None if self.machine is None else ("cuda" if self.machine.chip.kind == "gpu" else "tpu",)

    def record(self) -> RunRecord:
        """Return the record of the run until now."""
        chip = None if self.machine is None else self.machine.chip
        rate = chip and chip.host_bytes_per_s and chip.host_bytes_per_s / chip.devices_per_chip
        transfers = (
            replace(each, seconds=each.device_bytes / rate) if rate and "host" in (each.before, each.after) else each
            for each in self._transfers.values()
        )
        programs = tuple(step.finished().recorded for step in self.steps)
        rules = self.rules.rules([p.mesh.shape for p in programs if p.mesh is not None])
        return RunRecord(
            command=self.command,
            target="" if self.machine is None else self.machine.text,
            usable=None if self.machine is None else self.machine.usable_bytes,
            devices=self.devices,
            programs=programs,
            calls=tuple(self._calls),
            transfers=tuple(transfers),
            rules=rules,
            findings=name_findings(rules),
            notes=tuple(self._notes),
            ended=self.ended,
            process=self.process,
        )

    def memory(self) -> dict[str, int]:
        """Return the bytes of live arrays on the device that has most of them, now and at most so far."""
        now, _ = self.alive.now()
        return {"bytes_in_use": now, "peak_bytes_in_use": max(now, *(call.live_bytes for call in self._calls), 0)}

    # --- What JAX asks ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Let JAX trace without searches for reference cycles, which take a fifth of the time of a large trace."""
        with collection_paused():
            yield
            new, *_ = gc.get_count()
        if new > _MANY and gc.isenabled():
            gc.collect()

    def run(self, program: Dispatched) -> list[Any] | None:
        if not self._is_recorded(program):
            return None
        for arg in program.args:
            if isinstance(arg, jax.Array) and arg.is_deleted():
                raise RuntimeError(f"Array has been deleted with shape={arg.aval.str_short()}.")
        with self._lock, collection_paused():
            return self._called(self._step(program), program)

    def compile(self, program: Dispatched) -> Ahead | None:
        if not self._is_recorded(program):
            return None
        with self._lock:
            step = self._step(program, ahead=True)
        kinds = program.kinds

        def call(args: Sequence[Any]) -> list[Any]:
            with self._lock:
                return self._called(step, replace(program, args=tuple(args)))

        if program.leaves_layouts_open:
            self.note(f"{program.name}: XLA would choose layouts (Layout.AUTO); its formats are row-major here")
        asked = zip(argument_shardings(program), kinds, strict=True)
        left = replicated(mesh_of(program))
        ins = [s or k.sharding or left for s, k in asked]
        return Ahead(call, lambda: ins, lambda: step.shardings, lambda: _memory(step.step), lambda: _cost(step.step))

    def put(self, value: Any, aval: Any, sharding: Any) -> Any | None:
        before = getattr(value, "sharding", None)
        if before == sharding and getattr(value, "committed", True):
            return None
        shard = _nbytes(sharding.shard_shape(aval.shape), aval.dtype)
        is_large = shard * sharding.num_devices > self.small
        if value is not None or is_large:
            self._moves("put", aval, sharding, _place(before), _place(sharding))
        if sharding.num_devices == 1 and (numbers := self.values.numbers(value)) is not None:
            return _jax.array_of(numbers, _jax.zero_array(aval, sharding))
        if not is_large:
            return None
        array = _jax.zero_array(aval, sharding)
        self.values.keep(array, self.values.of(value))
        self.identities.copied(value, array)
        return array

    def placed(self, value: Any, array: Any) -> None:
        self.values.placed(value, array)
        self.identities.copied(value, array)

    def ran(self, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        self.values.ran(arguments, results)

    def restored(self, aval: Any, sharding: Any) -> Any:
        """Return an array in place of one that a checkpoint would restore."""
        self._moves("put", aval, sharding, "checkpoint", _place(sharding))
        array = _jax.zero_array(aval, sharding)
        self.values.keep(array, None)
        return array

    def fetch(self, array: Any, decides: bool) -> np.ndarray | None:
        nbytes = _nbytes(array.shape, array.dtype)
        if nbytes > LARGEST_FETCH:
            raise ShardvizError(
                f"{_where(_line())}reads the values of {array.aval.str_short()}, {nbytes:,} bytes, which a dry run "
                "does not compute; leave this out of the dry run, or read a part of the array"
            )
        self._moves("fetched", array, array.sharding, _place(array.sharding), "host")
        numbers = self.values.numbers(array)
        if numbers is None and decides and not self.values.is_known(array):
            self.note(f"{array.aval.str_short()} is read as 0 for a decision: a dry run does not compute its value")
        return numbers

    def shards(self, array: Any) -> Any | None:
        numbers = self.values.numbers(array)
        return None if numbers is None else jax.device_put(numbers, array.sharding)

    def note(self, text: str) -> None:
        self._notes[RunNote(text=text, source=_line())] = None

    # --- What is made of it -----------------------------------------------------------------------------------------

    def _is_recorded(self, program: Dispatched) -> bool:
        return _span(program) > 1 or bytes_of(program) > self.small or _jax.has_kernel(program.closed.jaxpr)

    def _step(self, program: Dispatched, ahead: bool = False) -> _Step:
        key = (id(program.closed), *argument_shardings(program), *program.params["compiler_options_kvs"])
        if key not in self._by_key:
            alike = _alike(program)
            if alike not in self._alike or alike is None:
                self._newest = len(self._calls)
                self._alike[alike] = self._new(len(self.steps), program, ahead)
                self.steps.append(self._alike[alike])
            self._by_key[key] = self._alike[alike]
            self._closed.append(program.closed)
        return self._by_key[key]

    def _new(self, number: int, program: Dispatched, ahead: bool) -> _Step:
        on, span, seen = mesh_of(program), _span(program), self.rules.copy()
        mesh, call, refused = ONE_DEVICE if on is None else DeviceMesh.of(on), None, ""
        try:
            call = call_of(program, lambda mesh, _: name_findings(seen.rules([mesh.shape])))
        except ShardvizError as error:
            refused = str(error)
        names, out_names = names_of(program.traced()) if call is None else call.fn.names
        record = RunProgram(
            name=program.name,
            source=_line(),
            calls=0,
            devices=span,
            mesh=None if on is None else mesh,
            arguments=_arrays(program, names, list(argument_shardings(program))),
            results=(),
            options=tuple((str(k), str(v)) for k, v in program.params["compiler_options_kvs"]),
            ahead=ahead,
            processes=_processes(program) if self.process else (),
            operations=operations(program, self.platforms) if self.process else (),
        )
        machine, params = self.machine, program.params
        traced = id(program.closed), program.in_tree, params["donated_invars"], params["keep_unused"], mesh
        step = RunStep(
            record,
            call,
            mesh,
            machine if machine is not None and machine.size == mesh.size else None,
            "" if machine is None or machine.size != span else machine.text,
            refused,
            self._traced.get(traced),
            program.is_eager,
        )
        self._traced.setdefault(traced, step)
        placed = [s for s in deciding_shardings(program) if span == 1]
        shardings = self._result_shardings(program, step, on, placed)
        named = enumerate(zip(out_names, program.closed.out_avals, shardings, strict=True))
        results = tuple(_array(name or f"result[{i}]", a, s) for i, (name, a, s) in named)
        step.recorded = replace(record, results=results)
        known = _jax.Known(program.closed)
        return _Step(number, step, known, shardings, span > 1 or bool(placed))

    def _result_shardings(self, program: Dispatched, step: RunStep, on: Any, placed: list[Any]) -> list[Any]:
        """Return the shardings of a program's results. The first of these decides that can: the shardings given to
        `jit`, the results' types, constraints inside the program, Shardy, a compile."""
        asked = zip(program.params["out_shardings"], program.closed.out_avals, strict=True)
        results = [typed_sharding(on, aval) if _jax.is_unspecified(s) else s for s, aval in asked]
        if None not in results:
            return results
        if step.recorded.devices == 1:
            alone = placed[0] if placed else replicated(None)
            return [r or alone for r in results]
        settled = None if on is None else _jax.settled_results(program.closed.jaxpr, on)
        try:
            specs = step.result_specs() if settled is None else map(Spec.of, settled)
            found = [shardy_sharding(on, spec, a) for spec, a in zip(specs, program.closed.out_avals, strict=True)]
            results = [f if r is None else r for r, f in zip(results, found, strict=True)]
        except ShardvizError as error:
            step.refused = str(error)
        if None in results:
            why = f"the shardings of its results are XLA's, which took a compile: {step.refused}"
            try:
                results = _jax.compiled_shardings(program)
            except (ValueError, NotImplementedError, RuntimeError) as error:  # a kernel of the target's, on CPUs
                why = f"{step.refused}; nor does it compile here ({error}); its results are taken as replicated"
                results = [r or replicated(on) for r in results]
            self.note(f"{program.name}: {why}")
        return results

    def _called(self, step: _Step, program: Dispatched) -> list[Any]:
        if self._is_steady(step, program):
            self._end()
        step.at.append(len(self._calls))
        rows = zip(program.args, step.step.recorded.arguments, strict=False)
        given = {id(a): r.bytes_per_device for a, r in rows if isinstance(a, jax.Array) and not r.unused}
        live, alive = self.alive.now()
        line = _line() if self.process else None
        call = RunCall(program=step.number, live_bytes=live, argument_bytes=sum(given.values()), source=line)
        self._calls.append(call)
        if call.beside_bytes > step.most_beside:
            step.most_beside = call.beside_bytes
            step.beside = [(self.identities.place_of(a), size) for a, size in alive if id(a) not in given]
        results = _jax.zero_arrays(program.closed.out_avals, step.shardings, step.committed)
        self.values.called(step.known, program.args, results)
        _jax.delete(taken(program, step.shardings))
        arguments = program.args[len(program.constants) :]
        if len(step.at) > 1:
            step.new.update(
                n for n, a in enumerate(arguments) if isinstance(a, jax.Array) and self.identities.is_new(a)
            )
        self.identities.called(step.number, arguments, results)
        step.took, step.gave = _references(program.args), _references(results)
        return results

    def _end(self) -> None:
        """End the run. A call on another thread ends that thread, and signals the main thread to end the script."""
        main = threading.main_thread()
        if threading.current_thread() is self._thread:
            raise RunEnds
        if self._thread is main and _ENDS is not None:
            signal.pthread_kill(main.ident or 0, _ENDS)
            raise SystemExit  # ends this thread, and prints nothing

    def _is_steady(self, step: _Step, program: Dispatched) -> bool:
        """Return whether a call of a program is a further step of a loop without new programs. A step takes results of
        the step before, or other arrays than the step before. An evaluation takes the same weights again: it ends by
        itself, or after `MOST_CALLS`. Eager operations do not count, because code that makes layers one by one repeats
        them."""
        given = {id(arg) for arg in program.args}
        again, carried = (any(id(ref()) in given for ref in refs) for refs in (step.took, step.gave))
        step.onward = step.onward + 1 if carried or not again else 0
        called = len(step.at)
        if not self.most or step.step.recorded.devices == 1 or program.is_eager or called < self.most:
            return False
        return self._newest <= step.at[-self.most] and (step.onward > self.most or called >= MOST_CALLS)

    def _moves(self, kind: str, array: Any, sharding: Any, before: str, after: str) -> None:
        key = kind, _line(), before, after
        with self._lock:
            each = self._transfers.get(key) or Transfer(
                kind=kind, source=key[1], before=before, after=after, nbytes=0, count=0
            )
            self._transfers[key] = replace(
                each,
                nbytes=each.nbytes + _nbytes(array.shape, array.dtype),
                count=each.count + 1,
                device_bytes=each.device_bytes + _nbytes(sharding.shard_shape(array.shape), array.dtype),
            )


def _alike(program: Dispatched) -> Any:
    """Return a key that is equal for small programs that one line makes again and again, such as `jit` of a lambda in a
    loop; None for a large program."""
    closed, params = program.closed, program.params
    if closed.consts or _jax.written_out(closed.jaxpr) > _SMALL_PROGRAM:
        return None
    given = program.name, _line(), str(closed.jaxpr), program.in_tree, program.out_tree
    given += params["donated_invars"], params["keep_unused"], params["ctx_mesh"]
    return (*given, *argument_shardings(program), *params["out_shardings"], *params["compiler_options_kvs"])


def _span(program: Dispatched) -> int:
    """Return the number of devices that a program runs on."""
    on = mesh_of(program)
    return max([1 if on is None else on.size, *(len(s.device_set) for s in deciding_shardings(program))])


def _processes(program: Dispatched) -> tuple[int, ...]:
    """Return the processes that own a device of a program."""
    on = mesh_of(program)
    devices = [] if on is None else [*on.devices.flat]
    every = {d.process_index for s in deciding_shardings(program) for d in (*s.device_set, *devices)}
    return tuple(sorted(every or {d.process_index for d in devices}))


def _arrays(program: Dispatched, names: Sequence[str | None], shardings: list[Any]) -> tuple[RunArray, ...]:
    skipped, donated = len(program.constants), program.params["donated_invars"]
    rows = zip(program.kinds, shardings, donated, program.used, strict=True)
    named = [*(["constant"] * skipped), *(name or f"argument {i}" for i, name in enumerate(names))]
    return tuple(_array(name, k.aval, s, d, not used) for name, (k, s, d, used) in zip(named, rows, strict=False))


def _array(name: str, aval: Any, sharding: Any, donated: bool = False, unused: bool = False) -> RunArray:
    shard = aval.shape if sharding is None else sharding.shard_shape(aval.shape)
    return RunArray(
        name=name,
        shape=tuple(aval.shape),
        dtype=str(aval.dtype),
        spec=str(Spec.of(sharding).canonical()) if isinstance(sharding, NamedSharding) else "",
        bytes_per_device=_nbytes(shard, aval.dtype),
        donated=donated,
        unused=unused,
    )


def _nbytes(shape: Sequence[int], dtype: Any) -> int:
    return math.prod(shape) * dtype.itemsize


def _place(sharding: Any) -> str:
    if sharding is None:
        return "host"
    if isinstance(sharding, NamedSharding):
        kind = f" in {sharding.memory_kind}" if sharding.memory_kind not in (None, "device") else ""
        return f"{Spec.of(sharding).canonical()} on {DeviceMesh.of(sharding.mesh)}{kind}"
    count = len(sharding.device_set)
    return f"{count} device{'s' * (count > 1)}"


def _references(arrays: Sequence[Any]) -> list[Any]:
    return [weakref.ref(array) for array in arrays if isinstance(array, jax.Array)]


class _Size(NamedTuple):
    """An array's shape and type, the devices that it is on, by id, and its bytes on each of them."""

    array: weakref.ref[Any]
    shape: tuple[int, ...]
    dtype: Any
    devices: frozenset[int]
    nbytes: int


class LiveArrays:
    """The sizes of live arrays. Each array is measured once: a script that works outside of `jit` keeps thousands of
    arrays alive over thousands of calls."""

    def __init__(self) -> None:
        self._sizes: dict[int, _Size] = {}  # by the arrays' ids
        self._devices: dict[Any, frozenset[int]] = {}  # by sharding

    def now(self) -> tuple[int, list[tuple[Any, _Size]]]:
        """Return the bytes of live arrays on the device that has most, and the arrays there with their sizes."""
        alive = [(array, self._size(array)) for array in jax.live_arrays()]
        self._sizes = {id(array): size for array, size in alive}
        by_devices: Counter[frozenset[int]] = Counter()
        for _, size in alive:
            by_devices[size.devices] += size.nbytes
        each: Counter[int] = Counter()
        for devices, nbytes in by_devices.items():
            each.update(dict.fromkeys(devices, nbytes))
        most, total = max(each.items(), key=lambda item: item[1], default=(0, 0))
        return total, [(array, size) for array, size in alive if most in size.devices]

    def _size(self, array: Any) -> _Size:
        size = self._sizes.get(id(array))
        if size is not None and size.array() is array:
            return size
        sharding, shape = array.sharding, tuple(array.shape)
        if sharding not in self._devices:
            self._devices[sharding] = frozenset(device.id for device in sharding.device_set)
        nbytes = _nbytes(sharding.shard_shape(shape), array.dtype)
        return _Size(weakref.ref(array), shape, array.dtype, self._devices[sharding], nbytes)


def _line(outside: str = "") -> Frame | None:
    """Return the script's current line, outside files whose path begins with `outside`, if given."""
    frames: list[Frame] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == "<frozen runpy>":  # what runs the script is not of it
            break
        if not outside or not frame.f_code.co_filename.startswith(outside):
            frames.append(Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname))
        if is_own(frame.f_code.co_filename):
            break
        frame = frame.f_back
    return innermost(frames)


def _where(frame: Frame | None) -> str:
    return "" if frame is None else f"{frame.short} "


def _memory(step: RunStep) -> Any:
    """Return what JAX's `memory_analysis` says, from the estimate."""
    record = step.record
    arguments = sum(a.bytes_per_device for a in record.arguments)
    results = sum(a.bytes_per_device for a in record.results)
    alias = sum(a.bytes_per_device for a in record.arguments if a.donated)
    needs = record.needs_bytes
    sizes = {"argument": arguments, "output": results, "alias": alias, "generated_code": 0}
    sizes["temp"] = 0 if needs is None else max(0, round(needs) - arguments - max(0, results - alias))
    hosts = dict.fromkeys((f"host_{name}" for name in sizes), 0)
    return SimpleNamespace(**{f"{name}_size_in_bytes": size for name, size in (sizes | hosts).items()})


def _cost(step: RunStep) -> Any:
    """Return what JAX's `cost_analysis` says: the FLOPs of a device, loops counted."""
    if step.program is None or step.plan is None:
        return {}
    cost = step.program.propagate(step.plan).cost
    return {} if cost is None else {"flops": cost.dot_flops}
