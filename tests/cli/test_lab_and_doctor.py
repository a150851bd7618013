"""`shardviz lab` never overwrites a person's edits; `shardviz doctor` tells the truth about what is installed."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from shardviz.cli import lab, main
from shardviz.cli.lab import FIRST, LabError, copy_notebooks, lab_command, shipped_notebooks
from shardviz.compiler import targets as targets_module
from shardviz.compiler.targets import TargetStatus, targets
from tests.cli.conftest import command, environment


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    folder = tmp_path / "shipped"
    folder.mkdir()
    (folder / FIRST).write_text("first, version 1")
    (folder / "02_more.ipynb").write_text("more, version 1")
    return folder


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "mine"


def words(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines]


def test_everything_is_copied_to_a_new_folder(shipped: Path, mine: Path):
    assert words(copy_notebooks(shipped, mine)) == ["copied", "copied"]
    assert (mine / FIRST).read_text() == "first, version 1"
    assert sorted(p.name for p in mine.iterdir()) == [FIRST, "02_more.ipynb"]


def test_edits_are_kept_and_said_to_be(shipped: Path, mine: Path):
    copy_notebooks(shipped, mine)
    assert copy_notebooks(shipped, mine) == []
    (mine / FIRST).write_text("my own words")
    for _ in range(2):
        (line,) = copy_notebooks(shipped, mine)
        assert line == f"kept     {mine / FIRST} (it differs from the shipped one; rename yours to get that)"
    assert (mine / FIRST).read_text() == "my own words"


def test_a_renamed_notebook_comes_back_beside_it(shipped: Path, mine: Path):
    copy_notebooks(shipped, mine)
    (mine / FIRST).write_text("my own words")
    (mine / FIRST).rename(mine / "mine.ipynb")
    assert words(copy_notebooks(shipped, mine)) == ["copied"]
    assert (mine / "mine.ipynb").read_text() == "my own words"


def test_a_folder_that_cannot_be_is_told(shipped: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match=r"cannot keep the notebooks in .*file: .*; give another folder: "):
        copy_notebooks(shipped, tmp_path / "file")


def test_without_jupyterlab_it_says_what_to_install(monkeypatch, capsys, tmp_path: Path):
    monkeypatch.setattr(lab.importlib.util, "find_spec", lambda name: None)
    assert main(["lab", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().err == (
        "shardviz lab: JupyterLab is not installed; install it with: pip install 'shardviz[lab]'\n"
    )
    assert not (tmp_path / "new").exists()


def test_jupyterlab_opens_on_the_first_notebook(shipped: Path):
    words = lab_command(shipped, first=FIRST, port=9999, browser=False, extra=["--debug"])
    assert words[:3] == [sys.executable, "-m", "jupyterlab"]
    assert f"--ServerApp.root_dir={shipped}" in words
    assert f"--LabApp.default_url=/lab/tree/{FIRST}" in words
    assert words[-1] == "--debug" and {"--port=9999", "--no-browser"} < set(words)


def test_words_after_two_dashes_are_for_lab_and_run_only(capsys):
    assert main(["doctor", "--", "--debug"]) == 2
    told = capsys.readouterr().err
    assert "only `shardviz run`, for a script, and `shardviz lab`, for JupyterLab, take words after `--`" in told


def test_without_a_command_it_helps(capsys):
    assert main([]) == 0
    assert "doctor" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals and terminals as POSIX has them")
@pytest.mark.skipif(importlib.util.find_spec("jupyterlab") is None, reason="no jupyterlab: shardviz[lab]")
@pytest.mark.parametrize("end", ["SIGTERM", pytest.param("terminal", marks=pytest.mark.long)])
def test_lab_serves_the_copied_notebook_until_it_is_stopped_and_leaves_nothing(tmp_path: Path, end: str):
    folder, runtime = tmp_path / "mine", tmp_path / "runtime"
    own = {f"JUPYTER_{kind.upper()}_DIR": str(tmp_path / kind) for kind in ("runtime", "config", "data")}
    words = command("lab", str(folder), "--no-browser", "--", "--ServerApp.ip=127.0.0.1")
    ours, theirs = os.openpty()
    if end == "terminal":  # one of its own, with Ctrl-C
        own_terminal = "import os, sys; os.login_tty(int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"
        words = [sys.executable, "-c", own_terminal, str(theirs), *words]
        how: dict = {"pass_fds": (theirs,)}
    else:
        how = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    with subprocess.Popen(words, env=environment(**own), **how) as process:
        try:
            os.close(theirs)
            server = _served(process, runtime, seconds=60)
            assert _asked(server, f"api/contents/{FIRST}?content=0")["name"] == FIRST
            assert _asked(server, "api/kernels", b"{}")["name"] == "python3"
            started = psutil.Process(process.pid).children(recursive=True)
            if end == "terminal":
                os.write(ours, b"\x03")
                text = b""
                while b"Shut down this Jupyter server" not in text:
                    text += os.read(ours, 4096)
                os.write(ours, b"y\n")
            else:
                process.terminate()
            code = process.wait(30)
        finally:
            process.kill()
            os.close(ours)
    assert code == 0
    assert started and not psutil.wait_procs(started, timeout=20)[1]
    assert {path.name for path in runtime.iterdir()} <= {"jupyter_cookie_secret"}
    shipped = {path.name for path in shipped_notebooks().glob("*.ipynb")}
    assert {path.name for path in folder.iterdir()} == shipped


def _served(process: subprocess.Popen, runtime: Path, seconds: float) -> dict:
    """The server's own words about itself, once it shows JupyterLab."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        for info in runtime.glob("jpserver-*.json"):
            with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError, ValueError):
                server = json.loads(info.read_text())
                with urllib.request.urlopen(f"{server['url']}lab?token={server['token']}", timeout=20) as answer:
                    assert b"apputils-extension:announcements" in answer.read(), "no question about news"
                return server
        time.sleep(0.1)
    raise AssertionError(f"no server within {seconds:g} s; exit code {process.poll()}")


def _asked(server: dict, path: str, data: bytes | None = None) -> dict:
    """What the server answers; with data it is a POST."""
    headers = {"Authorization": f"token {server['token']}"}
    with urllib.request.urlopen(urllib.request.Request(server["url"] + path, data, headers), timeout=30) as answer:
        return json.load(answer)


def test_doctor_says_what_is_there(capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert f"jax          {importlib.metadata.version('jax')}" in text
    assert "1 x cpu (cpu)" in text
    assert f"cpu  ready    jaxlib {importlib.metadata.version('jaxlib')}" in text
    assert text.rstrip().endswith("The basics work.")


def test_doctor_tells_of_a_jax_that_finds_no_device():
    start = "import sys; from shardviz.cli import main; sys.exit(main(['doctor']))"
    env = {**os.environ, "JAX_PLATFORMS": "nonesuch"}
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", start], env=env, cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "devices      JAX failed: " in done.stdout and "nonesuch" in done.stdout
    assert done.stdout.rstrip().endswith("The basics do NOT work. JAX finds no device: see above.")


# Targets, on machines other than this one.

PAIRED = {"jax": "0.12.0", "jaxlib": "0.12.0"}
CUDA = {"jax-cuda13-plugin": "0.12.0", "jax-cuda13-pjrt": "0.12.0", "nvidia-cuda-nvcc": "13.1.1"}


@pytest.fixture
def machine(monkeypatch):
    """Pretends that these packages are installed on such a machine."""

    def pretend(versions: dict[str, str], system: str = "linux", processor: str = "x86_64") -> tuple[TargetStatus, ...]:
        monkeypatch.setattr(targets_module, "_read_targets", targets_module._read_targets.__wrapped__)
        monkeypatch.setattr(targets_module, "version_of", {**PAIRED, **versions}.get)
        monkeypatch.setattr(targets_module, "_importable", lambda module: True)
        monkeypatch.setattr(targets_module, "_wanted", lambda package, extra: "0.0.50.")
        monkeypatch.setattr(targets_module.sys, "platform", system)
        monkeypatch.setattr(targets_module.platform, "machine", lambda: processor)
        return targets()

    return pretend


def test_all_targets_are_ready_where_everything_is_installed(machine):
    assert [status.ready for status in machine({"libtpu": "0.0.50.1", **CUDA})] == [True, True, True]


def test_what_is_missing_is_named_with_the_command_that_fixes_it(machine):
    cpu, tpu, gpu = machine({"nvidia-cuda-nvcc": "13.1.1"})
    assert (cpu.ready, cpu.missing, cpu.install) == (True, "", "")
    assert (tpu.ready, tpu.install) == (False, "pip install 'shardviz[tpu]'")
    assert tpu.missing == "the package libtpu (0.6 GB) is not installed"
    assert (gpu.ready, gpu.install) == (False, "pip install 'shardviz[cuda]'")
    assert gpu.missing.startswith("not installed: jax-cuda13-plugin, jax-cuda13-pjrt (")


def test_versions_that_do_not_pair_are_told(machine):
    _, tpu, gpu = machine({"libtpu": "0.0.49", **CUDA, "jax-cuda13-plugin": "0.11.0"})
    assert not tpu.ready and tpu.missing == "jax 0.12.0 goes with libtpu 0.0.50.*, not 0.0.49"
    assert not gpu.ready and gpu.missing == "jaxlib 0.12.0 goes with jax-cuda13-plugin 0.12.0, not 0.11.0"


def test_the_version_that_is_wanted_is_what_jax_itself_asks_for():
    """A requirement that was not understood would let every version pass."""
    wanted = targets_module._wanted("libtpu", extra="tpu")
    assert re.fullmatch(r"(\d+\.)+", wanted or "")
    (asked,) = [line for line in importlib.metadata.requires("jax") or () if line.startswith("libtpu")]
    assert f"libtpu=={wanted}*" in asked.replace(" ", "")
    assert targets_module._wanted("numpy", extra="tpu") is None


@pytest.mark.parametrize(("system", "processor"), [("darwin", "arm64"), ("win32", "AMD64")])
def test_nothing_is_recommended_that_the_platform_cannot_have(machine, system: str, processor: str):
    cpu, tpu, gpu = machine({}, system, processor)
    assert cpu.ready
    assert "Linux x86-64 only" in tpu.missing and tpu.install == ""
    assert "Linux only" in gpu.missing and gpu.install == ""
