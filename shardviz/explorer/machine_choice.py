"""The machine of a plan: parsed from a target, kept in step with the mesh size, with its step cost.

If the mesh changes its size, the chip is kept and the most cube-like topology of the new size is chosen. If the chip
has no such topology, the machine is kept and `MachineChoice.trouble` lists possible sizes.

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
    """The user's facts about a whole step.

    Attributes:
        tokens: tokens or samples; None derives them from the arguments, False omits them.
        model_flops: FLOPs that the model needs, for its utilisation.

    Raises ShardvizError for a negative number.
    """

    tokens: float | bool | None = None
    model_flops: float | None = None

    def __post_init__(self) -> None:
        for name, number in (("tokens", self.tokens), ("model_flops", self.model_flops)):
            if number is not None and not number >= 0:
                raise ShardvizError(f"{name}={number!r}: expected a number of a whole step, 0 or more")


@dataclass(frozen=True)
class MachineChoice:
    """A machine for a mesh.

    Attributes:
        fits: whether it has as many devices as the mesh; always true for `cpu`.
        remark: why this machine was chosen, if the user did not choose it.
        missing: why nothing here compiles for it, and the command that fixes that.
        trouble: why there is no cost on it; empty for `cpu`, which has no known speed.
    """

    machine: Machine
    fits: bool = True
    remark: str = ""
    missing: str = ""
    trouble: str = ""

    @classmethod
    def of(cls, machine: Machine, mesh: DeviceMesh) -> MachineChoice:
        """Return the machine for a mesh: itself, the same chip in another size, or itself with its `trouble`."""
        remark = trouble = ""
        fits = _fits(machine, mesh)
        if not fits and (other := grown(machine, mesh.size)) is not None:
            remark, machine, fits = f"resized with the mesh, from {machine.text} to {other.text}", other, True
        elif not fits:
            trouble = f"{machine.text} has {machine.size} devices. {none_of(machine.chip, mesh.size)}"
        return cls(machine, fits, remark, _missing(machine, mesh), trouble)

    @property
    def target(self) -> str:
        return self.machine.text

    @property
    def compilable(self) -> bool:
        """Whether reports can be compiled for it here; if not, the highest level is `partitioned`."""
        return self.fits and not self.missing

    @property
    def simulated(self) -> bool:
        """Whether simulated devices replace it."""
        return self.machine.chip.kind == "cpu" or not self.compilable

    @property
    def compiled_for(self) -> Machine | str:
        """The target to compile for."""
        return self.machine if self.fits and _nameable(self.machine) else "cpu"

    def priced(self, report: Report, whole: WholeStep) -> tuple[MachineChoice, StepCost | None]:
        """Return the choice, with the `trouble` of a report, and the report's step cost there if known."""
        if self.machine.chip.kind == "cpu" or not self.fits:
            return self, None
        try:
            cost = cost_of(report, self.machine, tokens=whole.tokens, model_flops=whole.model_flops)
        except ShardvizError as error:
            return replace(self, trouble=str(error)), None
        return replace(self, trouble=""), cost


def read(target: str | Machine, mesh: DeviceMesh) -> Machine:
    """Parse a target for a mesh, as `machine_of`.

    Raises TargetError for an unknown chip or topology; MeshError, which names a fitting target, for another number of
    devices.
    """
    machine = machine_of(target, mesh.size)
    if not _fits(machine, mesh):
        other = grown(machine, mesh.size)
        would = f"; a target that would do: {other.text}" if other is not None else ""
        raise MeshError(other_size(mesh, machine) + would)
    return machine


def _missing(machine: Machine, mesh: DeviceMesh) -> str:
    """Return why this installation cannot compile for a machine, and the command that fixes that; empty if it can."""
    if machine.chip.kind == "cpu" or machine.size != mesh.size:
        return ""
    if not _nameable(machine):
        return f"libtpu compiles for {', '.join(TPU_CHIPS)}, and not for a chip of one's own, {machine.chip.name!r}"
    try:
        return resolve_target(machine, mesh).missing
    except ShardvizError:  # the mesh's device ids do not exist on this machine; the compile reports that
        return ""


def _fits(machine: Machine, mesh: DeviceMesh) -> bool:
    return machine.chip.kind == "cpu" or machine.size == mesh.size


def _nameable(machine: Machine) -> bool:
    """Return whether a compiler knows the machine by name; only user-defined TPU chips have no such name."""
    return machine.chip.kind != "tpu" or machine.chip.name in TPU_CHIPS
