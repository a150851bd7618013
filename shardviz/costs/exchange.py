"""The seconds of any exchange of bytes between devices, of one machine or of two that a data centre's network joins.

Each link passes its bytes while the others pass theirs, so the exchange takes as long as its busiest link. Formulas:
bytes on the busiest link of the torus / W1 (messages go along x, then y, then z); bytes that the busiest device sends
or receives / W, for DCN, NVLink and the network between NVLink domains.

>>> import numpy as np
>>> both = Devices((Machine.of("tpu v5e:2x2"), Machine.of("tpu v5e:2x2")))
>>> over = links(both, np.array([0, 0]), np.array([1, 4]), np.array([45e6, 45e6]))
>>> [(link.kind, round(link.seconds, 4)) for link in over]
[('DCN', 0.0144), ('ICI', 0.001)]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardviz.caching import cached_property
from shardviz.costs.machine import Machine
from shardviz.costs.routes import link_load
from shardviz.records.amounts import format_bytes, format_rate, format_seconds
from shardviz.records.resharded import ReshardLink


@dataclass(frozen=True)
class Devices:
    """The devices of one or two machines, numbered through: those of the second follow those of the first."""

    machines: tuple[Machine, ...]

    @cached_property
    def machine(self) -> np.ndarray:
        """The number of each device's machine."""
        return np.repeat(np.arange(len(self.machines)), [each.size for each in self.machines])

    @cached_property
    def hosts(self) -> np.ndarray:
        """The host of each device, numbered through."""
        return self._joined([each.processes() for each in self.machines])

    @cached_property
    def islands(self) -> np.ndarray:
        """The slice, or NVLink domain, of each device, numbered through."""
        return self._joined([m.nvlink_domains() if m.chip.kind == "gpu" else m.slices() for m in self.machines])

    @staticmethod
    def _joined(tables: list[np.ndarray]) -> np.ndarray:
        starts = np.cumsum([0, *(int(table.max()) + 1 for table in tables[:-1])])
        return np.concatenate([table + start for table, start in zip(tables, starts, strict=True)])


def links(devices: Devices, senders: np.ndarray, receivers: np.ndarray, nbytes: np.ndarray) -> tuple[ReshardLink, ...]:
    """Return the kinds of links that an exchange uses, with their bytes and seconds; the slowest comes first.

    Args:
        devices: the machines.
        senders, receivers: a device number for each row; a row from a device to itself uses no link.
        nbytes: bytes of each row.

    Raises:
        TargetError: if a chip has no such number.
    """
    moved = senders != receivers
    senders, receivers, nbytes = senders[moved], receivers[moved], nbytes[moved]
    inside = devices.islands[senders] == devices.islands[receivers]
    every = [*_within(devices, senders[inside], receivers[inside], nbytes[inside])]
    if (~inside).any():
        every.append(_between(devices, senders[~inside], receivers[~inside], nbytes[~inside]))
    return tuple(sorted(every, key=lambda link: -(link.seconds or 0.0)))


def _within(devices: Devices, senders: np.ndarray, receivers: np.ndarray, nbytes: np.ndarray) -> Iterator[ReshardLink]:
    for number, machine in enumerate(devices.machines):
        mine = devices.machine[senders] == number
        if not mine.any():
            continue
        first = int(np.searchsorted(devices.machine, number))
        ours, theirs, amounts = senders[mine] - first, receivers[mine] - first, nbytes[mine]
        if machine.chip.kind == "gpu":
            busiest = float(max(np.bincount(ends, amounts, machine.size).max(initial=0) for ends in (ours, theirs)))
            yield _link(
                "NVLink", amounts, busiest, machine.chip.needs("nvlink_bytes_per_s"), "sent or received by a GPU"
            )
        else:
            busiest = link_load(machine, ours, theirs, np.ceil(amounts).astype(np.int64))[0]
            width = machine.chip.needs("ici_link_bytes_per_s")
            yield _link("ICI", amounts, float(busiest), width, "on the busiest link, one direction")


def _between(devices: Devices, senders: np.ndarray, receivers: np.ndarray, nbytes: np.ndarray) -> ReshardLink:
    worst = None
    for number, machine in enumerate(devices.machines):
        chip, gpu = machine.chip, machine.chip.kind == "gpu"
        unit = devices.islands if gpu else np.arange(len(devices.machine))
        if gpu:
            width = chip.needs("node_egress_bytes_per_s") * machine.domain_size / chip.domain_size
        else:
            width = chip.needs("dcn_bytes_per_s") / chip.devices_per_chip
        for ends, what in ((senders, "sent by"), (receivers, "received by")):
            mine = devices.machine[ends] == number
            busiest = float(np.bincount(unit[ends[mine]], nbytes[mine]).max()) if mine.any() else 0.0
            each = _link(
                "network" if gpu else "DCN", nbytes, busiest, width, f"{what} {'a domain' if gpu else 'a device'}"
            )
            worst = each if worst is None or (each.seconds or 0) > (worst.seconds or 0) else worst
    assert worst is not None
    return worst


def through_hosts(
    devices: Devices, out: np.ndarray, back: np.ndarray, rows: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[ReshardLink, ...] | None:
    """Return the links of an exchange through the hosts' memory: out of the devices, between hosts, and into devices,
    one after the other; None if the rate to a host is not known.

    Args:
        devices: the machines.
        out, back: bytes that each device hands to its host, and takes from it.
        rows: senders, receivers and bytes of the exchange, of which those between two hosts pass the network.
    """
    ends = [pcie(devices, side, what) for side, what in ((out, "to the host"), (back, "from the host"))]
    apart = devices.hosts[rows[0]] != devices.hosts[rows[1]]
    between = [_between(devices, *(column[apart] for column in rows))] if apart.any() else []
    every = [ends[0], *between, ends[1]]
    return None if None in ends else tuple(link for link in every if link is not None and link.nbytes)


def pcie(devices: Devices, nbytes: np.ndarray, what: str) -> ReshardLink | None:
    """Return the links between devices and their hosts, of which each device's passes these bytes; None if the rate is
    not known. `what` is `to the host` or `from the host`."""
    rates = [m.chip.host_bytes_per_s and m.chip.host_bytes_per_s / m.chip.devices_per_chip for m in devices.machines]
    if not all(rates):
        return None
    width = np.array(rates, float)[devices.machine]
    at = int(np.argmax(nbytes / width))
    return _link("PCIe", nbytes, float(nbytes[at]), float(width[at]), what)


def _link(kind: str, nbytes: np.ndarray, busiest: float, width: float, what: str) -> ReshardLink:
    seconds = busiest / width
    text = f"{format_bytes(busiest)} {what} / {format_rate(width)} = {format_seconds(seconds)}"
    return ReshardLink(kind=kind, nbytes=float(nbytes.sum()), seconds=seconds, formula=text)
