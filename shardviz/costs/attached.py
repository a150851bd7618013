"""The devices that JAX sees in this process, as a target's text.

>>> from types import SimpleNamespace as Device
>>> chip = lambda x, y: Device(platform="tpu", device_kind="TPU v5 lite", coords=(x, y, 0), slice_index=0)
>>> target_of([chip(x, y) for x in range(4) for y in range(2)])
'tpu v5e:4x2'
>>> gpu = lambda host: Device(platform="gpu", device_kind="NVIDIA H100 80GB HBM3", process_index=host)
>>> target_of([gpu(host) for host in (0, 0, 1, 1)])
'gpu h100:2x2'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardviz.costs.chips import chips
from shardviz.costs.machine import Machine
from shardviz.errors import TargetError


def attached() -> str:
    """The target that JAX's devices are; this starts JAX's backend, as nothing else here does.

    Raises:
        TargetError: if they are of a kind that is not known.
    """
    import jax

    return target_of(jax.devices())


def machine_of(target: str | Machine) -> Machine:
    """The machine of a target, which may be `attached`.

    Raises:
        TargetError: as `Machine.of` and `attached`.
    """
    return Machine.of(attached() if target == "attached" else target)


def target_of(devices: Sequence[Any]) -> str:
    """The target's text of some devices.

    Args:
        devices: JAX devices, all of a machine.

    Raises:
        TargetError: if they are of a kind that is not known.
    """
    first = devices[0]
    if first.platform == "cpu":
        return "cpu"
    kind = str(first.device_kind)
    known = {chip.device_kind: chip for chip in chips().values() if chip.kind != "cpu"}
    chip = known.get(kind)
    if chip is None:
        raise TargetError(
            f"target 'attached': JAX's devices are {len(devices)} x {kind!r}, which is none of {', '.join(known)}; "
            "name the target that is nearest"
        )
    if chip.kind == "gpu":
        hosts = len({d.process_index for d in devices})
        return f"gpu {chip.name}:{hosts}x{len(devices) // hosts}"
    sizes = [len({d.coords[axis] for d in devices}) for axis in range(chip.ici_axes)]
    slices = len({getattr(d, "slice_index", None) or 0 for d in devices})
    return f"tpu {chip.name}:{'x'.join(map(str, sizes))}" + (f"*{slices}" if slices > 1 else "")
