"""Dry runs as each process of a job: what the script sees, and the first line at which processes differ."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import jax
import jsonschema
import pytest

import shardviz as sv
from shardviz.cli import main
from shardviz.cli.schemas import schema_of
from shardviz.errors import MeshError, ShardvizError
from shardviz.records.runs import RunCall, RunProgram, RunRecord

JOB = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

if len(sys.argv) > 1:
    jax.config.update("jax_num_cpu_devices", 2)
    jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
rows = NamedSharding(mesh, P("data"))
local = np.full((8, 8), jax.process_index(), np.float32)
x = jax.make_array_from_process_local_data(rows, local)
w = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P()))
step = jax.jit(lambda w, x: w - 1e-3 * (x.T @ x))
for _ in range(2):
    w = step(w, x)
multihost_utils.sync_global_devices("end of training")
back = multihost_utils.global_array_to_host_local_array(x, mesh, P("data"))
seen = {
    "process": [jax.process_index(), jax.process_count(), jax.local_device_count(), jax.device_count()],
    "devices": [d.process_index for d in jax.devices()],
    "local": [d.process_index for d in jax.local_devices()],
    "shards": [[str(s.index), list(s.data.shape), s.replica_id] for a in (x, w) for s in a.addressable_shards],
    "shapes": [list(a.shape) for a in (x, w, back, w.addressable_data(0))],
    "addressable": [a.is_fully_addressable for a in (x, w, back)],
    "gathered": multihost_utils.process_allgather(np.arange(3)).tolist(),
    "broadcast": multihost_utils.broadcast_one_to_all(np.arange(3)).tolist(),
}
print("seen", json.dumps(seen), flush=True)
"""


def seen(done) -> dict:
    assert done.returncode == 0, done.stderr
    return next(json.loads(line[5:]) for line in (done.stdout + done.stderr).splitlines() if line.startswith("seen "))


def test_a_script_sees_what_a_real_process_sees(tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    pipes = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    jobs = [subprocess.Popen([sys.executable, "job.py", address, i], env=environment, **pipes) for i in "01"]
    real = [seen(subprocess.CompletedProcess(job.args, job.wait(), *job.communicate())) for job in jobs]
    for i in "01":
        words = ["run", "--devices", "4", "--process", f"{i}/2", "-q", "--out", f"{i}.json", "--", "job.py"]
        dry = seen(subprocess.run([sys.executable, "-m", "shardviz.cli", *words], **pipes))
        assert dry == real[int(i)]
    compared = sv.compare(*(RunRecord.from_json((tmp_path / f"{i}.json").read_text()) for i in "01"))
    assert compared.same and compared.processes == (0, 1) and compared.programs > 2
    assert str(compared).startswith("2 of 2 processes run the same programs in the same order")


TRAIN = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
w = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P()))
step = jax.jit(lambda w: w @ w)
evaluate = jax.jit(lambda w: w.sum())
local = jax.jit(lambda x: x + jax.process_index())(np.ones(3))  # on the process's own device: may differ
w = step(w)
if jax.process_index() == 1:
    evaluate(w)
w = step(w)
names = {"attention", "embedding", "mlp", "norm"}
@jax.jit
def total(tree):
    weights = {"attention": 1, "embedding": 2, "mlp": 3, "norm": 4}
    return sum(weights[name] * tree[name].sum() for name in names)
total({name: w for name in names})
"""
SCRIPTS = {
    "index": TRAIN,
    "sets": TRAIN.replace("== 1", "> 1"),
    "shapes": TRAIN.replace("== 1", "> 1").replace("np.ones((8, 8)", "np.ones((8 + jax.process_index(), 8)"),
}


@pytest.mark.parametrize(
    ("script", "call", "what", "texts", "lines"),
    [
        ("index", 3, "program", ("<lambda>", "<lambda>"), ("w = step(w)", "evaluate(w)")),
        ("sets", 4, "operation", None, ("return sum(",) * 2),
        ("shapes", 1, "argument", ("float32[16,8]", "float32[18,8]"), ("w = jax.device_put(",) * 2),
    ],
)
def test_the_first_difference_is_found_with_its_line(tmp_path, capsys, script, call, what, texts, lines, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPTS[script])
    words = ["run", "--devices", "4", "--process", "all/2", "--steps", "0", "-q", "--json", "--", "train.py"]
    code = main(words)
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, schema_of("run"))
    assert code == 1
    assert (data["count"], data["processes"], data["programs"]) == (2, [0, 1], 3)
    (difference,) = data["differences"]
    assert (difference["call"], difference["what"], difference["processes"]) == (call, what, [1])
    if texts is not None:
        assert all(text in side["text"] for side, text in zip(difference["sides"], texts, strict=True))
    for side, line in zip(difference["sides"], lines, strict=True):
        frame = side["source"]
        assert data["source"][frame["file"]][str(frame["line"])].strip().startswith(line)


def test_processes_that_all_fail_are_no_success(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('before')\nimport no_such_module\n")
    assert main(["run", "--devices", "4", "--process", "all/2", "--", "train.py"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("2 of 2 processes run the same programs in the same order, and fail")
    assert err.count("before") == err.count("line 2, in <module>") == 1  # the same error of both


def test_differing_processes_are_a_failed_check(tmp_path, capsys):
    """`compare` of the files of two processes exits as `run --process all/2`; of two other runs only if asked."""
    program = RunProgram(
        name="step", source=None, calls=1, devices=4, mesh=None, arguments=(), results=(), processes=(0, 1)
    )
    calls = (RunCall(program=0, live_bytes=0, argument_bytes=0),)
    files = [tmp_path / f"{name}.json" for name in "abcd"]
    ends = ((0, 2), (program,)), ((1, 2), ()), (None, (program,)), (None, ())
    for file, (process, programs) in zip(files, ends, strict=True):
        run = RunRecord(devices=4, process=process, programs=programs, calls=calls[: len(programs)])
        file.write_text(run.to_json())
    assert main(["compare", str(files[0]), str(files[1])]) == 1
    assert "step" in capsys.readouterr().out
    assert main(["compare", str(files[2]), str(files[3])]) == 0


def test_bad_processes_are_refused(capsys):
    jax.devices()
    for text in ("4/4", "all", "x/2", "1/0", "-1/2"):
        assert main(["run", "--process", text, "--", "train.py"]) == 2
        assert "expected I/N with I from 0 to N - 1" in capsys.readouterr().err
    with pytest.raises(MeshError, match="JAX has already started, as process 0 of 1"), sv.dry_run(process=(1, 2)):
        pass
    for process in ((2, 2), (0, 0), "all/2", 1):
        with pytest.raises(MeshError, match="with i from 0 to n - 1"), sv.dry_run(process=process):  # type: ignore[arg-type]
            pass
    one = RunRecord(devices=4, process=(0, 2))
    assert sv.compare(one, RunRecord(devices=4, process=(1, 2))).same
    with pytest.raises(ShardvizError, match="3 of 3 are dry runs; give two runs with two names"):
        sv.compare(("a", one), ("b", one), ("c", one))
