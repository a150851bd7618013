"""Workers: tasks get done whatever happens to a process, nothing is sent twice, and nothing stays behind."""

import errno
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import psutil
import pytest

import shardviz as sv
from shardviz.errors import ShardvizError
from shardviz.study import workers
from shardviz.study.sweep import _WORTH
from shardviz.study.workers import Lost, Shared, Workers, answers

pytestmark = pytest.mark.long


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


def asked(function, tasks, pool, shared=None):
    """What comes of tasks."""
    return dict(answers(function, Shared(shared), dict(enumerate(tasks)), pool))


def test_what_is_called_there_returns_and_raises_here(pool):
    scale = 3  # a closure, and a lambda: they travel by their code
    assert asked(lambda _, n: n * scale, range(5), pool) == {n: 3 * n for n in range(5)}
    assert os.getpid() not in asked(lambda *_: os.getpid(), range(2), pool).values()

    class Odd(Exception):
        def __init__(self, one, two):
            super().__init__(f"{one} and {two}")

    def fail(_, how):
        raise how()

    with pytest.raises(RuntimeError, match="seven and eight"):
        asked(fail, [lambda: Odd("seven", "eight")], pool)
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        asked(fail, [lambda: SystemExit(3)], pool)
    assert asked(lambda _, n: print("a word on stdout is no answer"), [0], pool) == {0: None}
    with pytest.raises(TypeError):
        asked(lambda _, lock: lock, [threading.Lock()], pool)


def fragile():
    """An object that pickles and does not unpickle."""

    class Fragile:
        def __reduce__(self):
            return int, ("no number",)

    return Fragile()


def test_an_answer_that_cannot_be_read_here_is_said_and_the_others_come(pool):
    found = asked(lambda _, n: fragile() if n == 1 else n, range(3), pool)
    assert (found[0], found[2]) == (0, 2)
    assert isinstance(found[1], Lost) and "cannot be unpickled: ValueError" in found[1].why
    found = asked(lambda _, n: n, [0, fragile()], pool)
    assert found[0] == 0 and "cannot unpickle the task: ValueError" in found[1].why
    assert asked(lambda _, n: n, [7], pool) == {0: 7}


def test_a_shared_value_is_pickled_once_and_goes_with_no_task():
    class Counted:
        def __init__(self):
            self.times = 0

        def __reduce__(self):
            self.times += 1
            return bytes, (8 * 2**20,)

    class Weighed(Workers):
        heaviest = 0

        def submit(self, fn, /, *args):
            self.heaviest = max(self.heaviest, len(pickle.dumps(args)))
            return super().submit(fn, *args)

    counted = Counted()
    with Weighed(1) as one:
        found = asked(lambda value, task: (len(value) + task, id(value)), range(3), one, counted)
    assert [n - 8 * 2**20 for n, _ in found.values()] == [0, 1, 2]
    assert counted.times == 1 and one.heaviest < 2**16
    assert len({there for _, there in found.values()}) == 1  # one object, unpacked once


def test_a_program_travels_and_answers_the_same(pool):
    example = sv.gallery.llama("8b")
    moved = lambda program, plan: [(c.kind, c.axes, c.total_bytes) for c in program.propagate(plan).collectives]
    found = dict(
        answers(moved, Shared(example.program), {0: example.plan, 1: example.plan.with_mesh("data=4,model=2")}, pool)
    )
    assert found[0] and found[0] == moved(example.program, example.plan) and found[1] != found[0]


def test_what_jit_wraps_arrives_whole(pool):
    step = jax.jit(lambda x, n: jnp.tanh(x) * n, static_argnums=1, donate_argnums=0)

    def text(_, fn):
        lowered = fn.trace(jax.ShapeDtypeStruct((8,), "float32"), 3).lower()
        return lowered.as_text()

    assert asked(text, [step], pool)[0] == text(None, step)
    assert asked(lambda _, fn: fn is jnp.sort, [jnp.sort], pool) == {0: True}


def test_settings_of_jax_hold_there_too(pool):
    wide = lambda *_: jnp.zeros(1).dtype.name
    with jax.enable_x64(True):
        assert asked(wide, [None], pool) == {0: "float64"}
    assert asked(wide, [None], pool) == {0: "float32"}


def test_a_worker_begins_nothing_that_its_task_does_not_ask_for(pool):
    def own(*_):
        from jax._src import xla_bridge

        return os.environ["JAX_PLATFORMS"], xla_bridge.backends_are_initialized()

    with Workers(1) as one:
        assert asked(own, [0], one) == {0: ("cpu", False)}


def test_a_module_in_the_working_folder_does_not_stand_in_for_another(tmp_path, monkeypatch):
    for name in ("queue", "json", "psutil", "loky"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    (tmp_path / "of_a_person.py").write_text("NUMBER = 4")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")

    def number(_, more):
        import of_a_person

        return of_a_person.NUMBER + more

    with Workers(1) as one:
        assert asked(number, [3], one) == {0: 7}


def die_once(flag, task):
    if not os.path.exists(flag):
        open(flag, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def test_a_killed_worker_costs_time_alone(tmp_path):
    with Workers(1) as one:
        found = dict(answers(die_once, Shared(str(tmp_path / "died")), dict.fromkeys("ab", 7), one))
        assert found == {"a": 7, "b": 7} and (tmp_path / "died").exists()
        always = asked(lambda *_: os.kill(os.getpid(), signal.SIGKILL), [0], one)
        assert isinstance(always[0], Lost) and "ended {SIGKILL(-9)}" in always[0].why
        assert asked(lambda _, text: int(text), ["4"], one) == {0: 4}  # and the pool goes on


def test_a_task_that_kills_its_workers_takes_no_other_along(pool):
    def deadly(_, task):
        if task == "bad":
            os._exit(3)
        return task

    found = asked(deadly, ["a", "bad", *"bcdef"], pool)
    assert isinstance(found.pop(1), Lost) and list(map(found.get, (0, 2, 3, 4, 5, 6))) == list("abcdef")


def refuse(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_where_no_file_can_be_written_a_shared_value_goes_with_each_task(pool, monkeypatch):
    monkeypatch.setattr("tempfile.mkstemp", refuse)
    assert asked(lambda value, n: value + n, range(2), pool, 5) == {0: 5, 1: 6}


def test_where_no_process_can_be_had_a_task_is_lost(monkeypatch):
    monkeypatch.setattr("loky.ProcessPoolExecutor", refuse)
    with Workers(1) as one:
        assert not one.begin()
        assert isinstance(asked(lambda _, n: n, [0], one)[0], Lost)


def test_workers_of_another_shardviz_are_refused(pool, monkeypatch):
    monkeypatch.setattr(sv, "__version__", "0.0.1")
    (lost,) = (found for _, found in answers(max, Shared(0), {0: 0}, pool))
    assert isinstance(lost, Lost) and "in place of 0.0.1; give workers of the same versions" in lost.why
    assert lost.why.startswith("this worker has shardviz ")
    with pytest.raises(ShardvizError, match="executor=int"):
        next(answers(max, Shared(0), {0: 0}, 3))


def test_stopping_ends_what_runs_and_leaves_nothing():
    pool = Workers(2)
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    assert asked(lambda *_: 1, [0], pool) == {0: 1}
    futures = [pool.submit(time.sleep, 60) for _ in range(4)]
    pids = {p.pid for p in psutil.Process().children(recursive=True) if "popen_loky" in str(p.cmdline())} - before
    begun = time.monotonic()
    pool.stop()
    assert time.monotonic() - begun < 5 and len(pids) == 2 and gone(pids)
    assert all(f.done() for f in futures)
    with pytest.raises(RuntimeError, match="shutdown"):
        futures[3].result()
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(int)


def leave_a_process(_, how):
    """Start a process that its parent leaves: no one's child, but of the worker's group."""
    there, here = os.pipe()
    if not os.fork():
        if not (pid := os.fork()):
            time.sleep(3600)
            os._exit(0)
        os.write(here, str(pid).encode())
        os._exit(0)
    os.wait()
    pid = int(os.read(there, 99))
    if isinstance(how, str):
        with open(how, "w") as file:
            file.write(str(pid))
        os.kill(os.getpid(), signal.SIGKILL)
    return pid


@pytest.mark.parametrize("end", ["shutdown", "stop"])
def test_what_a_task_has_started_ends_with_its_worker(end):
    pool = Workers(1)
    left = asked(leave_a_process, [0], pool)[0]
    assert psutil.pid_exists(left)
    getattr(pool, end)()
    assert gone([left], 10)


def test_what_a_killed_worker_has_started_ends_too(tmp_path):
    with Workers(1) as one:
        assert isinstance(asked(leave_a_process, [str(tmp_path / "left")], one)[0], Lost)
    assert gone([int((tmp_path / "left").read_text())], 10)


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
        os.fork()
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
        out = process.communicate(timeout=90)[0]
        assert time.monotonic() - begun < 40 and gone(children)  # its tasks sleep for 60 s
        if how == signal.SIGINT:
            assert "rows 1 left 3" in out
    finally:
        process.kill()
        process.wait()


def test_a_sweep_takes_workers_when_they_pay(monkeypatch):
    def make(batch):
        return (lambda w, x: x @ w), [jax.ShapeDtypeStruct(s, "float32") for s in ((64, 64), (batch, 64))]

    begun, module = [], sys.modules[sv.sweep.__module__]

    class Threads(ThreadPoolExecutor):
        def begin(self):
            return begun[-1] == 2

    monkeypatch.setattr(module, "Workers", lambda count: begun.append(count) or Threads(count))
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
