"""`shardviz run -- python train.py`: what a script sees, and what comes of every way in which it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import jsonschema
import psutil
import pytest

from shardviz.cli import main
from shardviz.cli.dry import script_of
from shardviz.cli.schemas import schema_of
from shardviz.errors import ShardvizError
from shardviz.records.runs import RunRecord
from tests.cli.conftest import committed, environment, git
from tests.truth import answers_of

pytestmark = pytest.mark.slow  # each starts a process

TRAIN = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
print("arguments", sys.argv[1:])
mesh = Mesh(np.array(jax.devices()).reshape(-1, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
put = lambda shape, *spec: jax.device_put(np.ones(shape, np.float32), NamedSharding(mesh, P(*spec)))
@jax.jit
def step(w, x):
    return w - jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
w = put((1024, 1024), None, "model")
for i in range(1000):
    w = step(w, put((64, 1024), "data"))
    END
"""


def started(folder, script, *words, run=("--devices", "8", "--json"), stdin=subprocess.DEVNULL):
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-m", "shardviz.cli", "run", *run, "--", "python", "train.py", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdin=stdin, stdout=pipe, stderr=pipe, text=True)


def ran(*args, **options):
    process = started(*args, **options)
    out, err = process.communicate(timeout=200)
    run = json.loads(out) if out else None
    jsonschema.validate(run, schema_of("run"))
    return process.returncode, run, err


HOLDS = """
import jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(-1, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
put = lambda shape, *spec: jax.device_put(np.ones(shape, np.float32), NamedSharding(mesh, P(*spec)))
adam = optax.adam(1e-3)
@jax.jit
def step(w, state, x):
    updates, state = adam.update(jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w), state)
    return w + updates, state
@jax.jit
def decode(w, cache, x):
    cache = jax.lax.dynamic_update_slice(cache, (x @ w)[:, None, :], (0, 0, 0))
    return cache, cache.sum(1)
w, spare = put((4096, 4096), None, "model"), put((8192, 1024), "data")
if SERVE:
    sharded = NamedSharding(mesh, P("data"))
    cache = jax.jit(lambda w: jnp.zeros((512, 64, 4096)) + w[0], out_shardings=sharded)(w)
    for i in range(9):
        cache, y = decode(w, cache, put((512, 4096), "data"))
else:
    state, ahead = jax.jit(adam.init)(w), put((2048, 4096), "data")
    for i in range(9):
        x, ahead = ahead, put((2048, 4096), "data")
        w, state = step(w, state, x)
"""


def test_a_cache_that_is_taken_once_is_no_batch(tmp_path):
    """It is another program's result, and comes back updated; a batch that a program has prepared does not."""
    once = HOLDS.replace("SERVE", "True").replace("range(9)", "range(1)")
    once = once.replace(
        'cache, put((512, 4096), "data"))', 'cache, jax.jit(lambda x: x * 2)(put((512, 4096), "data")))'
    )
    code, run, _ = ran(tmp_path, once)
    held = {each["kind"]: each["nbytes"] for each in run["held"]}
    assert code == 0 and held["caches and other state"] == 512 * 64 * 4096 * 4 / 4
    assert held["batches in flight"] == 512 * 4096 * 4 / 4


@pytest.mark.parametrize("serve", [False, True])
def test_the_peak_is_told_by_what_holds_it(tmp_path, serve):
    code, run, _ = ran(tmp_path, HOLDS.replace("SERVE", str(serve)))
    weights, spare = 4096 * 4096 * 4 / 2, 8192 * 1024 * 4 / 4
    assert code == 0
    held = {each["kind"]: each["nbytes"] for each in run["held"]}
    record = RunRecord.from_json(json.dumps(run))
    assert sum(held.values()) == record.needs_at(record.peak)
    assert held["weights"] == weights
    if serve:
        assert held["caches and other state"] == 512 * 64 * 4096 * 4 / 4
        assert held["batches in flight"] == 512 * 4096 * 4 / 4
        assert held["other arrays"] == spare
    else:
        assert held["optimizer state"] == 2 * 4096 * 4096 * 4
        assert held["batches in flight"] == 2 * 2048 * 4096 * 4 / 4
        assert held["other arrays"] == spare + 4  # Adam's counter
    assert "held by weights 33.6 MB, " in repr(record)


EVALUATED = (
    HOLDS.partition("w, spare")[0]
    + """
loss = jax.jit(lambda w, x: jnp.mean((x @ w) ** 2))
w, x = put((4096, 4096), None, "model"), put((2048, 4096), "data")
w, state = step(w, adam.init(w), x)
for i in range(9):
    x = put((2048, 4096), "data")
    w, state = step(w, state, x)
    float(loss(w, x))
jnp.ones((2, 32768, 4096), device=NamedSharding(mesh, P(None, "data"))) * 2
"""
)


def test_a_batch_that_is_also_evaluated_is_no_weight(tmp_path):
    (tmp_path / "train.py").write_text(EVALUATED)
    code = f"""
import json
from shardviz.cli.dry import recorded
run, _ = recorded(["python", {str(tmp_path / "train.py")!r}], "tpu v5e:2x4", None, 0)
print(json.dumps([[step.name, run._kinds(number)] for number, step in enumerate(run.steps)]))
"""
    each = json.loads(answers_of("-c", code).splitlines()[-1])
    assert ["<lambda>", {"w": "weights", "x": "batches in flight"}] in each
    (step,) = {json.dumps(kinds) for name, kinds in each if name == "step"}
    assert {json.loads(step)[name] for name in ("w", "x")} == {"weights", "batches in flight"}
    (single,) = (kinds for name, kinds in each if name == "multiply" and "other arrays" in kinds.values())
    assert set(single.values()) == {"other arrays"}


def test_a_loop_ends_by_itself_when_it_is_steady(tmp_path):
    code, run, err = ran(tmp_path, TRAIN.replace("END", "pass"), "--help", "--steps")
    assert (code, run["ended"], run["devices"]) == (0, "steady", 8)
    (step,) = (p for p in run["programs"] if p["name"] == "step")
    called = next(n for n, line in enumerate(TRAIN.splitlines(), 1) if "w = step(" in line)
    assert (step["calls"], step["devices"], step["source"]["line"]) == (3, 8, called)
    assert [a["spec"] for a in step["arguments"]] == ["P(None, 'model')", "P('data')"]
    assert "arguments ['--help', '--steps']" in err  # the script's own


THREADED = (
    TRAIN.split("w = put(")[0]
    + """
import threading
def loop():
    w = put((1024, 1024), None, "model")
    while True:
        w = step(w, put((64, 1024), "data"))
thread = threading.Thread(target=loop)
thread.start()
thread.join()
"""
)


@pytest.mark.parametrize("script", [THREADED, THREADED.replace("thread.join()", "")])
def test_a_steady_loop_in_another_thread_is_ended(script, tmp_path):
    code, run, err = ran(tmp_path, script)
    assert (code, run["ended"], "Traceback" in err) == (0, "steady", False)
    assert [p["calls"] for p in run["programs"] if p["name"] == "step"] == [3]


def test_the_help_says_where_the_script_stands(capsys):
    assert main(["run", "--help"]) == 0
    assert "run [OPTIONS] [--] COMMAND\n" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["train.py"], ["-m", "train"], ["python", "train.py"]])
def test_a_script_may_follow_the_options_without_dashes_and_keeps_its_own(words, tmp_path, monkeypatch, capsys):
    (tmp_path / "train.py").write_text("import sys; print(sys.argv[1:], file=sys.stderr)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "train", raising=False)
    assert main(["run", "--steps", "2", *words, "--steps", "4", "--help", "--", "x"]) == 0
    assert "['--steps', '4', '--help', '--', 'x']" in capsys.readouterr().err


def test_layers_that_are_made_one_by_one_are_no_loop_of_steps(tmp_path):
    made = 'w = sum(2 * put((1024, 1024), None, "model") for _ in range(8))'
    script = TRAIN.replace('w = put((1024, 1024), None, "model")', made)
    _, run, _ = ran(tmp_path, script.replace("END", "pass"))
    assert [(p["name"], p["calls"]) for p in run["programs"]] == [("multiply", 8), ("add", 1), ("add", 7), ("step", 3)]


def test_an_evaluation_before_the_first_step_is_no_loop_of_steps(tmp_path):
    evaluation = "loss = jax.jit(lambda w, x: jnp.mean(x @ w))\nfor _ in range(10): loss(w, put((64, 1024), 'data'))\n"
    _, run, _ = ran(tmp_path, TRAIN.replace("for i in", evaluation + "for i in").replace("END", "pass"))
    assert [(p["name"], p["calls"]) for p in run["programs"]] == [("<lambda>", 10), ("step", 3)]


@pytest.mark.parametrize(
    ("end", "code", "ended"),
    [
        ("sys.exit(7)", 7, "the script ended with exit code 7"),
        ("sys.exit()", 0, "the script ended"),
        ("sys.exit('not today')", 1, "the script ended with exit code not today"),
        ("raise ValueError('of the script')", 1, "ValueError: of the script"),
        ("input()", 1, "EOFError: EOF when reading a line"),
    ],
)
def test_however_a_script_ends_what_it_did_is_kept(tmp_path, end, code, ended):
    returned, run, err = ran(tmp_path, TRAIN.replace("END", end))
    assert (returned, run["ended"]) == (code, ended)
    assert [p["name"] for p in run["programs"]] == ["step"]
    if "Error" in ended:
        assert "Traceback" in err and "train.py" in err and "runpy" not in err  # the script's frames, no others


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_keeps_its_record(tmp_path, sent, code):
    process = started(tmp_path, TRAIN.replace("END", "print('working', flush=True); import time; time.sleep(100)"))
    while "working" not in process.stderr.readline():
        pass
    time.sleep(0.2)
    os.kill(process.pid, sent)
    out, err = process.communicate(timeout=100)
    assert (process.returncode, json.loads(out)["ended"]) == (code, "interrupted")
    assert "Traceback" not in err


FAMILY = """
import os, subprocess, sys, threading, time
print("left behind", subprocess.Popen(["sleep", "100"]).pid)
os.system("echo a shell")
print("read", input())
if (pid := os.fork()) == 0:
    sys.exit(3)
print("forked", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
def late():
    time.sleep(0.2)
    print("waited for")
threading.Thread(target=late).start()
os.chdir("/")
"""


def test_a_script_without_jax_that_reads_prints_forks_and_starts_processes(tmp_path):
    process = started(tmp_path, FAMILY, stdin=subprocess.PIPE, run=("--devices", "8", "--json", "--out", "run.json"))
    out, err = process.communicate("a line\n", timeout=100)
    run = json.loads(out)  # of one process, and nothing else is in it
    assert (process.returncode, run["ended"], run["programs"]) == (0, "the script ended", [])
    for words in ("a shell", "read a line", "forked 3", "waited for"):
        assert words in err
    assert not psutil.pid_exists(int(err.partition("left behind ")[2].split()[0]))
    assert sorted(os.listdir(tmp_path)) == ["run.json", "train.py"]


STUCK = """
import multiprocessing, queue, threading, time
import jax, jax.numpy as jnp
full = queue.Queue(1)
def load():
    while True:
        full.put(1)
if __name__ == "__main__":
    threading.Thread(target=load).start()
    worker = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(100,))
    worker.start()
    print("worker", worker.pid)
    mesh = jax.make_mesh((8,), ("data",))
    x = jax.device_put(jnp.ones((8, 8)), jax.NamedSharding(mesh, jax.P("data")))
    step = jax.jit(lambda x: x + 1)
    while full.get():
        x = step(x)
"""


def test_threads_and_processes_that_wait_for_the_loop_do_not_keep_a_steady_run(tmp_path):
    code, run, err = ran(tmp_path, STUCK)
    assert (code, run["ended"]) == (0, "steady")
    assert not psutil.pid_exists(int(err.partition("worker ")[2].split()[0]))


def test_for_a_machine_it_says_how_long_a_call_takes_and_whether_it_fits(tmp_path):
    options = ("--target", "tpu v5e:2x4", "--steps", "0")
    process = started(tmp_path, TRAIN.replace("END", "if i == 4: break"), run=options)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert "dry run on tpu v5e:2x4, 8 devices: 1 program, 5 calls; the script ended" in out
    assert "fits" in out and "µs" in out


CHECKPOINTS = """
import os
import jax, jax.numpy as jnp
import orbax.checkpoint as ocp
mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
put, folder = jax.NamedSharding(mesh, jax.P("data")), os.path.abspath("kept")
state = jax.jit(lambda: {"w": jnp.ones((60_000, 40_000))}, out_shardings=put)()
wanted = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)
def right(tree):
    assert (tree["w"].sharding, tree["w"].shape) == (put, (60_000, 40_000))
with ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(save_interval_steps=2)) as manager:
    saved = [manager.save(step, args=ocp.args.StandardSave(state)) for step in range(3)]
    assert (saved, manager.latest_step()) == ([True, False, True], 2)
    right(manager.restore(2, args=ocp.args.StandardRestore(wanted)))
both = ocp.CheckpointManager(folder, item_names=("state", "meta"))
asked = ocp.args.Composite(state=ocp.args.StandardRestore(wanted), meta=ocp.args.JsonRestore())
right(both.restore(7, args=asked).state)
with ocp.StandardCheckpointer() as single:
    single.save(folder + "/one", state)
    single.wait_until_finished()
    right(single.restore(folder + "/one", wanted))
trees = ocp.PyTreeCheckpointer()
trees.save(folder + "/two", state)
how = ocp.checkpoint_utils.construct_restore_args(wanted)
right(trees.restore(folder + "/two", item=wanted, restore_args=how))
from orbax.checkpoint.experimental import v1
v1.save(folder + "/three", state)
v1.save_checkpointables_async(folder + "/three", {"state": state}).result()
right(v1.load(folder + "/three", wanted))
right(v1.load_checkpointables(folder + "/three", {"state": wanted})["state"])
with v1.training.Checkpointer(folder + "/four") as new:
    new.save(3, state)
    right(new.load(3, wanted))
moved = jax.device_put(state["w"], jax.NamedSharding(mesh, jax.P(None, "data")), donate=True)
assert state["w"].is_deleted()
"""


def test_checkpoints_are_neither_written_nor_read_and_what_is_moved_with_donation_is_gone(tmp_path):
    pytest.importorskip("orbax.checkpoint", reason="no orbax: pip install orbax-checkpoint")
    code, run, err = ran(tmp_path, CHECKPOINTS, run=("--target", "tpu v5e:2x4", "--json"))
    assert (code, run["ended"]) == (0, "the script ended"), err
    restored = [(t["kind"], t["before"], t["after"]) for t in run["transfers"] if t["before"] == "checkpoint"]
    assert restored == [("put", "checkpoint", "P('data') on data=8")] * 7
    notes = [note["text"] for note in run["notes"]]
    assert f"orbax does not write the checkpoint {tmp_path}/kept/one" in notes
    for name in ("two", "three"):
        assert f"orbax does not read the checkpoint {tmp_path}/kept/{name}: what it would restore is zeros" in notes
    assert not [name for _, _, files in os.walk(tmp_path / "kept") for name in files]


@pytest.mark.parametrize(
    ("words", "script"),
    [
        ("python train.py a --b", ("script", "train.py", ["a", "--b"])),
        ("train.py", ("script", "train.py", [])),
        ("python3.12 -u -X dev -m package.train -m x", ("module", "package.train", ["-m", "x"])),
        ("-m package", ("module", "package", [])),
    ],
)
def test_words_after_the_dashes(words, script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    assert script_of(words.split()) == script


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "needs a script after its options"),
        ("python -c pass", "needs a script after its options"),
        ("python missing.py", "there is no file 'missing.py'; for a module write: python -m missing.py"),
    ],
)
def test_words_that_are_no_script(words, message):
    with pytest.raises(ShardvizError, match=message):
        script_of(words.split())


def test_verbs_about_a_step_take_a_script_in_its_place(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN.replace("END", "pass"))
    words = ["report", "--run", "python train.py", "--target", "tpu v5e:2x4", "--level", "propagated", "--json"]
    command = [sys.executable, "-m", "shardviz.cli", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["program"] == "step"
    assert [c["kind"] for c in report["collectives"]] == ["all-reduce"]
    assert {c["source"]["line"] for c in report["collectives"]} == {10}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--run", "python train.py"), "--run: give the machine that the script is for, such as --target"),
        (("--run", "python 'train.py", "--target", "tpu v5e:2x4"), "No closing quotation; write it as in a shell"),
    ],
)
def test_a_script_that_cannot_be_run(words, message, capsys):
    assert main(["report", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_program_that_the_script_has_not(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN.replace("END", "raise ValueError"))
    words = ["report", "--run", "python train.py", "--program", "train_step", "--target", "tpu v5e:2x4"]
    command = [sys.executable, "-m", "shardviz.cli", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 2
    assert "no program of the run has this name; it has step (the script ended with exit code 1" in done.stderr


@pytest.mark.long
def test_a_check_is_of_every_program_of_a_script_and_of_the_script_at_both_revisions(tmp_path):
    def check(*words):
        machine = ("--target", "tpu v5e:2x4", "--level", "propagated", "--json")
        command = [sys.executable, "-m", "shardviz.cli", "check", "--run", "python train.py", *machine, *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=200)
        assert done.stdout, done.stderr
        checked = json.loads(done.stdout)
        jsonschema.validate(checked, schema_of("check"))
        return done.returncode, {step["name"]: step for step in checked["steps"]}

    mean = "@jax.jit\ndef mean(w, x):\n    return jnp.mean(x @ w)\n"
    script = TRAIN.replace("@jax.jit\n", mean + "@jax.jit\n").replace("END", "mean(w, put((64, 1024), 'data'))")
    (tmp_path / "train.py").write_text(script)
    committed(tmp_path)
    git(tmp_path, "checkout", "--quiet", "-b", "change")
    code, steps = check("--forbid", "all-gather", "--base", "main")
    assert (code, set(steps)) == (0, {"step of run", "mean of run"})
    assert all(step["base"] and not step["note"] for step in steps.values())
    gathers = "    w = jax.lax.with_sharding_constraint(w, NamedSharding(mesh, P()))\n    return jnp.mean(x @ w)"
    (tmp_path / "train.py").write_text(script.replace("    return jnp.mean(x @ w)", gathers))
    code, steps = check("--forbid", "all-gather", "--base", "main")
    assert code == 1 and steps["step of run"]["ok"]
    assert {each["rule"] for each in steps["mean of run"]["failures"]} >= {"forbid:all-gather", "gathered:w"}
    code, steps = check("--forbid", "all-gather", "--program", "step")
    assert (code, list(steps)) == (0, ["step"])
    code, steps = check("--golden", "runs/golden.json", "--update")
    assert code == 0 and {each.name for each in (tmp_path / "runs").iterdir()} == {
        "golden-step.json",
        "golden-mean.json",
    }
