"""What XLA writes down while it compiles: where a job keeps its files, and which texts are whole already.

XLA writes each text when its pass is done. A program's text is complete when its entry computation, the last that XLA
prints, is closed. The optimised program, buffer assignment and live ranges are written one after the other, in an order
that differs between versions. Nothing in the last two says where they end, and on a busy machine the compiler may stand
still in the middle of a text. But after each dump XLA writes the options of the module again: the texts are whole when
the options are no older. The TPU's compiler writes the program once more when it has found that it fits, and ends with
an error where it does not: its answer is complete when it has done one or the other.

A job's folder is in memory where there is room, and named after the kernel that owns it. Whoever ends last removes it;
what a machine's sudden end leaves behind is swept when the next server starts.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

from shardviz.files import process_lives

_NAME = re.compile(r"shardviz-(\d+)-\w+$")
_ROOM = 256 * 2**20


def base() -> Path:
    """A folder in memory if the machine has one with room, else the usual temporary folder."""
    return _bases()[0]


def _bases() -> list[Path]:
    """Where folders may be made, best first: XLA takes no name that is not UTF-8."""
    places = [Path(tempfile.gettempdir())]
    memory = Path("/dev/shm")
    with contextlib.suppress(OSError):
        if memory.is_dir() and os.access(memory, os.W_OK):
            places.insert(0 if shutil.disk_usage(memory).free > _ROOM else 1, memory)
    return [place for place in places if _is_text(str(place))] or [Path("/tmp")]


def _is_text(name: str) -> bool:
    try:
        return bool(os.fsencode(name).decode("utf-8"))
    except UnicodeDecodeError:
        return False


def new_folder() -> Path:
    """A new folder of this process; an `OSError` if there is no room for one in any place."""
    places = _bases()
    for place in places:
        try:
            return Path(tempfile.mkdtemp(prefix=f"shardviz-{os.getpid()}-", dir=place))
        except OSError:
            if place is places[-1]:
                raise
    raise FileNotFoundError("there is no temporary folder")


def sweep_folders() -> None:
    """Removes this user's folders whose process has ended."""
    for place in _bases():
        with contextlib.suppress(OSError):
            for entry in os.scandir(place):
                match = _NAME.match(entry.name)
                if match and not process_lives(int(match[1])) and _ours(entry):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _ours(entry: os.DirEntry[str]) -> bool:
    try:
        return not hasattr(os, "getuid") or entry.stat(follow_symlinks=False).st_uid == os.getuid()
    except OSError:  # another kernel has swept it
        return False


PARTITIONER = "spmd-partitioning"
"""The partitioner's pass, `spmd-partitioning` or `tpu-spmd-partitioning`: XLA dumps before and after it."""

LEVELS = ("partitioned", "compiled")
"""The milestones of a compile, and what one is asked for."""

_LATE = re.compile(rb' ragged-all-to-all\(|custom_call_target="(?!lapack_|blas_|TopK"|__|xla|Sharding")')
"""What XLA's CPU compiler may refuse only when it makes machine code: a program with it is not compiled before that."""

_SETTLED = 15_000_000
"""Nanoseconds without a change, where files written one after the other may have the same time."""

_OPTIONS = ".debug_options"
"""The end of the name of what XLA writes after each of a module's dumps."""

NO_ROOM = "does-not-fit.txt"
"""The compiler's message where a program does not fit into the machine's memory; written by the job."""

_FITS = "after_optimizations_after_buffer_assignment.txt"

_STAGES = {
    "partitioned": {"before": "before the partitioner", "partitioned": "after it"},
    "compiled": {
        "optimized": "after_optimizations.txt",
        "buffers": "after_optimizations-buffer-assignment.txt",
        "live_ranges": "after_optimizations-live-range.txt",
    },
}
_MORE = {"memory_report": "after_optimizations-memory-usage-report.txt", "no_room": NO_ROOM}
"""Stages that not every compiler or program has."""


def _find(folder: Path, milestone: str, devices: int) -> dict[str, Path]:
    """Stage → file for those of a milestone's files that exist. For one device XLA runs no partitioner: the program
    that it was given stands for both sides of it."""
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    files = {}
    for name in names:
        for stage in _stages(name, milestone, devices):
            files.setdefault(stage, folder / name)
    return files


def _stages(name: str, milestone: str, devices: int) -> tuple[str, ...]:
    if milestone != "partitioned":
        return tuple(stage for stage, end in (_STAGES[milestone] | _MORE).items() if name.endswith(end))
    if devices == 1:
        return ("before", "partitioned") if name.endswith("before_optimizations.txt") else ()
    if "spmd-partitioning" not in name or not name.endswith(".txt"):
        return ()
    return ("before",) if "spmd-partitioning" in name.rsplit(".before_", 1)[-1] else ("partitioned",)


def complete(folder: Path, milestone: str, devices: int, *, ended: bool, platform: str = "cpu") -> bool:
    """Whether all of a milestone's files are whole; `ended`: the compiler is, so that nothing is still written."""
    files = _find(folder, milestone, devices)
    if not _STAGES[milestone].keys() <= files.keys():
        return False
    if milestone == "partitioned":
        return all(_closed(path) for path in files.values())
    if ended:  # a compiler goes on where there is no room for its files
        return _closed(files["optimized"])
    if platform == "tpu":
        return any(name.endswith(_FITS) for name in os.listdir(folder)) and _closed(files["optimized"])
    last = max(path.stat().st_mtime_ns for path in files.values())
    options = folder.glob(f"{files['optimized'].name.partition('.')[0]}.*{_OPTIONS}")  # of this program's module
    written = max((path.stat().st_mtime_ns for path in options), default=0)
    if not last <= written < time.time_ns() - _SETTLED or not _closed(files["optimized"]):
        return False
    return platform != "cpu" or not _LATE.search(files["optimized"].read_bytes())


def _closed(path: Path) -> bool:
    """Whether a program's text has its entry computation to the end: a text that is being written may stop at any byte,
    and only the brace that closes a computation has a line to itself."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 8))
        if not file.read().endswith((b"\n}\n", b"\n}\n\n")):
            return False
        file.seek(0)
        return b"\n}\n" in file.read().partition(b"\nENTRY ")[2]


def read(folder: Path, milestone: str, devices: int) -> dict[str, str]:
    """Stage → text of a milestone."""
    return {stage: path.read_text(errors="replace") for stage, path in _find(folder, milestone, devices).items()}
