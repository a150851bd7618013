"""The machines that this installation can compile for, and descriptions of GPUs for XLA's compiler.

A compiler needs no machine of its kind: XLA for CPU is part of jaxlib, the TPU compiler is the package libtpu, and the
GPU compiler is JAX's CUDA plugin with NVIDIA's ptxas. Looking for packages starts no JAX backend and imports none of
them, so it takes milliseconds and needs no driver.

>>> [status.name for status in targets()]
['cpu', 'tpu', 'gpu']
>>> targets()[0].ready
True

A GPU that is not there is described to XLA by its numbers, which are those of the chips' own data sheets and of XLA's
descriptions of them (https://github.com/openxla/xla/tree/main/xla/backends/gpu/target_config/specs, read
2026-11-20).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

TPU_CHIPS = ("v2", "v3", "v4", "v5e", "v5p", "v6e", "tpu7x")
"""The TPUs that libtpu has topologies of."""

TPU_EXAMPLE = "'tpu v5p:4x4x4', or 'tpu v5e:4x4*2' for two slices"
GPU_EXAMPLE = "'gpu h100:2x8', hosts x GPUs of each"
ATTACHED = "attached      the devices that JAX sees in this process, by the compiler of their kind"


@dataclass(frozen=True, kw_only=True)
class TargetStatus:
    """Whether this installation can compile programs for one kind of machine."""

    name: str  # `cpu`, `tpu` or `gpu`
    ready: bool  # its compiler is installed and fits this jaxlib
    compiler: tuple[str, ...] = ()  # the packages that make it, with their versions, as far as they are installed
    missing: str = ""  # in words; empty where nothing is
    install: str = ""  # the command that fixes it; empty where nothing is missing, or nothing can be done here
    chips: tuple[str, ...] = ()  # those that it compiles for
    example: str = ""  # how a target of this kind is written

    def __str__(self) -> str:
        head = f"{self.name:<4} {'ready  ' if self.ready else 'missing'}  {', '.join(self.compiler) or 'no compiler'}"
        notes = [self.missing] if self.missing else []
        notes += [f"to install: {self.install}"] if self.install else []
        notes += [f"chips: {', '.join(self.chips)}; written as {self.example}"] if self.chips else []
        return "\n".join([head, *(f"{'':<14}{note}" for note in notes)])


class Targets(tuple[TargetStatus, ...]):
    """The statuses of all targets, as a tuple that prints as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join([*map(str, self), ATTACHED])


def targets() -> Targets:
    """Return the kinds of machine that programs can be compiled for, in the order cpu, tpu, gpu.

    Returns:
        A `TargetStatus` for each, with what is installed and what is missing. No JAX backend is started.

    Examples:
        >>> import shardviz as sv
        >>> [target.name for target in sv.targets()]
        ['cpu', 'tpu', 'gpu']
    """
    return _read_targets(tuple(map(_changed, sys.path)))


@lru_cache(maxsize=1)
def _read_targets(_: tuple[int, ...]) -> Targets:
    return Targets((_cpu(), _tpu(), _gpu()))


def _changed(folder: str) -> int:
    """Return when something was last installed in a folder of `sys.path`, in nanoseconds; 0 where there is none."""
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def _cpu() -> TargetStatus:
    version = version_of("jaxlib")
    missing = "" if version and _importable("jaxlib") else "jaxlib is not installed"
    return _status("cpu", {"jaxlib": version}, missing, install="pip install shardviz")


def _tpu() -> TargetStatus:
    version, install = version_of("libtpu"), "pip install 'shardviz[tpu]'"
    wanted = _wanted("libtpu", extra="tpu")
    missing = ""
    if version is None or not _importable("libtpu"):
        missing = "the package libtpu (0.6 GB) is not installed"
        if (sys.platform, platform.machine()) != ("linux", "x86_64"):
            missing, install = f"the TPU compiler exists for Linux x86-64 only, this is {_system()}", ""
    elif wanted is not None and not version.startswith(wanted):
        missing = f"jax {version_of('jax')} goes with libtpu {wanted}*, not {version}"
    return _status("tpu", {"libtpu": version}, missing, install=install, chips=TPU_CHIPS, example=TPU_EXAMPLE)


def _gpu() -> TargetStatus:
    install = "pip install 'shardviz[cuda]'"
    packages = ("jax-cuda13-plugin", "jax-cuda13-pjrt", "nvidia-cuda-nvcc")
    versions = {name: version_of(name) for name in packages}
    absent = [name for name, version in versions.items() if version is None]
    absent += [] if absent or _importable("jax_cuda13_plugin") else ["jax_cuda13_plugin"]
    jaxlib = version_of("jaxlib")
    other = next((name for name in packages[:2] if versions[name] != jaxlib), "")
    missing = ""
    if sys.platform != "linux":
        missing, install = f"the GPU compiler exists for Linux only, this is {_system()}", ""
    elif absent:
        missing = f"not installed: {', '.join(absent)} (1.3 GB in all; no driver, cuDNN or NCCL is needed)"
    elif other:
        missing = f"jaxlib {jaxlib} goes with {other} {jaxlib}, not {versions[other]}"
    return _status("gpu", versions, missing, install=install, chips=tuple(GPUS), example=GPU_EXAMPLE)


def _status(
    name: str,
    versions: dict[str, str | None],
    missing: str,
    *,
    install: str,
    chips: tuple[str, ...] = (),
    example: str = "",
) -> TargetStatus:
    return TargetStatus(
        name=name,
        ready=not missing,
        compiler=tuple(f"{package} {version}" for package, version in versions.items() if version),
        missing=missing,
        install=install if missing else "",
        chips=chips,
        example=example,
    )


def _system() -> str:
    return f"{platform.system()} {platform.machine()}"


def version_of(package: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _importable(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _wanted(package: str, *, extra: str) -> str | None:
    """Return the version prefix that jax's own extra requires: `0.0.42.` for `libtpu==0.0.42.*; extra == "tpu"`."""
    try:
        requirements = importlib.metadata.requires("jax") or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    pattern = re.compile(rf"{package}==([\d.]+)\*.*extra == ['\"]{extra}['\"]")
    return next((match[1] for line in requirements if (match := pattern.match(line))), None)


class Gpu(NamedTuple):
    """A GPU's properties for the compiler, beyond those that all NVIDIA GPUs of these generations share.

    NVIDIA's name, the major version of the CUDA compute capability, the number and boost clock of streaming
    multiprocessors, bytes of HBM, its bytes per second, bytes of L2 cache; a multiprocessor's FP32 lanes, its bytes of
    shared memory and how many of them a block can use; the number of NVLinks; bytes per second to the host.
    """

    name: str
    capability: int
    cores: int
    clock_ghz: float
    memory: int
    bandwidth: int
    cache: int
    lanes: int = 128
    shared: tuple[int, int] = (233472, 232448)
    links: int = 18
    pcie: int = 34359738368


GPUS = {
    "a100": Gpu("NVIDIA A100-SXM4-80GB", 8, 108, 1.41, 85100068864, 2039040000000, 41943040, 64, (167936, 166912), 12),
    "h100": Gpu("NVIDIA H100 80GB HBM3", 9, 132, 1.98, 84942979072, 3352320000000, 52428800),
    "h200": Gpu("NVIDIA H200 141GB HBM3e", 9, 132, 1.98, 151397597184, 4800000000000, 52428800),
    "b200": Gpu("NVIDIA B200", 10, 148, 1.965, 191514411008, 7672320000000, 132644864, pcie=68719476736),
    "gb200": Gpu("NVIDIA GB200", 10, 152, 2.062, 197897748480, 7928064000000, 135528448, pcie=68719476736),
}

_GPU_CONFIG = """gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  device_address_bits: 64
  ecc_enabled: true
  device_vendor: "NVIDIA Corporation"
  driver_version: "13.0.0"
  runtime_version: "12.8.0"
  compile_time_toolkit_version: "12.8.0"
  dnn_version: "9.10.0"
  shared_memory_per_core: {gpu.shared[0]}
  shared_memory_per_block_optin: {gpu.shared[1]}
  core_count: {gpu.cores}
  fpus_per_core: {gpu.lanes}
  clock_rate_ghz: {gpu.clock_ghz}
  device_memory_size: {gpu.memory}
  memory_bandwidth: {gpu.bandwidth}
  l2_cache_size: {gpu.cache}
  pcie_bandwidth: {gpu.pcie}
  name: "{gpu.name}"
  cuda_compute_capability {{ major: {gpu.capability} feature_extension: {feature} }}
  device_interconnect_info {{ active_links: {gpu.links} }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "{gpu.name}\""""


def gpu_config(chip: str) -> str | None:
    """Return a GPU's description (`h100`) in protobuf's text form, for `jax.experimental.topologies`; None if
    unknown."""
    gpu = GPUS.get(chip)
    if gpu is None:
        return None
    return _GPU_CONFIG.format(gpu=gpu, feature="ACCELERATED_FEATURES" if gpu.capability >= 9 else "NONE")
