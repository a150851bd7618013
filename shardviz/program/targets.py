"""Which machines this installation can compile for, told from the installed packages alone.

A compiler needs no machine of its kind: XLA for CPU comes with jaxlib, the TPU compiler is the package libtpu, the
GPU compiler is JAX's CUDA plugin plus NVIDIA's ptxas. Looking at packages starts no JAX backend and imports none of
them, so it costs milliseconds and cannot fail for lack of a driver.

>>> [status.name for status in targets()]
['cpu', 'tpu', 'gpu']
>>> targets()[0].ready
True
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import sys
from dataclasses import dataclass, replace

from shardviz.program.gpu_config import GPUS

TPU_CHIPS = ("v2", "v3", "v4", "v5e", "v5p", "v6e", "tpu7x")
"""The TPUs that libtpu has topologies of."""

TPU_EXAMPLE = "'tpu v5p:4x4x4', or 'tpu v5e:4x4*2' for two slices"
GPU_EXAMPLE = "'gpu h100:2x8', hosts x GPUs of each"
ATTACHED = "attached      the devices that JAX sees in this process, by the compiler of their kind"


@dataclass(frozen=True)
class TargetStatus:
    """Whether programs can be compiled for one kind of machine here.

    Attributes:
        name: `cpu`, `tpu` or `gpu`.
        ready: its compiler is installed and fits this jaxlib.
        compiler: the packages that make the compiler, with their versions, as far as they are installed.
        missing: what stands in the way, in words; empty where nothing does.
        install: the command that mends it; empty where nothing is missing, or nothing can be done on this platform.
        chips: the chips that it compiles for.
        example: how a target of this kind is written.
    """

    name: str
    ready: bool
    compiler: tuple[str, ...] = ()
    missing: str = ""
    install: str = ""
    chips: tuple[str, ...] = ()
    example: str = ""

    def __str__(self) -> str:
        head = f"{self.name:<4} {'ready  ' if self.ready else 'missing'}  {', '.join(self.compiler) or 'no compiler'}"
        notes = [self.missing] if self.missing else []
        notes += [f"to install: {self.install}"] if self.install else []
        notes += [f"chips: {', '.join(self.chips)}; written as {self.example}"] if self.chips else []
        return "\n".join([head, *(f"{'':<14}{note}" for note in notes)])


class Targets(tuple[TargetStatus, ...]):
    """The statuses of all targets: a tuple that prints as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join([*map(str, self), ATTACHED])


def targets() -> Targets:
    """The kinds of machine that programs can be compiled for, in the order cpu, tpu, gpu.

    Returns:
        One `TargetStatus` each, telling what is installed and what is missing. No JAX backend is started.
    """
    tpu = replace(_tpu(), chips=TPU_CHIPS, example=TPU_EXAMPLE)
    return Targets((_cpu(), tpu, replace(_gpu(), chips=tuple(GPUS), example=GPU_EXAMPLE)))


def _cpu() -> TargetStatus:
    version = _version("jaxlib")
    if version is None or not _importable("jaxlib"):
        return TargetStatus("cpu", False, (), "jaxlib is not installed", "pip install shardviz")
    return TargetStatus("cpu", True, (f"jaxlib {version}",))


def _tpu() -> TargetStatus:
    install = "pip install 'shardviz[tpu]'"
    version = _version("libtpu")
    found = (f"libtpu {version}",) if version else ()
    if version is None or not _importable("libtpu"):
        if (sys.platform, platform.machine()) != ("linux", "x86_64"):
            lack = f"the TPU compiler exists for Linux x86-64 only, this is {_here()}"
            return TargetStatus("tpu", False, found, lack)
        return TargetStatus("tpu", False, found, "the package libtpu (0.6 GB) is not installed", install)
    wanted = _wanted("libtpu", extra="tpu")
    if wanted is not None and not version.startswith(wanted):
        jax = _version("jax")
        return TargetStatus("tpu", False, found, f"jax {jax} goes with libtpu {wanted}*, not {version}", install)
    return TargetStatus("tpu", True, found)


def _gpu() -> TargetStatus:
    install = "pip install 'shardviz[cuda]'"
    packages = ("jax-cuda13-plugin", "jax-cuda13-pjrt", "nvidia-cuda-nvcc")
    versions = {name: _version(name) for name in packages}
    found = tuple(f"{name} {version}" for name, version in versions.items() if version)
    if sys.platform != "linux":
        lack = f"the GPU compiler exists for Linux only, this is {_here()}"
        return TargetStatus("gpu", False, found, lack)
    absent = [name for name, version in versions.items() if version is None]
    absent += [] if absent or _importable("jax_cuda13_plugin") else ["jax_cuda13_plugin"]
    if absent:
        lack = f"not installed: {', '.join(absent)} (1.3 GB in all; no driver, cuDNN or NCCL is needed)"
        return TargetStatus("gpu", False, found, lack, install)
    jaxlib = _version("jaxlib")
    for name in packages[:2]:
        if versions[name] != jaxlib:
            lack = f"jaxlib {jaxlib} goes with {name} {jaxlib}, not {versions[name]}"
            return TargetStatus("gpu", False, found, lack, install)
    return TargetStatus("gpu", True, found)


def _here() -> str:
    return f"{platform.system()} {platform.machine()}"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _importable(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _wanted(package: str, *, extra: str) -> str | None:
    """The version prefix that jax's own extra asks for: `0.0.42.` from `libtpu==0.0.42.*; extra == "tpu"`."""
    try:
        requirements = importlib.metadata.requires("jax") or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    pattern = re.compile(rf"{package}==([\d.]+)\*.*extra == ['\"]{extra}['\"]")
    return next((match[1] for line in requirements if (match := pattern.match(line))), None)
