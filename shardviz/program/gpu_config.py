"""GPUs as XLA's compiler wants them described: facts about each chip, and the text that is made of them.

The numbers are those of the chips' own data sheets and of XLA's descriptions of them
(https://github.com/openxla/xla/tree/main/xla/backends/gpu/target_config/specs, read 2026-11-20).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """What the compiler asks of a GPU beyond what all NVIDIA's GPUs of these generations share.

    Attributes:
        name: NVIDIA's.
        capability: the CUDA compute capability, major version; minor is 0.
        cores: streaming multiprocessors.
        lanes: FP32 lanes of each.
        clock_ghz: the boost clock.
        memory, bandwidth, cache: bytes of HBM, its bytes a second, bytes of L2 cache.
        shared: bytes of shared memory of each multiprocessor, and how much of it a block can ask for.
        links: NVLinks.
        pcie: bytes a second to the host.
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

_SHARED_BY_ALL = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 49152,
    "threads_per_core_limit": 2048,
    "block_dim_limit_x": 2147483647,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
    "thread_dim_limit_x": 1024,
    "thread_dim_limit_y": 1024,
    "thread_dim_limit_z": 64,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
    "device_address_bits": 64,
    "ecc_enabled": "true",
    "device_vendor": '"NVIDIA Corporation"',
    "driver_version": '"13.0.0"',
    "runtime_version": '"12.8.0"',
    "compile_time_toolkit_version": '"12.8.0"',
    "dnn_version": '"9.10.0"',
}


def gpu_config(chip: str) -> str | None:
    """A GPU's description in protobuf's text form, for `jax.experimental.topologies`; None for one that is not known.

    Args:
        chip: the chip's short name, such as `h100`.
    """
    gpu = GPUS.get(chip)
    if gpu is None:
        return None
    info = _SHARED_BY_ALL | {
        "shared_memory_per_core": gpu.shared[0],
        "shared_memory_per_block_optin": gpu.shared[1],
        "core_count": gpu.cores,
        "fpus_per_core": gpu.lanes,
        "clock_rate_ghz": gpu.clock_ghz,
        "device_memory_size": gpu.memory,
        "memory_bandwidth": gpu.bandwidth,
        "l2_cache_size": gpu.cache,
        "pcie_bandwidth": gpu.pcie,
        "name": f'"{gpu.name}"',
    }
    lines = [f"  {key}: {value}" for key, value in info.items()]
    feature = "ACCELERATED_FEATURES" if gpu.capability >= 9 else "NONE"
    lines += [f"  cuda_compute_capability {{ major: {gpu.capability} feature_extension: {feature} }}"]
    lines += [f"  device_interconnect_info {{ active_links: {gpu.links} }}"]
    return "\n".join(
        [
            "gpu_device_info {",
            *lines,
            "}",
            'platform_name: "CUDA"',
            "dnn_version_info { major: 9 minor: 10 }",
            f'device_description_str: "{gpu.name}"',
        ]
    )
