"""Where jobs keep their files: a folder in memory where there is room, named after the kernel that owns it.

Whoever ends last removes it; what a machine's sudden end leaves behind is swept when the next server starts.

Reading XLA's dumps while the compiler is still at work.

XLA writes each text when its pass is done. A program's text is complete when its entry computation, the last that XLA
prints, is closed. The optimised program, buffer assignment and memory report are written one after the other within two
milliseconds, each in one piece, in an order that differs between versions; they are complete when all have been left
alone for a while. The TPU's compiler writes the program once more when it has found that it fits, and ends with an
error where it does not: its answer is complete when it has done one or the other.

A compile job: a pure function from a picklable request to the compiler's texts.

The same function runs in a forked child of the compile server, in a `loky` worker, or whole in any other executor.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardviz import _jax

_NAME = re.compile(r"shardviz-(\d+)-\w+$")
_ROOM = 256 * 2**20


def base() -> Path:
    """A folder in memory if the machine has one with room, else the usual temporary folder."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM:
        return memory
    return Path(tempfile.gettempdir())


def make() -> Path:
    """A new folder of this process."""
    return Path(tempfile.mkdtemp(prefix=f"shardviz-{os.getpid()}-", dir=base()))


def sweep() -> None:
    """Removes this user's folders whose process is no more."""
    import psutil

    for entry in os.scandir(base()):
        match = _NAME.match(entry.name)
        if (
            match
            and not psutil.pid_exists(int(match[1]))
            and (not hasattr(os, "getuid") or entry.stat().st_uid == os.getuid())
        ):
            shutil.rmtree(entry.path, ignore_errors=True)


PASSES = "spmd-partitioning"
"""The partitioner's pass, `spmd-partitioning` or `tpu-spmd-partitioning`: XLA dumps before and after it."""

LEVELS = ("partitioned", "compiled")
"""What a compile is asked for."""

MILESTONES = (*LEVELS, "finished")
"""What is told of on the way; `finished` only where the compile is to end, with machine code."""

_SETTLED = 15_000_000
"""Nanoseconds without a change after which a file is taken to be whole."""

NO_ROOM = "does-not-fit.txt"
"""The compiler's message where a program does not fit into the machine's memory; written by the job."""

STATED, FINAL = "as-finished.json", "as-finished.txt"
"""What the executable says of itself, and its program; written by the job, the first of them last."""

_FITS = "after_optimizations_after_buffer_assignment.txt"

_STAGES = {
    "partitioned": {"before": "before the partitioner", "partitioned": "after it"},
    "compiled": {
        "optimized": "after_optimizations.txt",
        "buffers": "after_optimizations-buffer-assignment.txt",
        "live_ranges": "after_optimizations-live-range.txt",
    },
    "finished": {"stated": STATED, "final": FINAL},
}
_MORE = {"memory_report": "after_optimizations-memory-usage-report.txt", "no_room": NO_ROOM}
"""Stages that not every compiler or program has."""


def find(folder: Path, milestone: str, devices: int) -> dict[str, Path]:
    """Stage → file for those of a milestone's files that exist.

    For a single device XLA runs no partitioner; the program that it was given stands for both sides of it.
    """
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    found = {}
    for name in names:
        for stage in _stages(name, milestone, devices):
            found.setdefault(stage, folder / name)
    return found


def _stages(name: str, milestone: str, devices: int) -> tuple[str, ...]:
    if milestone != "partitioned":
        stages = _STAGES[milestone] | (_MORE if milestone == "compiled" else {})
        return tuple(stage for stage, end in stages.items() if name.endswith(end))
    if devices == 1:
        return ("before", "partitioned") if name.endswith("before_optimizations.txt") else ()
    if "spmd-partitioning" not in name or not name.endswith(".txt"):
        return ()
    return ("before",) if "spmd-partitioning" in name.rsplit(".before_", 1)[-1] else ("partitioned",)


def planned(folder: Path) -> bool:
    """Whether the optimised program and its memory plan are there, once the compiler has ended."""
    return complete(folder, "compiled", 0, ended=True)


def complete(folder: Path, milestone: str, devices: int, *, ended: bool, platform: str = "cpu") -> bool:
    """Whether all of a milestone's files are there and whole.

    Args:
        folder: XLA's dump folder.
        milestone: `partitioned`, `compiled` or `finished`.
        devices: how many the program is for.
        ended: whether the compiler has ended, so that nothing is still being written.
        platform: whose compiler it is: `cpu`, `tpu` or `gpu`.
    """
    found = find(folder, milestone, devices)
    if not _STAGES[milestone].keys() <= found.keys():
        return False
    if ended or milestone == "finished":
        return True
    if milestone == "partitioned":
        return all(_closed(path) for path in found.values())
    if platform == "tpu":
        return any(name.endswith(_FITS) for name in os.listdir(folder)) and _closed(found["optimized"])
    last = max(path.stat().st_mtime_ns for path in found.values())
    return _closed(found["optimized"]) and time.time_ns() - last > _SETTLED


def _closed(path: Path) -> bool:
    """Whether a program's text has its entry computation, to the end."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4))
        if not file.read().rstrip(b"\n").endswith(b"}"):
            return False
        file.seek(0)
        return b"\nENTRY " in file.read()


def read(folder: Path, milestone: str, devices: int) -> dict[str, str]:
    """Stage → text of a milestone."""
    return {stage: path.read_text(errors="replace") for stage, path in find(folder, milestone, devices).items()}


MAX_CPU_DEVICES = 2048
"""XLA's CPU client takes no more; beyond it says "Multiprocess computations aren't implemented"."""


READ_EXPORT = "read-export"

# What libtpu wants to know where there is no TPU: no metadata server, no other workers, no lock file, no log files.
TPU_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5p-8",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_LOG_DIR": "disabled",
}

# main memory only: a kernel too large for VMEM is a refusal like any other
_NO_ROOM = re.compile(r"RESOURCE_EXHAUSTED.*(?:HbmOom|memory on HBM|memory space hbm)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Topology:
    """A machine to compile for that need not be there, in its compiler's own words.

    Attributes:
        platform: `tpu` or `gpu`.
        name: libtpu's name of a slice (`v5p:4x4x4`); NVLink domains x hosts x GPUs (`2x1x8`).
        device_ids: the id of the device at each place of the mesh.
        details: libtpu's further words, such as `num_slices`.
        config: XLA's description of the GPU.
    """

    platform: str
    name: str
    device_ids: tuple[int, ...]
    details: Mapping[str, Any] = field(default_factory=dict)
    config: str = ""


@dataclass(frozen=True)
class Request:
    """What to compile.

    Attributes:
        module: StableHLO bytecode with Shardy's shardings.
        devices: the number of simulated devices.
        out_chosen: for each output whether its sharding is the compiler's choice.
        until: the milestone after which nothing more is wanted: `partitioned`, `compiled`, or `finished`, for which the
            compile goes on to its end.
        options: further XLA debug options by name.
        passes: only run this MLIR pass pipeline on the module, to see whether it survives; nothing is compiled.
            `READ_EXPORT`: the module is a file of `jax.export`, to be read only, as `options` say.
        topology: the machine to compile for; None for simulated CPU devices.
    """

    module: bytes
    devices: int
    out_chosen: tuple[bool, ...]
    until: str = "compiled"
    options: dict[str, str] = field(default_factory=dict)
    passes: str = ""
    topology: Topology | None = None


def compile_in(folder: Path, request: Request) -> None:
    """Compiles, with XLA's dumps going to `folder / "dumps"`; returns when the compiler does.

    Raises:
        whatever the compiler raises.
    """
    if request.passes == READ_EXPORT:
        from shardviz.program.exports import rehearse  # it stands on the adapters, which no compile needs

        rehearse(request.module, request.options)
        return
    if request.passes:
        _jax.run_passes(request.module, request.passes)
        return
    target = folder / "dumps"
    target.mkdir(exist_ok=True)
    options = {"xla_dump_to": str(target), "xla_dump_hlo_pass_re": PASSES, **request.options}
    at = request.topology
    if at is None:
        made = _jax.compile_for_cpu(request.module, request.devices, request.out_chosen, options)
        _finish(target, request, made)
        return
    given = at.device_ids, request.out_chosen, options
    with _environment(
        {**TPU_ENVIRONMENT, "JAX_PLATFORMS": "cpu"} if at.platform == "tpu" else {"JAX_PLATFORMS": "cpu"}
    ):
        try:
            if at.platform == "tpu":
                made = _jax.compile_for_tpu(request.module, at.name, dict(at.details), *given)
            else:
                made = _compile_for_gpu(request.module, at, *given)
        except Exception as error:  # that a program does not fit is an answer
            if not _NO_ROOM.search(str(error)) or not planned(target):
                raise
            (target / NO_ROOM).write_text(str(error), errors="replace")
        else:
            _finish(target, request, made)


def _finish(target: Path, request: Request, executable: Any) -> None:
    """Writes down what the executable says of itself, if that is wanted."""
    if request.until != "finished":
        return
    (target / FINAL).write_text(_jax.finished_text(executable), errors="replace")
    part = target / "as-finished.part"
    part.write_text(json.dumps(_jax.finished_numbers(executable)))
    part.rename(target / STATED)


def _compile_for_gpu(
    module: bytes, at: Topology, ids: tuple[int, ...], out_chosen: tuple[bool, ...], options: dict[str, str]
) -> Any:
    """Without Triton's kernels for all-reduces, in which they could not be seen, where XLA would use them."""
    plain = {"xla_gpu_experimental_use_collective_kernels": ""}
    try:
        return _jax.compile_for_gpu(module, at.name, at.config, ids, out_chosen, plain | options)
    except Exception as error:
        if "No such compile option" not in str(error):
            raise
        return _jax.compile_for_gpu(module, at.name, at.config, ids, out_chosen, options)  # JAX 0.10's has none


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Sets environment variables for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def run(request: Request) -> dict[str, dict[str, str]]:
    """Runs a job whole, where it stands.

    Args:
        request: what to compile.

    Returns:
        milestone → stage → text, as `read` gives it.

    Raises:
        whatever the compiler raises.
    """
    folder = Path(tempfile.mkdtemp(prefix="shardviz-job-"))
    try:
        compile_in(folder, request)
        reached = MILESTONES if request.until == "finished" else LEVELS
        return {name: read(folder / "dumps", name, request.devices) for name in reached}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_in_worker(folder: str, request: Request) -> str | None:
    """Runs a job in a worker process, with its standard error kept in the folder as a forked child's is.

    Returns:
        What the compiler raised, as text, since a compiler's exceptions do not travel between processes; else None.
    """
    log = os.open(os.path.join(folder, "stderr"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    kept = os.dup(2)
    os.dup2(log, 2)
    try:
        return refusal(Path(folder), request)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(log)


def refusal(folder: Path, request: Request) -> str | None:
    """Compiles, and gives what the compiler raised, as text, or None."""
    try:
        compile_in(folder, request)
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises is the job's answer
        return f"{type(error).__name__}: {error}"
    return None
