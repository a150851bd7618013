"""Workers: tasks get done whatever happens to a process, nothing is sent twice, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import jax
import jax.numpy as jnp
import psutil
import pytest

import shardviz as sv
from shardviz.errors import ShardvizError
from shardviz.study import workers
from shardviz.study.sweep import _WORTH
from shardviz.study.workers import Lost, Shared, WorkerLost, Workers, answers


@pytest.fixture(scope="module")
def pool():
    with Workers(2) as pool:
        yield pool


def gone(pids, within=20.0):
    """Whether these processes end, and what they started with them."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        if not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids):
            return True
        time.sleep(0.05)
    return False


def test_what_is_called_there_returns_and_raises_here(pool):
    here = os.getpid()
    scale = 3  # a closure, and a lambda: they travel by their code
    assert sorted(pool.map(lambda n: n * scale, range(5))) == [0, 3, 6, 9, 12]
    assert pool.submit(os.getpid).result() not in (here, None)

    class Odd(Exception):
        def __init__(self, one, two):
            super().__init__(f"{one} and {two}")

    def fail():
        raise Odd("seven", "eight")

    with pytest.raises(Exception, match="seven and eight"):
        pool.submit(fail).result()
    assert pool.submit(print, "a word on stdout is no answer").result() is None
    with pytest.raises(TypeError):
        pool.submit(lambda lock: lock, threading.Lock())


def test_a_shared_value_is_sent_to_a_worker_once():
    class Counted:
        def __init__(self):
            self.times = 0

        def __reduce__(self):
            self.times += 1
            return list, (range(3),)

    counted = Counted()
    with Workers(1) as one:
        found = dict(
            answers(lambda value, task: (value[task], id(value)), Shared(counted), {n: n for n in range(3)}, one)
        )
    assert [n for n, _ in found.values()] == [0, 1, 2] and counted.times == 1
    assert len({there for _, there in found.values()}) == 1  # one object, unpacked once


def test_a_program_travels_and_answers_the_same(pool):
    example = sv.gallery.llama("8b")
    moved = lambda program, plan: [(c.kind, c.axes, c.total_bytes) for c in program.propagate(plan).collectives]  # noqa: E731
    found = dict(
        answers(moved, Shared(example.program), {0: example.plan, 1: example.plan.with_mesh("data=4,model=2")}, pool)
    )
    assert found[0] and found[0] == moved(example.program, example.plan) and found[1] != found[0]


def test_what_jit_wraps_arrives_whole(pool):
    step = jax.jit(lambda x, n: jnp.tanh(x) * n, static_argnums=1, donate_argnums=0)

    def asked(_, fn):
        lowered = fn.trace(jax.ShapeDtypeStruct((8,), "float32"), 3).lower()
        return lowered.as_text()

    assert dict(answers(asked, Shared(None), {0: step}, pool))[0] == asked(None, step)
    assert dict(answers(lambda _, fn: fn is jnp.sort, Shared(None), {0: jnp.sort}, pool)) == {0: True}


def test_settings_of_jax_hold_there_too(pool):
    wide = lambda *_: jnp.zeros(1).dtype.name  # noqa: E731
    with jax.enable_x64(True):
        assert dict(answers(wide, Shared(None), {0: None}, pool)) == {0: "float64"}
    assert dict(answers(wide, Shared(None), {0: None}, pool)) == {0: "float32"}


def die_once(flag, task):
    if not os.path.exists(flag):
        open(flag, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def test_a_killed_worker_costs_time_alone(tmp_path):
    with Workers(1) as one:
        found = dict(answers(die_once, Shared(str(tmp_path / "died")), dict.fromkeys("ab", 7), one))
        assert found == {"a": 7, "b": 7} and (tmp_path / "died").exists()
        always = dict(answers(lambda *_: os.kill(os.getpid(), signal.SIGKILL), Shared(None), {0: 0}, one))
        assert isinstance(always[0], Lost) and "SIGKILL, and so did" in always[0].why
        assert one.submit(int, "4").result() == 4  # and the pool goes on


def test_workers_of_another_jax_are_refused(monkeypatch):
    wanted = workers.versions() | {"jax": "0.0.1"}
    monkeypatch.setattr(
        workers, "versions", lambda: wanted
    )  # in a thread "there" is here: take what runs first as asked
    asked = dict(workers.versions())
    monkeypatch.undo()
    lost = workers.run(Shared(None), b"", asked)
    assert isinstance(lost, Lost) and "in place of 0.0.1" in lost.why and "same versions" in lost.why
    with pytest.raises(ShardvizError, match="executor=int"):
        next(answers(max, Shared(0), {0: 0}, 3))


def test_workers_of_another_shardviz_are_refused(pool, monkeypatch):
    monkeypatch.setattr(sv, "__version__", "0.0.1")
    (lost,) = (found for _, found in answers(max, Shared(0), {0: 0}, pool))
    assert isinstance(lost, Lost) and "in place of 0.0.1; give workers of the same versions" in lost.why
    assert lost.why.startswith("this worker has shardviz ")


def test_stopping_ends_what_runs_and_leaves_nothing():
    pool = Workers(2)
    futures = [pool.submit(time.sleep, 60) for _ in range(4)]
    while len(pool.pids) < 2 or not all(f.running() for f in futures[:2]):
        time.sleep(0.05)
    pids, begun = pool.pids, time.monotonic()
    pool.stop()
    assert time.monotonic() - begun < 5 and gone(pids)
    assert all(f.done() for f in futures)
    with pytest.raises((CancelledError, WorkerLost)):
        futures[3].result()
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(int)


SCRIPT = """
import os, sys, time
import jax, shardviz as sv
from jax.sharding import PartitionSpec as P
sv.sweep
sys.modules["shardviz.study.sweep"]._WORTH = 0.0
print(os.getpid(), flush=True)
FOLDER = sys.argv[1]

def make(n):
    if n:  # the first point is answered here
        open(f"{FOLDER}/{os.getpid()}", "w").close()
        time.sleep(60)
    return lambda x: x * 2, (jax.ShapeDtypeStruct((64,), "float32"),), {"in_specs": P("d")}

found = sv.sweep(make, {"n": [0, 1, 2, 3]}, mesh={"d": 8}, progress=False)
print("rows", len(found.rows), "left", found.left, flush=True)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_stops_a_sweep_at_once_and_leaves_no_process(tmp_path, how):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    there = tmp_path / "there"
    there.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, script, there], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        process.stdout.readline()
        until = time.monotonic() + 100
        while len(pids := [int(p.name) for p in there.iterdir()]) < min(2, workers.cores()):
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.1)
        children = [p.pid for p in psutil.Process(process.pid).children(recursive=True)]
        assert set(pids) <= set(children)
        begun = time.monotonic()
        process.send_signal(how)
        out = process.communicate(timeout=30)[0]
        assert time.monotonic() - begun < 10 and gone(children)
        if how == signal.SIGINT:
            assert "rows 1 left 3" in out
    finally:
        process.kill()
        process.wait()


def test_a_sweep_takes_workers_when_they_pay(monkeypatch):
    def make(batch):
        return (lambda w, x: x @ w), [jax.ShapeDtypeStruct(s, "float32") for s in ((64, 64), (batch, 64))]

    begun, module = [], sys.modules[sv.sweep.__module__]
    monkeypatch.setattr(module, "Workers", lambda count: begun.append(count) or ThreadPoolExecutor(count))
    monkeypatch.setattr(module, "cores", lambda: 2)
    over = {"batch": [64, 128, 256]}
    quick = sv.sweep(make, over, mesh={"d": 8}, progress=False)
    assert not begun and _WORTH > 1  # three points of some milliseconds each
    monkeypatch.setattr(module, "_WORTH", 0.0)
    slow = sv.sweep(make, over, mesh={"d": 8}, progress=False)
    assert begun == [2]
    assert [r.report.collectives for r in slow.rows] == [r.report.collectives for r in quick.rows]
    lock = threading.Lock()  # what cannot be sent is done here
    assert not sv.sweep(lambda batch: (lock, make(batch))[1], over, mesh={"d": 8}, progress=False).failed
    assert begun == [2]


@pytest.mark.skipif(workers.cores() < 2, reason="one core")
def test_our_own_workers_answer_as_this_process(pool):
    def make(batch, fn):
        if batch == 13:
            raise RuntimeError("an unlucky number")
        return fn, [jax.ShapeDtypeStruct(s, "float32") for s in ((64, 64), (batch, 64))]

    over = {"batch": [64, 13, 128], "fn": [lambda w, x: jnp.sum(x @ w), lambda w, x: jnp.tanh(x) @ w]}
    ask = lambda **more: sv.sweep(make, over, mesh={"d": 8}, level="partitioned", progress=False, **more)  # noqa: E731
    plain = lambda found: [(r.point, r.trouble, r.report and r.report.collectives) for r in found.rows]  # noqa: E731
    assert plain(ask(executor=pool)) == plain(ask())
