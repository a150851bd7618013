"""The command in a process of its own: piped, on a terminal, interrupted at any moment with nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import command, committed, environment, git

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="signals and terminals as POSIX has them"),
]

SLOW = """
def slow():
    import sys, time
    print("shardviz: slow", file=sys.stderr, flush=True)
    time.sleep(300)
"""
SHOW = ("show", "bf16[8192,4096]", "P('data', None)", "--mesh", "data=4,model=2")


def test_what_is_piped_is_the_result_alone_and_json_for_the_next():
    words = command("report", "mlp", "--level", "propagated", "--json")
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout)["level"] == "propagated"
    assert done.stderr.splitlines() == ["shardviz: tracing mlp", "shardviz: propagating train_step"]


def test_a_reader_that_has_enough_is_no_fault_and_files_are_written(tmp_path):
    words = ("schema", "--out", "schemas.json", "--quiet")
    schemas = started(tmp_path, *words)
    assert schemas.stdout is not None and schemas.stderr is not None
    schemas.stdout.close()
    assert schemas.wait(60) == 141 and schemas.stderr.read() == ""
    schemas.stderr.close()
    assert "report" in json.loads((tmp_path / "schemas.json").read_text())


LOUD = """
import atexit, ctypes, os, subprocess, sys, threading, time
print("loud: import")
sys.__stdout__.write("loud: sys.__stdout__\\n")
os.write(1, b"loud: file descriptor 1\\n")
ctypes.CDLL(None).puts(b"loud: C")
subprocess.run(["echo", "loud: another process"])
atexit.register(print, "loud: atexit")
threading.Thread(target=lambda: (time.sleep(0.5), print("loud: thread"))).start()
"""


def test_what_a_persons_code_prints_is_no_part_of_the_answer(project):
    model = (
        (project / "stranger.py")
        .read_text()
        .replace("def loss(params, x):", "def loss(params, x):\n    print('loud: traced')")
    )
    (project / "stranger.py").write_text(model + LOUD)
    words = command("report", "train", "--level", "propagated", "--json", "--quiet")
    own = [sys.executable, "-m", "shardviz.cli", *words[3:]]
    done = subprocess.run(own, cwd=project, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and json.loads(done.stdout)["level"] == "propagated"
    assert done.stderr.count("loud: ") == 8


@pytest.mark.parametrize("words", [SHOW, ("--help",), ("show", "--help")])
@pytest.mark.parametrize("to", [">/dev/full", ">&-"])
def test_standard_output_that_cannot_be_written_is_told(words, to):
    own = shlex.join([sys.executable, "-m", "shardviz.cli", *words])
    done = subprocess.run(["bash", "-c", f"{own} {to}"], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "standard output" in done.stderr and "Traceback" not in done.stderr


def test_a_reader_of_the_help_that_has_enough_is_no_fault():
    own = shlex.join([sys.executable, "-m", "shardviz.cli", "--help"])
    script = f"{own} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 141) and done.stderr == ""


def on_a_terminal(width: int) -> str:
    """What `show` writes to a terminal of so many columns."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    env = {name: value for name, value in environment(TERM="xterm").items() if name != "COLUMNS"}
    with subprocess.Popen(command(*SHOW), env=env, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        text = b""
        with contextlib.suppress(OSError):  # the other side is closed: the end
            while part := os.read(ours, 4096):
                text += part
    os.close(ours)
    return text.decode().replace("\r\n", "\n")


@pytest.mark.long
def test_a_terminal_gets_its_own_width():
    text = on_a_terminal(40)
    assert "\x1b" not in text and max(map(len, text.splitlines())) <= 40


def interrupted(process: subprocess.Popen[str], until: str) -> tuple[int, str, str]:
    """Ctrl-C, once this stands on standard error; the exit code and what was written. No process is left."""
    assert process.stderr is not None
    seen = ""
    while until not in seen:
        line = process.stderr.readline()
        assert line, f"it ended: {seen}"
        seen += line
    started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    out, more = process.communicate(timeout=60)
    _, alive = psutil.wait_procs(started, timeout=20)
    assert not alive
    return process.returncode, out, seen + more


def started(folder: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command(*words), cwd=folder, env=environment(**more), stdout=pipe, stderr=pipe, text=True)


@pytest.mark.long
def test_a_search_that_is_interrupted_says_what_it_knows(tmp_path):
    words = ("search", "mlp", "--target", "tpu v5p:2x2x2", "--level", "propagated", "--seconds", "300", "--json")
    code, out, _ = interrupted(started(tmp_path, *words), until=" s: ")
    assert code == 130
    assert not json.loads(out)["finished"] and json.loads(out)["ranked"]


@pytest.mark.long
@pytest.mark.parametrize("words", [("report", "train"), ("check", "train", "--base", "main")])
def test_what_is_interrupted_leaves_nothing_behind(project, words):
    (project / "stranger.py").write_text((project / "stranger.py").read_text() + SLOW)
    configuration = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(configuration.replace("stranger:arguments", "stranger:slow"))
    committed(project)
    before = {path.name for path in project.iterdir()}
    temporary = project.parent / f"{project.name}-tmp"
    temporary.mkdir()
    code, out, err = interrupted(started(project, *words, TMPDIR=str(temporary)), until="shardviz: slow")
    assert (code, out) == (130, "") and err.endswith(f"shardviz {words[0]}: interrupted\n"), err
    assert {path.name for path in project.iterdir()} - {"__pycache__"} == before
    assert list(temporary.iterdir()) == []
    assert git(project, "worktree", "list").count("\n") == 0


def test_an_interruption_while_the_verbs_are_imported_is_told():
    press = (
        "import signal, sys\n"
        "class Press:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'shardviz.cli.frame': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Press())\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from shardviz.cli import main; sys.exit(main(['--help']))"
    )
    done = subprocess.run([sys.executable, "-c", press], env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "shardviz: interrupted\n")


def test_python_runs_it_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "shardviz.cli", "--version"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and done.stdout.startswith("shardviz ")


def test_what_needs_no_jax_waits_for_none():
    start = time.perf_counter()
    script = "import sys; from shardviz.cli import main; main(['--help']); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], env=environment(), check=True, timeout=60, stdout=subprocess.DEVNULL)
    assert time.perf_counter() - start < 60
