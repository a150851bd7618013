"""A cluster of dask.distributed, real processes on this machine: it answers as this process does, whoever is killed."""

import os
import signal
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import pytest

import shardviz as sv
from shardviz.study import workers
from shardviz.study.workers import Shared, answers

OWN_WARNINGS = pytest.mark.filterwarnings("default")  # dask's and tornado's
pytestmark = [pytest.mark.dask, pytest.mark.slow, OWN_WARNINGS]


@pytest.fixture(scope="module")
def distributed():
    """The package, imported by a test: a module that skips itself counts as skipped though no test of it is run."""
    return pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def cluster(distributed):
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def client(cluster):
    """The cluster's client, once both workers are there: dask starts those again that a test had ended.

    A nanny whose worker ends before it has heard of its start gives up, so that too is waited for.
    """
    cluster.wait_for_workers(2, timeout=120)
    deadline = time.monotonic() + 60
    while set(cluster.run(lambda dask_worker: dask_worker.process.status.name, nanny=True).values()) != {"running"}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return cluster


def make(batch, fn):
    if batch == 13:
        raise RuntimeError("an unlucky number")
    return fn, [jax.ShapeDtypeStruct(s, "float32") for s in ((64, 64), (batch, 64))]


OVER = {"batch": [64, 13, 128], "fn": [lambda w, x: jnp.sum(x @ w), lambda w, x: jnp.tanh(x) @ w]}


def swept(**more):
    found = sv.sweep(make, OVER, mesh={"d": 8}, progress=False, **more)
    return [(r.point, r.trouble, r.report and r.report.collectives) for r in found.rows]


def test_a_cluster_answers_as_this_process(client):
    here = swept()
    assert swept(executor=client) == here
    assert swept(executor=client.get_executor()) == here


def test_results_come_as_they_are_done_and_from_all(client, tmp_path):
    def worker(another_is_back, waits):
        start = time.monotonic()
        while waits and not another_is_back.exists() and time.monotonic() - start < 60:
            time.sleep(0.01)
        return os.getpid()

    back = tmp_path / "back"
    pids = {}
    for task, pid in answers(worker, Shared(back), {"waits": True, "one": False, "two": False}, client):
        pids[task] = pid
        back.touch()
    assert next(iter(pids)) != "waits" and len(set(pids.values())) == 2


def test_a_killed_worker_costs_time_alone(client):
    def slow(value, task):
        time.sleep(0.4)
        return value[0] + task

    tasks = {n: n for n in range(12)}
    pids = list(client.run(os.getpid).values())
    threading.Timer(1.0, os.kill, (pids[0], signal.SIGKILL)).start()
    found = dict(answers(slow, Shared([100]), tasks, client))
    assert found == {n: 100 + n for n in tasks}
    client.wait_for_workers(2, timeout=60)  # dask has started another in its place
    assert pids[0] not in client.run(os.getpid).values()


def arriving(flag):
    if not os.path.exists(flag):
        open(flag, "w").close()
        os._exit(3)
    return [100]


class Deadly:
    """A value of which the first worker dies that it comes to."""

    def __init__(self, flag):
        self.flag = flag

    def __reduce__(self):
        return arriving, (self.flag,)


@pytest.mark.timeout(180)
def test_a_worker_that_dies_while_the_shared_value_comes_costs_time_alone(client, tmp_path):
    shared = Shared(Deadly(str(tmp_path / "died")))
    found = dict(answers(lambda value, task: value[0] + task, shared, {n: n for n in range(6)}, client))
    assert found == {n: 100 + n for n in range(6)} and (tmp_path / "died").exists()


def test_workers_of_another_jax_are_refused(client, monkeypatch):
    asked = workers.versions() | {"jax": "0.0.1"}
    monkeypatch.setattr(workers, "versions", lambda: asked)  # here: the cluster's workers have what they have
    (_, trouble, report), *_ = swept(executor=client)
    assert report is None and "in place of 0.0.1" in trouble and "workers of the same versions" in trouble


KILLS = """
import contextlib, os, signal, time
import dask, distributed
from shardviz.study.workers import Lost, Shared, answers

def starts(dask_worker):
    return dask_worker.process.status.name == "starting"

def deadly(value, task):
    if task == "bad":
        with contextlib.suppress(ValueError):  # no client: it is tried again on this machine
            while any(distributed.get_client().run(starts, nanny=True).values()):
                time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
    return value + task

if __name__ == "__main__":
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),  # so that it need not kill so many
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        distributed.Client(cluster) as client,
    ):
        tasks = dict(enumerate(["b", "bad", "c", "d"]))
        found = dict(answers(deadly, Shared("a "), tasks, client))
    lost = found.pop(1)
    assert found == {0: "a b", 2: "a c", 3: "a d"}, found
    assert isinstance(lost, Lost) and "SIGKILL" in lost.why, lost
"""


def test_a_task_that_kills_every_worker_is_lost_and_those_beside_it_are_answered(tmp_path):
    """In a process of its own: without workers nothing ever ends. A worker ends itself once its nanny knows of it."""
    script = tmp_path / "kills.py"
    script.write_text(KILLS, encoding="utf-8")
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 0, ended.stderr
