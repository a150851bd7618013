"""Where jobs keep their files: a folder in memory where there is room, named after the kernel that owns it.

Whoever ends last removes it; what a machine's sudden end leaves behind is swept when the next server starts.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

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
