"""The data of several programs that share arrays: the cost of each under one assignment of the shared arrays."""

from __future__ import annotations

from dataclasses import dataclass

from shardviz.errors import ContractError
from shardviz.notation import DeviceMesh
from shardviz.records.findings import Finding
from shardviz.records.versioned import Versioned

OWN = "each program's own plan"
"""The assignment in which each program keeps its own plan, and arrays are resharded between calls."""


@dataclass(frozen=True, kw_only=True)
class SharedMember:
    """An argument or an output of a program that is a shared array.

    Attributes:
        program: the program's name.
        role: `argument` or `output`.
        path: its tree path.
        spec: its PartitionSpec as Python writes it; empty if Shardy cannot say how an output is sharded.
        bytes_per_device: bytes of one shard.
    """

    program: str
    role: str
    path: str
    spec: str
    bytes_per_device: float


@dataclass(frozen=True, kw_only=True)
class SharedArray:
    """An array that several programs take, or that one writes and another takes.

    Attributes:
        name: its tree path in the first program that takes it.
        shape: global.
        dtype: its element type.
        members: the arguments and outputs that are this array.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    members: tuple[SharedMember, ...]


@dataclass(frozen=True, kw_only=True)
class ProgramCost:
    """A program under an assignment.

    Attributes:
        program: its name.
        seconds: seconds of one call on the target; None if not known. At level `propagated`, unless a confirmed
            `SharedPlan` has it.
        needs_bytes: bytes of a device while it runs, its arguments included, at that level.
        why_not: the reason why the program cannot have the assignment; else empty.
    """

    program: str
    seconds: float | None = None
    needs_bytes: float | None = None
    why_not: str = ""


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One way of sharding the shared arrays.

    Attributes:
        name: `each program's own plan`, or `as train has them`.
        costs: each program under it.
        moved_bytes: bytes between devices to reshard every array once from each of its shardings to each other one.
        move_seconds: seconds of this resharding; None if not known.
    """

    name: str
    costs: tuple[ProgramCost, ...]
    moved_bytes: float = 0.0
    move_seconds: float | None = None

    def seconds(self, calls: dict[str, float]) -> float | None:
        """Return the seconds of all calls (program → number), without resharding; None if a program's are not known."""
        total = 0.0
        for cost in self.costs:
            if calls.get(cost.program, 0.0):
                if cost.seconds is None:
                    return None
                total += cost.seconds * calls[cost.program]
        return total


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A sharding of a shared array, and the programs whose own plans have it."""

    spec: str
    programs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class WishCost(ProgramCost):
    """The seconds and bytes that a program adds if it takes arrays with another program's `spec`."""

    spec: str


@dataclass(frozen=True, kw_only=True)
class WishMove:
    """The resharding of arrays between two calls: the specs, the bytes between devices, and the seconds by the slowest
    kind of link (None without a machine)."""

    before: str
    after: str
    moved_bytes: float
    seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """Shared arrays that the programs' plans shard differently; arrays with equal shapes and wishes are one conflict.

    Attributes:
        names: the arrays.
        shape, dtype: of each of them.
        wishes: the different shardings.
        costs: each program under each wish that it does not have.
        moves: the resharding of all these arrays between calls, for each pair of wishes.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    wishes: tuple[Wish, ...]
    costs: tuple[WishCost, ...] = ()
    moves: tuple[WishMove, ...] = ()


@dataclass(frozen=True, kw_only=True, repr=False)
class TogetherRecord(Versioned, kind="together"):
    """Several programs that share arrays, at level `propagated`.

    Attributes:
        mesh: the mesh of the first program.
        target: the machine; empty if not known.
        calls: program → how often it is called in an hour, or in the run; empty if not known.
        usable: bytes of one device that a program may use; None if not known.
        shared: the shared arrays.
        assignments: `each program's own plan`, then one for each program whose plan differs.
        conflicts: the arrays that the plans shard differently, most bytes first.
        findings: the broken contracts: arrays that one program writes and another reads with different shardings.
        notes: facts that the numbers rest on.
    """

    mesh: DeviceMesh
    target: str = ""
    calls: dict[str, float]
    usable: float | None = None
    shared: tuple[SharedArray, ...]
    assignments: tuple[Assignment, ...]
    conflicts: tuple[Conflict, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs' names."""
        return tuple(cost.program for cost in self.assignments[0].costs)

    def require(self) -> None:
        """Raise ContractError if one program writes an array and another reads it with a different sharding.

        Raises:
            ContractError: it is an AssertionError too; the message has the paths and both shardings.
        """
        if self.findings:
            raise ContractError("\n".join(finding.text for finding in self.findings))


@dataclass(frozen=True, kw_only=True)
class SharedPlan:
    """A plan for every program of a set.

    Attributes:
        name: its origin: `each program's own plan`, `as train has them`, `the best for train alone`, `together`.
        mesh: the mesh of all programs; None if their meshes differ.
        costs: each program under it.
        seconds: seconds of all calls, by the weights; None if a program cannot have it.
        needs_bytes: bytes of a device while the largest program runs, with the other programs' arrays on the device.
        fits: whether this is within the device's memory; None if that is not known.
        level: the level of the seconds. The bytes are the compiler's at level `compiled`, else an estimate.
    """

    name: str
    mesh: DeviceMesh | None
    costs: tuple[ProgramCost, ...]
    seconds: float | None = None
    needs_bytes: float | None = None
    fits: bool | None = None
    level: str = "propagated"


@dataclass(frozen=True, kw_only=True)
class SharedPlanSpec:
    """An argument's PartitionSpec, as Python writes it, in one program's plan of the best set; `shared` says whether
    other programs take the same array."""

    program: str
    path: str
    spec: str
    shared: bool


@dataclass(frozen=True, kw_only=True, repr=False)
class TogetherSearchRecord(Versioned, kind="together_search"):
    """The result of a search for plans of several programs that share arrays.

    Attributes:
        target: the machine.
        weights: program → calls, by which seconds are added up.
        level: the level at which the best plans were confirmed.
        best: the best plans with one sharding of each shared array, at this level.
        predicted: the best plans at level `propagated`, as `others`; None if `best` is at that level.
        confirmed: the sets of plans that were confirmed, or refused, at this level; the best first.
        others: the other sets of plans, the best first.
        specs: the arguments' specs in the best plans.
        tried: how many sets of plans were scored.
        seconds: duration of the search in seconds.
        notes: parts of the search that were left out.
    """

    target: str
    weights: dict[str, float]
    level: str = "propagated"
    best: SharedPlan
    predicted: SharedPlan | None = None
    confirmed: tuple[SharedPlan, ...] = ()
    others: tuple[SharedPlan, ...]
    specs: tuple[SharedPlanSpec, ...]
    tried: int
    seconds: float
    notes: tuple[str, ...] = ()
