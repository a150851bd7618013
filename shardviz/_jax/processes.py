"""This Python process as process i of n for JAX, without the other processes; all devices are simulated.

JAX's CPU client reads the other processes' devices from a key-value store. Here the store is in this process, and n - 1
short-lived clients write their devices to it. JAX itself then decides which devices and shards are local. The ids are
set afterwards, because the CPU's ids have gaps. Tested with JAX 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import jax
import numpy as np

_HEARTBEAT_S = 10**8
"""Seconds without a heartbeat after which the store ends the job. Many, because a debugger may stop this process."""
_folders: list[tempfile.TemporaryDirectory[str]] = []  # of the store's socket, until Python ends


def process() -> tuple[int, int]:
    """Return the number of this process and the number of processes, as JAX has them."""
    from jax._src import distributed

    return distributed.global_state.process_id, distributed.global_state.num_processes


def start_process(index: int, count: int, ids: Sequence[int]) -> None:
    """Start JAX's backend as a process of several, for as long as this Python process runs.

    The devices `ids`, in the order of `jax.devices()`, are divided equally among the processes."""
    from jax._src import compiler, distributed
    from jax._src.lib import _jax, xla_client  # pyright: ignore[reportPrivateImportUsage]

    each = len(ids) // count
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", each)
    _folders.append(tempfile.TemporaryDirectory())
    state, address = distributed.global_state, f"unix:{_folders[0].name}/store"
    alive = {"heartbeat_timeout": _HEARTBEAT_S}
    state.service = _jax.get_distributed_runtime_service(address, 1, **alive)
    client = state.client = _jax.get_distributed_runtime_client(address, 0, init_timeout=10, **alive)
    client.connect()
    state.process_id, state.num_processes = index, count

    def add_devices(other: int) -> None:
        xla_client.make_cpu_client(
            asynchronous=True,
            distributed_client=client,
            node_id=other,
            num_nodes=count,
            collectives=None,
            num_devices=each,
        )

    others = [threading.Thread(target=add_devices, args=(other,)) for other in range(count) if other != index]
    for thread in others:
        thread.start()
    devices = jax.devices()
    for thread in others:
        thread.join()
    own = type(devices[0]).id
    numbers = {device.id: number for device, number in zip(devices, ids, strict=True)}
    options = compiler.get_compile_options

    def with_own_ids(*args: Any, device_assignment: Any = None, **more: Any) -> Any:
        if isinstance(device_assignment, np.ndarray) and device_assignment.dtype.kind == "O":
            device_assignment = np.vectorize(own.__get__, otypes=[int])(device_assignment)
        return options(*args, device_assignment=device_assignment, **more)

    compiler.get_compile_options = with_own_ids
    type(devices[0]).id = property(lambda device: numbers[own.__get__(device)])


def patch_multihost(module: ModuleType, replace: Callable[[Any, str, Any], None]) -> None:
    """Patch `jax.experimental.multihost_utils`: its programs are recorded; other processes have this one's values."""
    gather, broadcast = module.process_allgather, module.broadcast_one_to_all

    def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
        def of(own: Any, gathered: Any) -> Any:
            if isinstance(own, jax.Array) and not own.is_fully_addressable:
                return gathered
            return np.broadcast_to(own, gathered.shape) if not tiled else np.resize(own, gathered.shape)

        return jax.tree.map(of, in_tree, gather(in_tree, tiled=tiled))

    def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
        broadcast(in_tree, is_source)
        return jax.tree.map(np.asarray, in_tree)

    replace(module, "process_allgather", process_allgather)
    replace(module, "broadcast_one_to_all", broadcast_one_to_all)
