"""A target's text and a plan's mesh as a machine that the compile server can compile for.

    "tpu v5e:4x4*2" and data=8,model=4   →   libtpu's "v5e:4x4" with num_slices=2, and which device is at which place

If nothing here can compile for the machine, it is still used for level `partitioned` and the cost model.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardviz.compiler.targets import gpu_config, targets
from shardviz.costs.chips import chips
from shardviz.costs.machine import Machine, machine_of
from shardviz.costs.placement import other_size, placement
from shardviz.costs.step import fits
from shardviz.errors import MeshError, TargetError
from shardviz.notation import DeviceMesh
from shardviz.processes import Topology
from shardviz.propagate.lower import CPU, LowerFor


@dataclass(frozen=True)
class CompileTarget:
    """The target of a compile: the text in the form of `Machine.text`; the compile server's settings (None for `cpu`,
    and if nothing here can compile for the machine); why nothing can, with the command that fixes it, else empty; and
    the slice of the device at each position of the mesh, if there are several."""

    text: str
    machine: Machine
    topology: Topology | None
    missing: str = ""
    slices: tuple[int, ...] = ()

    @property
    def lowered_for(self) -> LowerFor:
        """The platform that JAX lowers a program for; a TPU's even if nothing here can compile for it."""
        chip = self.machine.chip
        if self.topology is None and chip.kind != "tpu":
            return CPU
        return LowerFor("tpu" if chip.kind == "tpu" else "cuda", chip.device_kind, chip.cores_per_device)

    @property
    def hbm(self) -> int | None:
        """The bytes of main memory that a program can use on one device."""
        try:
            return int(fits(0, self.machine).usable)
        except TargetError:  # a chip whose memory is not known
            return None


def resolve_target(target: str | Machine, mesh: DeviceMesh) -> CompileTarget:
    """Read a target and place a mesh on it, in the order of JAX's `mesh_utils` unless the mesh has its own device
    order. Raises TargetError for an unknown chip or topology; MeshError if the numbers of devices differ."""
    machine = machine_of(target, mesh.size)
    kind = machine.chip.kind
    if kind == "cpu":
        return CompileTarget("cpu", machine, None)
    if mesh.size != machine.size:
        raise MeshError(other_size(mesh, machine))

    def none(why: str) -> CompileTarget:
        why = f"{machine.text}{why}; level 'partitioned' works all the same"
        return CompileTarget(machine.text, machine, None, why + ("" if status.ready else ", on simulated devices"))

    status = next(s for s in targets() if s.name == kind)
    if not status.ready:
        install = f"; to install it: {status.install}" if status.install else ""
        return none(f" cannot be compiled for here: {status.missing}{install}")
    if kind == "tpu" and machine.chip.name not in chips():
        return none(f": libtpu has no compiler for a chip called {machine.chip.name!r}")
    placed = placement(mesh, machine)
    ids = placed.device_ids()
    topology = _tpu(machine, ids) if kind == "tpu" else _gpu(machine, ids)
    if topology is None:
        return none(f": no description of {machine.chip.name} for XLA's GPU compiler is known here")
    slices = machine.slices()[list(placed.order)] if machine.num_slices > 1 else ()
    return CompileTarget(machine.text, machine, topology, slices=tuple(map(int, slices)))


def _tpu(machine: Machine, ids: tuple[int, ...]) -> Topology:
    chip, sizes = machine.chip, machine.topology
    details: dict[str, object] = {}
    if machine.num_slices > 1:
        details["num_slices"] = machine.num_slices
    if chip.name == "v4" and chip.devices_per_chip == 1:
        details["chip_config_name"] = "megacore"
    if any(machine.wrap):  # else libtpu compiles for a slice whose ends are not joined
        details["wrap"] = machine.wrap
    if any(n < bound for n, bound in zip(machine.shape, chip.host_bounds, strict=True)):
        details["chips_per_host_bounds"] = tuple(map(min, machine.shape, chip.host_bounds))
    return Topology("tpu", f"{chip.name}:{'x'.join(map(str, sizes))}", ids, details)


def _gpu(machine: Machine, ids: tuple[int, ...]) -> Topology | None:
    config = gpu_config(machine.chip.name)
    if config is None:
        return None
    hosts, per_host = machine.topology
    name = f"{machine.domains}x{hosts // machine.domains}x{per_host}"
    return Topology("gpu", name, ids, config=config)
