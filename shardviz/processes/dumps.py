"""XLA's dumps of a compile: the folders of jobs, and which dumped texts are complete.

XLA writes each text when its pass ends. A program's text is complete when its entry computation, the last in the text,
is closed. The optimised program, buffer assignment and live ranges are written one after the other, in an order that
depends on the version. The last two have no end mark, and on a busy machine the compiler may pause in the middle of a
text. But XLA writes the module's options after each dump, so the texts are complete once the options are as new. The
TPU's compiler writes the program again when it has found that it fits, or else raises an error: its texts are complete
after either.

A job's folder is in memory if there is room, and its name contains the process id of the kernel. The last process that
uses a folder removes it; the next server removes old folders that remain after a crash. Containers may share memory
and number their processes apart, so that a young folder may be in use though its process is not seen.
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
_OLD = 3600.0


def base() -> Path:
    """Return a folder in memory if the machine has one with room, otherwise the usual temporary folder."""
    return _bases()[0]


def _bases() -> list[Path]:
    """Return the places for folders, best first, without names that are not UTF-8, which XLA rejects."""
    places, memory = list[Path](), Path("/dev/shm")
    with contextlib.suppress(OSError):  # no temporary folder is writable
        places.append(Path(tempfile.gettempdir()))
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
    """Create a folder for this process; raise OSError if no place has room."""
    places = _bases()
    for place in places:
        try:
            return Path(tempfile.mkdtemp(prefix=f"shardviz-{os.getpid()}-", dir=place))
        except OSError:
            if place is places[-1]:
                raise
    raise FileNotFoundError("there is no temporary folder")


def sweep_folders() -> None:
    """Remove this user's folders whose process has ended and in which nothing was begun for an hour."""
    for place in _bases():
        with contextlib.suppress(OSError):
            for entry in os.scandir(place):
                match = _NAME.match(entry.name)
                if match and not process_lives(int(match[1])) and _is_own_and_old(entry):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _is_own_and_old(entry: os.DirEntry[str]) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:  # another kernel has removed it
        return False
    own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return own and time.time() - status.st_mtime > _OLD


PARTITIONER = "spmd-partitioning"
"""The partitioner's pass, `spmd-partitioning` or `tpu-spmd-partitioning`: XLA dumps the program before and after it."""

LEVELS = ("partitioned", "compiled")
"""The milestones of a compile, in order."""

_LATE = re.compile(rb' ragged-all-to-all\(|custom_call_target="(?!lapack_|blas_|TopK"|__|xla|Sharding")')
"""Operations that XLA's CPU compiler may reject only when it generates code, after its dumps."""

_SETTLED = 15_000_000
"""Nanoseconds without a change after which files are complete, since consecutive files may have equal times."""

_OPTIONS = ".debug_options"
"""The suffix of the file that XLA writes after each dump of a module."""

NO_ROOM = "does-not-fit.txt"
"""The file with the compiler's message that a program does not fit into memory; the job writes it."""

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
"""Stages that some compilers or programs lack."""


def _find(folder: Path, milestone: str, devices: int) -> dict[str, Path]:
    """Return stage → file for a milestone's existing files. For one device XLA runs no partitioner: the input program
    counts as the text before and after it."""
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
    """Return whether all of a milestone's files are complete; `ended` is whether the compiler has ended."""
    files = _find(folder, milestone, devices)
    if not _STAGES[milestone].keys() <= files.keys():
        return False
    if milestone == "partitioned":
        return all(_closed(path) for path in files.values())
    if ended:  # a compiler without room for its files continues and writes truncated files
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
    """Return whether a program's text contains its full entry computation. An unfinished text may stop at any byte.
    Only the brace that closes a computation is alone on its line."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 8))
        if not file.read().endswith((b"\n}\n", b"\n}\n\n")):
            return False
        file.seek(0)
        return b"\n}\n" in file.read().partition(b"\nENTRY ")[2]


def read(folder: Path, milestone: str, devices: int) -> dict[str, str]:
    """Return stage → text of a milestone."""
    return {stage: path.read_text(errors="replace") for stage, path in _find(folder, milestone, devices).items()}
