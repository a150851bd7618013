"""A file is written whole or not at all: whoever reads it meanwhile finds the old one.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> read_whole(write_whole(Path(folder.name) / "a.txt", "all of it"))
b'all of it'
>>> folder.cleanup()
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import secrets
import stat
import time
import zlib
from pathlib import Path

from shardviz.errors import ShardvizError, excerpt

_HOUR = 3600.0


def path_of(path: str | os.PathLike[str]) -> Path:
    """The path, `~` replaced by the home folder.

    Raises:
        ShardvizError: if it is no path, or starts with the name of nobody's home.
    """
    try:
        return Path(path).expanduser()
    except (TypeError, RuntimeError) as error:
        raise ShardvizError(f"{excerpt(repr(path))} is no path of a file: {error}") from error


def read_whole(path: str | os.PathLike[str]) -> bytes:
    """What a file holds.

    Raises:
        ShardvizError: if it cannot be read: no such file, a folder, no permission, a name that no file can have.
    """
    try:
        return path_of(path).read_bytes()
    except (OSError, ValueError) as error:  # a ValueError: a name with a null character or a lone surrogate
        raise _refused(path, "read", error) from error


def write_whole(path: str | os.PathLike[str], content: str | bytes, *, folders: bool = False) -> Path:
    """Writes a file. One that is there is replaced, and keeps its permissions; a link stays, and its file is replaced.

    Args:
        path: where; `~` is the home folder.
        content: all of it; text is written as UTF-8, `?` for what UTF-8 has not.
        folders: whether to make the folder that it goes to, where there is none.

    Returns:
        The path.

    Raises:
        ShardvizError: if it cannot be written: no such folder, a folder of that name, no permission, no room, a name
            that no file can have.
    """
    where = path_of(path)
    if os.path.isdir(where):
        raise ShardvizError(f"{str(path)!r} cannot be written: it is a folder; give the name of a file in it")
    if not folders and not os.path.isdir(where.parent):
        raise ShardvizError(f"{str(path)!r} cannot be written: there is no folder {str(where.parent)!r}; make it first")
    data = content.encode(errors="replace") if isinstance(content, str) else content
    try:
        if folders:
            where.parent.mkdir(parents=True, exist_ok=True)
        _replace(Path(os.path.realpath(where)), data)
    except (OSError, ValueError) as error:
        raise _refused(path, "written", error) from error
    return where


def _refused(path: str | os.PathLike[str], what: str, error: OSError | ValueError) -> ShardvizError:
    why = getattr(error, "strerror", None) or error
    return ShardvizError(f"{excerpt(repr(str(path)))} cannot be {what}: {why}")


def _replace(where: Path, data: bytes) -> None:
    _sweep(where.parent)
    try:
        old = where.stat()
    except FileNotFoundError:
        old = None
    permissions = 0o666 if old is None else 0o600  # the part of a file is for nobody who may not read the file
    partial = where.with_name(f".shardviz-{_machine()}-{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, permissions)) as file:
            file.write(data)
        if old is not None:
            if hasattr(os, "chown"):
                with contextlib.suppress(PermissionError):  # only root may give a file away
                    os.chown(partial, old.st_uid, old.st_gid)
            os.chmod(partial, stat.S_IMODE(old.st_mode))
        os.replace(partial, where)
    finally:
        partial.unlink(missing_ok=True)


_PART = re.compile(r"\.shardviz-([0-9a-f]{8})-(\d{1,9})-[0-9a-f]{8}\.part")


def _machine() -> str:
    return f"{zlib.crc32(platform.node().encode(errors='replace')):08x}"


def _sweep(folder: Path) -> None:
    """Removes the parts in a folder that killed processes left: the process is gone, or nothing came for an hour."""
    with contextlib.suppress(OSError):  # a folder that may not be listed, a part that another process has swept
        for name in os.listdir(folder):
            if part := _PART.fullmatch(name):
                gone = part[1] == _machine() and not process_lives(int(part[2]))
                if gone or (folder / name).stat().st_mtime < time.time() - _HOUR:
                    (folder / name).unlink()


def process_lives(process: int) -> bool:
    """Whether a process of this number runs on this machine."""
    if os.name != "posix":  # os.kill would end it
        import psutil

        return psutil.pid_exists(process)
    try:  # not psutil's way, which wants /proc
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
