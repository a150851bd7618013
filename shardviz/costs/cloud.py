"""Names of machines in clouds: `v5p-64` is a slice with 64 TensorCores, `a3-highgpu-8g` a host with eight H100s.

>>> cloud_machine("TPU v5p-64*2")
CloudMachine(chip='v5p', chips=32, several=2, cores_per_chip=2)
>>> cloud_machine("a3-highgpu-8g x 4"), cloud_machine("tpu v5p:4x4x4")
(CloudMachine(chip='h100', chips=8, several=4, cores_per_chip=1), None)

The number in a TPU's name counts TensorCores for v2, v3, v4 and v5p, which have two per chip, and chips for v5e
(`v5litepod-N`, `v5e-N`) and v6e, which have one: Google Cloud, "TPU types and topologies"
(https://cloud.google.com/tpu/docs/types-topologies) and the pages of v5p ("2x4x4: 64 cores, 32 chips") and v5e
("v$VERSION_NUMBER-$CHIP_COUNT"). For tpu7x it counts TensorCores too, two per chip: Google's xpk,
`core/system_characteristics.py` (https://github.com/AI-Hypercomputer/xpk). Google Cloud's machine types of GPUs are in
"Accelerator-optimized machine family" (https://cloud.google.com/compute/docs/accelerator-optimized-machines);
a2-highgpu has A100s of 40 GB, whose numbers are not known here. All read 2026-11-22.

`*4` or ` x 4` after a name means four slices or hosts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from shardviz.errors import TargetError

_CORES_PER_CHIP = {"v2": 2, "v3": 2, "v4": 2, "v5p": 2, "v5litepod": 1, "v5e": 1, "v6e": 1, "tpu7x": 2}
_MACHINE_TYPES = {
    "a2-ultragpu": "a100",
    "a3-highgpu": "h100",
    "a3-megagpu": "h100",
    "a3-ultragpu": "h200",
    "a4-highgpu": "b200",
    "a4x-highgpu": "gb200",
}
_NAME = re.compile(
    r"(?:(?:tpu|gpu)\s+)?"
    rf"(?:(?P<tpu>{'|'.join(_CORES_PER_CHIP)})-(?P<count>\d{{1,9}})"
    rf"|(?P<gpu>{'|'.join(_MACHINE_TYPES)})-(?P<gpus>\d{{1,3}})g)"
    r"(?:\s*[*x\u00d7]\s*(?P<several>\d{1,6}))?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class CloudMachine:
    """A machine by its name in a cloud: its chip, the chips of a slice (or GPUs of a host), the number of slices (or
    hosts), and the number of cores per chip that the name counts."""

    chip: str
    chips: int
    several: int = 1
    cores_per_chip: int = 1


def cloud_machine(text: str) -> CloudMachine | None:
    """Return the machine with a cloud's name, in any case; None for other text. Raises TargetError if the number of
    TensorCores is not a whole number of chips."""
    match = _NAME.fullmatch(text.strip())
    if match is None:
        return None
    several = int(match["several"] or 1)
    if match["gpu"]:
        return CloudMachine(_MACHINE_TYPES[match["gpu"].lower()], int(match["gpus"]), several)
    name, count = match["tpu"].lower(), int(match["count"])
    cores = _CORES_PER_CHIP[name]
    if count < 1 or count % cores:
        raise TargetError(
            f"target {text!r}: the number counts TensorCores, {cores} on each chip of {name}; "
            f"{name}-{max(count - count % cores, cores)} would do"
        )
    return CloudMachine("v5e" if name == "v5litepod" else name, count // cores, several, cores)
