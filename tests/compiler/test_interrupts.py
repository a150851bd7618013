"""Whenever an interrupt, a kill, a stop or a fork comes, the next answer comes, and is that of the question."""

import pytest

from shardviz import processes
from tests.compiler.kernels import kernel

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def none_runs():
    yield
    processes.shutdown()


# Interrupts, kills, stops.


def test_the_answer_after_an_interrupt_is_the_next_answer(tmp_path):
    """The program has 25 MB; an interrupt comes while it is asked for, sent or compiled; first the server is idle, then
    it is at work."""
    found = kernel(
        """
        signal.signal(signal.SIGINT, signal.default_int_handler)
        seed = random.Random(1)
        bulk = np.arange(6_250_000, dtype=np.float32) % 7
        large = sv.trace(lambda x: x * jnp.asarray(bulk)[:128], array(128))
        plan = sv.Plan("x=2", (P("x"),))
        assert large.partition(plan).outputs[0].shard_shape == (64,)
        began = time.monotonic()
        large.partition(plan)
        whole = time.monotonic() - began
        futures, answer["interrupted"], answer["slow"] = [], [0, 0], []
        for turn in range(14):
            busy = turn >= 6
            if turn in (6, 10):
                futures.append(long())
                until(lambda: futures[-1].pid)
            timer = threading.Timer(seed.uniform(0, 1.2) * whole, os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                large.partition(plan)
                timer.join()
                time.sleep(0.05)
            except KeyboardInterrupt:
                answer["interrupted"][busy] += 1
            timer.join()
            if turn in (9, 13):
                futures[-1].stop()
            if not busy or turn in (9, 13):
                began = time.monotonic()
                assert right(2 + turn % 3), turn
                answer["slow"].append(time.monotonic() - began)
        answer["ended"] = [kind(f.result).partition(":")[0] for f in futures]
        answer["left"] = [len(processes.client._keeper.waiting + processes.client._keeper.running)]
        """,
        tmp_path,
    )
    assert min(found["interrupted"]) >= 3 and max(found["slow"]) < 30
    assert set(found["ended"]) <= {"CompileStopped"} and found["left"] == [0]


def test_a_job_given_when_the_server_dies_is_answered(tmp_path):
    """The server is killed up to three milliseconds before or after a job is given."""
    found = kernel(
        """
        seed = random.Random(7)
        answer["right"] = [right(1)]
        for turn in range(5):
            killed = threading.Event()
            until(lambda: processes.client._keeper.server is not None or right(1))  # what was killed last is noticed
            pid = processes.client._keeper.server.process.pid
            def kill(wait=seed.uniform(0, 0.003)):
                time.sleep(wait)
                os.kill(pid, signal.SIGKILL)
                killed.set()
            program = sv.trace(lambda x: jnp.tanh(x) + 1, array(64 * turn + 64, 8))
            program.propagate(sv.Plan("x=2", (P("x"),)))
            threading.Thread(target=kill).start()
            time.sleep(seed.uniform(0, 0.003))
            job = program.submit(sv.Plan("x=2", (P("x"),)))
            error = job.exception(60)
            # a process may have been at it already
            if error is None:
                answer["right"].append(job.result().outputs[0].shard_shape == (32 * turn + 32, 8))
            else:
                answer["right"].append(job.begun and isinstance(error, sv.errors.CompileCrashed))
            killed.wait()
        """,
        tmp_path,
    )
    assert found["right"] == [True] * 6


def test_a_server_that_hangs_is_ended(tmp_path):
    """What is asked of it is asked of another; a compile that it has begun goes on."""
    found = kernel(
        """
        processes.client.SILENCE = 4.0
        answer["right"] = [right(1)]
        idle = processes.client._keeper.server.process
        os.kill(idle.pid, signal.SIGSTOP)
        answer["right"].append(right(2))
        future = long()
        until(lambda: future.pid)
        busy = processes.client._keeper.server.process
        os.kill(busy.pid, signal.SIGSTOP)
        waiting = processes.submit(processes.Request(module=b"no program", devices=2, out_chosen=()))
        answer["begun"], answer["waiting"] = kind(lambda: future.result(60)), kind(lambda: waiting.result(60))
        answer["gone"] = [idle.poll() is not None, busy.poll() is not None]
        answer["right"].append(right(3))
        """,
        tmp_path,
    )
    assert found["begun"] == "no error" and found["waiting"].startswith("CompileRefused")
    assert found["gone"] == [True, True] and found["right"] == [True, True, True]


# Forks of the kernel.


def test_a_fork_has_its_own_answers(tmp_path):
    """Forks ask and end, in order and abruptly, while the kernel's compile goes on; each gets what it asked for."""
    found = kernel(
        """
        import multiprocessing
        parts = [jax.jit(lambda x, i=i: jnp.tanh(x @ x.T) @ x + i) for i in range(10)]
        shared = sv.trace(lambda x: [part(x) for part in parts], array(60, 60))
        shared.propagate(sv.Plan("x=2", (P("x"),)))
        program = sv.trace(endless, array(1024, 1024), array(1024, 1024))
        future = program.submit(sv.Plan("x=4", (P("x"), None)), "compiled")
        until(lambda: future.pid)

        def ask(n, pipe):
            # of a program that the kernel has lowered, too
            own = shared.propagate(sv.Plan({"y": n}, (P("y"),))).mesh.size == n and right(n)
            pipe.send((kind(future.result), own, kind(lambda: future.exception(1)), future.stop()))

        answer["forks"] = []
        context = multiprocessing.get_context("fork")
        for n in (3, 4):
            ours, theirs = context.Pipe()
            pid = 0
            if n == 3:
                pid = os.fork()
                if not pid:
                    ask(n, theirs)
                    processes.shutdown()
                    sys.exit(7)
            else:
                process = context.Process(target=ask, args=(n, theirs))
                process.start()
            assert ours.poll(90), n
            answer["forks"].append(ours.recv())
            began = time.monotonic()
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if pid else process.join(30) or process.exitcode
            answer["forks"][-1] += (code, time.monotonic() - began)
        answer["running"] = not future.done()
        future.stop()
        answer["end"] = kind(future.result)
        answer["right"] = right(5)
        """,
        tmp_path,
    )
    for (waited, right, again, _, code, seconds), wanted in zip(found["forks"], (7, 0), strict=True):
        assert "of which this process is a fork" in waited and waited == again and right
        assert code == wanted and seconds < 15
    assert found["running"] and found["end"].startswith("CompileStopped: the compile was stopped") and found["right"]
