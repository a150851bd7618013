"""The exceptions of shardviz: one base class, and a subclass for each kind of error.

Every message names what was given (an argument by its tree path), what was expected, and what to do.

>>> try:
...     raise SpecError("'w' P('data'): the mesh has no axis 'data'; it has 'x'")
... except ShardvizError as error:
...     print(error)
'w' P('data'): the mesh has no axis 'data'; it has 'x'
"""

from __future__ import annotations

ANYTHING = (Exception, SystemExit)
"""The exceptions of a user's own code that shardviz reports, including `sys.exit`."""
_MOST_QUOTED = 200
_MOST_MESSAGE = 4_000


class ShardvizError(ValueError):
    """The base of everything that shardviz raises on purpose.

    In a message above 4,000 characters the middle is left out, since the error is at its beginning and the advice at
    its end. Characters that do not print, such as a terminal's escapes in a name from a file, are escaped as in Python:
    `\\x1b[31m`.
    """

    def __init__(self, message: object = "", *more: object):
        text = str(message)
        if len(text) > _MOST_MESSAGE:
            half = _MOST_MESSAGE // 2 - 20
            text = f"{text[:half]} ... {len(text) - 2 * half} characters ... {text[-half:]}"
        super().__init__(printable(text), *more)


def printable(text: str) -> str:
    r"""Escape the characters of a text that do not print, except line breaks and tabs.

    >>> printable("\x1b[31mred\ud800\n")
    '\\x1b[31mred\\ud800\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def message_of(error: BaseException | None) -> str:
    """Return an exception's message, or a description if its own `__str__` raises."""
    try:
        return str(error)
    except Exception as raised:  # noqa: BLE001  # a user's exception may raise anything
        return f"(its message cannot be read: {type(error).__name__}.__str__ raises {type(raised).__name__})"


def excerpt(text: str, most: int = _MOST_QUOTED) -> str:
    """Return the beginning of outside text for a message, with `...` if it has more than `most` characters.

    >>> excerpt("P(" * 1000, 8)
    'P(P(P(P(...'
    """
    return text if len(text) <= most else text[:most] + "..."


class MeshError(ShardvizError):
    """An invalid mesh: an axis named twice, a size below one, text that does not describe a mesh."""


class TargetError(ShardvizError):
    """An unknown machine: an unknown chip, a topology that the chip does not have, a mesh of another size."""


class SpecError(ShardvizError):
    """A PartitionSpec that does not fit its mesh or its array.

    Attributes:
        argument: the tree path of its array, or None.
        dimension: the offending dimension, or None if it is not about a single dimension.
    """

    def __init__(self, message: str, *, argument: str | None = None, dimension: int | None = None):
        super().__init__(message)
        self.argument = argument
        self.dimension = dimension


class TraceError(ShardvizError):
    """An error while the user's function was traced; `__cause__` is its exception, with its own traceback."""


class ShardingTypeError(TraceError):
    """JAX refused an operation under Explicit mesh axes: its operands' shardings do not determine the result's."""


class ContractError(ShardvizError, AssertionError):
    """A report that breaks a contract; the message lists each difference and its place."""


class DtypeError(ShardvizError, TypeError):
    """An unknown element type; a TypeError too, as in NumPy."""


class ParseError(ShardvizError):
    """Text of HLO, Shardy or a sharding that cannot be read."""


class CompileError(ShardvizError):
    """A compile without a result.

    Attributes:
        stderr: the compiler's standard error, which often has more details.
    """

    def __init__(self, message: str, *, stderr: str = ""):
        super().__init__(message)
        self.stderr = stderr


class CompileRefused(CompileError):
    """The compiler ran and refused the program (a Python exception in the job)."""


class CompileCrashed(CompileError):
    """The compiling process died: a failed check inside the compiler, or a signal from outside."""


class CompileStopped(CompileError):
    """The user, or a newer request, stopped the compile."""


class CompileTimeout(CompileError):
    """The compile exceeded its time limit."""


class CompileMemoryLimit(CompileError):
    """The compile exceeded its memory limit."""
