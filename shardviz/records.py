"""The rows of a report: source frames, values, collectives, memory, cost, diagnostics. Plain data.

They stand low in the house because what finds them (Shardy's propagation, the HLO walk) stands low; `report.Report`
holds them all together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from shardviz.errors import ShardvizError
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.spec import axis_text

KINDS = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "ragged-all-to-all",
    "collective-broadcast",
)


@dataclass(frozen=True)
class Frame:
    """A line of source.

    Attributes:
        file: the file's path, or the name that IPython gives a cell.
        line: the line's number, from 1.
        function: the function that the line is in.
    """

    file: str
    line: int
    function: str = ""

    @property
    def short(self) -> str:
        """`model.py:20`, or `cell:3` for a line of a notebook's cell."""
        name = self.file.replace("\\", "/").rsplit("/", 1)[-1]
        if name.startswith("<ipython") or "ipykernel_" in self.file:
            name = "cell"
        return f"{name}:{self.line}"


@dataclass(frozen=True)
class Value:
    """An argument, an output or an intermediate, and how it is cut.

    Attributes:
        name: the tree path of an argument or output (`params['wq']`); the instruction's name for an intermediate.
        shape: the global shape.
        dtype: the element type, NumPy's name (`bfloat16`).
        spec: how it is cut; None where no PartitionSpec says it (see `sharding`).
        shard_shape: the shape on one device; None if not known.
        bytes_per_device: bytes of one shard, padding included; None if not known.
        sharding: the same sharding in other notations: `sdy`, `hlo`.
        source: the line that made it.
        op: the operation that made it (`dot_general`); empty for an argument.
        name_stack: where in the program: JAX's name stack.
        label: the variable it is assigned to in the source, where the line says so.
        count: how often it is made in a step, loops multiplied in; None where a loop's trip count is not known.
        manual: the mesh axes of the `shard_map`s around: every device along them has an array of its own, `shape` is
            that array's, and `spec` says how it is cut over the other axes (None where there are none).
        fixed: what of its spec is in its type, over Explicit axes; None where the mesh has none.
        donated: an argument whose memory the program may use for a result.
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
    donated: bool = False

    def __str__(self) -> str:
        """`w: bfloat16[16, 8], P('data', None), shard [8, 8], 128 bytes per device`."""
        parts = [f"{self.label or self.name}: {self.dtype}{list(self.shape)}"]
        if self.manual:
            parts.append(f"per device over {', '.join(map(axis_text, self.manual))}")
        if self.spec is not None:
            parts.append(str(self.spec))
        elif not self.manual:
            parts.append("no PartitionSpec says how it is cut")
        if self.fixed is not None:
            parts.append("fixed by type")
        if self.shard_shape is not None:
            parts.append(f"shard {list(self.shard_shape)}")
        if self.bytes_per_device is not None:
            parts.append(f"{self.bytes_per_device:,.0f} bytes per device")
        return ", ".join(parts)


@dataclass(frozen=True)
class Collective:
    """One collective operation of the program, as one device runs it.

    Attributes:
        kind: `all-gather`, `all-reduce`, `reduce-scatter`, `all-to-all`, `collective-permute`, `ragged-all-to-all`
            or `collective-broadcast`.
        axes: the mesh axes that its groups span, major to minor; a part of an axis as (name, sizes before it, size);
            None where the groups are no product of axes.
        dtype: the element type of what is moved, NumPy's name.
        shape: the shape of its result on one device.
        operand_bytes: bytes that go in, on one device, each time.
        result_bytes: bytes that come out, on one device, each time.
        count: how often it runs in a step, the trip counts of enclosing loops multiplied in; None where not known.
        groups: the replica groups (or source-target pairs) as HLO spells them; empty where the level has none.
        source: the innermost line of the person's code that it stems from.
        name_stack: JAX's name stack.
        phase: `forward`, `backward`, `rematerialised` (recomputed for the backward pass), or `update` (the optimizer's
            part: what is done with the gradients, and what is done for that alone).
        origin: `user` (written in the program) or `partitioner`.
        name: the instruction's name.
        operand: the argument or instruction that it moves.
        group_size: devices in a group.
        conditional: it stands in a branch that may not run; `count` then is the most that it can be.
        seconds, formula: the time of one run on the target and how it was reckoned; None where no target was given.
    """

    kind: str
    axes: tuple[Axis, ...] | None
    dtype: str
    shape: tuple[int, ...]
    operand_bytes: float
    result_bytes: float
    count: int | None
    groups: str = ""
    source: Frame | None = None
    name_stack: str = ""
    phase: str = "update"
    origin: str = "partitioner"
    name: str = ""
    operand: str = ""
    group_size: int | None = None
    conditional: bool = False
    seconds: float | None = None
    formula: str | None = None

    @property
    def total_bytes(self) -> float | None:
        """Operand bytes on one device over the whole step; None where the count is not known."""
        return None if self.count is None else self.operand_bytes * self.count


@dataclass(frozen=True)
class TargetCollective:
    """A collective of the optimised program, as the target runs it, and what of the partitioner's it carries out.

    Attributes:
        collective: its kind, axes, bytes and count, as the optimised program has them.
        stands_for: the names of the partitioner's collectives that it carries out; empty for one that the target's
            compiler added.
        how: what was done to them: `combined` (several are one), `split` (one is several: parts, a loop's
            iterations apart, or the same again), `moved` (out of a loop, so that it runs less often), `turned` (into
            another kind: an all-reduce of which each device keeps a part into a reduce-scatter), `converted` (to
            another element type), `asynchronous` (begun and ended apart), `fused` (inside a kernel), `added`. Empty: as
            partitioned.
        algorithm: what the compiler says of how it goes, in its own words; empty where it does not say at this stage.
            A TPU's says once the compile was finished: `RotatedPincerEmitter UniDirection1DRingStrategy` (what emits
            the code, and its strategy; what the words mean is not published).
    """

    collective: Collective
    stands_for: tuple[str, ...] = ()
    how: tuple[str, ...] = ()
    algorithm: str = ""


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

    @property
    def takes_memory(self) -> bool:
        """Whether it is memory of the device that the step needs besides its arguments."""
        return self.kind in ("kept", "outside")


@dataclass(frozen=True)
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
class Memory:
    """A compiler's memory plan, bytes on one device.

    Attributes:
        arguments, outputs, aliased, temporaries: as XLA's buffer assignment has them; `aliased` is counted in
            both of the first two.
        peak: the most that is in use at once in main memory: what is held for the whole step (arguments, outputs,
            constants) and the most of the temporaries that are alive at one moment, a place that several share once.
            For TPUs and GPUs it is the peak of `Compiled.memory_analysis()`, unless more is alive at once in a TPU's
            VMEM, which then stands there; for CPU the peak stated there leaves all temporaries out.
        target: the compiler whose plan it is.
        on_chip: what it sets aside in the chip's own memories (a TPU's VMEM and SMEM).
        needed: all that it takes of main memory, constants and small change included: what the compiler compares with
            what there is; None where it does not say.
        hbm: main memory that a program can use on one device of the target; None where not known.
        fits: whether it fits. For TPUs the compiler's own verdict; elsewhere `needed`, or what is set aside, against
            `hbm`. None where not known.
        alive_at_peak: the heaviest values at the moment of `peak`, the heaviest first.
        constants: the constants' bytes in main memory.
        code: bytes of machine code on one device; None unless the compile was finished, and where the compiler does
            not say (CPU, and GPUs that are not there).
        stated: `Compiled.memory_analysis()` word for word (`temp_size_in_bytes`), once the compile was finished; empty
            before. What a TPU's code generator lays out later is in it: its temporaries count the gaps between them,
            which are in `temporaries` already, once more.
    """

    arguments: int
    outputs: int
    aliased: int
    temporaries: int
    peak: int
    target: str = "cpu"
    on_chip: int = 0
    needed: int | None = None
    hbm: int | None = None
    fits: bool | None = None
    alive_at_peak: tuple[Alive, ...] = ()
    constants: int = 0
    code: int | None = None
    stated: Mapping[str, int] = field(default_factory=dict)

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


@dataclass(frozen=True)
class Work:
    """What one device computes, and reads and writes, at one place of the program in a step; loops multiplied in.

    Attributes:
        phase: as `Collective.phase`.
        source: the innermost line of the person's code that it stems from; None where not known.
        module: the module or function of the person's program that it stems from, from JAX's name stack
            (`layers/mlp`), or the function that the line is in; empty where not known.
        dtype: the element type of the products' operands, of the elementwise results, or of what is written.
        dot_flops: FLOPs of matrix products and convolutions.
        other_flops: FLOPs of all else, as XLA counts them: one for each element of an elementwise result or of a
            reduction's operand, none for transcendental functions (`exp`, `tanh`, `rsqrt`).
        hbm_bytes: bytes read from and written to main memory; None where the level does not tell.
    """

    phase: str
    source: Frame | None
    module: str
    dtype: str
    dot_flops: float
    other_flops: float = 0.0
    hbm_bytes: float | None = None

    @property
    def flops(self) -> float:
        """All FLOPs."""
        return self.dot_flops + self.other_flops


@dataclass(frozen=True)
class WorkTotal:
    """`Work` that has something in common, summed.

    Attributes:
        key: what it has in common: a phase, a line (`Frame`, or None where not known), a module or an element type.
        dot_flops, other_flops, hbm_bytes: the sums, as in `Work`.
    """

    key: str | Frame | None
    dot_flops: float
    other_flops: float
    hbm_bytes: float | None

    @property
    def flops(self) -> float:
        """All FLOPs."""
        return self.dot_flops + self.other_flops


_WORK_KEYS: Mapping[str, Callable[[Work], str | Frame | None]] = {
    "phase": lambda row: row.phase,
    "source": lambda row: None if row.source is None else Frame(row.source.file, row.source.line),
    "module": lambda row: row.module,
    "dtype": lambda row: row.dtype,
}


@dataclass(frozen=True)
class Stated:
    """What XLA's own `Compiled.cost_analysis()` says of a finished program, word for word.

    Attributes:
        flops, bytes_accessed, transcendentals: its numbers, for one device, a loop's body counted once; None where it
            has no such entry.
        optimal_seconds: what a TPU's compiler takes for the time of a run, a loop's body counted once; None where it
            does not say, or says that it does not know (a negative number).
    """

    flops: float | None
    bytes_accessed: float | None
    transcendentals: float | None = None
    optimal_seconds: float | None = None


@dataclass(frozen=True)
class Cost:
    """What a step does on one device.

    Attributes:
        dot_flops: FLOPs of all matrix products: 2 x output size x contracted size, loops multiplied in.
        unknown_loops: loops whose trip count could not be found; their bodies were counted once.
        other_flops: FLOPs of all else, loops multiplied in, as in `Work`; None where the level does not count them.
        once_flops: all FLOPs again, each loop's body counted once, as `cost_analysis()` does; None where not counted.
        hbm_bytes: bytes read from and written to main memory by the target's optimised program, loops multiplied in;
            None below level `compiled`.
        once_hbm_bytes: the same, each loop's body counted once.
        work: where it is done: one row for each phase, line, module and element type, the most FLOPs first.
        stated: what `cost_analysis()` says; None unless the compile was finished.
    """

    dot_flops: float
    unknown_loops: int = 0
    other_flops: float | None = None
    once_flops: float | None = None
    hbm_bytes: float | None = None
    once_hbm_bytes: float | None = None
    work: tuple[Work, ...] = ()
    stated: Stated | None = None

    @property
    def flops(self) -> float:
        """All FLOPs that the level counts."""
        return self.dot_flops + (self.other_flops or 0.0)

    def by(self, key: str) -> tuple[WorkTotal, ...]:
        """The work summed by what it has in common, the most FLOPs first, then the most bytes.

        Args:
            key: `phase`, `source` (the line), `module` or `dtype`.

        Raises:
            ShardvizError: for another key.
        """
        if key not in _WORK_KEYS:
            raise ShardvizError(f"by({key!r}): work is summed by {', '.join(map(repr, _WORK_KEYS))}")
        groups: dict[str | Frame | None, list[Work]] = {}
        for row in self.work:
            groups.setdefault(_WORK_KEYS[key](row), []).append(row)
        totals = (_work_total(of, rows) for of, rows in groups.items())
        return tuple(sorted(totals, key=lambda t: (-t.flops, -(t.hbm_bytes or 0.0), str(t.key))))


def _work_total(key: str | Frame | None, rows: Sequence[Work]) -> WorkTotal:
    moved = [row.hbm_bytes for row in rows if row.hbm_bytes is not None]
    dot, other = (math.fsum(getattr(row, name) for row in rows) for name in ("dot_flops", "other_flops"))
    return WorkTotal(key, dot, other, math.fsum(moved) if moved else None)


@dataclass(frozen=True)
class Diagnostic:
    """Something that a person should know about the program under this plan.

    Attributes:
        rule: the name of what found it, such as `levels-differ` or `involuntary-rematerialisation`.
        severity: `info`, `warning` or `error`.
        message: what it is, with its numbers.
        source: the line that it is about.
        value: the argument or value that it is about.
    """

    rule: str
    severity: str
    message: str
    source: Frame | None = None
    value: str = ""


@dataclass(frozen=True)
class PlanRecord:
    """A plan that was found to fit a program: a full-rank spec for every argument, and for every output or None.

    Attributes:
        mesh: the device mesh.
        in_specs: tree path → spec of every argument.
        out_specs: tree path → spec of every output, None for the compiler's choice.
    """

    mesh: DeviceMesh
    in_specs: Mapping[str, Spec]
    out_specs: Mapping[str, Spec | None]
