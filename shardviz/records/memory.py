"""A compiler's memory plan, and what is alive when it is fullest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardviz.records.values import Frame


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
            VMEM, which then stands there; for CPU the peak stated there leaves all temporaries out.
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
    host: HostMemory | None = None
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
