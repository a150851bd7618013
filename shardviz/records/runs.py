"""The data of a dry run: every program that a script compiled, the transfers, and the bytes in use at each call."""

from __future__ import annotations

from dataclasses import dataclass

from shardviz.notation import DeviceMesh
from shardviz.records.findings import Finding
from shardviz.records.values import Frame
from shardviz.records.versioned import Versioned

RUN_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class RunArray:
    """An argument or a result of a program.

    Attributes:
        name: its tree path, with the script's own names.
        shape: the global shape.
        dtype: its element type.
        spec: its PartitionSpec in Python; empty if it has none.
        bytes_per_device: bytes of the largest shard.
        donated: whether its memory may be reused for a result.
        unused: whether no result needs it: JAX does not pass it to the device's program.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    spec: str
    bytes_per_device: int
    donated: bool = False
    unused: bool = False


@dataclass(frozen=True)
class RunOperation:
    """A line of a lowered program: its StableHLO text, and the source line that it comes from, or that before it."""

    text: str
    source: Frame | None


@dataclass(frozen=True, kw_only=True)
class RunProgram:
    """A program that was recorded instead of run.

    Attributes:
        name: the function's name.
        source: the line of its first call; None if no line of the script called it.
        calls: the number of its calls.
        devices: the number of its devices.
        mesh: the mesh of its shardings; None for one device, or if its shardings have no mesh.
        arguments, results: the arrays, in flat order.
        options: the compiler options that the script gave.
        ahead: whether the script compiled it before it called it.
        seconds: seconds of one call on the target, at level `propagated`; None if unknown.
        needs_bytes: bytes of a device while it runs, including its arguments, estimated at that level.
        processes: the processes that have its devices, if the run is one process of several; else empty.
        operations: the lowered program line by line, if the run is one process of several; else empty.
    """

    name: str
    source: Frame | None
    calls: int
    devices: int
    mesh: DeviceMesh | None
    arguments: tuple[RunArray, ...]
    results: tuple[RunArray, ...]
    options: tuple[tuple[str, str], ...] = ()
    ahead: bool = False
    seconds: float | None = None
    needs_bytes: float | None = None
    processes: tuple[int, ...] = ()
    operations: tuple[RunOperation, ...] = ()

    @property
    def bytes_per_device(self) -> int:
        """Bytes of used arguments and of results on a device; a donated argument counts although a result takes its
        place."""
        return sum(array.bytes_per_device for array in (*self.arguments, *self.results) if not array.unused)


@dataclass(frozen=True, kw_only=True)
class RunCall:
    """A call of a program.

    Attributes:
        program: its number among the run's programs.
        live_bytes: bytes of live arrays before the call, on the device that has most.
        argument_bytes: bytes on a device of the arguments that its results need, which are among the live arrays.
        source: the line, if the run is one process of several.
    """

    program: int
    live_bytes: int
    argument_bytes: int
    source: Frame | None = None

    @property
    def beside_bytes(self) -> int:
        """Bytes of live arrays that the program does not need."""
        return max(0, self.live_bytes - self.argument_bytes)


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Arrays that a line of the script moved: `put` to devices or to another sharding, or `fetched` to the host.

    Attributes:
        kind: `put` or `fetched`.
        source: the line.
        before, after: where the array was and is then: a spec, `host`, or the number of devices.
        nbytes: global bytes of all its arrays.
        count: how many arrays.
        device_bytes: bytes of all its arrays on one device.
        seconds: seconds over PCIe on the target, if the arrays come from the host or go there; None if unknown.
    """

    kind: str
    source: Frame | None
    before: str
    after: str
    nbytes: int
    count: int = 1
    device_bytes: int = 0
    seconds: float | None = None


BATCHES, CACHES = "batches in flight", "caches and other state"
OWN, OTHERS = "temporaries and results", "other arrays"


@dataclass(frozen=True)
class RunHeld:
    """Bytes of one device that arrays of a kind hold at the peak of a run: `weights`, `optimizer state`, or one of the
    four kinds above. `other arrays` are those that no program takes, or that shardviz cannot tell."""

    kind: str
    nbytes: float


NO_RULE, TAKEN, RULED_OUT = "no rule names it", "its mesh axes shard another dimension", "its rule says None"
NO_AXIS, SIZE_ONE = "no mesh of the run has this axis", "the mesh axis has size 1"
NO_RULES, NO_MESH = "no rules are set there, so flax leaves it out", "no mesh is set there, so flax leaves it out"


@dataclass(frozen=True, kw_only=True)
class RunRule:
    """A logical axis name that flax resolved.

    Attributes:
        name: the logical name.
        axes: the resulting mesh axes.
        why: why it shards nothing, one of the seven texts above; empty if it shards.
        source: the line that used it.
        count: how often it was resolved there.
    """

    name: str
    axes: tuple[str, ...]
    why: str
    source: Frame | None
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class RunNote:
    """Something that the dry run did differently than a real run, or could not do."""

    text: str
    source: Frame | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class RunRecord(Versioned, kind="run", version=RUN_VERSION):
    """Everything that a dry run recorded.

    Attributes:
        command: the command line; empty in a notebook.
        target: the machine; empty for simulated devices alone.
        usable: bytes of one of its devices that a program may use; None if unknown.
        devices: the number of devices.
        programs: the programs, in the order of their first calls.
        calls: every call, in order.
        transfers: the transfers, by line.
        rules: the resolution of each logical axis name of flax; names that shard nothing come first.
        findings: suggested changes of these names, most severe first.
        notes: differences from a real run.
        ended: `the script ended`, `steady`, `interrupted`, or the error that the script raised.
        held: the bytes at the peak by what holds them; empty if nothing was recorded.
        process: (i, n) if the script ran as process i of n; None if one process had all devices.
    """

    command: str = ""
    target: str = ""
    usable: float | None = None
    devices: int
    programs: tuple[RunProgram, ...] = ()
    calls: tuple[RunCall, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    rules: tuple[RunRule, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[RunNote, ...] = ()
    ended: str = ""
    held: tuple[RunHeld, ...] = ()
    process: tuple[int, int] | None = None

    def needs_at(self, call: RunCall) -> float:
        """Return the bytes that a device needs during a call: other live arrays, plus what the program needs, or its
        results if that is unknown."""
        program = self.programs[call.program]
        return call.beside_bytes + (program.bytes_per_device if program.needs_bytes is None else program.needs_bytes)

    @property
    def peak(self) -> RunCall | None:
        """The call during which a device needs most bytes; None if nothing was recorded."""
        return max(self.calls, key=self.needs_at, default=None)
