"""shardviz: an interactive explorer of sharding in JAX.

>>> import shardviz as sv
>>> sv.mesh(data=2, model=4).shape_tuple
(('data', 2), ('model', 4))

The names below are loaded when first used, so that `import shardviz` costs next to nothing, starts no JAX backend and
no process.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from shardviz import gallery, notation, render, study
    from shardviz.analysis import Program, ReportFuture, analyze, trace
    from shardviz.analysis.costing import cost_of as cost
    from shardviz.analysis.loading import load
    from shardviz.analysis.recompile import why_recompiled
    from shardviz.analysis.step_cost import StepCost
    from shardviz.cost import Chip, Machine, collective_seconds
    from shardviz.errors import (
        CompileCrashed,
        CompileError,
        CompileMemoryLimit,
        CompileRefused,
        CompileStopped,
        CompileTimeout,
        MeshError,
        ParseError,
        ShardingTypeError,
        ShardvizError,
        SpecError,
        TargetError,
        TraceError,
    )
    from shardviz.layout import Layout, layout, moves
    from shardviz.notation.sharding import sharding
    from shardviz.program.axis_resources import FROM_GDA
    from shardviz.program.filters import path_ends_with
    from shardviz.program.meshes import mesh
    from shardviz.program.pjit import pjit
    from shardviz.program.plan import Plan
    from shardviz.program.rules import Rules
    from shardviz.program.targets import targets
    from shardviz.render import show
    from shardviz.render import show_rosetta as rosetta
    from shardviz.report import Report
    from shardviz.study import CostTable
    from shardviz.study import compare_costs as cost_table
    from shardviz.widgets import Explorer, explore

_WHERE = {
    "Program": "analysis",
    "ReportFuture": "analysis",
    "analyze": "analysis",
    "trace": "analysis",
    "load": "analysis.loading",
    "why_recompiled": "analysis.recompile",
    "FROM_GDA": "program.axis_resources",
    "Chip": "cost",
    "Machine": "cost",
    "collective_seconds": "cost",
    "CostTable": "study",
    "StepCost": "analysis.step_cost",
    "cost": "analysis.costing:cost_of",
    "cost_table": "study:compare_costs",
    "Plan": "program.plan",
    "Rules": "program.rules",
    "path_ends_with": "program.filters",
    "pjit": "program.pjit",
    "mesh": "program.meshes",
    "targets": "program.targets",
    "Layout": "layout",
    "layout": "layout",
    "sharding": "notation.sharding",
    "Report": "report",
    "moves": "layout",
    "rosetta": "render:show_rosetta",
    "show": "render",
    "Explorer": "widgets",
    "explore": "widgets",
    **dict.fromkeys(
        (
            "ShardvizError",
            "MeshError",
            "SpecError",
            "TraceError",
            "ShardingTypeError",
            "ParseError",
            "TargetError",
            "CompileError",
            "CompileCrashed",
            "CompileMemoryLimit",
            "CompileRefused",
            "CompileStopped",
            "CompileTimeout",
        ),
        "errors",
    ),
}
_ROOMS = ("gallery", "notation", "render", "study")

__all__ = [
    "FROM_GDA",
    "Chip",
    "CompileCrashed",
    "CompileError",
    "CompileMemoryLimit",
    "CompileRefused",
    "CompileStopped",
    "CompileTimeout",
    "CostTable",
    "Explorer",
    "Layout",
    "Machine",
    "MeshError",
    "ParseError",
    "Plan",
    "Program",
    "Report",
    "ReportFuture",
    "Rules",
    "ShardingTypeError",
    "ShardvizError",
    "SpecError",
    "StepCost",
    "TargetError",
    "TraceError",
    "analyze",
    "collective_seconds",
    "cost",
    "cost_table",
    "explore",
    "gallery",
    "layout",
    "load",
    "mesh",
    "moves",
    "notation",
    "path_ends_with",
    "pjit",
    "render",
    "rosetta",
    "sharding",
    "show",
    "study",
    "targets",
    "trace",
    "why_recompiled",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        room, _, own_name = _WHERE[name].partition(":")
        value = getattr(importlib.import_module(f"shardviz.{room}"), own_name or name)
    elif name in _ROOMS:
        value = importlib.import_module(f"shardviz.{name}")
    else:
        raise AttributeError(f"module 'shardviz' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Importing the room `layout` would put the module where the function `sv.layout` belongs."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _WHERE and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
