"""The data of one memory budget for several programs: the shared arrays, each program's own memory, and the cache."""

from __future__ import annotations

from dataclasses import dataclass

from shardviz.notation import DeviceMesh
from shardviz.records.findings import Finding
from shardviz.records.versioned import Versioned

CACHE, WEIGHTS, OPTIMIZER, STATE = "cache", "weights", "optimizer state", "other state"
KINDS = (WEIGHTS, OPTIMIZER, CACHE, STATE)
"""The kinds of arrays that stay on the devices between calls."""


@dataclass(frozen=True, kw_only=True)
class HeldArrays:
    """Arrays of one kind that stay on the devices between calls, and that the same programs use.

    Attributes:
        kind: one of `KINDS`.
        names: their tree paths in the first program that takes them.
        programs: the programs that take or write them.
        nbytes: bytes of one device, each array once.
    """

    kind: str
    names: tuple[str, ...]
    programs: tuple[str, ...]
    nbytes: float


@dataclass(frozen=True, kw_only=True)
class ProgramMemory:
    """A program's own memory in bytes of one device, by the parts of its plan, and what else is held while it runs.

    Attributes:
        program: its name.
        level: `compiled` if the target's compiler planned the memory, else `propagated`: an estimate.
        held: its arguments that stay on the devices between calls.
        batch: its other arguments: the batch of one call.
        padding: bytes that the compiler's layouts add to the arguments (negative if they save bytes).
        outputs: results that reuse no argument's memory.
        temporaries: its temporaries; in an estimate, results included.
        constants: constants, code and the compiler's other parts; 0 in an estimate.
        more_batches: batches of further calls that wait on the devices.
        beside: other programs' arrays on the devices while it runs, and these programs' constants.
    """

    program: str
    level: str
    held: float
    batch: float
    padding: float
    outputs: float
    temporaries: float
    constants: float
    more_batches: float
    beside: float

    @property
    def own(self) -> float:
        """Bytes of the program alone, by the compiler's plan or the estimate."""
        return self.held + self.batch + self.padding + self.outputs + self.temporaries + self.constants

    @property
    def total(self) -> float:
        """Bytes on a device while it runs, other programs' arrays included."""
        return self.own + self.more_batches + self.beside


@dataclass(frozen=True, kw_only=True)
class CacheRoom:
    """How large a cache can be.

    Attributes:
        names: the arrays that grow: those with as many units as the largest. Others keep their size.
        unit: the noun for a unit of its dimension, `sequence` or `page`.
        count: the number of units now.
        devices: the number of devices over which the dimension is sharded; the count is a multiple of it.
        unit_bytes: bytes per device of `devices` more units, in the program that needs most for them.
        most: the largest number of units that fits; None if the device's memory is not known.
    """

    names: tuple[str, ...]
    unit: str
    count: int
    devices: int
    unit_bytes: float
    most: int | None


@dataclass(frozen=True, kw_only=True, repr=False)
class Budget(Versioned, kind="budget"):
    """One memory budget for programs that share arrays and do not run at once; bytes are those of one device.

    Attributes:
        mesh: the mesh of the first program.
        target: the machine, or `cpu`.
        level: `compiled` or `propagated`.
        usable: bytes of a device that programs may use; None if not known.
        usable_from: the source of that number.
        held: the arrays that stay on the devices between calls, each array once.
        programs: each program's own parts, the one that needs most first.
        batches: how many batches each program has on the devices.
        cache: how large the cache can be; None if no cache was named.
        findings: causes of memory that the programs do not need.
        notes: facts that the numbers rest on.
    """

    mesh: DeviceMesh
    target: str
    level: str
    usable: float | None
    usable_from: str = ""
    held: tuple[HeldArrays, ...]
    programs: tuple[ProgramMemory, ...]
    batches: int = 1
    cache: CacheRoom | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def most(self) -> ProgramMemory:
        """The program that needs most memory."""
        return self.programs[0]

    @property
    def left(self) -> float | None:
        """Free bytes of a device while the largest program runs. Negative if it does not fit; None if the device's
        memory is not known."""
        return None if self.usable is None else self.usable - self.most.total
