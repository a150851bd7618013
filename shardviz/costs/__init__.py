"""What a report's bytes and FLOPs cost on a machine: chips, topologies, collectives, a step, memory."""

from shardviz.costs.chips import Chip, chip, chips
from shardviz.costs.collective import CollectiveTime, collective_seconds, group_seconds, time_of, with_seconds
from shardviz.costs.machine import Machine
from shardviz.costs.placement import AxisPath, PlacedDevice, Placement, device_order, placement
from shardviz.costs.routes import route
from shardviz.costs.step import Knee, StepTime, fits, roofline, step_time
from shardviz.costs.step_cost import StepCost
from shardviz.costs.step_cost import cost_of as cost
from shardviz.costs.timeline import Timeline
from shardviz.costs.timeline import timeline_of as timeline

__all__ = [
    "AxisPath",
    "Chip",
    "CollectiveTime",
    "Knee",
    "Machine",
    "PlacedDevice",
    "Placement",
    "StepCost",
    "StepTime",
    "Timeline",
    "chip",
    "chips",
    "collective_seconds",
    "cost",
    "device_order",
    "fits",
    "group_seconds",
    "placement",
    "roofline",
    "route",
    "step_time",
    "time_of",
    "timeline",
    "with_seconds",
]
