"""Asks JAX where the slices lie, on simulated devices, for many random cases at once; run as a program of its own.

    python jax_answers.py FOLDER

writes `cases.json` (what was asked) and `answers.npz` (what JAX said, arrays of all cases end to end).
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

DEVICES = 16
CASES = 10_500
PROCESS_CASES = 600
TILE_CASES = 1_000
ASSIGNMENTS = 1_000
MESHES = [
    (16,),
    (4, 4),
    (2, 8),
    (2, 2, 4),
    (2, 2, 2, 2),
    (4, 2),
    (8,),
    (2, 3),
    (3, 5),
    (6, 2),
    (1, 4),
    (2, 1, 3),
    (12,),
]
NAMES = ("data", "model", "stage", "expert")


def random_spec(rng, names, rank: int) -> list[list[str]]:
    """Some of the axes, in any order, on any dimensions."""
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in rng.permutation(list(names)):
        where = int(rng.integers(-1, rank)) if rank else -1
        if where >= 0:
            dims[where].append(str(name))
    return dims


def random_case(rng, divide: bool) -> dict:
    """A mesh with permuted devices, a spec, and a shape that divides or need not."""
    sizes = MESHES[rng.integers(len(MESHES))]
    names = NAMES[: len(sizes)]
    dims = random_spec(rng, names, int(rng.integers(0, 5)))
    by_name = dict(zip(names, sizes, strict=True))
    tile_counts = [math.prod(by_name[a] for a in dim) for dim in dims]
    shape = [int(n * rng.integers(1, 5)) if divide else int(rng.integers(1, 40)) for n in tile_counts]
    devices = rng.permutation(DEVICES)[: math.prod(sizes)].tolist()
    return {"names": names, "sizes": sizes, "devices": devices, "dims": dims, "shape": shape}


def random_assignment(rng) -> dict:
    """Tiles, perhaps with copies, and devices in any order."""
    dims = [int(n) for n in rng.choice([1, 2, 3, 4], int(rng.integers(1, 4)))]
    while math.prod(dims) > DEVICES or math.prod(dims) == 1:
        dims = [int(n) for n in rng.choice([1, 2, 3, 4], len(dims))]
    rank = len(dims) - int(len(dims) > 1 and rng.random() < 0.5)
    shape = [int(n * rng.integers(1, 4)) for n in dims[:rank]]
    return {"dims": dims, "devices": rng.permutation(math.prod(dims)).tolist(), "shape": shape}


def main(folder: Path) -> None:
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import numpy as np
    from jax._src import sharding_impls  # JAX has no public way to ask what a process would be given
    from jax._src.lib import xla_client
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    rng = np.random.default_rng(0)
    devices = np.array(jax.devices())
    cases = [random_case(rng, divide=True) for _ in range(CASES)]

    def sharding_of(case: dict) -> NamedSharding:
        mesh = Mesh(devices[case["devices"]].reshape(case["sizes"]), case["names"])
        return NamedSharding(mesh, PartitionSpec(*(tuple(dim) or None for dim in case["dims"])))

    bounds = []
    for case in cases:
        shape = tuple(case["shape"])
        found = sharding_of(case).devices_indices_map(shape)
        by_id = {d.id: [s.indices(n)[:2] for s, n in zip(index, shape, strict=True)] for d, index in found.items()}
        bounds.extend(np.ravel([by_id[d] for d in case["devices"]]).tolist())
    replicas = []
    for case in cases[:200]:
        array = jax.device_put(np.zeros(case["shape"], np.int8), sharding_of(case))
        ids = {shard.device.id: shard.replica_id for shard in array.addressable_shards}
        replicas.extend(ids[d] for d in case["devices"])

    tiles, uneven = [], [random_case(rng, divide=False) for _ in range(TILE_CASES)]
    for case in uneven:
        hlo = sharding_of(case)._to_xla_hlo_sharding(len(case["shape"]))
        whole = xla_client.Shape.array_shape(np.dtype("float32"), tuple(case["shape"]))
        tiles.extend(hlo.tile(whole).dimensions() if case["shape"] else ())

    hosts, counts = [random_case(rng, divide=True) for _ in range(PROCESS_CASES)], []
    for case in hosts:
        number = len(case["devices"])
        per_host = int(rng.choice([n for n in (1, 2, 3, 4, 6, 8) if number % n == 0]))
        blocks = rng.random() < 0.5  # hosts that are neighbours in the mesh, or any
        order = np.arange(number) if blocks else rng.permutation(number)
        case["processes"] = (order // per_host).tolist()
        sharding, shape = sharding_of(case), tuple(case["shape"])
        process = dict(zip(case["devices"], case["processes"], strict=True))
        fakes = {d: _Device(d.id, process[d.id]) for d in sharding.device_set}
        for host in range(number // per_host):
            mine = {fakes[d] for d in fakes if process[d.id] == host}

            fake = _Sharding(sharding, fakes, mine)
            for d in range(len(shape)):
                try:
                    _, parts = sharding_impls.get_process_index_and_count(fake, d, len(shape))
                except sharding_impls.NonUniformShardingError:
                    parts = -1
                counts.extend((sharding_impls.num_addressable_indices(fake, d, shape), parts))

    assignments, assigned = [random_assignment(rng) for _ in range(ASSIGNMENTS)], []
    for case in assignments:
        proto = xla_client.OpSharding()
        proto.type = xla_client.OpSharding.Type.OTHER
        proto.tile_assignment_dimensions = case["dims"]
        proto.tile_assignment_devices = case["devices"]
        proto.replicate_on_last_tile_dim = len(case["dims"]) > len(case["shape"])
        count, shape = len(case["devices"]), tuple(case["shape"])
        hlo = xla_client.HloSharding.from_proto(proto)
        found = sharding_impls.GSPMDSharding(tuple(devices[:count]), hlo).devices_indices_map(shape)
        by_id = {d.id: [s.indices(n)[:2] for s, n in zip(index, shape, strict=True)] for d, index in found.items()}
        assigned.extend(np.ravel([by_id[d] for d in range(count)]).tolist())

    asked = {"even": cases, "uneven": uneven, "hosts": hosts, "assigned": assignments}
    (folder / "cases.json").write_text(json.dumps(asked))
    np.savez(folder / "answers.npz", bounds=bounds, replicas=replicas, tiles=tiles, counts=counts, assigned=assigned)


class _Device:
    """A device of another process, as far as JAX's functions on shardings ask."""

    def __init__(self, number: int, process_index: int):
        self.id, self.process_index = number, process_index


class _Sharding:
    """A sharding of which only the devices in `mine` are this process's."""

    is_fully_addressable = False

    def __init__(self, real, fakes: dict, mine: set):
        self.real, self.fakes, self.addressable_devices = real, fakes, mine
        self.is_fully_replicated, self.num_devices = real.is_fully_replicated, real.num_devices
        self.shard_shape = real.shard_shape

    def devices_indices_map(self, shape: tuple[int, ...]) -> dict:
        return {self.fakes[d]: index for d, index in self.real.devices_indices_map(shape).items()}

    def addressable_devices_indices_map(self, shape: tuple[int, ...]) -> dict:
        return {d: index for d, index in self.devices_indices_map(shape).items() if d in self.addressable_devices}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
