"""Finds what belongs to one machine and has no place in the repository: home folders, package registries."""

from __future__ import annotations

import re

# Written so that this file does not match itself. `me` and `ada` are nobody: they stand in examples.
_PATTERN = re.compile(
    r"""
    (?<![\w.~$}-]) / (?: home | Users | root | work | workspace ) / (?! (?: me | ada ) \b ) [\w.-]+   # a folder
  | \b [A-Z] :\\+ Users\\+ \w+
  | (?: extra - | --) index-url
  | registry [.] npmjs | pypi [.] org/simple
    """,
    re.VERBOSE,
)


def machine_paths(text: str) -> list[str]:
    """The machine paths and registry hosts in a text, each once, in order.

    >>> home = "/home/"
    >>> machine_paths(f"{home}me/model.py is an example, {home}bob/model.py is a fault") == [home + "bob"]
    True
    """
    return list(dict.fromkeys(match[0] for match in _PATTERN.finditer(text)))
