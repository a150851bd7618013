"""Starting a Python of our own beside the kernel, which runs nothing that happens to lie in the working folder.

The kernel's Python finds modules in the folder that it works in, and so would its child: a `json.py` or `queue.py`
there would run in it in place of Python's own. The child is started without that folder (`-P`), without the
environment's `PYTHON*` words, and is told the kernel's other places, as bytes: names need be no UTF-8. It takes
shardviz from where the kernel has it.

XLA reads `XLA_FLAGS` once in each process. What a person has set there holds in the child too, but for where dumps go
and what they look like: the child's dumps are its answer.

>>> without_dumps("--xla_cpu_enable_fast_math=true --xla_dump_to='/my dumps' --xla_dump_hlo_as_html")
'--xla_cpu_enable_fast_math=true'
"""

from __future__ import annotations

import os
import re
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


def python(module: str, arguments: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    """Starts a Python that calls `main(*arguments)` of a module of this package, by its full name; `how` is
    `subprocess.Popen`'s. An `OSError` if the system gives no process."""
    parts = [_home(), module, str(len(arguments)), *arguments, *_path()]
    packed = b"\0".join(map(os.fsencode, parts)).hex()
    if not sys.executable:
        raise FileNotFoundError(2, "sys.executable does not name a Python that could be started")
    how |= {"env": environment(), "start_new_session": True}  # an interrupt of the kernel must not reach it
    command = [os.fsencode(sys.executable), b"-P", b"-s", b"-X", b"utf8", b"-c", _PROGRAM.encode(), packed.encode()]
    process: Any = subprocess.Popen(command, **how)
    return process


def inside(module: str, *arguments: Any) -> tuple[str, dict[str, Any]]:
    """What `exec` is to be given in a Python that somebody else has started, to call `begin(*arguments)` of a module of
    this package: what is imported until then is not taken from the folder that it works in either."""
    return _INSIDE, {"home": _home(), "module": module, "arguments": arguments, "path": _path()}


def _home() -> str:
    home = Path(__file__).parents[1]
    return str(home) if (home / "__init__.py").is_file() else ""


def _path() -> list[str]:
    """Where the kernel finds modules; the folders that it works in and its script lies in last, if at all."""
    entries = [entry for entry in sys.path if isinstance(entry, str)]
    here = {_real(os.curdir)}
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script and entries and _real(os.path.dirname(script)) == _real(entries[0]):  # `python there/script.py`
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
    """The kernel's environment as a compiling process needs it."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON") or k == "PYTHONHOME"}
    for name in _FLAGS:
        if name in variables:
            variables[name] = without_dumps(_flags(variables[name]))
    return variables | {"JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def _flags(words: str) -> str:
    """The flags themselves: XLA takes what begins with no dash for a file that has them."""
    if not words.strip() or words.lstrip().startswith("-"):
        return words
    try:
        return Path(words).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return words


def without_dumps(flags: str) -> str:
    """XLA's flags without those that say where it dumps what; as they are where there are none."""
    every = _FLAG.findall(flags)
    kept = [flag for flag in every if not _DUMPS.match(flag)]
    return flags if len(kept) == len(every) else " ".join(kept)


def in_the_way() -> str:
    """The flags of the environment that keep XLA from running the passes whose results are read; empty for none."""
    flags = (flag for name in _FLAGS for flag in _FLAG.findall(_flags(os.environ.get(name, ""))))
    return " ".join(flag for flag in flags if _IN_THE_WAY.match(flag))


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """A pair of connected sockets, neither taken for standard input, output or error where those are closed."""
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
