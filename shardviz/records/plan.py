"""What was asked, and what is to be said of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardviz.notation import DeviceMesh, Spec
from shardviz.records.values import Frame


@dataclass(frozen=True)
class Diagnostic:
    """Something that a person should know about the program under this plan.

    Attributes:
        rule: the name of what found it, such as `levels-differ` or `involuntary-rematerialisation`.
        severity: `info`, `warning` or `error`.
        message: what it is, with its numbers.
        source: the line that it is about.
        value: the argument or value that it is about.
    """

    rule: str
    severity: str
    message: str
    source: Frame | None = None
    value: str = ""


@dataclass(frozen=True)
class PlanRecord:
    """A plan that was found to fit a program: a full-rank spec for every argument, and for every output or None.

    Attributes:
        mesh: the device mesh.
        in_specs: tree path → spec of every argument.
        out_specs: tree path → spec of every output, None for the compiler's choice.
    """

    mesh: DeviceMesh
    in_specs: Mapping[str, Spec]
    out_specs: Mapping[str, Spec | None]
