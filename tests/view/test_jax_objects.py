"""Every object of JAX that has a sharding, on eight simulated devices: hovering says what JAX's own map says."""

import json

from tests.truth import answers_of

SCRIPT = """
import json, random
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
from jax._src.sharding_impls import GSPMDSharding
from jaxlib._hlo import HloSharding
import shardviz as sv
from tests.view.sanitizer import read
from tests.paint.test_scene import expand

rng, devices, wrong, kinds = random.Random(0), jax.devices(), [], {}

def said(shown, shape):
    found = {}
    for title in read(shown.html()).titles:
        where, cell, who = title.partition(" on device")
        if not cell:  # an axis's name, in full
            continue
        bounds = [b for b in where.split("]")[0][1:].split(", ") if b]
        bounds = [[0, n] if b == ":" else [int(x) for x in b.split(":")] for b, n in zip(bounds, shape)]
        for device in expand(who.removeprefix("s").split()[0]):
            found[device] = bounds
    return found

def theirs(sharding, shape):
    return {d.id: [list(i.indices(n)[:2]) for i, n in zip(index, shape)]
            for d, index in sharding.devices_indices_map(shape).items()}

def check(kind, shown, sharding, shape):
    kinds[kind] = kinds.get(kind, 0) + 1
    if said(shown, shape) != theirs(sharding, shape):
        wrong.append([kind, str(sharding), shape])

for case in range(40):
    names, sizes = rng.choice([(("x",), (8,)), (("x", "y"), (4, 2)), (("x", "y", "z"), (2, 2, 2))])
    array = np.array(rng.sample(devices, 8)).reshape(sizes)
    mesh = Mesh(array, names, axis_types=(AxisType.Auto,) * len(names))
    rank = rng.randint(1, 4)
    dims = [[] for _ in range(rank)]
    for name in rng.sample(names, rng.randint(1, len(names))):
        rng.choice(dims).append(name)
    shape = tuple(8 * rng.randint(1, 2) for _ in range(rank))
    named = NamedSharding(mesh, P(*map(tuple, dims)))
    hlo = named._to_xla_hlo_sharding(rank)
    gspmd = GSPMDSharding(tuple(array.flat), HloSharding.from_string(str(hlo)))
    check("NamedSharding", sv.show(shape, named), named, shape)
    check("GSPMDSharding", sv.show(shape, gspmd), named, shape)
    check("GSPMDSharding with a mesh", sv.show(shape, gspmd, mesh), named, shape)
    check("OpSharding", sv.show(shape, hlo.to_proto(), mesh), named, shape)
    check("serialized OpSharding", sv.show(shape, hlo.to_proto().SerializeToString(), mesh), named, shape)
    check("HLO text", sv.show(shape, str(hlo), mesh), named, shape)
    check("ShapeDtypeStruct", sv.show(jax.ShapeDtypeStruct(shape, "int8", sharding=named)), named, shape)
    if rank < 3:
        x = jax.device_put(np.zeros(shape, np.int8), named)
        check("jax.Array", sv.show(x), named, shape)
        check("tree", sv.show({"x": x}).leaves[0], named, shape)
one = SingleDeviceSharding(devices[3])
check("SingleDeviceSharding", sv.show((4, 2), one), one, (4, 2))
check("SingleDeviceSharding in a mesh", sv.show((4, 2), one, Mesh(np.array(devices), ("x",))), one, (4, 2))
mapped = jax.pmap(lambda x: x + 1)(jnp.ones((8, 3)))
check("result of pmap", sv.show(mapped), mapped.sharding, (8, 3))
spec = sv.notation.pmap.ShardingSpec(
    (sv.notation.pmap.Chunked((4,)), sv.notation.pmap.NoSharding()),
    (sv.notation.pmap.ShardedAxis(0), sv.notation.pmap.Replicated(2)),
)
mesh = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))
check("ShardingSpec", sv.show((8, 6), spec, mesh), NamedSharding(mesh, P("x")), (8, 6))
check("ShardingSpec alone", sv.show((8, 6), spec), NamedSharding(mesh, P("x")), (8, 6))
print(json.dumps({"wrong": wrong[:3], "kinds": kinds}))
"""


def test_hovering_says_where_jax_puts_the_slices():
    found = json.loads(answers_of("-W", "ignore", "-c", SCRIPT, devices=8))
    assert found["wrong"] == []
    assert len(found["kinds"]) == 14 and found["kinds"]["GSPMDSharding"] == 40
