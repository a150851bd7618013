"""Files that `jax.export` wrote: a summary of a file, and its `Program`.

Reading a file runs none of its code: its tables are read, its module is parsed, and pytree nodes are built only of
types that this process has registered with `jax.export`. A damaged or hostile file may still crash a parser, so another
process reads the file first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import jax.export

from shardviz import _jax, processes
from shardviz.ask.program import Program
from shardviz.display import Displayed
from shardviz.errors import ParseError, ShardvizError
from shardviz.files import read_whole
from shardviz.tracing.adapt.exported import call_of
from shardviz.tracing.exports import UNREADABLE, ExportRecord, record_of

_TIMEOUT = 120.0
_MEMORY = 4e9
_SHORTEST = 64  # bytes; every file of jax.export is longer
_EXPECTED = "expected a file with the bytes of jax.export.export(...)(...).serialize()"


class LoadedExport(Displayed):
    """A function that `jax.export` wrote, with a printed summary; `program` makes it a `Program`.

    Attributes:
        record: the summary as plain data; its fields are attributes of this object too.
        exported: JAX's own object.
        source: the file's path, or another origin in words.
    """

    def __init__(self, exported: Any, record: ExportRecord, source: str, data: bytes = b""):
        self.exported, self.record, self.source = exported, record, source
        self._data = data  # a file's bytes, which another process reads before `program` does

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("record", "exported"):
            raise AttributeError(name)
        return getattr(self.record, name)

    def program(self, symbols: Mapping[str, int] | None = None) -> Program:
        """Return the export as a `Program`, to be explored under plans as a function is.

        Args:
            symbols: a value for every symbolic dimension, `{"b": 32}`.

        Raises:
            SpecError: if a symbolic dimension has no value, or a value that breaks a constraint.
            TraceError: if it was lowered for GSPMD, or has ordered effects.
        """
        if self._data:
            try:
                values = json.dumps(None if symbols is None else dict(symbols))
            except (TypeError, ValueError):  # not numbers; `call_of` raises a better error
                values = "null"
            _rehearse(self._data, self.source, {"values": values})
        try:
            return Program(call_of(self.exported, symbols))
        except ShardvizError:
            raise
        except Exception as error:  # a parser's error about a damaged module
            raise ParseError(_damaged(self.source, error)) from error


def load(source: Any) -> LoadedExport:
    """Read a function that `jax.export` wrote, without running it.

    Args:
        source: a file's path; the bytes of one; or a `jax.export.Exported`.

    Returns:
        A `LoadedExport`, which prints itself; `.program()` makes it a `Program`.

    Raises:
        ParseError: if the file is not an export, is truncated or damaged, or has a version that this JAX cannot read.
        ShardvizError: if there is no such file.

    Examples:
        >>> import jax, shardviz as sv
        >>> exported = jax.export.export(jax.jit(lambda x: x @ x.T))(jax.ShapeDtypeStruct((512, 1024), "float32"))
        >>> program = sv.load(exported.serialize()).program()
        >>> program.arguments[0].name, program.arguments[0].shape
        ('x', (512, 1024))
    """
    if isinstance(source, jax.export.Exported):
        return LoadedExport(source, record_of(source), "in memory")
    data, name = _bytes(source)
    _vet(data, name)
    try:
        exported = _jax.read_export(data)
        record = record_of(exported, len(data))
    except ShardvizError:
        raise
    except ImportError as error:
        raise ShardvizError(f"{name}: {error}: pip install flatbuffers") from error
    except Exception as error:  # any error that a damaged table causes
        raise ParseError(_damaged(name, error)) from error
    return LoadedExport(exported, record, name, data)


def _bytes(source: Any) -> tuple[bytes, str]:
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source), f"{len(source):,} bytes"
    if not isinstance(source, str | os.PathLike):
        raise ShardvizError(
            f"sv.load: expected a path, bytes or a jax.export.Exported, not {type(source).__name__}; give other "
            "objects to sv.trace or sv.explore"
        )
    return read_whole(source), str(source)


_KINDS = (
    *((bytes((0x80, protocol)), "a Python pickle") for protocol in range(2, 6)),
    (b"ML\xefR", "MLIR bytecode, the module of an export without the rest"),
    (b"module", "MLIR as text, which says less than an export"),
    (b"HloModule", "an HLO module as text"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x1f\x8b", "a gzip file"),
    (b"{", "JSON"),
)


def _vet(data: bytes, name: str) -> None:
    """Check that the bytes are an export, and read them in another process, which may crash."""
    try:
        fits = len(data) >= _SHORTEST and _jax.is_export_file(data)
    except ImportError as error:
        raise ShardvizError(f"{name}: {error}: pip install flatbuffers") from error
    except Exception:  # noqa: BLE001 - invalid offsets in a damaged file
        fits = False
    if not fits:
        kind = next((kind for start, kind in _KINDS if data.startswith(start)), None)
        what = f"{kind}, not an export" if kind else "not an export, or truncated" if data else "empty"
        what += ", and reading a pickle would run it, so it was not read" if "pickle" in (kind or "") else ""
        raise ParseError(f"{name} is {what}; {_EXPECTED}")
    _rehearse(data, name, {})


def _rehearse(data: bytes, name: str, options: dict[str, str]) -> None:
    trial = processes.Trial("shardviz.tracing.exports:rehearse", data, {"options": options})
    job = processes.tried(trial, timeout=_TIMEOUT, memory_limit=_MEMORY)
    error = job.exception()
    if job.state == "refused" and UNREADABLE in str(error):
        raise ParseError(_damaged(name, UNREADABLE + str(error).partition(UNREADABLE)[2])) from error
    if error is None or job.state == "refused" or not job.begun:
        return  # this process refuses other faults too, with a better message
    raise ParseError(f"{name} is damaged: reading it crashed a process ({error}); {_EXPECTED}") from error


def _damaged(name: str, error: Exception | str) -> str:
    words = str(error).strip()
    if "backward-compatibility" in words:
        return f"{name} is an export that is too old for this JAX: {words}"
    if "deserialization_registry" in words or "register_pytree" in words:
        return f"{name}: its arguments or results have a type that is not registered in this process: {words}"
    if not isinstance(error, str):
        words = f"{type(error).__name__}: {words}" if words else type(error).__name__
    low = jax.export.minimum_supported_calling_convention_version
    high = jax.export.maximum_supported_calling_convention_version
    return (
        f"{name} is truncated or damaged, or was written by a JAX whose files this JAX (calling conventions {low} to "
        f"{high}) cannot read: {words[:300]}"
    )
