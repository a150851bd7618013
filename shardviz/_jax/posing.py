"""The CPU's devices, presented to a script as those of another machine.

A device is a C++ object, but its class accepts attributes from Python: `platform`, `device_kind`, `coords` and so on.
`jax.default_backend` is imported by name in many modules, so its code object is replaced instead of the function. JAX
itself asks its client, which remains the CPU's. Tested with JAX 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax


@contextlib.contextmanager
def posing(platform: str, attributes: Mapping[str, Callable[[int], Any]]) -> Iterator[None]:
    """Give the CPU's devices another platform and attributes (functions of a device's id) inside the context."""
    from jax._src import xla_bridge

    kind = type(jax.devices()[0])
    shown: dict[str, Any] = {"platform": property(lambda _: platform)}
    shown |= {name: property(lambda device, of=of: of(device.id)) for name, of in attributes.items()}
    theirs = {name: vars(kind).get(name) for name in shown}
    code = xla_bridge.default_backend.__code__
    try:
        for name, ours in shown.items():
            setattr(kind, name, ours)
        xla_bridge.__dict__["_shardviz_platform"] = platform
        xla_bridge.default_backend.__code__ = _posed.__code__
        yield
    finally:
        xla_bridge.default_backend.__code__ = code
        for name, own in theirs.items():
            if own is None:
                delattr(kind, name)
            else:
                setattr(kind, name, own)


def _posed() -> str:
    return _shardviz_platform  # noqa: F821  # pyright: ignore[reportUndefinedVariable]  # of the module it is put into
