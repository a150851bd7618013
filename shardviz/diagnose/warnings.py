"""Rule `involuntary-rematerialisation`: the partitioner gave up and gathered a whole array on every device.

XLA says so only on its standard error. The text is that of `spmd_partitioner.cc`.
"""

from __future__ import annotations

import re

from shardviz.hlo import Module
from shardviz.records import Diagnostic, Frame

_GIVEN_UP = re.compile(
    r"Involuntary full rematerialization\. The compiler (?:cannot|was not able to) go from sharding "
    r"(?P<before>.+?) to (?P<after>.+?) "
    r"(?:efficiently|without doing a full rematerialization of the tensor)?\s*for HLO operation:? "
    r"%?(?P<name>[\w.\-]+) = (?P<shape>\S+)"
)


def compiler_warnings(stderr: str, before: Module | None = None) -> tuple[Diagnostic, ...]:
    """What the compiler complained of on its standard error.

    Args:
        stderr: all that it wrote.
        before: the module before partitioning, to find the operation's source line.
    """
    found = {}
    for match in _GIVEN_UP.finditer(stderr):
        name, shape = match["name"], match["shape"].split("{")[0]
        found[name] = Diagnostic(
            "involuntary-rematerialisation",
            "warning",
            f"the partitioner could not go from sharding {match['before']} to {match['after']} for {shape}, gathered "
            "all of it on every device and cut it again; a sharding constraint that both sides can meet avoids this",
            source=_line(name, before),
            value=name,
        )
    return tuple(found.values())


def _line(name: str, module: Module | None) -> Frame | None:
    if module is None:
        return None
    for computation in module.computations.values():
        instruction = computation.by_name.get(name)
        if instruction is not None:
            return module.source(instruction)
    return None
