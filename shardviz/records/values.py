"""Source frames, values (arguments, outputs, intermediates), residuals of the backward pass, and memory plans."""

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
        columns: the begin and end of the expression in the line, from 0, in UTF-8 bytes; None if unknown, or if the
            expression spans several lines. Frames of one line are equal, whatever their columns.
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
        """The line without its function and columns, the key of sums by line."""
        return Frame(self.file, self.line)

    def text_in(self, lines: SourceText) -> str:
        """Return the text of the line, stripped; empty if unknown."""
        return lines.get(self.file, {}).get(self.line, "").strip()


IN_PLACE, BESIDE = "in place", "beside"


@dataclass(frozen=True)
class Use:
    """A program's use of an argument.

    `optimizer` is whether only the update uses it. `becomes` is the result that is its new value. `read` is the spec by
    which it is read, if each device reads only a slice of its shard. `renewal` is how its new value is written. `in
    place` replaces parts of it, which requires a copy unless it is donated. `beside` means that a loop writes the new
    value while it still reads the argument, so that a donated argument is copied at the end.
    """

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
        spec: its sharding; None if no PartitionSpec expresses it (see `sharding`).
        shard_shape: the shape on one device; None if unknown.
        bytes_per_device: bytes of one shard, including padding; None if unknown.
        sharding: its sharding in other notations: `sdy`, `hlo`.
        source: the line that computes it.
        op: the operation that computes it (`dot_general`); empty for an argument.
        name_stack: JAX's name stack.
        label: the variable that the source line assigns it to, if any.
        count: how often it is computed in a step, times the loops' trip counts; None if a trip count is unknown.
        manual: the mesh axes of the enclosing `shard_map`s. Along them every device has its own array; `shape` is this
            array's, and `spec` its sharding over the other axes (None without other axes).
        computed: the spec with which its operation computes it, if it is then resharded; for an output, the spec before
            it is resharded to be returned.
        fixed: the part of its spec that its type fixes, over Explicit axes; None if the mesh has none.
        donated: whether the program may reuse this argument's memory for a result.
        memory_kind: the memory of its shards: `device`, or the host's `pinned_host` or `unpinned_host`.
        unused: whether it is an argument that no result needs. JAX removes it from the program (`keep_unused=False`),
            so the program's memory excludes it; the caller may still have it on the devices.
        gradient: whether it is a result of the backward pass.
        scanned: whether it is an argument that a loop slices along its first dimension, one slice per iteration.
        use: the program's use of an argument, if notable; `optimizer`, `becomes`, `read` and `renewal` are its fields.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    spec: Spec | None
    shard_shape: tuple[int, ...] | None = None
    bytes_per_device: float | None = None
    sharding: Mapping[str, str] = field(default_factory=dict[str, str])
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
        """The name of the result that is an argument's new value; empty if there is none."""
        return "" if self.use is None else self.use.becomes

    @property
    def read(self) -> Spec | None:
        """The spec with which the program reads an argument, if each device reads only a slice of its shard."""
        return None if self.use is None else self.use.read

    @property
    def renewal(self) -> str:
        """How an argument's new value is written, as in `Use`."""
        return "" if self.use is None else self.use.renewal

    @property
    def on_host(self) -> bool:
        """Whether its shards are in the memory of the device's host."""
        return self.memory_kind != "device"

    def __str__(self) -> str:
        """Return `w: bfloat16[16, 8], P('data', None), shard [8, 8], 128 bytes per device`."""
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
    """Return the values that use the device's own memory: used, and not on the host."""
    return tuple(v for v in values if not (v.on_host or v.unused))


def unused_bytes(arguments: Iterable[Value]) -> dict[str, float]:
    """Return tree path → bytes on one device of the arguments that no result needs; see `Value.unused`."""
    return {v.name: v.bytes_per_device or 0.0 for v in arguments if v.unused and not v.on_host}


def donated_bytes(arguments: Iterable[Value]) -> list[float]:
    """Return the bytes on one device of each argument whose memory a result may reuse."""
    return [v.bytes_per_device or 0.0 for v in arguments if v.donated and not (v.unused or v.on_host)]


def take_donated(donated: list[float], size: float) -> bool:
    """Return whether a result of `size` bytes reuses a donated argument of equal size, which is then removed from the
    list."""
    if taken := size in donated:
        donated.remove(size)
    return taken


RESIDUAL_KINDS = ("kept", "outside", "offloaded", "argument", "constant", "recomputed")


@dataclass(frozen=True)
class Residual:
    """A value from before the backward pass that the backward pass needs.

    Attributes:
        value: the value, with the scan's iterations stacked as the first dimension of its shape.
        kind: `kept`, computed by the forward pass and kept; `outside`, kept but computed outside the differentiated
            part; `offloaded`, moved to the host's memory by a checkpoint policy; `argument`, which needs no more
            memory; `constant`, which compilers recompute; `recomputed`, dropped by `jax.checkpoint` and rematerialised.
        layers: the number of stacked iterations of a scan, 1 without a scan; None if unknown.
        checkpoint_name: its name from `jax.ad_checkpoint.checkpoint_name`.
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
        """Whether it needs device memory in addition to the step's arguments."""
        return self.kind in ("kept", "outside")


@dataclass(frozen=True, kw_only=True)
class Alive:
    """A value in memory at the moment of the peak.

    Attributes:
        name: the tree path of an argument; the instruction's name for other values.
        bytes: its bytes on one device, including the compiler's padding.
        kind: `argument`, `output`, `temporary` or `constant`. A donated argument's memory may have an output by then,
            and an output's memory is reserved before the output is computed.
        dtype, shape: on one device; empty if unknown.
        source: the line that computes it.
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
    """A program's use of host memory for one device, in bytes; `aliased` is included in arguments and outputs."""

    arguments: int = 0
    outputs: int = 0
    aliased: int = 0
    temporaries: int = 0

    @property
    def total(self) -> int:
        """All bytes; an output that reuses a donated argument's memory counts once."""
        return self.arguments + self.outputs - self.aliased + self.temporaries


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A compiler's memory plan, bytes on one device.

    Attributes:
        arguments, outputs, aliased, temporaries: from XLA's buffer assignment; `aliased` is included in arguments and
            outputs.
        peak: the most main memory in use at once: the memory for the full step (arguments, outputs, constants), plus
            the largest sum of temporaries at one moment, counting shared memory once. For TPUs and GPUs it is the peak
            of `Compiled.memory_analysis()`, except that JAX's number is the peak of a TPU's VMEM if this is larger.
            For CPUs, JAX's number excludes all temporaries.
        target: the compiler that made the plan.
        host: the plan for host memory, for the shards of one device; None if all arrays are in device memory.
        on_chip: bytes in the chip's own memories (a TPU's VMEM and SMEM).
        needed: all main memory that it needs, including constants and small buffers, which the compiler compares with
            the available memory; None if the compiler does not state it.
        hbm: main memory for a program on one device of the target; None if unknown.
        fits: whether it fits. For TPUs the compiler's own verdict; otherwise `needed`, or the reserved bytes, compared
            with `hbm`. None if unknown.
        alive_at_peak: the largest values at the moment of `peak`, largest first.
        constants: bytes of the constants in main memory.
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
        """Bytes of main memory for the program: `needed`, or else the reserved bytes."""
        return self.set_aside if self.needed is None else self.needed

    @property
    def headroom(self) -> int | None:
        """Bytes of `hbm` that remain; negative if the program does not fit; None if `hbm` is unknown."""
        return None if self.hbm is None else self.hbm - self.takes

    @property
    def set_aside(self) -> int:
        """Bytes that the plan reserves in total; an output that reuses a donated argument's memory counts once."""
        return self.arguments + self.outputs - self.aliased + self.temporaries
