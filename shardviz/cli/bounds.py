"""The bounds of a tool server: the code that its calls may run, the files that they read, and their compiler options.

A tool's arguments come from a program that may have read text from strangers. The person who starts the server names
the steps. A call may only use these steps, the steps of the gallery, and arrays.

>>> served = Bounds(root="/home/me/project", steps=("model:make",))
>>> served.check_name("MAKE", "model:make")
>>> served.check_name("--args", "os:getcwd")
Traceback (most recent call last):
...
shardviz.errors.ShardvizError: --args 'os:getcwd': this server does not run it; it was started for model:make. ...
"""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from shardviz.errors import ShardvizError, excerpt
from shardviz.records.options import option_sets, options_of


@dataclass(frozen=True)
class Bounds:
    """The limits of a server's calls.

    Attributes:
        root: the project's folder; only files inside it are read.
        steps: the steps and `module:function`s that the server was started for; empty for all steps of
            `pyproject.toml`.
        written: the names in the settings of these steps, each with its option: `("--args", "model:arguments")`.
    """

    root: str
    steps: tuple[str, ...] = ()
    written: set[tuple[str, str]] = field(default_factory=set)

    def check_name(self, option: str, text: str) -> None:
        """Raise ShardvizError for a `module:name` that no step uses and that the server was not started for."""
        if text in self.steps or (option, text) in self.written:
            return
        has = ", ".join(self.steps) or "the steps of pyproject.toml"
        raise ShardvizError(
            f"{option} {excerpt(repr(text))}: this server does not run it; it was started for {has}. Ask for one of "
            "these or a step of the gallery, or have the server started with it: shardviz mcp --steps MODULE:NAME"
        )

    def check_file(self, option: str, path: str | Path) -> None:
        """Raise ShardvizError for a path that is no regular file, or is outside the project after links are
        resolved."""
        try:
            real = Path(path).resolve()
            inside, regular = real.is_relative_to(self.root), not real.exists() or stat.S_ISREG(real.stat().st_mode)
        except (OSError, ValueError, RuntimeError) as error:  # a name that no file can have, links in a circle
            raise ShardvizError(f"{option} {excerpt(repr(str(path)))}: {error}") from error
        if not inside or not regular:
            why = "it is no regular file" if inside else f"it lies outside of {self.root}"
            raise ShardvizError(
                f"{option} {excerpt(repr(str(path)))}: this server only reads files of its project, and {why}"
            )

    def check_options(self, option: str, value: Any) -> None:
        """Raise ShardvizError for compiler options that are not in `option_sets`. Some of the others name files and
        programs, which the compiler would write and run."""
        allowed = {name for each in option_sets.values() for name in each.options}
        for name, setting in options_of(value).items():
            words = {each.options.get(name) for each in option_sets.values()}
            if name not in allowed or (isinstance(setting, str) and setting not in words):
                raise ShardvizError(
                    f"{option}: this server passes on the options of sv.gallery.option_sets alone, not {name}="
                    f"{excerpt(repr(setting))}; write others in pyproject.toml"
                )


def bounds() -> Bounds | None:
    """Return the bounds of the current call; None for a command that the user typed."""
    context = click.get_current_context(silent=True)
    return getattr(context.obj, "bounds", None) if context else None
