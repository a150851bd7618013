"""`shardviz lab`: JupyterLab on the user's own copy of the notebooks.

A notebook is copied if it does not exist yet. Existing notebooks are never overwritten.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from shardviz.errors import ShardvizError
from shardviz.files import write_whole

DEFAULT_FOLDER = "shardviz-notebooks"
FIRST = "00_start_here.ipynb"


class LabError(ShardvizError):
    """JupyterLab cannot be started; the message says what to do."""


def shipped_notebooks() -> Path:
    """Return the folder of this installation's notebooks. Raises LabError if there is none."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "notebooks", package.parent / "notebooks"):  # in a wheel; in a checkout
        if any(folder.glob("*.ipynb")):
            return folder
    raise LabError(f"this installation has no notebooks (looked in {package / 'notebooks'}); reinstall shardviz")


def copy_notebooks(source: Path, folder: Path) -> list[str]:
    """Copy the notebooks of `source` that `folder` lacks. Return a line of text for each copied notebook, and for each
    that was kept although it differs. Raises LabError if the folder cannot be written."""
    lines = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for shipped in sorted(source.glob("*.ipynb")):
            mine, content = folder / shipped.name, shipped.read_bytes()
            if not os.path.lexists(mine):
                write_whole(mine, content)
                lines.append(f"copied   {mine}")
            elif mine.read_bytes() != content:
                lines.append(f"kept     {mine} (it differs from the shipped one; rename yours to get that)")
    except (OSError, ShardvizError) as error:
        trouble = f"cannot keep the notebooks in {folder}: {getattr(error, 'strerror', None) or error}"
        raise LabError(f"{trouble}; give another folder: shardviz lab FOLDER") from error
    return lines


def run_lab(
    folder: Path,
    *,
    port: int | None = None,
    browser: bool = True,
    extra: Sequence[str] = (),
    notebook: tuple[str, Sequence[str]] | None = None,
) -> int:
    """Copy the notebooks and run JupyterLab on the first one, or on a new `notebook` (its name and code cells). Return
    its exit code; on POSIX JupyterLab replaces this process. `port` None takes the first free port from 8888; `extra`
    are further arguments. Raises LabError if JupyterLab is not installed or the notebooks cannot be written."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise LabError("JupyterLab is not installed; install it with: pip install 'shardviz[lab]'")
    folder = folder.expanduser()
    for line in copy_notebooks(shipped_notebooks(), folder):
        print(line, flush=True)
    first = FIRST if notebook is None else write_notebook(folder, *notebook)
    command = lab_command(folder.resolve(), first=first, port=port, browser=browser, extra=extra)
    # else JupyterLab's question about its news lies over the first explorer
    own = [str(Path(__file__).with_name("jupyter")), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(own)
    if os.name == "posix":
        os.execv(command[0], command)  # signals, Ctrl-C's question included, then reach JupyterLab itself
    return subprocess.call(command)


def write_notebook(folder: Path, name: str, cells: Sequence[str]) -> str:
    """Write a notebook with these code cells under a numbered name, and return the file's name. A notebook whose first
    cell ends with the same line is reused. Raises LabError if the file cannot be written."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    code = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    content = {"cells": [code | {"source": cell} for cell in cells], "metadata": {"kernelspec": kernel}}
    mark = json.dumps(cells[0].splitlines()[-1])[1:-1]
    files = (folder / f"{name}_{number}.ipynb" for number in itertools.count(1))
    try:
        file = next(file for file in files if not file.exists() or mark in file.read_text(errors="replace"))
        if not file.exists():
            write_whole(file, json.dumps({**content, "nbformat": 4, "nbformat_minor": 4}, indent=1))
    except (OSError, ShardvizError) as error:
        raise LabError(f"cannot write a notebook in {folder}: {error}; run it in another folder") from error
    return file.name


def lab_command(folder: Path, *, first: str, port: int | None, browser: bool, extra: Sequence[str]) -> list[str]:
    """Return the command line that opens JupyterLab on the notebook `first` in `folder`."""
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder}"]
    if (folder / first).exists():
        command.append(f"--LabApp.default_url=/lab/tree/{first}")
    command += [f"--port={port}"] if port is not None else []
    command += [] if browser else ["--no-browser"]
    if os.name == "posix" and os.geteuid() == 0 and "--allow-root" not in extra:
        print("You are root (a container?), so JupyterLab is given --allow-root.", flush=True)
        command.append("--allow-root")
    return [*command, *extra]
