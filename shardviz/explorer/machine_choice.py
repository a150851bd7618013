"""The machine that a plan is for: read from what a person types, kept in step with the mesh, and what it costs.

A target is a chip with a topology, and a topology has so many devices. When the mesh gets another size, the chip stays
and the most cube-like topology of that size takes the place of the old one; where the chip has none, the machine stays
as it is and `MachineChoice.trouble` says which sizes would do.

>>> from shardviz.notation import DeviceMesh
>>> small, large = DeviceMesh.of("data=4,model=2"), DeviceMesh.of("data=4,model=4")
>>> choice = MachineChoice.of(read("v5p", small), small)
>>> choice.target
'tpu v5p:2x2x2'
>>> choice = MachineChoice.of(choice.machine, large)
>>> choice.target, choice.remark
('tpu v5p:2x2x4', 'resized with the mesh, from tpu v5p:2x2x2 to tpu v5p:2x2x4')
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardviz.ask.targeting import resolve_target
from shardviz.compiler.targets import TPU_CHIPS
from shardviz.costs.machine import Machine, grown, machine_of, none_of
from shardviz.costs.placement import other_size
from shardviz.costs.step_cost import StepCost, cost_of
from shardviz.errors import MeshError, ShardvizError
from shardviz.judge.report import Report
from shardviz.notation import DeviceMesh


@dataclass(frozen=True)
class WholeStep:
    """What a person says of a whole step: tokens or samples (None: what the arguments tell, False: none), and FLOPs
    that the model needs, for its utilisation. A `ShardvizError` for a number below 0."""

    tokens: float | bool | None = None
    model_flops: float | None = None

    def __post_init__(self) -> None:
        for name, number in (("tokens", self.tokens), ("model_flops", self.model_flops)):
            if number is not None and not number >= 0:
                raise ShardvizError(f"{name}={number!r}: expected a number of a whole step, 0 or more")


@dataclass(frozen=True)
class MachineChoice:
    """A machine for a mesh; whether it `fits`, as `cpu` always does; a `remark` on how it came to be this one, where
    the person did not choose it; why nothing here compiles for it, and the command that mends it (`missing`); and why
    there is no cost on it (`trouble`; `cpu`, which has no speed, has neither)."""

    machine: Machine
    fits: bool = True
    remark: str = ""
    missing: str = ""
    trouble: str = ""

    @classmethod
    def of(cls, machine: Machine, mesh: DeviceMesh) -> MachineChoice:
        """The machine for a mesh: itself, a larger or smaller one of the same chip, or itself with what is wrong."""
        remark = trouble = ""
        fits = _fits(machine, mesh)
        if not fits and (other := grown(machine, mesh.size)) is not None:
            remark, machine, fits = f"resized with the mesh, from {machine.text} to {other.text}", other, True
        elif not fits:
            trouble = f"{machine.text} has {machine.size} devices. {none_of(machine.chip, mesh.size)}"
        return cls(machine, fits, remark, _missing(machine, mesh), trouble)

    @property
    def target(self) -> str:
        """The machine's text."""
        return self.machine.text

    @property
    def compilable(self) -> bool:
        """Whether compiled reports can be had for it here; if not, reports go no further than `partitioned`."""
        return self.fits and not self.missing

    @property
    def simulated(self) -> bool:
        """Whether simulated devices stand in for it."""
        return self.machine.chip.kind == "cpu" or not self.compilable

    @property
    def compiled_for(self) -> Machine | str:
        """What a compiler is asked for."""
        return self.machine if self.fits and _nameable(self.machine) else "cpu"

    def priced(self, report: Report, whole: WholeStep) -> tuple[MachineChoice, StepCost | None]:
        """What a report's step costs there, if that is known, and the choice with its `trouble` for that report."""
        if self.machine.chip.kind == "cpu" or not self.fits:
            return self, None
        try:
            cost = cost_of(report, self.machine, tokens=whole.tokens, model_flops=whole.model_flops)
        except ShardvizError as error:
            return replace(self, trouble=str(error)), None
        return replace(self, trouble=""), cost


def read(target: str | Machine, mesh: DeviceMesh) -> Machine:
    """A machine for a mesh, from a target as `machine_of` reads it. A `TargetError` for an unknown chip or topology; a
    `MeshError` that has what would do for another number of devices."""
    machine = machine_of(target, mesh.size)
    if not _fits(machine, mesh):
        other = grown(machine, mesh.size)
        would = f"; a target that would do: {other.text}" if other is not None else ""
        raise MeshError(other_size(mesh, machine) + would)
    return machine


def _missing(machine: Machine, mesh: DeviceMesh) -> str:
    """Why this installation cannot compile for a machine, and the command that mends it; empty where it can."""
    if machine.chip.kind == "cpu" or machine.size != mesh.size:
        return ""
    if not _nameable(machine):
        return f"libtpu compiles for {', '.join(TPU_CHIPS)}, and not for a chip of one's own, {machine.chip.name!r}"
    try:
        return resolve_target(machine, mesh).missing
    except ShardvizError:  # the mesh's devices are no places of this machine: the compile says so
        return ""


def _fits(machine: Machine, mesh: DeviceMesh) -> bool:
    return machine.chip.kind == "cpu" or machine.size == mesh.size


def _nameable(machine: Machine) -> bool:
    """Whether a compiler can be asked for it by name, which says then whether it is there: not for any TPU made up."""
    return machine.chip.kind != "tpu" or machine.chip.name in TPU_CHIPS
