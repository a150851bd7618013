"""A file is written whole or not at all: whoever reads it meanwhile finds the old one.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> write_whole(Path(folder.name) / "a.txt", "all of it").read_text()
'all of it'
>>> folder.cleanup()
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from shardviz.errors import ShardvizError


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Writes a file, in the place of one that is there.

    Args:
        path: where; `~` is the home folder.
        content: all of it; text is written as UTF-8, `?` for what UTF-8 has not.

    Returns:
        The path.

    Raises:
        ShardvizError: if it cannot be written: no such folder, a folder of that name, no permission, no room.
    """
    where = Path(path).expanduser()
    if where.is_dir():
        raise ShardvizError(f"{str(path)!r} cannot be written: it is a folder; give the name of a file in it")
    if not where.parent.is_dir():
        raise ShardvizError(f"{str(path)!r} cannot be written: there is no folder {str(where.parent)!r}; make it first")
    partial = where.with_name(f".{where.name[:80]}.{secrets.token_hex(4)}.part")  # in the same file system
    try:
        partial.write_bytes(content.encode(errors="replace") if isinstance(content, str) else content)
        os.replace(partial, where)
    except OSError as error:
        raise ShardvizError(f"{str(path)!r} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return where
