"""XLA's compilers called on a module: CPU with simulated devices, TPU and GPU with none."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

from shardviz._jax.lowering import mlir_context
from shardviz._jax.mlir import ir


def preload() -> None:
    """Imports what compiling needs and makes neither a backend nor a thread, so that a fork afterwards is cheap."""
    import numpy  # noqa: F401
    from jax._src.interpreters import mlir  # noqa: F401
    from jax._src.lib import xla_client  # noqa: F401  # pyright: ignore[reportPrivateImportUsage]
    from jax._src.lib.mlir.dialects import mhlo  # noqa: F401 - else each child imports it with its first context
    from jax.experimental import topologies  # noqa: F401
    from jax.extend import backend  # noqa: F401


def compile_for_cpu(module: bytes, devices: int, out_chosen: Sequence[bool], options: dict[str, Any]) -> Any:
    """Compiles StableHLO bytecode with Shardy's shardings for simulated CPU devices (2048 at most); gives the
    executable. XLA writes its dumps as `options` (`xla_dump_to`, ...) say; `out_chosen` outputs are sharded as the
    compiler likes."""
    from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]

    client = xla_client.make_cpu_client(num_devices=devices)
    compile_options = _compile_options(range(devices), out_chosen, options)
    with mlir_context():
        return client.compile_and_load(
            ir.Module.parse(module), xla_client.DeviceList(tuple(client.devices())), compile_options
        )


def compile_only(
    module: bytes,
    platform: str,
    names: dict[str, Any],
    device_ids: Sequence[int],
    out_chosen: Sequence[bool],
    options: dict[str, Any],
) -> Any:
    """As `compile_for_cpu`, for a machine (`platform` `tpu` or `cuda`) that need not be there; any error is its
    compiler's. `names` is the machine in its compiler's words: of TPUs `topology_name` (`v5p:4x4x4`), of GPUs
    `topology`, NVLink domains x hosts x GPUs, and `target_config`. `device_ids` has the device at each place of the
    mesh. libtpu reads its environment when it is first loaded, so that has to be set before; for a GPU
    `JAX_PLATFORMS=cpu` must be."""
    from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]
    from jax.experimental import topologies

    by_id = {device.id: device for device in topologies.get_topology_desc(platform=platform, **names).devices}
    devices = tuple(by_id[i] for i in device_ids)
    compile_options = _compile_options(device_ids, out_chosen, options)
    with mlir_context():
        return devices[0].client.compile(ir.Module.parse(module), xla_client.DeviceList(devices), compile_options)


def _compile_options(device_ids: Sequence[int], out_chosen: Sequence[bool], options: dict[str, Any]) -> Any:
    """XLA's compile options for a program that Shardy partitions over devices, one replica of it."""
    import numpy as np
    from jax.extend.backend import get_compile_options

    compile_options = get_compile_options(
        num_replicas=1, num_partitions=len(device_ids), device_assignment=np.array(device_ids).reshape(1, -1)
    )
    build = compile_options.executable_build_options
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = True
    build.allow_spmd_sharding_propagation_to_output = list(out_chosen)
    compile_options.env_option_overrides = list(options.items())
    return compile_options


def let_fork_end() -> None:
    """Has a fork of a process work, and end in good order: MLIR's thread pool and the backends' clients would join
    threads at exit that it does not have, so they live on, and what is lowered from now on uses a pool of the fork's
    own."""
    mlir = sys.modules.get("jax._src.interpreters.mlir")
    bridge = sys.modules.get("jax._src.xla_bridge")
    pool = getattr(mlir, "global_thread_pool", None)
    for held in filter(None, (pool, *(getattr(bridge, "_backends", None) or {}).values())):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))
    if pool is not None:
        mlir.global_thread_pool = type(pool)()  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    kept = getattr(mlir, "_thread_local_context", None)  # the newest JAX takes a context several times
    if kept is not None and kept.value is not None:
        kept.set_local(None)


def renew_threads(context: ir.Context) -> None:
    """Has a context that was made before a fork share its work among the fork's own threads."""
    from jax._src.interpreters import mlir

    context.set_thread_pool(mlir.global_thread_pool)  # pyright: ignore[reportAttributeAccessIssue]
