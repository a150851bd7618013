"""The rows of a report: source frames, values, collectives, memory, cost, diagnostics. Plain data.

They stand low in the house because what finds them (Shardy's propagation, the HLO walk) stands low; `report.Report`
holds them all together.
"""

from shardviz.records.collectives import KINDS, Collective, TargetCollective
from shardviz.records.memory import Alive, Memory
from shardviz.records.report import Diagnostic, PlanRecord
from shardviz.records.sums import CollectiveTotal, Cost, WorkTotal, sum_collectives, total_of
from shardviz.records.values import Frame, Residual, Value
from shardviz.records.work import Stated, Work, WorkTally

__all__ = [
    "KINDS",
    "Alive",
    "Collective",
    "CollectiveTotal",
    "Cost",
    "Diagnostic",
    "Frame",
    "Memory",
    "PlanRecord",
    "Residual",
    "Stated",
    "TargetCollective",
    "Value",
    "Work",
    "WorkTally",
    "WorkTotal",
    "sum_collectives",
    "total_of",
]
