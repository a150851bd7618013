"""Checkpoints: the chunks, and the bytes of each process, are those of checkpoints that Orbax writes and reads."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import jax
import jsonschema
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.cli import main
from shardviz.cli.schemas import schema_of
from shardviz.errors import MeshError, ShardvizError, SpecError
from shardviz.records.amounts import format_bytes
from shardviz.records.checkpoint import Checkpoint

JOB = """
import asyncio, json, os, sys
import jax, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 4)
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
import orbax.checkpoint as ocp
import tensorstore as ts
from orbax.checkpoint._src.serialization import jax_array_handlers, serialization, worker_memory_utils

tree, ways = json.loads(sys.argv[3]), json.loads(sys.argv[4])
mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
spec = lambda entries: NamedSharding(mesh, P(*(tuple(e) if isinstance(e, list) else e for e in entries)))
full = lambda shape, dtype: np.arange(1, np.prod(shape) + 1).reshape(shape).astype(dtype)
values = {name: full(*each[:2]) for name, each in tree.items()}
arrays = {n: jax.make_array_from_callback(v.shape, spec(tree[n][2]), lambda i, v=v: v[i]) for n, v in values.items()}
seen = []
for number, (parallel, chunk_bytes) in enumerate(ways):
    folder = f"{os.getcwd()}/checkpoint{number}"
    handler = jax_array_handlers.ArrayHandler(use_replica_parallel=parallel)
    ocp.type_handlers.register_type_handler(jax.Array, handler, override=True)
    args = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=chunk_bytes), arrays)
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).save(folder, args=ocp.args.PyTreeSave(arrays, save_args=args))
    bases = [f"file://{folder}/ocdbt.process_{p}" for p in range(2)]
    stores = [ts.KvStore.open({"driver": "ocdbt", "base": base}).result() for base in bases]
    keys = [[key.decode().rpartition("/") for key in store.list().result()] for store in stores]
    for name, value in values.items():
        where = {"driver": "zarr", "kvstore": {"driver": "ocdbt", "base": f"file://{folder}", "path": name}}
        chunk = ts.open(where, read=True, open=True).result().chunk_layout.read_chunk.shape or ()
        size = int(np.prod(chunk)) * value.itemsize
        written = [sum(at == name and not key.startswith(".") for at, _, key in each) * size for each in keys]
        array, read = asyncio.run(serialization.async_deserialize(spec(tree[name][3]), where))
        assert all((np.asarray(shard.data) == value[shard.index]).all() for shard in array.addressable_shards)
        seen.append([name, number, list(chunk), written, read])
params = [(array, name, None) for name, array in sorted(arrays.items())]
batches = [
    [[name for _, name, _ in batch] for batch in worker_memory_utils.next_memory_budgeted_batch(
        params, limit, replica_id=None if parallel else 0, dispatcher=None
    )]
    for parallel, limit in json.loads(sys.argv[5])
]
print("seen", json.dumps([seen, batches]), flush=True)
"""
TREE = {
    "grid": ((16, 8), "float32", ["a", "b"], ["b", "a"]),
    "rows": ((16, 8), "float32", ["a", None], [None, "b"]),
    "scalar": ((), "float32", [], []),
    "odd": ((6, 5), "float32", [], ["a", None]),
    "inner": ((64, 64), "bfloat16", [None, "a"], ["b", "a"]),
    "stacked": ((16, 24, 3), "int8", [["a", "b"], None], [None, None]),
    "turned": ((8, 32), "float16", [None, ["b", "a"]], [["b", "a"]]),
    "whole": ((24, 16), "float32", [], [None, "b"]),
}
WAYS = [[True, None], [False, None], [True, 100], [False, 1000]]
LIMITS = [[True, 100], [True, 2500], [True, 6000], [False, 1500], [False, 100000]]


def spec(entries) -> P:
    return P(*(tuple(e) if isinstance(e, list) else e for e in entries))


def test_chunks_and_bytes_are_those_of_orbax(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    (tmp_path / "job.py").write_text(JOB)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    pipes = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    words = [json.dumps(each) for each in (TREE, WAYS, LIMITS)]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    jobs = [subprocess.Popen([sys.executable, "job.py", address, i, *words], env=environment, **pipes) for i in "01"]
    outs = [job.communicate() for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], outs
    real = [json.loads(next(x[5:] for x in out.splitlines() if x.startswith("seen "))) for out, _ in outs]
    arrays = {name: jax.ShapeDtypeStruct(shape, dtype) for name, (shape, dtype, *_) in TREE.items()}
    sides = [{name: spec(each[side]) for name, each in TREE.items()} for side in (2, 3)]
    for number, (parallel, chunk_bytes) in enumerate(WAYS):
        one = {
            name: sv.checkpoint(
                {name: array},
                *({name: side[name]} for side in sides),
                mesh={"a": 2, "b": 4},
                processes=2,
                replica_parallel=parallel,
                chunk_bytes=chunk_bytes,
            )
            for name, array in arrays.items()
        }
        for process in range(2):
            for name, way, chunk, written, read in real[process][0]:
                if way == number:
                    kept = one[name]
                    assert list(kept.leaves[0].chunk_shape) == chunk, name
                    assert [w.nbytes for w in kept.writers] + [0.0] * (2 - len(kept.writers)) == written, name
                    assert kept.readers[process].nbytes == read, name
    for (parallel, limit), batches in zip(LIMITS, real[0][1], strict=True):
        assert len(batches) > 1 or limit == 100000
        kept = sv.checkpoint(
            arrays, sides[0], mesh={"a": 2, "b": 4}, processes=2, replica_parallel=parallel, limit=limit
        )
        written = {name: each for name, way, _, each, _ in real[0][0] if way == WAYS.index([parallel, None])}
        held = [max(sum(written[name][p] for name in batch) for batch in batches) for p in range(2)]
        assert [writer.host_bytes for writer in kept.writers] == held


PARAMS = {"up": jax.ShapeDtypeStruct((8, 4096, 1024), np.float32), "norm": jax.ShapeDtypeStruct((4096,), np.float32)}
SPECS = {"up": P(None, "fsdp", None), "norm": P()}


def test_a_tree_is_written_once_and_evenly():
    kept = sv.checkpoint(PARAMS, SPECS, mesh={"fsdp": 64}, target="tpu v5p:4x4x4", bandwidth=1e9)
    total = sum(np.prod(a.shape) * 4 for a in PARAMS.values())
    assert sum(w.nbytes for w in kept.writers) == kept.nbytes == total
    assert len(kept.writers) == 16 and kept.unevenness == 1.0 and not kept.readers
    assert kept.write_seconds == total / 16 / 1e9
    one = sv.checkpoint(PARAMS, SPECS, mesh={"fsdp": 64}, processes=16, replica_parallel=False)
    norm = next(leaf for leaf in one.leaves if "norm" in leaf.name)
    assert (norm.writers, norm.along, one.unevenness > 1) == (1, None, True)
    assert Checkpoint.from_json(kept.to_json()) == kept
    assert f"{format_bytes(total / 16)} by each process, " in str(kept)


def test_a_host_holds_what_the_limit_allows():
    free = sv.checkpoint(PARAMS, SPECS, mesh={"fsdp": 64}, processes=16)
    assert all(w.host_bytes == w.nbytes for w in free.writers)
    kept = sv.checkpoint(PARAMS, SPECS, mesh={"fsdp": 64}, processes=16, limit=8.4e6)
    most = max(leaf.most_bytes for leaf in kept.leaves)
    assert all(w.host_bytes == most < w.nbytes for w in kept.writers)  # one array after the other


def test_other_processes_read_more_than_they_need():
    after = {"up": P(None, None, "tensor"), "norm": P()}
    kept = sv.checkpoint(PARAMS, SPECS, after, mesh={"fsdp": 64}, to_mesh={"tensor": 8}, processes=16, to_processes=2)
    up = next(leaf for leaf in kept.leaves if "up" in leaf.name)
    assert up.read_bytes == 8 * up.nbytes == 8 * up.needed_bytes  # each of 8 shards needs every chunk
    assert all(reader.sources == 16 for reader in kept.readers)
    assert "that they need, because shards end within chunks" in " ".join(str(kept).split())
    same = sv.checkpoint(PARAMS, SPECS, mesh={"fsdp": 64}, processes=16, to_processes=4)
    assert [r.nbytes for r in same.readers] == [r.needed_bytes for r in same.readers]
    other = sv.checkpoint(PARAMS, SPECS, mesh={"fsdp": 64}, to_mesh={"fsdp": 128}, processes=16)
    assert len(other.readers) == 16
    refused = sv.checkpoint(PARAMS, SPECS, after, mesh={"fsdp": 64}, to_mesh={"tensor": 8}, read_limit=1e6)
    assert refused.too_large == ("['up']",) and "Orbax refuses to read 1 array: a shard" in str(refused)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mesh": {"fsdp": 64}, "processes": 7}, MeshError, "64 devices do not divide by 7 processes"),
        ({"mesh": {"fsdp": 3}}, SpecError, r"\['up'\] .*before .*does not divide"),
        ({"mesh": {"fsdp": 64}, "to_mesh": {"fsdp": 3}}, SpecError, r"\['up'\] .*after .*does not divide"),
        ({}, MeshError, "give a mesh"),
        ({"mesh": {"fsdp": 64}, "limit": -1}, ShardvizError, "limit: -1 is not above 0"),
        (
            {"mesh": {"fsdp": 64}, "after": {"up": jax.ShapeDtypeStruct((8,), np.float32)}},
            ShardvizError,
            "after: the array",
        ),
    ],
)
def test_what_is_no_checkpoint_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        sv.checkpoint(PARAMS, SPECS, **options)


def test_the_verb(capsys):
    words = [
        "checkpoint",
        "f32[8192,4096]",
        "P('data', None)",
        "P(None, 'data')",
        "--mesh",
        "data=8",
        "--processes",
        "4",
    ]
    assert main([*words, "--bandwidth", "2GB/s", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, schema_of("checkpoint"))
    assert data["write_seconds"] == 8192 * 4096 * 4 / 4 / 2e9 and data["readers"]
    assert main([*words, "--processes", "2", "--processes", "3"]) == 2
    assert "--processes: 3 values" in capsys.readouterr().err
    assert main(["checkpoint", "f32[9,8]", "P('data')", "--mesh", "data=8"]) == 2
    assert "BEFORE \"P('data')\": array [9, 8]" in capsys.readouterr().err
