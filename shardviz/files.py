"""Atomic writing of files: a reader finds either the old or the new contents; and reading of full files.

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
_MOST = 10**9
"""The most bytes of a file to read: ten times the report of the largest programs."""


def path_of(path: str | os.PathLike[str]) -> Path:
    """Return the path, with `~` replaced by the home folder.

    Raises:
        ShardvizError: if it is not a path, or names an unknown user's home.
    """
    try:
        return Path(path).expanduser()
    except (TypeError, RuntimeError) as error:
        raise ShardvizError(f"{excerpt(repr(path))} is not a path of a file: {error}") from error


def read_whole(path: str | os.PathLike[str]) -> bytes:
    """Return the contents of a file, or of a pipe.

    Raises:
        ShardvizError: if it cannot be read: no such file, a folder, a device, no permission, more than a billion bytes,
            an invalid name.
    """
    try:
        where = path_of(path)
        if not (where.is_file() or where.is_fifo() or where.is_dir()) and where.exists():
            raise ShardvizError(f"{excerpt(repr(str(path)))} cannot be read: expected a file, not a device or a socket")
        content = bytearray()
        with open(where, "rb") as file:
            while part := file.read(2**20):
                content += part
                if len(content) > _MOST:
                    raise ShardvizError(f"{excerpt(repr(str(path)))} cannot be read: it has more than {_MOST:,} bytes")
        return bytes(content)
    except ShardvizError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name with a null character or a lone surrogate
        raise _refused(path, "read", error) from error


def write_whole(path: str | os.PathLike[str], content: str | bytes, *, folders: bool = False) -> Path:
    """Write a file. An existing file is replaced and keeps its permissions; a link stays, and its target is replaced.

    Args:
        path: the file's path; `~` is the home folder.
        content: the contents; text is encoded as UTF-8, with `?` for invalid characters.
        folders: whether to create the file's folder if it is missing.

    Returns:
        The path.

    Raises:
        ShardvizError: if it cannot be written: no such folder, a folder of that name, no permission, no room, an
            invalid name.
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
    permissions = 0o666 if old is None else 0o600  # the partial file must not be readable by more users than the file
    partial = where.with_name(f".shardviz-{_machine()}-{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, permissions)) as file:
            file.write(data)
        if old is not None:
            if hasattr(os, "chown"):
                with contextlib.suppress(PermissionError):  # only root may change a file's owner
                    os.chown(partial, old.st_uid, old.st_gid)
            os.chmod(partial, stat.S_IMODE(old.st_mode))
        os.replace(partial, where)
    finally:
        partial.unlink(missing_ok=True)


_PART = re.compile(r"\.shardviz-([0-9a-f]{8})-(\d{1,9})-[0-9a-f]{8}\.part")


def _machine() -> str:
    return f"{zlib.crc32(platform.node().encode(errors='replace')):08x}"


def _sweep(folder: Path) -> None:
    """Remove a folder's partial files whose process has ended, or that are older than an hour."""
    with contextlib.suppress(OSError):  # a folder that cannot be listed, a part that another process removed
        for name in os.listdir(folder):
            if part := _PART.fullmatch(name):
                ended = part[1] == _machine() and not process_lives(int(part[2]))
                if ended or (folder / name).stat().st_mtime < time.time() - _HOUR:
                    (folder / name).unlink()


def process_lives(process: int) -> bool:
    """Return whether a process with this number runs on this machine."""
    if os.name != "posix":  # elsewhere os.kill would end it
        import psutil

        return psutil.pid_exists(process)
    try:  # psutil would need /proc
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
