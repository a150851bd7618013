"""Where an operation comes from: JAX writes its name stack and the Python frames into each MLIR location.

`loc("jit(f)/jvp()/while/body/mul"(callsite("block"("model.py":20:8 to :30) at "f"("train.py":7:4 to :9))))`: the name
stack is the outermost name, the frames follow from the innermost outwards.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from shardviz.records import Frame
from shardviz.source import innermost, phase

_NAME = re.compile(r'^loc\("((?:[^"\\]|\\.)*)"[()]')
_FRAME = re.compile(r'"((?:[^"\\]|\\.)*)"\("((?:[^"\\]|\\.)*)":(\d+):')


@dataclass(frozen=True)
class Place:
    """Where an operation comes from.

    Attributes:
        name_stack: JAX's name stack, the operation's name included.
        frame: the innermost line of the person's code.
    """

    name_stack: str
    frame: Frame | None

    @property
    def op(self) -> str:
        """The operation's own name, the last of the name stack."""
        return self.name_stack.rsplit("/", 1)[-1]

    def phase(self, differentiated: bool) -> str:
        """`forward`, `backward`, `rematerialised` or `update`."""
        return phase(self.name_stack, differentiated=differentiated)


def within(place: Place, caller: Place | None) -> Place:
    """The place of an operation of a function that is called at `caller`; None in the main function.

    JAX lowers a nested function once, with name stacks that start at it; where they start at the program, they stay.
    """
    if caller is None:
        return place
    root = caller.name_stack.split("/", 1)[0]
    whole = place.name_stack.startswith(f"{root}/") and not caller.name_stack.endswith(f"/{root}")
    name = place.name_stack if whole else f"{caller.name_stack}/{place.name_stack}".rstrip("/")
    return Place(name, place.frame or caller.frame)


def place_of(location: Any, known: dict[Any, Place]) -> Place:
    """Reads a location; `known` keeps what was read, as a module's locations are the same under every plan."""
    key = location.attr  # attributes hash by identity, locations do not
    place = known.get(key)
    if place is None:
        place = known[key] = parse(str(location))
    return place


def parse(text: str) -> Place:
    """Reads a location's text."""
    name = _NAME.match(text)
    frames = [
        Frame(file, int(line), function) for function, file, line in _FRAME.findall(text, name.end(1) if name else 0)
    ]
    return Place(name[1] if name else "", innermost(frames))
