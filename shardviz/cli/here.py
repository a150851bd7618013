"""The verbs about this machine, `targets`, `doctor`; and about the command: `schema`, `completion`, `skill`.

`doctor` lists JAX's devices by a separate process, so that a driver that hangs or crashes becomes a line of the answer.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from importlib.resources import files

import click
import click.shell_completion

from shardviz.cli.frame import DONE, FAILED, Answer, cli
from shardviz.cli.schemas import SCHEMAS, DoctorData, TargetsData, schema_of
from shardviz.compiler.targets import targets as statuses
from shardviz.compiler.targets import version_of

NEEDED = ("jax", "jaxlib", "numpy", "ipywidgets", "anywidget", "matplotlib", "psutil")
OPTIONAL = ("jupyterlab", "flax", "distributed", "nbval", "playwright")
_DEVICES = """
import collections, jax
kinds = collections.Counter((device.platform, device.device_kind) for device in jax.devices())
print(", ".join(f"{count} x {platform} ({kind})" for (platform, kind), count in sorted(kinds.items())))
"""


def targets() -> Answer:
    states = statuses()
    return Answer(repr(states), record=TargetsData(targets=list(states)))


def doctor() -> Answer:
    """Return a text about this machine, and whether the basics work: all required packages are installed, JAX finds a
    device, and programs can be compiled for CPU."""
    needed = {name: version_of(name) for name in NEEDED}
    devices, devices_work = _devices()
    compilers = statuses()
    absent = [name for name, version in needed.items() if version is None]
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    works = devices_work and compilers[0].ready and not absent
    sections = {
        "Versions": [
            f"python       {platform.python_version()} ({platform.system()} {platform.machine()})",
            f"shardviz     {version_of('shardviz') or 'runs from a folder; not installed'}",
            *(f"{name:<12} {version or 'MISSING'}" for name, version in needed.items()),
            *(f"{name:<12} {version_of(name) or 'not installed (optional)'}" for name in OPTIONAL),
        ],
        "Machine": [
            f"cores        {usable} of {os.cpu_count()}",
            f"memory       {_memory()}",
            f"devices      {devices}",
            f"chromium     {shutil.which('chromium') or 'not found (only the browser tests need it)'}",
        ],
        "Targets that can be compiled for": repr(compilers).splitlines(),
    }
    lines = [line for title, body in sections.items() for line in (title, *(f"  {line}" for line in body), "")]
    verdict = "The basics work." if works else "The basics do NOT work."
    if absent:
        verdict += f" Missing: {', '.join(absent)}; pip install shardviz"
    if not devices_work:
        verdict += " JAX finds no device: see above."
    text = "\n".join([*lines, verdict])
    return Answer(text, record=DoctorData(works=works, text=text), code=DONE if works else FAILED)


def _devices() -> tuple[str, bool]:
    """Return the devices that JAX finds, and whether there are any."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _DEVICES], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return "JAX did not answer within 60 s; try again with JAX_PLATFORMS=cpu", False
    if done.returncode:
        return f"JAX failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}", False
    return done.stdout.strip().splitlines()[-1], True


def _memory() -> str:
    try:
        import psutil
    except ImportError:
        return "not known (psutil is missing)"
    memory = psutil.virtual_memory()
    return f"{memory.total / 2**30:.1f} GiB, {memory.available / 2**30:.1f} GiB of it available"


def schema(name: str | None) -> Answer:
    if name is not None and name not in SCHEMAS:
        raise click.UsageError(f"VERB {name!r}: it prints no JSON; there are {', '.join(SCHEMAS)}")
    schemas = schema_of(name) if name else {verb: schema_of(verb) for verb in SCHEMAS}
    return Answer(json.dumps(schemas, indent=1), record=schemas)


def completion(shell: str) -> Answer:
    kind = click.shell_completion.get_completion_class(shell)
    assert kind is not None
    return Answer(kind(cli, {}, "shardviz", "_SHARDVIZ_COMPLETE").source())


def skill() -> Answer:
    return Answer(guide().rstrip())


def guide() -> str:
    return files("shardviz.cli").joinpath("skill.md").read_text(encoding="utf-8")
