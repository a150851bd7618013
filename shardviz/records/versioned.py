"""Records as JSON text with a schema version. A record has no JAX objects; `Kind.from_json(record.to_json())` reads it
back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import msgspec

from shardviz.display import Displayed
from shardviz.errors import ShardvizError, excerpt


class Versioned(Displayed):
    """A record that can be written as JSON text and read back. Its `kind` and `version` are in the text."""

    _kind: ClassVar[str]
    _version: ClassVar[int]

    def __init_subclass__(cls, kind: str = "", version: int = 1, **more: Any):
        super().__init_subclass__(**more)
        if kind:
            cls._kind, cls._version = kind, version

    def to_json(self, indent: int | None = None) -> str:
        """Return the record as JSON text with a schema version."""
        data = msgspec.to_builtins(self, str_keys=True)
        return json.dumps({f"shardviz_{self._kind}": self._version, **data}, indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a record that `to_json` wrote.

        Raises:
            ShardvizError: if the text is another kind of record, has another schema version, or has a field that is
                missing or of the wrong type, which the message names.
        """
        kind, data = cls._kind, cls._read(text)
        try:
            record = msgspec.convert(data, cls, str_keys=True)
        except (msgspec.ValidationError, ShardvizError) as error:
            raise ShardvizError(f"this shardviz {kind} is damaged: {error}") from error
        for path, _ in _faults(data, most=_LARGEST_WHOLE):  # numbers above 64 bits, which only floats may hold
            field: Any = record
            for key in path:
                field = field[key] if isinstance(field, tuple) else getattr(field, str(key), None)
            if isinstance(field, int):
                raise _damaged(kind, path, f"a number from 0 to {_LARGEST_WHOLE}, not {_number(field)}")
        return record

    @classmethod
    def _read(cls, text: str) -> dict[str, Any]:
        """Return the fields in JSON text, whose schema version is under the key `shardviz_` plus the kind."""
        kind, version = cls._kind, cls._version
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:  # not text or JSON, too many digits, too deep nesting
            raise ShardvizError(f"this is not a shardviz {kind}: not JSON ({error})") from error
        written = data.pop(f"shardviz_{kind}", None) if isinstance(data, dict) else None
        if written != version:
            raise ShardvizError(
                f"this is not a shardviz {kind} of schema version {version} (its version is {excerpt(repr(written))}); "
                "a newer shardviz may read it"
            )
        for path, wrong in _faults(data):
            raise _damaged(kind, path, wrong)
        return data


_LARGEST = 1e30
_LARGEST_WHOLE = 2**63 - 1
_DEEPEST = 32


def _faults(value: Any, path: tuple[Any, ...] = (), most: float = _LARGEST) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield the path and the expectation of each invalid number or text in a report's JSON. Numbers must be finite and
    0 or more, integers fit in 64 bits; only compiler options may be negative. Text must be valid UTF-8."""
    if isinstance(value, dict | list):
        if len(path) > _DEEPEST:
            yield path, f"lists at most {_DEEPEST} deep"
            return
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _faults(key, path) if isinstance(value, dict) else ()
            yield from _faults(inner, (*path, key), most)
    elif isinstance(value, str):
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            yield path, "text that is UTF-8, not half a letter (a surrogate)"
    elif isinstance(value, int | float):
        most = most if isinstance(value, float) else _LARGEST_WHOLE
        least = -most if path[:2] == ("plan", "options") else 0
        if not least <= value <= most:
            yield path, f"a number from {least} to {most}, not {_number(value)}"


def _damaged(kind: str, path: tuple[Any, ...], expected: str) -> ShardvizError:
    where = "".join(f"[{key}]" if isinstance(key, int) else f".{excerpt(key, 60)}" for key in path).lstrip(".")
    return ShardvizError(f"this shardviz {kind} is damaged: at {where or 'its top'}: expected {expected}")


def _number(value: float) -> str:
    return f"{value:.6g}" if isinstance(value, float) or abs(value) < 1e300 else "one with hundreds of digits"
