"""The rows of a report as plain data: source frames, values, collectives, memory, cost, findings.

This room is low in the house because the rooms that compute these rows are low; `report.ReportRecord`
contains them all.
"""

from shardviz.records.collectives import KINDS, Collective, Collectives, TargetCollective
from shardviz.records.findings import Finding, Findings, Suggestion
from shardviz.records.report import LevelDifference, PlanRecord
from shardviz.records.sums import CollectiveTotal, Cost, WorkTotal, sum_collectives, total_of
from shardviz.records.values import Alive, Frame, HostMemory, Memory, Residual, Use, Value
from shardviz.records.variants import Longer, Reconstrained, Variant
from shardviz.records.work import Factor, Product, Work, WorkTally
