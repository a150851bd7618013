"""A sweep's answers in a file, a line each as they come, so that another process goes on where one ended.

The first line says which grid the file is of. A line that was cut off while it was written, as where a machine was
switched off, counts for nothing. A point is known by its values in words (`batch=8, policy=full`), which must tell them
apart; only what was answered is kept, so that what failed is asked again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from shardviz.errors import ShardvizError
from shardviz.files import path_of, read_whole, write_whole
from shardviz.judge.report import Report

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
Point = Mapping[str, Any]


@dataclass
class Kept:
    """The file of a sweep.

    Attributes:
        path: where it is.
        grid: what the sweep is of, as the file's first line has it.
        answers: what the file has: a point in words → its report as JSON, and the seconds that it took.
    """

    path: Path
    grid: Mapping[str, Any]
    answers: dict[str, tuple[Any, float]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, path: str | os.PathLike[str], make: str, over: Mapping[str, tuple[Any, ...]], level: str, asked: str
    ) -> Kept:
        """The file of this sweep, begun where there is none.

        Args:
            path: where.
            make: what `make` is called.
            over: name → values.
            level, asked: as of `Sweep`.

        Raises:
            ShardvizError: if the file is of another sweep or no sweep's, or cannot be read or written; if two values
                have the same words, or one has none that hold in another process.
        """
        for name, values in over.items():
            words = [value_text(value) for value in values]
            twice = next((word for word in words if words.count(word) > 1), None)
            if twice is not None or any(map(_ADDRESS.search, words)):
                bad = twice or next(filter(_ADDRESS.search, words))
                raise ShardvizError(
                    f"sweep(resume=...): over[{name!r}] has a value {bad!r}, which a file cannot tell from others; "
                    "give numbers, texts, meshes or functions with names of their own"
                )
        grid = {"make": make, "over": sorted(over), "level": level, "asked": asked, "jax": jax.__version__}
        found = cls(path_of(path), grid)
        if os.path.lexists(found.path):
            found._read()
        else:
            write_whole(found.path, json.dumps({"shardviz_sweep": grid}) + "\n")
        return found

    def _read(self) -> None:
        try:
            first, *lines = read_whole(self.path).decode().split("\n")
            grid = json.loads(first)["shardviz_sweep"]
        except ShardvizError as error:
            raise ShardvizError(f"sweep(resume=...): {error}") from error
        except (ValueError, KeyError, TypeError):
            raise ShardvizError(
                f"sweep(resume={str(self.path)!r}): that is no file of a sweep; give the name of a new one"
            ) from None
        if grid != self.grid:
            names = [n for n in self.grid if not isinstance(grid, dict) or grid.get(n) != self.grid[n]]
            was = {n: grid.get(n) for n in names} if isinstance(grid, dict) else grid
            raise ShardvizError(
                f"sweep(resume={str(self.path)!r}): that file is of another sweep: it has {was}, this one "
                f"{ {n: self.grid[n] for n in names} }; give the name of a new file"
            )
        for line in lines:
            try:
                row = json.loads(line)
                self.answers[row["point"]] = row["report"], float(row["seconds"])
            except (ValueError, KeyError, TypeError):  # cut off, or the empty end
                continue

    def answer(self, point: Point) -> tuple[Report, float] | None:
        """The report of a point, and the seconds that it took; None where the file has none that can be read."""
        found = self.answers.get(_words(point))
        if found is None:
            return None
        try:
            return Report.from_json(json.dumps(found[0])), found[1]
        except ShardvizError:
            return None

    def keep(self, point: Point, report: Report, seconds: float) -> None:
        """Writes an answer behind the others.

        Raises:
            ShardvizError: if it cannot be written.
        """
        row = {"point": _words(point), "seconds": seconds, "report": json.loads(report.to_json(stages=False))}
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" + json.dumps(row) + "\n")  # behind a line that was cut off, too
        except OSError as error:
            raise ShardvizError(f"sweep(resume={str(self.path)!r}): {error.strerror or error}") from error


def _words(point: Point) -> str:
    return ", ".join(f"{name}={value_text(point[name])}" for name in sorted(point))


def value_text(value: Any) -> str:
    """A point's value in a few words: a function by its name, a mesh by its text."""
    if isinstance(value, str | int | float | bool | None):
        return repr(value) if isinstance(value, str) else str(value)
    if isinstance(value, Mapping):
        return ",".join(f"{name}={size}" for name, size in value.items())
    return getattr(value, "__name__", "") or str(value)
