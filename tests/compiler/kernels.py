"""Kernels of their own for the compile server's tests: a script in a new process, in surroundings that are given."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil

from shardviz.processes import dumps

PRELUDE = """
import contextlib, json, os, random, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P
import shardviz as sv
from shardviz import processes

def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)

def shape_of(n):  # the answer to a question that no two ask alike
    program = sv.trace(lambda x: jnp.tanh(x) + 1, array(64 * n, 8))
    return program.partition(sv.Plan("x=2", (P("x"),)), timeout=60).outputs[0].shard_shape

def right(n):
    return shape_of(n) == (32 * n, 8)

def endless(x, w):
    for i in range(700):
        x = x + jnp.sort(jnp.tanh(x[:, : 324 + i] @ w[: 324 + i]), axis=0)
    return x

def long():
    program = sv.trace(endless, array(1024, 1024), array(1024, 1024))
    return program.submit(sv.Plan("x=4", (P("x"), None)), "compiled")

def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(condition)
        time.sleep(0.002)

def kind(call):
    try:
        call()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "no error"

answer = {}
"""

EPILOGUE = """
with open(sys.argv[1], "w") as file:
    json.dump(answer, file)
"""


def kernel(script, folder, *, before=(), env=None, timeout=300, finish=True, **how):
    """Runs a script, and gives what it has put into `answer`.

    Args:
        script: Python, after `PRELUDE`.
        folder: where its answer is written.
        before: what the interpreter is started with, such as `unshare`.
        env: what its environment has besides; None removes a name.
        finish: expect it to end in good order, and to leave nothing behind.
        how: what else `subprocess.Popen` is given.
    """
    said = Path(folder) / "answer.json"
    code = Path(folder) / "kernel_script.py"
    code.write_text(PRELUDE + textwrap.dedent(script) + EPILOGUE)
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", **(env or {})}
    environment = {name: value for name, value in environment.items() if value is not None}
    with (Path(folder) / "words").open("wb") as words:
        how = {"stdin": subprocess.DEVNULL, "stdout": words, "stderr": words, **how}
        process = subprocess.Popen(
            [*before, sys.executable, "-P", str(code), str(said)], env=environment, start_new_session=True, **how
        )
        try:
            process.wait(timeout=timeout)
        finally:
            process.kill()
            process.wait()
    text = (Path(folder) / "words").read_text(errors="replace")
    if finish:
        assert process.returncode == 0, text[-4000:]
        assert not left_behind(process.pid)
    return json.loads(said.read_text())


def left_behind(pid, seconds=10.0):
    """What is still there of a kernel that has ended, after some time: folders, and processes of its server."""
    deadline = time.monotonic() + seconds
    while True:
        found = [str(path) for place in {dumps.base(), Path("/tmp")} for path in place.glob(f"shardviz-{pid}-*")]
        for process in psutil.process_iter(["cmdline"]):
            line = " ".join(process.info["cmdline"] or ())
            if b"shardviz.processes.main".hex() in line and f"shardviz-{pid}-".encode().hex() in line:
                found.append(f"{process.pid}: {process.status()}")
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)
