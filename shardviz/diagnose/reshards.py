"""Rule `reshards-left`: Shardy did not say by which collectives some values change their sharding."""

from __future__ import annotations

from shardviz.records import Diagnostic


def reshards_left(count: int) -> tuple[Diagnostic, ...]:
    """A note if the propagated level's collectives are not complete."""
    if not count:
        return ()
    what = "a resharding" if count == 1 else f"{count} reshardings"
    return (
        Diagnostic(
            "reshards-left",
            "info",
            f"Shardy did not turn {what} into collectives, so the collectives listed at this level are not all; "
            "level 'partitioned' has them",
        ),
    )
