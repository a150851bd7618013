"""Does it fit?

>>> print(fits(110e9, "tpu v5p:4x4x4"))
does not fit: 110 GB needed, 102.8 GB usable on each v5p; 7.211 GB (7.0%) too much
>>> print(fits(9.1e10, "tpu tpu7x:2x2x1"))
fits: 91 GB needed, 101.7 GB usable on each of the 2 devices of a tpu7x; 10.73 GB (10.5%) to spare
"""

from __future__ import annotations

from dataclasses import dataclass

from shardviz.cost.amounts import bytes_text
from shardviz.cost.machine import Machine
from shardviz.errors import ShardvizError

# docs.jax.dev, "GPU memory allocation": JAX sets aside 75 % of a GPU's memory when it starts.
_GPU_FRACTION = 0.75


@dataclass(frozen=True)
class Fit:
    """Whether a program fits a device's memory.

    Attributes:
        needed: bytes that it needs on one device.
        usable: bytes that one device gives a program.
        machine: the machine.
        source: where the usable bytes are from.
    """

    needed: float
    usable: float
    machine: Machine
    source: str

    @property
    def fits(self) -> bool:
        """Whether it fits."""
        return self.needed <= self.usable

    @property
    def headroom(self) -> float:
        """Bytes to spare; below 0 where it does not fit."""
        return self.usable - self.needed

    @property
    def share(self) -> str:
        """How much of it a program gets unless someone says otherwise; empty where that is all."""
        if self.machine.chip.kind != "gpu":
            return ""
        part = bytes_text(_GPU_FRACTION * self.usable)
        return (
            f"JAX takes {_GPU_FRACTION:.0%} of a GPU's memory ({part}) unless XLA_PYTHON_CLIENT_MEM_FRACTION says "
            "otherwise"
        )

    @property
    def over_share(self) -> bool:
        """Whether it fits only if JAX is told to take more than it does by itself."""
        return bool(self.share) and _GPU_FRACTION * self.usable < self.needed <= self.usable

    def __bool__(self) -> bool:
        return self.fits

    def __str__(self) -> str:
        chip = self.machine.chip
        per_chip = chip.devices_per_chip
        where = chip.name if per_chip == 1 else f"of the {per_chip} devices of a {chip.name}"
        left = f"{bytes_text(abs(self.headroom))} ({abs(self.headroom) / self.usable:.1%})"
        have = f"{bytes_text(self.needed)} needed, {bytes_text(self.usable)} usable on each {where}"
        text = f"{'fits' if self.fits else 'does not fit'}: {have}; {left} {'to spare' if self.fits else 'too much'}"
        return text + (f"; {self.share}" if self.over_share else "")


def fits(needed: float, target: str | Machine) -> Fit:
    """Whether so many bytes fit a device of a machine.

    Args:
        needed: bytes on one device: what a compiler's plan takes at its peak.
        target: the machine.

    Raises:
        TargetError: if there is no such machine, or its memory is not known (`cpu`).
        ShardvizError: for bytes below 0.
    """
    machine = Machine.of(target)
    if not needed >= 0:
        raise ShardvizError(f"needed {needed!r}: expected 0 bytes or more")
    chip = machine.chip
    name = "hbm_usable_bytes" if chip.hbm_usable_bytes else "hbm_bytes"
    return Fit(needed, chip.needs(name) / chip.devices_per_chip, machine, chip.source(name))
