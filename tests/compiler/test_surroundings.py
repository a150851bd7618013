"""The compile server answers, or says what is in the way, whatever surrounds the kernel."""

import errno
import os
import shutil
import subprocess

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import processes
from shardviz.explorer.explorer import ExplorerState
from shardviz.processes import starting
from tests.compiler.kernels import kernel

pytestmark = pytest.mark.long

CAN_MOUNT = (
    shutil.which("unshare") is not None
    and subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0
)
mounts = pytest.mark.skipif(not CAN_MOUNT, reason="mounting is not permitted here")


@pytest.fixture(autouse=True)
def none_runs():
    yield
    processes.shutdown()


def program():
    x = jax.ShapeDtypeStruct((128, 8), jnp.float32)
    return sv.trace(lambda x: jnp.tanh(x) + 1, x)


PLAN = sv.Plan("x=2", (P("x"),))


# The working folder.


def test_nothing_in_the_working_folder_is_run(tmp_path):
    """Each module that the kernel has, of Python's own and others', has a namesake there that tells of being run."""
    found = kernel(
        """
        import pickle, queue, selectors, shutil, socket, struct, subprocess, tempfile, psutil
        here = os.path.join(os.path.dirname(sys.argv[1]), "hostile")
        os.mkdir(here)
        names = {name.partition(".")[0] for name in sys.modules} | {"tensorflow", "sitecustomize", "usercustomize"}
        for name in names - {"shardviz"}:
            with open(os.path.join(here, name + ".py"), "w") as file:
                file.write("import os; open(os.path.join(os.path.dirname(__file__), __name__ + '.run'), 'w')")
        before = set(sys.modules)
        os.chdir(here)
        sys.path.insert(0, "")
        answer["right"] = [right(2), right(3)]
        answer["names"] = len(names)
        own = {name.partition(".")[0] for name in set(sys.modules) - before}
        answer["run"] = sorted({f[:-4] for f in os.listdir(here) if f.endswith(".run")} - own)
        """,
        tmp_path,
    )
    assert found["names"] > 100 and found["right"] == [True, True] and found["run"] == []


@pytest.mark.parametrize("shadow", ["", ".", "here"])
def test_a_checkout_that_is_the_working_folder_is_found_all_the_same(tmp_path, monkeypatch, shadow):
    """Where JAX lies in the working folder, the folder comes last; else it does not come at all."""
    (tmp_path / "elsewhere").mkdir()
    entry = {"here": str(tmp_path)}.get(shadow, shadow)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [entry, "/one", str(tmp_path / "elsewhere"), "/two"])
    others = ["/one", str(tmp_path / "elsewhere"), "/two"]
    assert starting._path() == others
    monkeypatch.setattr("numpy.__file__", str(tmp_path / "numpy" / "__init__.py"))
    assert starting._path() == [*others, entry]


# Streams, signals, names, the system's folders.


@pytest.mark.filterwarnings(
    r"ignore:os.fork\(\) was called:RuntimeWarning"
)  # JAX's; what is forked here is a new kernel
@pytest.mark.parametrize("closed", [(2,), (0, 1, 2)], ids=str)
def test_standard_streams_that_are_closed(tmp_path, closed):
    def close():
        for descriptor in closed:
            os.close(descriptor)

    found = kernel('answer["right"] = [right(2), right(3)]', tmp_path, preexec_fn=close)
    assert found["right"] == [True, True]


def test_signals_that_are_ignored_or_blocked(tmp_path):
    found = kernel(
        """
        for name in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(name, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1])
        answer["right"] = [right(2), right(3)]
        answer["refused"] = kind(processes.submit(processes.Request(module=b"", devices=2, out_chosen=())).result)
        future = long()
        until(lambda: future.pid)
        os.kill(future.pid, signal.SIGKILL)
        answer["killed"] = kind(future.result)
        """,
        tmp_path,
    )
    assert found["right"] == [True, True] and found["refused"].startswith("CompileRefused")
    assert "was ended by SIGKILL" in found["killed"]


@mounts
def test_no_proc(tmp_path):
    """No processes can be looked at, no memory measured."""
    hidden = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    found = kernel('answer["right"] = [right(2), right(3)]', tmp_path, before=hidden)
    assert found["right"] == [True, True]


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_names_that_are_not_utf_8(tmp_path, locale):
    place = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    os.mkdir(place)
    found = kernel(
        f"""
        os.chdir(os.fsdecode({os.fsencode(place)!r}))
        sys.path.insert(0, os.getcwd()); sys.path.append(os.getcwd() + "/more")
        from shardviz.processes import dumps
        dumps._ROOM = float("inf")  # so that the temporary folder comes first
        answer["right"] = [right(2), right(3)]
        answer["left"] = os.listdir(os.getcwd())
        """,
        tmp_path,
        env={"LC_ALL": locale, "TMPDIR": place},
    )
    assert found["right"] == [True, True] and found["left"] == []


# XLA's flags.

DUMPS = [
    "--xla_dump_to={theirs}",
    "--xla_dump_hlo_as_html --xla_dump_max_hlo_modules=0",
    "--xla_dump_hlo_module_re=nothing --xla_dump_hlo_pass_re='no such pass' --xla_dump_hlo_as_text=false",
]


def test_what_a_person_has_xla_dump_stays_theirs(tmp_path):
    """Every answer is the same, whatever dumps are asked for; theirs are not among ours, nor ours among theirs."""
    found = kernel(
        f"""
        flags = {DUMPS!r} + ["FILE"]
        theirs = os.path.join(os.path.dirname(sys.argv[1]), "theirs")
        os.mkdir(theirs)
        program = sv.trace(lambda x: jnp.tanh(x) @ x.T, array(64, 64))
        plan = sv.Plan("x=2", (P("x"),))
        def texts():
            stages = program.compile(plan).stages
            return stages["partitioned"], stages["optimized"]
        want = texts()
        answer["same"] = []
        for flag in flags:
            flag = flag.format(theirs=theirs)
            if flag == "FILE":
                flag = theirs + ".flags"
                with open(flag, "w") as file:
                    file.write("\\n".join({DUMPS!r}).format(theirs=theirs))
            os.environ["XLA_FLAGS"] = flag
            processes.shutdown()
            answer["same"].append(texts() == want)
        answer["theirs"] = os.listdir(theirs)
        """,
        tmp_path,
    )
    assert found["same"] == [True] * (len(DUMPS) + 1) and found["theirs"] == []


def test_a_flag_that_is_in_the_way_is_named(tmp_path):
    found = kernel(
        """
        right(1)
        for flag in ("--xla_disable_all_hlo_passes", "--xla_disable_hlo_passes=spmd-partitioning"):
            os.environ["XLA_FLAGS"] = "--xla_cpu_enable_fast_math=false " + flag
            processes.shutdown()
            answer[flag] = kind(lambda: right(2))
        """,
        tmp_path,
    )
    for flag, error in found.items():
        assert error.startswith("Compile") and f"XLA_FLAGS has {flag}" in error, error


# What is full, and what there is no more of.

SMALL = [
    "unshare",
    "-m",
    "sh",
    "-c",
    'mount -t tmpfs -o "$0" none /dev/shm && mkdir -p "$TMPDIR" && mount --bind /dev/shm "$TMPDIR" && exec "$@"',
]


@mounts
def test_no_room(tmp_path):
    """Each answer is right, or an error that says what is full; and no folder stays."""
    sizes = ["size=4k", "size=128k", "size=10m,nr_inodes=3"]
    found = kernel(
        f"""
        import subprocess
        bulk = lambda n: (lambda x: jnp.concatenate([jnp.tanh(x[i:]).sum(0) for i in range(n)]))
        asked = {{n: sv.trace(bulk(n), array(64 * n, 8)) for n in (1, 8, 24)}}
        def ask(n):
            report = asked[n].compile(sv.Plan({{f"x{{turn}}": 2}}, (P(f"x{{turn}}"),)), timeout=60)
            assert report.outputs[0].shape == (8 * n,) and report.memory.arguments == 4 * 8 * 32 * n
        for turn, size in enumerate({sizes}):
            subprocess.run(["mount", "-o", "remount," + size, "/dev/shm"], check=True)
            answer[size] = [kind(lambda: ask(n)) for n in asked]
            answer[size] += [f for f in os.listdir("/dev/shm") if f.startswith("shardviz-job-")]
            processes.shutdown()
            answer[size] += os.listdir("/dev/shm")
        """,
        tmp_path,
        before=[*SMALL, sizes[0]],
        env={"TMPDIR": str(tmp_path / "small")},
    )
    assert list(found) == sizes
    for size, told in found.items():
        assert len(told) == 3 and any(words != "no error" for words in told), (size, told)
        for words in told:
            assert words == "no error" or (words.startswith("CompileError") and "no room" in words), (size, words)


@pytest.mark.parametrize("limit", [2_000])
def test_files_that_may_not_grow(tmp_path, limit):
    found = kernel(
        f"""
        import resource
        program = sv.trace(lambda x: jnp.concatenate([jnp.tanh(x[i:]).sum(0) for i in range(60)]), array(3840, 8))
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, -1))
        said = kind(lambda: program.compile(sv.Plan("x=2", (P("x"),)), timeout=60))
        resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
        answer["said"] = said
        """,
        tmp_path,
    )
    assert found["said"].startswith("CompileError") and "File too large" in found["said"]


def refusing(number):
    def refuse(*args, **kwargs):
        raise OSError(number, os.strerror(number)) if number else RuntimeError("can't start new thread")

    return refuse


@pytest.mark.parametrize(
    "what, number, words",
    [
        ("subprocess.Popen", errno.EAGAIN, "could not be started.*no more processes"),
        ("subprocess.Popen", errno.ENOMEM, "could not be started.*no more memory"),
        ("socket.socketpair", errno.EMFILE, "could not be started.*too many files open"),
        ("tempfile.mkdtemp", errno.ENOSPC, "could not be started.*no room"),
        ("threading.Thread.start", 0, "no more processes or threads"),
    ],
)
def test_a_server_that_the_system_does_not_give(monkeypatch, what, number, words):
    asked = program()
    asked.propagate(PLAN)
    processes.shutdown()
    monkeypatch.setattr(what, refusing(number))
    with pytest.raises(sv.errors.CompileError, match=words):
        asked.partition(PLAN)
    monkeypatch.undo()
    assert asked.partition(PLAN).outputs[0].shard_shape == (64, 8)


def failing(*args, **kwargs):
    raise ZeroDivisionError("a fault")


@pytest.mark.parametrize(
    "what, words",
    [
        ("shardviz.processes.dumps.new_folder", "could not be started.*a fault"),
        ("shardviz.processes.starting.python", "could not be started.*a fault"),
        ("shardviz.processes.client._Server.begin", "no process could be started.*a fault"),
        ("shardviz.processes.dumps.complete", "reading what the compiler wrote.*a fault"),
        ("shardviz.processes.dumps.read", "reading what the compiler wrote.*a fault"),
        ("shardviz.processes.faults.of_files", "reading what the compiler wrote.*a fault"),
    ],
)
def test_whatever_fails_on_the_keepers_thread_ends_the_future(monkeypatch, what, words):
    asked = program()
    asked.propagate(PLAN)
    processes.shutdown()
    monkeypatch.setattr(what, failing)
    for _ in range(3):  # more than run side by side
        future = asked.submit(PLAN)
        with pytest.raises(sv.errors.CompileError, match=words):
            future.result(30)
    monkeypatch.undo()
    assert asked.partition(PLAN).outputs[0].shard_shape == (64, 8)


def test_a_report_that_cannot_be_concluded_ends_the_future(monkeypatch):
    monkeypatch.setattr("shardviz.ask.submitting._about_options", failing)
    with pytest.raises(ZeroDivisionError):
        program().submit(PLAN).result(30)


def test_no_folder_for_temporary_files(tmp_path):
    """No file may grow at all, so Python finds no folder for temporary files; then files may grow again."""
    found = kernel(
        """
        import resource
        program = sv.trace(lambda x: jnp.tanh(x), array(64, 8))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, -1))
        answer["said"] = [kind(lambda: program.submit(sv.Plan("x=2", (P("x"),))).result(30)) for _ in range(3)]
        resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
        answer["right"] = right(2)
        """,
        tmp_path,
        env={"TMPDIR": "/proc"},
    )
    assert all(words.startswith("CompileError") and "File too large" in words for words in found["said"])
    assert found["right"]


@pytest.mark.parametrize(
    "what, refuse",
    [
        ("subprocess.Popen", refusing(errno.EAGAIN)),
        ("tempfile.mkdtemp", refusing(errno.ENOSPC)),
        ("threading.Thread.start", refusing(0)),
        ("threading.Timer.start", refusing(0)),
    ],
    ids=["no process", "no room", "no thread", "no timer"],
)
def test_the_explorer_is_never_busy_for_ever(monkeypatch, what, refuse):
    state = ExplorerState(program(), PLAN)
    state.wait()
    processes.shutdown()
    monkeypatch.setattr(what, refuse)
    assert state.set_spec("x", P(None, "x"))
    state.loop.inbox.wait_until(lambda: not state.busy, 60)
    assert not state.busy
    assert state.status in ("failed", "compiled") and (state.status == "compiled" or state.failure)
    monkeypatch.undo()
    state.recompile()
    assert state.wait().outputs[0].shard_shape == (128, 4)


@pytest.mark.tpu
def test_libtpu_leaves_no_files(tmp_path):
    (tmp_path / "temporary").mkdir()
    found = kernel(
        """
        program = sv.trace(lambda x: jnp.tanh(x) @ x.T, array(128, 128))
        answer["level"] = program.compile(sv.Plan("x=4", (P("x"),)), target="tpu v5e:2x2").level
        """,
        tmp_path,
        env={"TMPDIR": str(tmp_path / "temporary")},
    )
    assert found["level"] == "compiled" and os.listdir(tmp_path / "temporary") == []
