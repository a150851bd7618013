"""`shardviz doctor`: what works on this machine, and how to install the rest.

JAX's devices are listed by a separate process, so that a driver that hangs or crashes becomes a line of the answer.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys

from shardviz.compiler.targets import version_of

NEEDED = ("jax", "jaxlib", "numpy", "ipywidgets", "anywidget", "matplotlib", "psutil")
OPTIONAL = ("jupyterlab", "flax", "distributed", "nbval", "playwright")
_DEVICES = """
import collections, jax
kinds = collections.Counter((device.platform, device.device_kind) for device in jax.devices())
print(", ".join(f"{count} x {platform} ({kind})" for (platform, kind), count in sorted(kinds.items())))
"""


def examine() -> tuple[str, bool]:
    """Return a text about this machine, and whether the basics work: all required packages are installed, JAX finds a
    device, and programs can be compiled for CPU."""
    needed = {name: version_of(name) for name in NEEDED}
    devices, devices_work = _devices()
    compilers, compilers_work = _compilers()
    absent = [name for name, version in needed.items() if version is None]
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    works = devices_work and compilers_work and not absent
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
        "Targets that can be compiled for": compilers,
    }
    lines = [line for title, body in sections.items() for line in (title, *(f"  {line}" for line in body), "")]
    verdict = "The basics work." if works else "The basics do NOT work."
    if absent:
        verdict += f" Missing: {', '.join(absent)}; pip install shardviz"
    if not devices_work:
        verdict += " JAX finds no device: see above."
    return "\n".join([*lines, verdict]), works


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


def _compilers() -> tuple[list[str], bool]:
    """Return the available compilers, and whether one for CPU is among them."""
    try:
        from shardviz.compiler.targets import targets
    except (ImportError, RuntimeError) as error:  # jax raises either where it and jaxlib do not fit
        return [f"not known: {error}"], False
    statuses = targets()
    return repr(statuses).splitlines(), statuses[0].ready


def _memory() -> str:
    try:
        import psutil
    except ImportError:
        return "not known (psutil is missing)"
    memory = psutil.virtual_memory()
    return f"{memory.total / 2**30:.1f} GiB, {memory.available / 2**30:.1f} GiB of it available"
