"""Source frames; values: an argument, an output, an intermediate, what is kept for the backward pass; memory plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shardviz.errors import ShardvizError, excerpt
from shardviz.notation import Axis, Spec
from shardviz.notation.spec import axis_text

SourceText = Mapping[str, Mapping[int, str]]
"""File → line number → text: `Report.source`."""


@dataclass(frozen=True)
class Frame:
    """A line of source.

    Attributes:
        file: the file's path, or the name that IPython gives a cell.
        line: the line's number, from 1.
        function: the function that the line is in.
        columns: where the expression begins and ends in the line, from 0, in UTF-8 bytes; None where that is not known,
            or it is longer than the line. Frames of one line are equal, whatever their columns.
    """

    file: str
    line: int
    function: str = ""
    columns: tuple[int, int] | None = field(default=None, compare=False, repr=False)

    @property
    def short(self) -> str:
        """`model.py:20`, or `cell:3` for a line of a notebook's cell."""
        name = self.file.replace("\\", "/").rsplit("/", 1)[-1]
        if name.startswith("<ipython") or "ipykernel_" in self.file:
            name = "cell"
        return f"{name}:{self.line}"

    @property
    def bare(self) -> Frame:
        """The line alone, of whichever function: what rows are summed by."""
        return Frame(self.file, self.line)

    def text_in(self, lines: SourceText) -> str:
        """The text of the line, stripped; empty where it is not known."""
        return lines.get(self.file, {}).get(self.line, "").strip()


IN_PLACE, BESIDE = "in place", "beside"


@dataclass(frozen=True)
class Use:
    """What a program does with an argument: whether only the update uses it, the result that is its new value, how it
    is read, where each device reads only a slice of its shard, and how its new value is written: parts of it `in
    place`, for which it is copied unless it is donated; or `beside` it, by a loop that still reads it, for which a
    donated one is copied in the end. Empty for any other way."""

    optimizer: bool = False
    becomes: str = ""
    read: Spec | None = None
    renewal: str = ""


@dataclass(frozen=True, kw_only=True)
class Value:
    """An argument, an output or an intermediate, and how it is sharded.

    Attributes:
        name: the tree path of an argument or output (`params['wq']`); the instruction's name for an intermediate.
        shape: the global shape.
        dtype: the element type, NumPy's name (`bfloat16`).
        spec: how it is sharded; None where no PartitionSpec says it (see `sharding`).
        shard_shape: the shape on one device; None if not known.
        bytes_per_device: bytes of one shard, padding included; None if not known.
        sharding: the same sharding in other notations: `sdy`, `hlo`.
        source: the line that made it.
        op: the operation that made it (`dot_general`); empty for an argument.
        name_stack: where in the program: JAX's name stack.
        label: the variable it is assigned to in the source, where the line says so.
        count: how often it is made in a step, loops multiplied in; None where a loop's trip count is not known.
        manual: the mesh axes of the `shard_map`s around: every device along them has an array of its own, `shape` is
            that array's, and `spec` says how it is sharded over the other axes (None where there are none).
        computed: how the operation that makes it computes it, where that is otherwise: it is moved then. Of an output:
            how the program computes it, where it is resharded before it is returned.
        fixed: what of its spec is in its type, over Explicit axes; None where the mesh has none.
        donated: an argument whose memory the program may use for a result.
        memory_kind: where its shards lie: `device`, the device's own memory, or `pinned_host` or `unpinned_host`, the
            memory of the device's host.
        unused: an argument that no result needs. JAX leaves it out of the program (`keep_unused=False`), so it takes
            nothing of what the program takes; where the caller holds it on the devices, it lies there besides.
        gradient: a result that the backward pass makes.
        scanned: an argument of which a loop takes one slice along its first dimension in each run.
        use: what the program does with an argument, where there is something to say; `optimizer`, `becomes`, `read` and
            `renewal` are its own.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    spec: Spec | None
    shard_shape: tuple[int, ...] | None = None
    bytes_per_device: float | None = None
    sharding: Mapping[str, str] = field(default_factory=dict)
    source: Frame | None = None
    op: str = ""
    name_stack: str = ""
    label: str = ""
    count: int | None = 1
    manual: tuple[Axis, ...] = ()
    fixed: Spec | None = None
    computed: Spec | None = None
    donated: bool = False
    memory_kind: str = "device"
    unused: bool = False
    gradient: bool = False
    scanned: bool = False
    use: Use | None = None

    @property
    def optimizer(self) -> bool:
        """Whether it is an argument that only the update uses, such as an optimizer's moments."""
        return self.use is not None and self.use.optimizer

    @property
    def becomes(self) -> str:
        """The name of the result that is an argument's new value; empty where there is none."""
        return "" if self.use is None else self.use.becomes

    @property
    def read(self) -> Spec | None:
        """How the program reads an argument, where each device reads only a slice of its shard."""
        return None if self.use is None else self.use.read

    @property
    def renewal(self) -> str:
        """How an argument's new value is written, as of `Use`."""
        return "" if self.use is None else self.use.renewal

    @property
    def on_host(self) -> bool:
        """Whether it lies in the memory of the device's host."""
        return self.memory_kind != "device"

    def __str__(self) -> str:
        """`w: bfloat16[16, 8], P('data', None), shard [8, 8], 128 bytes per device`."""
        parts = [f"{self.label or self.name}: {self.dtype}{list(self.shape)}"]
        if self.manual:
            parts.append(f"per device over {', '.join(map(axis_text, self.manual))}")
        if self.spec is not None:
            parts.append(str(self.spec))
        elif not self.manual:
            parts.append("no PartitionSpec")
        if self.computed is not None:
            parts.append(f"computed as {self.computed}")
        if self.fixed is not None:
            parts.append("fixed by type")
        if self.shard_shape is not None:
            parts.append(f"shard {list(self.shard_shape)}")
        if self.bytes_per_device is not None:
            parts.append(f"{self.bytes_per_device:,.0f} bytes per device")
        if self.on_host:
            parts.append(f"in {self.memory_kind} memory")
        if self.unused:
            parts.append("unused")
        return ", ".join(parts)


def on_device(values: Iterable[Value]) -> tuple[Value, ...]:
    """Those that take the device's own memory in the program: used, and not on the host."""
    return tuple(v for v in values if not (v.on_host or v.unused))


def unused_bytes(arguments: Iterable[Value]) -> dict[str, float]:
    """Tree path → bytes on one device of the arguments that no result needs; see `Value.unused`."""
    return {v.name: v.bytes_per_device or 0.0 for v in arguments if v.unused and not v.on_host}


def donated_bytes(arguments: Iterable[Value]) -> list[float]:
    """Bytes on one device of each argument whose memory a result may take."""
    return [v.bytes_per_device or 0.0 for v in arguments if v.donated and not (v.unused or v.on_host)]


def take_donated(donated: list[float], size: float) -> bool:
    """Whether a result of so many bytes takes a donated argument's place, as XLA gives it one of its size; that is gone
    from the list then."""
    if taken := size in donated:
        donated.remove(size)
    return taken


RESIDUAL_KINDS = ("kept", "outside", "offloaded", "argument", "constant", "recomputed")


@dataclass(frozen=True)
class Residual:
    """A value that the backward pass needs of what ran before it.

    Attributes:
        value: the value: its shape with the scan's iterations stacked in front, spec, shard shape, bytes per device,
            the line that made it, and how often it is made in a step.
        kind: `kept`, made by the forward pass and kept until the backward pass; `outside`, the same but made outside
            of what is differentiated; `offloaded`, the same but in the host's memory, where a checkpoint policy puts
            it; `argument`, which takes no more memory; `constant`, made from nothing, which compilers make again;
            `recomputed`, dropped by `jax.checkpoint` and made again.
        layers: how many iterations of a scan are stacked in it, 1 where none are; None where not known.
        checkpoint_name: what `jax.ad_checkpoint.checkpoint_name` calls it.
    """

    value: Value
    kind: str
    layers: int | None = 1
    checkpoint_name: str = ""

    def __post_init__(self) -> None:
        if self.kind not in RESIDUAL_KINDS:
            raise ShardvizError(f"a residual is {', '.join(RESIDUAL_KINDS)}, not {excerpt(str(self.kind))!r}")

    @property
    def takes_memory(self) -> bool:
        """Whether it is memory of the device that the step needs besides its arguments."""
        return self.kind in ("kept", "outside")


@dataclass(frozen=True, kw_only=True)
class Alive:
    """A value that takes memory when the most is alive.

    Attributes:
        name: the tree path of an argument; the instruction's name for what the program makes.
        bytes: what it takes on one device, the compiler's padding included.
        kind: `argument`, `output`, `temporary` or `constant`. An argument that is donated may hold an output by then,
            and an output's place is held before it is made.
        dtype, shape: on one device; empty where not known.
        source: the line that made it.
        name_stack: JAX's name stack.
    """

    name: str
    bytes: int
    kind: str = "temporary"
    dtype: str = ""
    shape: tuple[int, ...] = ()
    source: Frame | None = None
    name_stack: str = ""


@dataclass(frozen=True)
class HostMemory:
    """What a program takes of the host's memory for one device, in bytes; `aliased` is in both of the first two."""

    arguments: int = 0
    outputs: int = 0
    aliased: int = 0
    temporaries: int = 0

    @property
    def total(self) -> int:
        """All of it: an output that takes a donated argument's place counts once."""
        return self.arguments + self.outputs - self.aliased + self.temporaries


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A compiler's memory plan, bytes on one device.

    Attributes:
        arguments, outputs, aliased, temporaries: as XLA's buffer assignment has them; `aliased` is counted in
            both of the first two.
        peak: the most that is in use at once in main memory: what is held for the whole step (arguments, outputs,
            constants) and the most of the temporaries that are alive at one moment, a place that several share once.
            For TPUs and GPUs it is the peak of `Compiled.memory_analysis()`, unless more is alive at once in a TPU's
            VMEM, which then stands there; for CPU the peak that it states leaves all temporaries out.
        target: the compiler whose plan it is.
        host: the same in the memory of the device's host, for the shards of one device; None where everything is in
            the device's own.
        on_chip: what it sets aside in the chip's own memories (a TPU's VMEM and SMEM).
        needed: all that it takes of main memory, constants and small change included: what the compiler compares with
            what there is; None where it does not say.
        hbm: main memory that a program can use on one device of the target; None where not known.
        fits: whether it fits. For TPUs the compiler's own verdict; elsewhere `needed`, or what is set aside, against
            `hbm`. None where not known.
        alive_at_peak: the heaviest values at the moment of `peak`, the heaviest first.
        constants: the constants' bytes in main memory.
    """

    arguments: int
    outputs: int
    aliased: int
    temporaries: int
    peak: int
    target: str = "cpu"
    host: HostMemory | None = None
    on_chip: int = 0
    needed: int | None = None
    hbm: int | None = None
    fits: bool | None = None
    alive_at_peak: tuple[Alive, ...] = ()
    constants: int = 0

    @property
    def takes(self) -> int:
        """Bytes of main memory that the program takes: `needed`, or else what is set aside."""
        return self.set_aside if self.needed is None else self.needed

    @property
    def headroom(self) -> int | None:
        """What is left of `hbm`; negative where the program does not fit; None where `hbm` is not known."""
        return None if self.hbm is None else self.hbm - self.takes

    @property
    def set_aside(self) -> int:
        """Bytes that the plan sets aside in all: an output that takes a donated argument's place counts once."""
        return self.arguments + self.outputs - self.aliased + self.temporaries
