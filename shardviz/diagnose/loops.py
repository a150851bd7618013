"""Rule `unknown-loops`: totals leave out what a loop of unknown length does."""

from __future__ import annotations

from shardviz.records import Diagnostic


def unknown_loops(count: int) -> tuple[Diagnostic, ...]:
    """A warning if some loops' trip counts could not be found."""
    if not count:
        return ()
    loops = "a loop's trip count" if count == 1 else f"the trip counts of {count} loops"
    return (
        Diagnostic(
            "unknown-loops",
            "warning",
            f"{loops} cannot be told from the program (a while_loop that ends on data): what runs inside has no count, "
            "and totals take one run of it",
        ),
    )
