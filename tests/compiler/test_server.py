"""The compile server: whatever happens to a compile, the kernel lives, the next job works,
and nothing is left behind.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import psutil
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import processes
from shardviz.errors import CompileCrashed, CompileMemoryLimit, CompileRefused, CompileStopped, CompileTimeout
from shardviz.processes import client, dumps
from shardviz.propagate import propagate as shardy

pytestmark = pytest.mark.slow

PLAN = sv.Plan("x=4", (P("x"), None))
SERVER = b"shardviz.processes.main".hex()  # in its command line


def deep(x, w, times=60):
    """Takes the compiler several seconds, most of them in machine code: many different shapes."""
    for i in range(times):
        y = jnp.tanh(x[:, : 512 + i] @ w[: 512 + i])
        x = x + jnp.sort(y, axis=0)
    return x


def endless(x, w):
    """Takes the compiler's partitioned program no time and its optimised one long."""
    return deep(x, w, 400)


def small(x, w):
    return x @ w


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    yield
    processes.shutdown()
    deadline = time.monotonic() + 5
    while (left := mine()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left


def mine():
    """This process's folders and compile servers."""
    folder = [p.name for p in dumps.base().glob(f"shardviz-{os.getpid()}-*")]
    return folder + [p for p in psutil.Process().children(recursive=True) if SERVER in " ".join(_line(p))]


def _line(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def traced(fn):
    array = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    return sv.trace(fn, array, array)


def running(future, timeout=60):
    """Waits until a compile is under way and gives its process id."""
    deadline = time.monotonic() + timeout
    while future.pid is None:
        assert time.monotonic() < deadline and not future.done()
        time.sleep(0.005)
    return future.pid


def works():
    report = traced(small).partition(PLAN, timeout=120)
    return report.outputs[0].shard_shape == (256, 1024)


@pytest.mark.parametrize(
    ("module", "error", "words"),
    [
        (threading.Lock(), CompileCrashed, "ended without an answer"),  # which no worker can be given
        (b"no bytecode", CompileRefused, "refused the program"),
    ],
)
def test_what_is_no_program_ends_the_future_all_the_same(module: Any, error, words):
    job = processes.submit(processes.Request(module=module, devices=4, out_chosen=(True,)))
    with pytest.raises(error, match=words):
        job.result(60)
    assert works()


def test_a_stop():
    future = traced(deep).submit(PLAN, "compiled")
    pid = running(future)
    start = time.monotonic()
    future.stop()
    with pytest.raises(CompileStopped, match="the compile was stopped"):
        future.result(10)
    assert time.monotonic() - start < 2 and future.state == "stopped"
    assert not psutil.pid_exists(pid)
    assert works()


@pytest.mark.parametrize(
    ("limit", "error", "words", "state"),
    [
        ({"timeout": 0.05}, CompileTimeout, r"longer than its limit of 0\.05 s", "timeout"),
        ({"memory_limit": 10_000_000}, CompileMemoryLimit, r"more than its limit of 0\.01 GB", "memory"),
    ],
)
def test_a_limit(limit, error, words, state):
    future = traced(deep).submit(PLAN, "compiled", **limit)
    with pytest.raises(error, match=words):
        future.result(60)
    assert future.state == state and works()


def test_a_server_that_cannot_start(monkeypatch):
    assert works()  # XLA has read this process's own flags by now
    processes.shutdown()
    monkeypatch.setenv("XLA_FLAGS", "--xla_no_such_flag=1")  # XLA ends a process with such a flag
    future = traced(small).submit(PLAN)
    with pytest.raises(CompileCrashed, match=r"Unknown flag.*Your notebook is not affected"):
        future.result(60)
    assert future.state == "crashed" and "xla_no_such_flag" in future.stderr
    monkeypatch.delenv("XLA_FLAGS")
    processes.shutdown()
    assert works()


def test_a_compiler_that_aborts():
    job = processes.submit(
        processes.Request(
            module=_module(), devices=4, out_chosen=(True,), options={"xla_cpu_parallel_codegen_split_count": "-1"}
        )
    )
    assert isinstance(job.exception(60), CompileCrashed | CompileRefused)  # older XLA aborts, newer refuses
    assert works()


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV])
def test_a_child_killed_in_mid_compile(sign):
    future = traced(deep).submit(PLAN, "compiled")
    os.kill(running(future), sign)
    with pytest.raises(CompileCrashed, match=f"was ended by {sign.name}.*Your notebook is not affected"):
        future.result(10)
    assert future.state == "crashed" and works()


LEAVES = """
import os, time

def leave(data, *, path):  # starts a process, which its parent leaves
    if not os.fork():
        if not os.fork():
            with open(path + ".new", "w") as file:
                file.write(str(os.getpid()))
            os.rename(path + ".new", path)
            time.sleep(60)
        os._exit(0)
    os.wait()
    while not os.path.exists(path):
        time.sleep(0.01)
    time.sleep(60.0 * len(data))
"""


@pytest.mark.parametrize("end", ["by itself", "stopped", "with the server"])
def test_what_a_child_has_started_ends_with_it(tmp_path, monkeypatch, end):
    (tmp_path / "leaves.py").write_text(LEAVES)
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "pid"
    job = processes.submit(processes.Trial("leaves:leave", b"" if end == "by itself" else b"1", {"path": str(path)}))
    child = running(job)
    while not path.exists():
        assert not job.done() or end == "by itself"
        time.sleep(0.01)
    if end == "stopped":
        job.stop()
    elif end == "with the server":
        os.kill(psutil.Process(child).ppid(), signal.SIGKILL)
    job.exception(20)
    left, deadline = int(path.read_text()), time.monotonic() + 5
    while (there := psutil.pid_exists(left) and psutil.Process(left).status() != psutil.STATUS_ZOMBIE) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.02)
    assert not there


@pytest.mark.parametrize("times", [1, 2])
def test_a_compiler_that_hangs_is_started_once_more(monkeypatch, times):
    """Here it is stopped; what hangs gets no CPU time either."""
    monkeypatch.setattr(client, "STILL", 4.0)
    future = traced(deep).submit(PLAN, "compiled")
    stopped = set()
    for _ in range(times):
        while (pid := running(future)) in stopped:
            time.sleep(0.01)
        os.kill(pid, signal.SIGSTOP)
        stopped.add(pid)
    if times == 1:
        assert future.result(120).level == "compiled" and future.pid not in stopped
    else:
        with pytest.raises(CompileCrashed, match="did nothing for 4 s, twice"):
            future.result(60)
    assert not any(map(psutil.pid_exists, stopped)) and works()


def test_the_server_killed():
    future = traced(deep).submit(PLAN, "compiled")
    pid = running(future)
    os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
    with pytest.raises(CompileCrashed, match="lost with the compile server"):
        future.result(10)
    assert works()
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_shardy_dies_outside_the_kernel(monkeypatch):
    """The first propagation runs in a child; what kills the child comes back as an error."""
    program = traced(small)
    many = ",".join(["sdy-propagation-pipeline"] * 3000)
    monkeypatch.setattr(shardy, "PROPAGATION", f"builtin.module({many})")
    asked = []
    monkeypatch.setattr(
        client, "submit", lambda *a, submit=client.submit, **k: asked.append(submit(*a, **k)) or asked[-1]
    )
    threading.Thread(target=lambda: os.kill(pid_of(asked), signal.SIGABRT)).start()
    with pytest.raises(CompileCrashed, match="was ended by SIGABRT"):
        program.propagate(PLAN)
    monkeypatch.undo()
    assert program.propagate(PLAN).level == "propagated" and works()


def pid_of(asked):
    deadline = time.monotonic() + 30
    while not (asked and asked[0].pid) and time.monotonic() < deadline:
        time.sleep(0.002)
    return asked[0].pid


def test_where_no_process_can_be_had_shardy_answers_all_the_same(monkeypatch):
    assert works()
    processes.shutdown()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert traced(small).propagate(PLAN).outputs


def test_too_many_devices_for_the_simulation():
    with pytest.raises(CompileRefused, match=r"4096 devices.*at most 2048.*'propagated' works all the same"):
        traced(small).partition(sv.Plan({"x": 64, "y": 64}))
    assert traced(small).propagate(sv.Plan({"x": 64, "y": 64}, (P("x", "y"), None))).outputs


def test_the_first_milestone_comes_before_the_compile_ends():
    seen = {}
    future = traced(deep).submit(PLAN, "compiled", on_report=lambda r: seen.setdefault(r.level, time.monotonic()))
    future.result(120)
    assert list(seen) == ["partitioned", "compiled"]


def test_what_goes_wrong_in_a_callback_is_not_lost():
    def bad(report):
        raise RuntimeError("in the callback")

    with pytest.raises(RuntimeError, match="in the callback"):
        traced(small).submit(PLAN, on_report=bad).result(60)


def test_jobs_side_by_side_all_end():
    futures = [traced(small).submit(sv.Plan(f"x={n}", (P("x"), None))) for n in (2, 4, 8, 16, 32)]
    assert [f.result(60).outputs[0].shard_shape for f in futures] == [(1024 // n, 1024) for n in (2, 4, 8, 16, 32)]


def test_a_trial_does_not_wait_for_a_compile():
    future = traced(endless).submit(PLAN, "compiled")
    running(future)
    assert client._keeper is not None
    client._keeper.at_once = 1
    other = traced(small).submit(PLAN)  # whose own trial is before it
    assert other.state == "queued" and not future.done()
    future.stop()
    assert other.result(60).level == "partitioned"


def test_reports_that_wait_for_trials_are_all_read():
    """As when somebody compiles beside an explorer: each thread that reads reports is in need of a trial."""
    together = threading.Barrier(4)

    def ask(report):
        together.wait(60)
        assert processes.tried(processes.Trial("os:fsencode", "ab"), timeout=60).answer == b"ab"

    futures = [traced(small).submit(PLAN, on_report=ask) for _ in range(together.parties)]
    assert [f.result(60).level for f in futures] == ["partitioned"] * together.parties


def test_a_thread_per_kernel_is_not_left_waiting():
    works()
    processes.shutdown()
    assert not [t for t in threading.enumerate() if t.name == "shardviz-compile-server" and t.is_alive() and t.join(2)]


KERNEL = """
    import os, signal, sys, time
    import jax, jax.numpy as jnp
    sys.path.insert(0, {here!r})
    from test_server import deep, running, traced, PLAN
    future = traced(deep).submit(PLAN, "compiled")
    pid = running(future)
    import psutil
    print(os.getpid(), psutil.Process(pid).ppid(), pid, flush=True)
    {end}
"""


@pytest.mark.long
@pytest.mark.parametrize("end", ["sys.exit(0)", "os._exit(3)", "os.killpg(0, signal.SIGKILL)"])
def test_nothing_outlives_the_kernel_however_it_ends(end):
    code = textwrap.dedent(KERNEL).format(here=str(Path(__file__).parent), end=end)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, start_new_session=True, timeout=120
    )
    found = re.search(r"(\d+) (\d+) (\d+)", done.stdout)
    assert found, done.stderr
    kernel, parent, child = map(int, found.groups())
    deadline = time.monotonic() + 10
    left = True
    while left and time.monotonic() < deadline:
        left = [
            p for p in (parent, child) if psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE
        ]
        left += list(dumps.base().glob(f"shardviz-{kernel}-*"))
        time.sleep(0.05)
    assert not left


def test_an_interrupt_of_the_kernel_does_not_reach_the_server():
    works()
    process = next(p for p in mine() if isinstance(p, psutil.Process))
    assert os.getpgid(process.pid) != os.getpgid(0)


def test_who_interrupts_the_waiting_stops_the_compile():
    program = traced(endless)
    works()  # so that nothing is left to be done in this thread but to wait

    def interrupt():
        while not compiling():
            time.sleep(0.02)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt) as interrupted:
        program.compile(PLAN)
    assert re.fullmatch(r"The compile was (running|partitioned) after \d+\.\d s\.", interrupted.value.__notes__[0])
    deadline = time.monotonic() + 2
    while (left := compiling()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left and works()


def compiling():
    """The server's children."""
    found = []
    for process in mine():
        if isinstance(process, psutil.Process):
            with contextlib.suppress(psutil.NoSuchProcess):
                found += process.children()
    return found


def test_folders_of_dead_kernels_are_swept():
    stale, young = (dumps.base() / f"shardviz-999999999-{name}" for name in ("stale", "young"))
    try:
        stale.mkdir()
        young.mkdir()
        os.utime(stale, (time.time() - 4000,) * 2)
        works()
        assert not stale.exists() and young.exists(), "another container's kernel may be using it"
    finally:
        young.rmdir()


def _module():
    from shardviz.propagate.lower import edited_bytecode

    program = traced(small)
    return edited_bytecode(program._lowerings.lower(PLAN), program.bind(PLAN))


def exchange(rows, into, sizes):
    first = jnp.zeros_like(sizes)
    return jax.lax.ragged_all_to_all(rows, into, first, sizes, first, sizes, axis_name="x")


def test_a_ragged_all_to_all_is_partitioned_and_refused_for_a_cpu():
    """What XLA refuses when its optimised program is written already is not said to be compiled."""
    fn = jax.shard_map(exchange, mesh=sv.mesh(x=4), in_specs=(P("x"),) * 3, out_specs=P("x"))
    rows, sizes = jax.ShapeDtypeStruct((64, 8), jnp.float32), jax.ShapeDtypeStruct((16,), jnp.int32)
    program, plan = sv.trace(fn, rows, rows, sizes), sv.Plan("x=4", (P("x"),) * 3)
    assert [c.kind for c in program.partition(plan).collectives] == ["ragged-all-to-all"]
    with pytest.raises(sv.errors.CompileError, match=r"(?i)ragged"):
        program.compile(plan)
