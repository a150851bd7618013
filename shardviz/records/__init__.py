"""The rows of a report: source frames, values, collectives, memory, cost, findings. Plain data.

They stand low in the house because what finds them (Shardy's propagation, the HLO walk) stands low; `report.Report`
holds them all together.
"""

from shardviz.records.collectives import KINDS, Collective, Collectives, TargetCollective
from shardviz.records.findings import Finding, Findings, Suggestion
from shardviz.records.report import LevelDifference, PlanRecord
from shardviz.records.sums import CollectiveTotal, Cost, WorkTotal, sum_collectives, total_of
from shardviz.records.values import Alive, Frame, HostMemory, Memory, Residual, Use, Value
from shardviz.records.variants import Longer, Reconstrained, Variant
from shardviz.records.work import Factor, Product, Work, WorkTally
