"""The user's own source line of an operation, and the user's module that contains it.

A frame inside a library says little; the innermost line of the user's own code shows where to look.

>>> innermost([Frame("/env/lib/site-packages/flax/nnx/nn/linear.py", 9), Frame("/home/me/model.py", 20)]).short
'model.py:20'
>>> module_of("jit(step)/transpose(jvp(layers_0))/while/body/closed_call/mlp/btd,df->btf/dot_general")
'layers_0/mlp'
>>> module_of("jit(step)/jvp()/dot_general", Frame("/home/me/model.py", 20, "Attention.__call__"))
'Attention'
"""

from __future__ import annotations

import linecache
import os
import re
import sysconfig
from collections.abc import Iterable
from functools import lru_cache

from shardviz.records.values import Frame

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))).replace("\\", "/") + "/"
_STDLIB = tuple(
    {path.replace("\\", "/") + "/" for key in ("stdlib", "platstdlib") if (path := sysconfig.get_paths().get(key))}
)
_INSTALLED = re.compile(r"/(?:site|dist)-packages/")
_JAX = re.compile(r"/(?:site|dist)-packages/(?:jax|jaxlib)/|/jax/(?:_src|experimental|interpreters|extend)/|/jaxlib/")

_OWN, _LIBRARY, _NEVER = range(3)


def innermost(frames: Iterable[Frame]) -> Frame | None:
    """Return the innermost line of the user's code on a stack whose first frame is innermost. This is the first frame
    outside installed packages and Python's library, or else the first outside JAX, or None. Of shardviz, only `gallery`
    counts as user code."""
    best = None
    for frame in reversed(tuple(frames)):
        best = nearer(frame, best)
    return best


def nearer(frame: Frame, around: Frame | None) -> Frame | None:
    """Return the innermost user line of a stack, from its innermost frame and `around`, the rest's user line."""
    kind = _kind(frame.file)
    takes = kind == _OWN or (kind == _LIBRARY and (around is None or _kind(around.file) != _OWN))
    return frame if takes else around


def is_own(file: str) -> bool:
    """Return whether a file is the user's own or the gallery's: outside installed packages and Python's library."""
    return _kind(file) == _OWN


@lru_cache(maxsize=4096)
def _kind(file: str) -> int:
    path = file.replace("\\", "/")
    if path.startswith(_PACKAGE):
        return _OWN if path.startswith(_PACKAGE + "gallery/") else _NEVER
    if _JAX.search(path):
        return _NEVER
    if _INSTALLED.search(path) or path.startswith((*_STDLIB, "<frozen ")):
        return _LIBRARY
    return _OWN


_WRAPPER = re.compile(r"(\w+)\((.*)\)")
_NO_MODULE = re.compile(
    r"while|body|cond|scan|shard_map|p?jit|closed_call|core_call|eval_jaxpr|remat2?|checkpoint|rematted_computation"
    r"|branch_\d+_fun|custom_(?:jvp|vjp)_call(?:_jaxpr)?|_.*|.*->.*|"
)
_FUNCTION = re.compile(r"(?:^|\.)([A-Za-z_]\w*)(?:\.__\w+__)?$")


def module_of(name_stack: str, source: Frame | None = None) -> str:
    """Return the user's modules and `jax.named_scope`s that contain an operation, joined by `/`. They come from JAX's
    name stack (the operation's name is last); without any, return the function of its line (for `__call__` the class).
    JAX's names for loops, transforms, jitted functions and einsums, and names with a leading underscore, are left
    out."""
    return _scopes(name_stack) or ("" if source is None else _function(source.function))


@lru_cache(maxsize=4096)
def _scopes(name_stack: str) -> str:
    names: list[str] = []
    for part in _parts(name_stack.partition(";")[0])[:-1]:  # a merged operation has several stacks; use the first
        name, jitted = part, False
        while wrapped := _WRAPPER.fullmatch(name):
            jitted, name = wrapped[1] in ("jit", "pjit"), wrapped[2]
        if not jitted and not _NO_MODULE.fullmatch(name):
            names.append(name)
    return "/".join(names)


@lru_cache(maxsize=4096)
def _function(qualified: str) -> str:
    """Return a function's name from its qualified name: `layer` of `loss.<locals>.layer.<locals>.<lambda>`."""
    named = ".".join(part for part in qualified.split(".") if not part.startswith("<"))
    match = _FUNCTION.search(named)
    return match[1] if match else ""


def _parts(name_stack: str) -> list[str]:
    """Split a name stack at slashes outside brackets."""
    parts, depth = [""], 0
    for character in name_stack:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "/" and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


_STATEMENT = re.compile(rb"""(?:[^;'"]|'[^']*'|"[^"]*"|['"])+""")  # without semicolons, except in strings
_ASSIGNMENT = re.compile(rb"\s*([A-Za-z_]\w*)(?:\s*:[^=]+)?\s*(?:[-+*/@|&]|//|\*\*)?=(?!=)")


@lru_cache(maxsize=4096)
def assigned(file: str, line: int, columns: tuple[int, int] | None = None) -> str:
    """Return the variable that a source line assigns to; empty if it assigns to none, or to several. Of several
    statements in the line, it is that of the statement with the columns; empty without columns."""
    statements = list(_STATEMENT.finditer(linecache.getline(file, line).encode()))
    if len(statements) > 1:
        statements = [s for s in statements if columns is not None and s.start() <= columns[0] < s.end()]
    match = _ASSIGNMENT.match(statements[0][0]) if statements else None
    return match[1].decode() if match else ""
