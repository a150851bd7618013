"""What a shard map costs, and the bounds that it must keep."""

from __future__ import annotations

import statistics
import timeit

import numpy as np
import pytest

from shardviz.layouts import layout
from shardviz.notation import DeviceMesh
from shardviz.view.show import Shown

CASES = {
    "8 devices": ((8192, 4096), ("data", "model"), "data=4,model=2", 0.05),
    "2048 devices": ((8192, 4096), ("data", "model"), "data=64,model=32", 0.5),
    "2048 devices in rank 4": ((16, 16, 16, 16), ("a", "b", "c", "d"), "a=8,b=8,c=8,d=4", 0.5),
    "16384 devices": ((8192, 4096), ("data", "model"), "data=128,model=128", 1.2),
    "16384 devices in a line": ((16384,), (("data", "model"),), "data=128,model=128", 1.2),
    "16384 devices in rank 6": ((64,) * 6, ("f", "a", "c", "b", "e", "d"), "a=4,b=4,c=4,d=4,e=8,f=8", 1.2),
    "16384 devices, copies": ((8192, 4096), ("model", None), "data=128,model=128", 1.2),
}


@pytest.mark.parametrize(("shape", "spec", "mesh", "most"), CASES.values(), ids=list(CASES))
def test_html_shard_map(benchmark, yardstick, shape, spec, mesh, most):
    html = benchmark(lambda: Shown(layout(shape, spec, mesh)).html())
    assert len(html) <= 150_000
    assert benchmark.stats.stats.median <= most * yardstick()


def test_html_shard_map_of_16384_devices_in_any_order(benchmark, yardstick):
    ids = tuple(np.random.default_rng(0).permutation(16384).tolist())
    mesh = DeviceMesh(("data", "model"), (128, 128), (), ids)
    html = benchmark(lambda: Shown(layout((8192, 4096), ("data", "model"), mesh)).html())
    assert len(html) <= 150_000
    assert benchmark.stats.stats.median <= 1.2 * yardstick()


@pytest.mark.filterwarnings("ignore:The chararray class is deprecated:DeprecationWarning")  # treescope's own, NumPy 2.5
def test_a_shard_map_is_faster_than_treescopes(benchmark):
    """2048 devices, both in this run; treescope is given every device's slice, here they are found out too."""
    treescope = pytest.importorskip("treescope")
    from treescope import ndarray_adapters, type_registries

    shape, spec, mesh, _ = CASES["2048 devices"]
    cut = layout(shape, spec, mesh)
    slices = {int(d): cut.index(int(d)) for d in cut.device_ids}

    class Array:
        pass

    methods = dict.fromkeys(ndarray_adapters.NDArrayAdapter.__abstractmethods__, lambda *args, **more: None)
    methods |= {
        "get_axis_info_for_array_data": lambda self, array: tuple(
            ndarray_adapters.PositionalAxisInfo(i, n) for i, n in enumerate(shape)
        ),
        "get_sharding_info_for_array_data": lambda self, array: ndarray_adapters.ShardingInfo(
            cut.shard_shape, slices, "CPU"
        ),
    }
    adapter = type("Adapter", (ndarray_adapters.NDArrayAdapter,), methods)()
    type_registries.NDARRAY_ADAPTER_REGISTRY[Array] = adapter
    try:
        theirs = timeit.repeat(lambda: treescope.render_array_sharding(Array())._repr_html_(), number=1, repeat=7)
    finally:
        del type_registries.NDARRAY_ADAPTER_REGISTRY[Array]
    benchmark(lambda: Shown(layout(shape, spec, mesh)).html())
    benchmark.extra_info["treescope_seconds"] = statistics.median(theirs)
    assert benchmark.stats.stats.median < statistics.median(theirs)


def test_text_shard_map_of_2048_devices(benchmark, yardstick):
    benchmark(lambda: Shown(layout(*CASES["2048 devices"][:3])).text())
    assert benchmark.stats.stats.median <= 0.5 * yardstick()
