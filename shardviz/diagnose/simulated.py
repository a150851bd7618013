"""Rule `simulated-devices`: the target cannot be compiled for here, so simulated CPU devices stood in for it."""

from __future__ import annotations

from shardviz.records import Diagnostic


def simulated(lack: str) -> tuple[Diagnostic, ...]:
    """A note if nothing here can compile for the target; `lack` says why and what mends it."""
    if not lack:
        return ()
    return (
        Diagnostic(
            "simulated-devices", "info", f"partitioned on simulated devices, not by the target's own compiler: {lack}"
        ),
    )
