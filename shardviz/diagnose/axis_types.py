"""Rule `axis-types`: a mesh's Explicit and Manual axes are explored as Auto ones."""

from __future__ import annotations

from shardviz.notation import DeviceMesh
from shardviz.records import Diagnostic


def axis_types(mesh: DeviceMesh) -> tuple[Diagnostic, ...]:
    """A note if the mesh has axes that are not Auto."""
    other = [f"{name!r} ({kind})" for name, kind in zip(mesh.names, mesh.types, strict=True) if kind != "Auto"]
    if not other:
        return ()
    return (
        Diagnostic(
            "axis-types",
            "warning",
            f"mesh axes {', '.join(other)} are explored as Auto axes: Shardy and XLA choose what the program leaves "
            "open. With Explicit axes JAX fixes each value's sharding while it traces, which may be another one",
        ),
    )
