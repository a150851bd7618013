"""Calls of XLA's compilers: for CPU with simulated devices, for TPU and GPU without devices."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

from shardviz._jax.lowering import mlir_context
from shardviz._jax.mlir import ir


def preload() -> None:
    """Import what compiling needs, without creating a backend or a thread, so that a later fork is cheap."""
    import numpy  # noqa: F401
    from jax._src.interpreters import mlir  # noqa: F401
    from jax._src.lib import xla_client  # noqa: F401  # pyright: ignore[reportPrivateImportUsage]
    from jax._src.lib.mlir.dialects import mhlo  # noqa: F401 - else each child imports it with its first context
    from jax.experimental import topologies  # noqa: F401
    from jax.extend import backend  # noqa: F401


def compile_for_cpu(module: bytes, devices: int, out_chosen: Sequence[bool], options: dict[str, Any]) -> Any:
    """Compile StableHLO bytecode with Shardy's shardings for simulated CPU devices (2048 at most), and return the
    executable. XLA writes its dumps as `options` say (`xla_dump_to`, ...). Outputs in `out_chosen` are sharded by the
    compiler."""
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
    """Compile as `compile_for_cpu` does, for a machine (`platform` `tpu` or `cuda`) that need not exist here; errors
    are the compiler's own. `names` describes the machine for its compiler: for TPUs `topology_name` (`v5p:4x4x4`); for
    GPUs `topology` (NVLink domains x hosts x GPUs) and `target_config`. `device_ids` has the device at each position of
    the mesh. libtpu reads its environment when it is loaded, so set that before; for a GPU set `JAX_PLATFORMS=cpu`
    before."""
    from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]
    from jax.experimental import topologies

    by_id = {device.id: device for device in topologies.get_topology_desc(platform=platform, **names).devices}
    devices = tuple(by_id[i] for i in device_ids)
    compile_options = _compile_options(device_ids, out_chosen, options)
    with mlir_context():
        return devices[0].client.compile(ir.Module.parse(module), xla_client.DeviceList(devices), compile_options)


def _compile_options(device_ids: Sequence[int], out_chosen: Sequence[bool], options: dict[str, Any]) -> Any:
    """Return XLA's options for compiling one replica of a program that Shardy partitions over devices."""
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
    """Make a forked process work and exit cleanly. MLIR's thread pool and the backends' clients would join threads at
    exit that the fork does not have, so they are kept alive, and the fork lowers with its own thread pool."""
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
    """Give a context that was created before a fork the fork's own threads."""
    from jax._src.interpreters import mlir

    context.set_thread_pool(mlir.global_thread_pool)  # pyright: ignore[reportAttributeAccessIssue]
