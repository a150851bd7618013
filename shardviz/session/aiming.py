"""The machine that a plan is for: read from what a person types, and kept in step with the mesh.

A target is a chip with a topology, and a topology has so many devices. When the mesh gets another size, the chip stays
and the most cube-like topology of that size takes the place of the old one; where the chip has none, the machine stays
as it is and `Aimed.trouble` says which sizes would do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from shardviz.compiler.targets import TPU_CHIPS
from shardviz.costs.attached import machine_of
from shardviz.costs.chips import Chip, chip, chips
from shardviz.costs.machine import Machine
from shardviz.costs.topologies import grown, natural, sizes_near
from shardviz.errors import MeshError, ShardvizError, TargetError
from shardviz.notation import DeviceMesh

_CHIP_ALONE = re.compile(r"(?:(?:tpu|gpu)\s+)?(?P<name>[a-z]\w*):?$", re.IGNORECASE)


@dataclass(frozen=True)
class Aimed:
    """A machine for a mesh.

    Attributes:
        machine: the machine.
        remark: how it came to be this one; empty where the person chose it.
        trouble: why it is not for this mesh; empty where it is.
    """

    machine: Machine
    remark: str = ""
    trouble: str = ""


def read(target: str | Machine, mesh: DeviceMesh) -> Machine:
    """A machine for a mesh from a target's text; a chip alone (`v5p`) stands for its most cube-like topology.

    Args:
        target: such as `tpu v5p:4x4x4`, `v5p`, `gpu h100:8x8` or `cpu`; `attached` for the devices that JAX sees here.
        mesh: the mesh that it is for.

    Raises:
        TargetError: for a chip or a topology that there is not.
        MeshError: if the machine has another number of devices than the mesh; the message has what would do.
    """
    alone = _CHIP_ALONE.match(target.strip()) if isinstance(target, str) else None
    if alone is not None and (name := alone["name"].lower()) in chips() and name != "cpu":
        found = natural(name, mesh.size)
        if found is None:
            raise TargetError(f"target {target!r}: {_none_of(name, mesh.size)}")
        return found
    machine = machine_of(target)
    if machine.chip.kind != "cpu" and machine.size != mesh.size:
        from shardviz.costs.placement import other_size

        other = grown(machine, mesh.size)
        would = f"; a target that would do: {other.text}" if other is not None else ""
        raise MeshError(other_size(mesh, machine) + would)
    return machine


def aimed(machine: Machine, mesh: DeviceMesh) -> Aimed:
    """A machine after the mesh may have changed: itself, one of the same chip, or itself with what is wrong.

    Args:
        machine: the machine that the plan was for.
        mesh: the mesh as it is now.
    """
    if machine.chip.kind == "cpu" or machine.size == mesh.size:
        return Aimed(machine)
    other = grown(machine, mesh.size)
    if other is None:
        return Aimed(machine, trouble=f"{machine.text} has {machine.size} devices. {_none_of(machine.chip, mesh.size)}")
    return Aimed(other, remark=f"has followed the mesh, from {machine.text} to {other.text}")


def lack_of(machine: Machine, mesh: DeviceMesh) -> str:
    """Why this installation cannot compile for a machine, and the command that mends it; empty where it can."""
    if machine.chip.kind == "cpu" or machine.size != mesh.size:
        return ""
    if not nameable(machine):
        return f"libtpu compiles for {', '.join(TPU_CHIPS)}, and not for a chip of one's own, {machine.chip.name!r}"
    from shardviz.session.targeting import aim

    try:
        return aim(machine, mesh).lack
    except ShardvizError:  # the mesh's devices are no places of this machine: the compile says so
        return ""


def nameable(machine: Machine) -> bool:
    """Whether a compiler can be asked for it by name, which says then whether it is there: not for any TPU made up."""
    return machine.chip.kind != "tpu" or machine.chip.name in TPU_CHIPS


def _none_of(of: str | Chip, size: int) -> str:
    found = chip(of) if isinstance(of, str) else of
    near = " or ".join(map(str, sizes_near(found, size)))
    name = found.name
    many = f"{size} device{'s' * (size != 1)}"
    return f"{name} has no topology of {many}" + (f"; make the mesh {near}" if near else "")
