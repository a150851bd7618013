"""The meaning of words on the command line: a name (`module:function`, `file.py:function`, a step of the gallery), an
array, or collectives.

>>> array_of("bf16[8192, 4096]")
('bf16', (8192, 4096))
>>> collectives_of("all-gather inside loop larger than 100 MB", argument="VALUE")
{'kind': 'all-gather', 'inside': 'loop', 'larger_than': '100 MB'}
>>> collectives_of("all-reduce over data at model.py:* by partitioner", argument="VALUE")
{'kind': 'all-reduce', 'axes': 'data', 'line': 'model.py:*', 'origin': 'partitioner'}
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardviz.cli.bounds import bounds
from shardviz.errors import ANYTHING, ShardvizError, excerpt, message_of
from shardviz.records.collectives import KINDS


class NotThere(ShardvizError):
    """There is no module, file or attribute with this name."""


def resolve(option: str, text: str, mesh: Any = None, *, call: bool = True) -> Any:
    """Return the object named `module:name` or `file.py:name`, or a step of the gallery, built on a mesh unless `call`
    is false. Raises ShardvizError, which names the option, if there is none or importing it fails."""
    module, colon, wanted = text.partition(":")
    if not colon or module == "gallery":
        return _of_gallery(option, wanted if colon else text, mesh, call)
    if (limits := bounds()) is not None:
        limits.check_name(option, text)
        if module.endswith(".py"):
            limits.check_file(option, module)
    at: Any = _module(option, text, module)
    for name in wanted.strip().split("."):
        try:
            at = getattr(at, name)
        except AttributeError:
            near = [n for n in dir(at) if not n.startswith("_") and callable(getattr(at, n, None))][:8]
            have = f"; it has {', '.join(near)}" if near else ""
            raise NotThere(f"{option} {text!r}: {module} has no {name!r}{have}") from None
        except ANYTHING as error:
            raise _raised(option, text, error) from error
    return at


def _module(option: str, text: str, name: str) -> Any:
    try:
        if name.endswith(".py"):
            file = Path(name).resolve()
            if not file.is_file():
                raise NotThere(f"{option} {text!r}: there is no file {name}")
            if str(file.parent) not in sys.path:
                sys.path.insert(0, str(file.parent))
            name = file.stem
        return importlib.import_module(name)
    except ShardvizError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ShardvizError(
                f"{option} {text!r}: importing {name} needs {error.name!r}, which is not installed"
            ) from error
        raise NotThere(
            f"{option} {text!r}: there is no module {error.name!r} here or installed; run this in its folder, "
            'or name that folder in pyproject.toml: [tool.shardviz] path = ["src"]'
        ) from error
    except ANYTHING as error:
        raise _raised(option, text, error) from error


def is_name(text: str) -> bool:
    """Return whether a text that may be a spec is `module:name` instead."""
    return re.fullmatch(r"[\w./\\-]+:\w.*", text) is not None


def value_of(option: str, text: str) -> Any:
    """Return the object named `module:name`; if it is a function, its result. Raises as `resolve`."""
    named = resolve(option, text)
    return called(option, text, named) if inspect.isroutine(named) else named


def called(option: str, text: str, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the result of a user's function."""
    try:
        return function(*args, **kwargs)
    except ShardvizError:
        raise
    except ANYTHING as error:
        raise _raised(option, text, error) from error


def _raised(option: str, text: str, error: BaseException) -> ShardvizError:
    """Return an error for an exception of the user's own code, with the user's line."""
    return ShardvizError(f"{option} {text!r}: {raised(error)}")


def raised(error: BaseException) -> str:
    """Return an exception in words, with the innermost line of the user's code on its way: `KeyError: 'w' at
    a.py:8`."""
    what = f"{type(error).__name__}: {message_of(error)}"
    if isinstance(error, SystemExit):
        what = f"sys.exit({error.code!r}) is called"
    if isinstance(error, SyntaxError):
        return f"{what} at {error.filename}:{error.lineno}"
    theirs = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_persons(frame)]
    return f"{what} at {theirs[-1].filename}:{theirs[-1].lineno}" if theirs else what


def is_persons(error: BaseException) -> bool:
    """Return whether a line of the user's code raised an exception itself or called `sys.exit`; then it is no bug of
    shardviz."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, SystemExit) or (bool(frames) and _is_persons(frames[-1]))


def _is_persons(frame: traceback.FrameSummary) -> bool:
    """Return whether a line is outside shardviz, Python's library and installed packages."""
    others = (str(Path(__file__).parents[1]), "<frozen", *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
    return not frame.filename.startswith(others)


def gallery_names() -> Sequence[str]:
    """Return names that can replace a function, to try a verb without own code."""
    return ("mlp", "llama-8b", "llama-70b", "moe", "decoder", "resnet", "ring", "pipeline", "gpt_2021")


def _of_gallery(option: str, text: str, mesh: Any, call: bool) -> Any:
    from shardviz import gallery

    name, _, size = text.partition("-")  # llama-70b
    make = getattr(gallery, name, None)
    if name not in gallery.__all__ or not inspect.isfunction(make):
        raise ShardvizError(
            f"{option} {text!r}: there is no such step in pyproject.toml or in the gallery; expected module:function, "
            f"a step's name, or one of {', '.join(gallery_names())}"
        )
    if not call:
        return make
    own = {"mesh": mesh} if mesh is not None and "mesh" in inspect.signature(make).parameters else {}
    return called(option, text, make, *filter(None, [size]), **own)


_ARRAY = re.compile(r"\s*([A-Za-z]\w*)\s*\[([\d\s,]*)\]\s*")
_WORDS = {
    "over": "axes",
    "inside": "inside",
    "in": "phase",
    "by": "origin",
    "at": "line",
    "of": "dtype",
    "larger than": "larger_than",
}
_NEXT = re.compile(rf"\s+({'|'.join(_WORDS)})\s+")


def array_like(text: str) -> bool:
    """Return whether a text is an array, or meant to be one, rather than `module:name`."""
    return "[" in text or ":" not in text


def array_of(text: str) -> tuple[str, tuple[int, ...]]:
    """Return element type and shape of `bf16[8192,4096]`. Raises ShardvizError for other text."""
    from shardviz.layouts import itemsize

    match = _ARRAY.fullmatch(text)
    if match is None:
        raise ShardvizError(f"ARRAY {text!r}: expected an element type and a shape, such as 'bf16[8192,4096]'")
    itemsize(match[1])
    sizes = [size.strip() for size in match[2].split(",") if size.strip()]
    for size in sizes:
        if len(size) > 19 or int(size) >= 2**63:
            raise ShardvizError(
                f"ARRAY {excerpt(repr(text))}: a dimension has {excerpt(size)} elements; an array's has fewer than 2^63"
            )
    return match[1], tuple(map(int, sizes))


def collectives_of(text: str, *, argument: str) -> dict[str, str]:
    """Return the arguments of `report.collectives.where` for a text such as `all-gather over data inside loop at
    model.py:* larger than 100 MB`. Raises ShardvizError, which names `argument`, if the text names no kind of
    collective."""
    kind, *rest = _NEXT.split(" " + text.strip())
    kind = kind.strip()
    where = {} if kind in ("", "any") else {"kind": kind}
    if twice := [word for place, word in enumerate(rest[::2]) if word in rest[: 2 * place : 2]]:
        raise ShardvizError(f"{argument} {text!r}: {twice[0]!r} occurs twice; write axes together: over data,model")
    if kind not in ("any", *KINDS):
        raise ShardvizError(
            f"{argument} {text!r}: expected a kind of collective (any, {', '.join(KINDS)}), and behind it what you "
            "like of: over AXES, inside loop, at LINE, by partitioner, in backward, of bfloat16, larger than 100 MB"
        )
    return where | {_WORDS[word]: value.strip() for word, value in zip(rest[::2], rest[1::2], strict=True)}
