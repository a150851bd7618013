"""What shardviz raises: one base class, and a kind for each sort of trouble.

Every message names what was given (an argument by its tree path), what was expected, and a way to mend it.

>>> try:
...     raise SpecError("'w' P('data'): the mesh has no axis 'data'; it has 'x'")
... except ShardvizError as error:
...     print(error)
'w' P('data'): the mesh has no axis 'data'; it has 'x'
"""

from __future__ import annotations

_MOST_QUOTED = 200
_MOST_MESSAGE = 4_000


class ShardvizError(ValueError):
    """The base of everything that shardviz raises on purpose.

    A message is for people to read: of one above 4,000 characters the middle is left out, since what is wrong stands at
    its beginning, and what to do at its end. What does not print, such as a terminal's escapes in a name from a file,
    stands as Python writes it: `\\x1b[31m`.
    """

    def __init__(self, message: object = "", *more: object):
        text = str(message)
        if len(text) > _MOST_MESSAGE:
            half = _MOST_MESSAGE // 2 - 20
            text = f"{text[:half]} ... {len(text) - 2 * half} characters ... {text[-half:]}"
        super().__init__(printable(text), *more)


def printable(text: str) -> str:
    r"""Text whose characters that do not print are escaped; line breaks and tabs stay.

    >>> printable("\x1b[31mred\ud800\n")
    '\\x1b[31mred\\ud800\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def message_of(error: BaseException | None) -> str:
    """What an exception says; what can be said of it, where its own `__str__` raises."""
    try:
        return str(error)
    except Exception as raised:  # noqa: BLE001  # a person's exception may do anything at all
        return f"(its message cannot be read: {type(error).__name__}.__str__ raises {type(raised).__name__})"


def excerpt(text: str, most: int = _MOST_QUOTED) -> str:
    """The beginning of outside text, for a message: at most so many characters, `...` where there are more.

    >>> excerpt("P(" * 1000, 8)
    'P(P(P(P(...'
    """
    return text if len(text) <= most else text[:most] + "..."


class MeshError(ShardvizError):
    """A mesh that cannot be: an axis named twice, a size below one, text that is no mesh."""


class TargetError(ShardvizError):
    """There is no such machine: an unknown chip, a topology that the chip does not have, a mesh of another size."""


class SpecError(ShardvizError):
    """A PartitionSpec that does not fit its mesh or its array.

    Attributes:
        argument: the tree path of the array that it was given for, or None.
        dimension: the offending dimension, or None where it is not one dimension's fault.
    """

    def __init__(self, message: str, *, argument: str | None = None, dimension: int | None = None):
        super().__init__(message)
        self.argument = argument
        self.dimension = dimension


class TraceError(ShardvizError):
    """The person's function could not be traced; `__cause__` is what it raised, with its own traceback."""


class ShardingTypeError(TraceError):
    """JAX refused an operation under Explicit mesh axes: the shardings in its operands' types leave its own open."""


class ContractError(ShardvizError, AssertionError):
    """A report is not what a contract says that it must be; the message lists what is otherwise, and where."""


class DtypeError(ShardvizError, TypeError):
    """The name of an element type that there is not; a TypeError too, as NumPy's is."""


class ParseError(ShardvizError):
    """Text of HLO, Shardy or a sharding that could not be read."""


class CompileError(ShardvizError):
    """A compile that gave no answer.

    Attributes:
        stderr: what the compiler wrote to its standard error, which often says more.
    """

    def __init__(self, message: str, *, stderr: str = ""):
        super().__init__(message)
        self.stderr = stderr


class CompileRefused(CompileError):
    """The compiler ran and refused the program (a Python exception in the job)."""


class CompileCrashed(CompileError):
    """The compiling process died: a failed check inside the compiler, or a signal from outside."""


class CompileStopped(CompileError):
    """The person, or a newer request, stopped the compile."""


class CompileTimeout(CompileError):
    """The compile ran longer than it was allowed to."""


class CompileMemoryLimit(CompileError):
    """The compile used more memory than it was allowed to."""
