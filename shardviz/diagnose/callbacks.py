"""Rule `callbacks-left-out`: `jax.debug` callbacks are not part of what was explored."""

from __future__ import annotations

from collections.abc import Iterable

from shardviz.records import Diagnostic, Frame


def callbacks_left_out(lines: Iterable[Frame | None]) -> tuple[Diagnostic, ...]:
    """One note for each `jax.debug` callback of the program, by its source line."""
    return tuple(
        Diagnostic(
            "callbacks-left-out",
            "info",
            "a jax.debug callback is left out here; when it runs, what it reports is gathered and copied to a host",
            source=line,
        )
        for line in lines
    )
