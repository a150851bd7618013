"""Rules of a compile that was to go on to its end: `not-finished`, it did not; `not-stated`, it did and says less."""

from __future__ import annotations

from collections.abc import Sequence

from shardviz.records import Diagnostic


def not_finished(why: str) -> tuple[Diagnostic, ...]:
    """A warning that says why there is no machine code.

    Args:
        why: what ended the compile.
    """
    text = (
        "the optimised program and its memory plan are as the compiler made them, but the compile did not end, so code "
        f"size, the algorithms of collectives and XLA's own analyses are not known: {why}"
    )
    return (Diagnostic("not-finished", "warning", text),)


def not_stated(target: str, what: Sequence[str]) -> tuple[Diagnostic, ...]:
    """A note of what a compiler does not say of a finished program.

    Args:
        target: the machine's text.
        what: what it does not say, in words.
    """
    if not what:
        return ()
    text = f"the compile for {target} came to its end; its compiler does not say {', nor '.join(what)}"
    return (Diagnostic("not-stated", "info", text),)
