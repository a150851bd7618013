"""JAX's own map from device to slice, on eight simulated devices in permuted orders, against the record's places."""

import json

from tests.truth import answers_of

SCRIPT = """
import json, random
import jax, numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
import shardviz as sv
from jax._src.sharding_impls import GSPMDSharding
from jaxlib._hlo import HloSharding

rng, devices, checked, wrong = random.Random(0), jax.devices(), 0, []
MESHES = [("x",), (8,)], [("x", "y"), (4, 2)], [("x", "y"), (2, 4)], [("x", "y", "z"), (2, 2, 2)]

def slices(record, shape):
    ids, found = record.mesh.ids(), {}
    for place, row in enumerate(record.places().tolist()):
        step = [size // n for size, n in zip(shape, record.tiles)]
        found[int(ids[place])] = None if -1 in row else [[t * s, t * s + s] for t, s in zip(row, step)]
    return found

def theirs(sharding, shape):
    return {d.id: [list(i.indices(n)[:2]) for i, n in zip(index, shape)]
            for d, index in sharding.devices_indices_map(shape).items()}

for case in range(400):
    names, sizes = rng.choice(MESHES)
    order = rng.sample(range(8), 8) if case % 2 else list(range(8))
    array = np.array([devices[i] for i in order]).reshape(sizes)
    mesh = Mesh(array, names, axis_types=(AxisType.Auto,) * len(names))
    rank = rng.randint(1, 4)
    dims = [[] for _ in range(rank)]
    for name in rng.sample(names, rng.randint(0, len(names))):
        rng.choice(dims).append(name)
    shape = tuple(8 * rng.randint(1, 3) for _ in range(rank))
    named = NamedSharding(mesh, P(*map(tuple, dims)))
    gspmd = GSPMDSharding(tuple(array.flat), HloSharding.from_string(str(named._to_xla_hlo_sharding(rank))))
    for sharding in (named, gspmd):
        for given in (sv.sharding(sharding, None, rank), sv.sharding(sharding, mesh, rank)):
            checked += 1
            if slices(given, shape) != theirs(sharding, shape):
                wrong.append([str(sharding), shape, str(given)])
one = sv.sharding(SingleDeviceSharding(devices[5]), Mesh(np.array(devices).reshape(4, 2), ("x", "y")), 1)
held = [i for i, s in slices(one, (8,)).items() if s is not None]
print(json.dumps({"checked": checked, "wrong": wrong[:3], "one": held}))
"""


def test_places_are_where_jax_puts_them():
    assert json.loads(answers_of("-W", "ignore", "-c", SCRIPT, devices=8)) == {"checked": 1600, "wrong": [], "one": [5]}
