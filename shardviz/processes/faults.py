"""Refusals of the system in words: no room for a file, no further process, no further open file.

>>> words(OSError(errno.EAGAIN, "Resource temporarily unavailable"), "starting a process")
'starting a process: the system gives no more processes or threads (Resource temporarily unavailable); end some, or \
raise their number (ulimit -u)'
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

_REFUSALS = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|Resource temporarily unavailable|"
    r"Too many open files|Cannot allocate memory|Read-only file system"
)
_FILES = re.compile(r"No space left on device|Disk quota exceeded|File too large|Read-only file system")
_FULL = 4096  # bytes: less than a page

_ADVICE = {
    errno.EAGAIN: "the system gives no more processes or threads ({}); end some, or raise their number (ulimit -u)",
    errno.ENOMEM: "the system gives no more memory ({}); free some",
    errno.EMFILE: "this process has too many files open ({}); close some, or raise their number (ulimit -n)",
    errno.ENFILE: "the system has too many files open ({})",
    errno.EFBIG: "a file may not grow as large as it has to ({}); raise the limit (ulimit -f)",
}
_FULL_ERRORS = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}


def words(error: BaseException, doing: str, folder: Path | None = None) -> str:
    """Return a message: the failed action (`doing`), the full folder if there is one, and advice."""
    number = error.errno if isinstance(error, OSError) else None
    text = (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
    if number in _FULL_ERRORS:
        return f"{doing}: {full(folder) if folder else 'there is no room'} ({text}); free some, or set TMPDIR"
    advice = _ADVICE.get(number) if number is not None else None
    if advice is None and "new thread" in text:  # Python's message for EAGAIN
        advice = _ADVICE[errno.EAGAIN]
    return f"{doing}: " + (advice.format(text) if advice else text)


def full(folder: Path) -> str:
    """Return how full a folder's file system is."""
    try:
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        usage = shutil.disk_usage(folder)
    except OSError as error:
        return f"{folder} cannot be inspected ({error.strerror})"
    return f"{folder} has no room: {usage.free:,} of {usage.total:,} bytes are free"


def of_files(folder: Path, stderr: str) -> str | None:
    """Return why a process could not write its files, from its folder and standard error; None if there is no sign."""
    if refusal := _FILES.search(stderr):
        if refusal[0] in ("No space left on device", "Disk quota exceeded"):
            return f"{full(folder)} ({refusal[0]}); free some, or set TMPDIR"
        return f"a file could not be written in {folder} ({refusal[0]})"
    if hasattr(os, "statvfs"):
        try:
            space = os.statvfs(folder)
        except OSError:
            return None
        if space.f_blocks and space.f_bavail * space.f_frsize < _FULL:
            return f"{full(folder)}; free some, or set TMPDIR"
    return None


def refusal_in(stderr: str) -> str | None:
    """Return the last refusal of the system in a process's standard error; None if there is none."""
    refusals = _REFUSALS.findall(stderr)
    return refusals[-1] if refusals else None
