"""Start of a Python process that runs nothing from the working folder.

The kernel's Python finds modules in its working folder, and so would its child: a `json.py` or `queue.py` there would
replace Python's own. The child is started without this folder (`-P`) and without `PYTHON*` environment variables. It
gets the kernel's other module paths as bytes, since names may not be UTF-8, and imports shardviz from the kernel's
path.

XLA reads `XLA_FLAGS` once per process. The user's flags also apply in the child, except the flags about dumps, since
the child's dumps are its answer.

>>> without_dumps("--xla_cpu_enable_fast_math=true --xla_dump_to='/my dumps' --xla_dump_hlo_as_html")
'--xla_cpu_enable_fast_math=true'
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SHARDVIZ = """
if home:
    spec = importlib.util.spec_from_file_location(
        "shardviz", os.path.join(home, "__init__.py"), submodule_search_locations=[home])
    package = sys.modules["shardviz"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
"""
_PROGRAM = f"""
import importlib, importlib.util, os, sys
home, module, count, *rest = map(os.fsdecode, bytes.fromhex(sys.argv[1]).split(bytes(1)))
sys.path[:] = rest[int(count):]
{_SHARDVIZ}
importlib.import_module(module).main(*rest[:int(count)])
"""
_INSIDE = f"""
import importlib, importlib.util, os, sys
sys.path[:] = path
{_SHARDVIZ}
importlib.import_module(module).begin(*arguments)
"""

_FLAG = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
_DUMPS = re.compile(r"--(?:no)?xla_dump_")
_IN_THE_WAY = re.compile(r"--xla_(?:disable_all_hlo_passes|disable_hlo_passes|enable_hlo_passes_only)\b")
_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")

started: set[int] = set()
"""The processes that `python` has started."""


def python(module: str, arguments: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a Python that calls `main(*arguments)` of a module of this package, by its full name. `options` are
    `subprocess.Popen`'s. Raises OSError if the system refuses a process."""
    parts = [_home(), module, str(len(arguments)), *arguments, *_path()]
    packed = b"\0".join(map(os.fsencode, parts)).hex()
    if not sys.executable:
        raise FileNotFoundError(2, "sys.executable does not name a Python that could be started")
    options |= {"env": environment(), "start_new_session": True}  # an interrupt of the kernel must not reach it
    command = [os.fsencode(sys.executable), b"-P", b"-s", b"-X", b"utf8", b"-c", _PROGRAM.encode(), packed.encode()]
    process: Any = subprocess.Popen(command, **options)
    started.add(process.pid)
    return process


def inside(module: str, *arguments: Any) -> tuple[str, dict[str, Any]]:
    """Return the source and globals for `exec`, to call `begin(*arguments)` of a module in a foreign Python process.
    Its imports do not use the process's working folder either."""
    return _INSIDE, {"home": _home(), "module": module, "arguments": arguments, "path": _path()}


def end_group(leader: int) -> None:
    """Kill the process group of a process, including processes that it started and left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _home() -> str:
    home = Path(__file__).parents[1]
    return str(home) if (home / "__init__.py").is_file() else ""


def _path() -> list[str]:
    """Return the kernel's module paths without its working folder and its script's folder, unless these are needed."""
    entries = [entry for entry in sys.path if isinstance(entry, str)]
    here = {_real(os.curdir)}
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script and entries and _real(os.path.dirname(script)) == _real(entries[0]):  # `python folder/script.py`
        here.add(_real(entries[0]))
    inside = [entry for entry in entries if _real(entry) in here]
    needed = {_real(os.path.dirname(p)) for p in map(_package, ("jax", "jaxlib", "numpy", "psutil")) if p}
    return [e for e in entries if e not in inside] + [e for e in inside if _real(e) in needed]


def _package(name: str) -> str | None:
    file = getattr(sys.modules.get(name), "__file__", None)
    return os.path.dirname(file) if file else None


def _real(path: str) -> str:
    try:
        return os.path.realpath(path or os.curdir)
    except OSError:  # the working folder has been removed
        return path


def environment() -> dict[str, str]:
    """Return the kernel's environment, adapted for a compiling process."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON") or k == "PYTHONHOME"}
    for name in _FLAGS:
        if name in variables:
            variables[name] = without_dumps(_flags(variables[name]))
    return variables | {"JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def _flags(words: str) -> str:
    """Return the flags; XLA reads a value without a leading dash as the name of a file with flags."""
    if not words.strip() or words.lstrip().startswith("-"):
        return words
    try:
        return Path(words).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return words


def without_dumps(flags: str) -> str:
    """Remove the flags about dumps from XLA's flags; without such flags, return the text unchanged."""
    every = _FLAG.findall(flags)
    kept = [flag for flag in every if not _DUMPS.match(flag)]
    return flags if len(kept) == len(every) else " ".join(kept)


def in_the_way() -> str:
    """Return the environment's flags that disable passes whose results are needed; empty if there are none."""
    flags = (flag for name in _FLAGS for flag in _FLAG.findall(_flags(os.environ.get(name, ""))))
    return " ".join(flag for flag in flags if _IN_THE_WAY.match(flag))


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return connected sockets whose descriptors are not those of standard input, output or error."""
    pair = socket.socketpair()
    try:
        import fcntl
    except ImportError:
        return pair
    high = []
    for line in pair:
        with line:
            high.append(socket.socket(fileno=fcntl.fcntl(line.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)))
    return high[0], high[1]
