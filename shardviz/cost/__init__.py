"""What a report's bytes and FLOPs cost on a machine: chips, topologies, collectives, a step, memory. No JAX."""

from shardviz.cost.chips import Chip, chip, chips
from shardviz.cost.collective import (
    CollectiveTime,
    collective_seconds,
    group_seconds,
    time_of,
    whole_bytes,
    with_seconds,
)
from shardviz.cost.machine import Machine
from shardviz.cost.memory import Fit, fits
from shardviz.cost.order import device_order
from shardviz.cost.placement import AxisPath, Placement, placement
from shardviz.cost.routes import Leg, Route, route
from shardviz.cost.stages import Stage, Term
from shardviz.cost.step import Knee, Share, StepTime, roofline, step_time

__all__ = [
    "AxisPath",
    "Chip",
    "CollectiveTime",
    "Fit",
    "Knee",
    "Leg",
    "Machine",
    "Placement",
    "Route",
    "Share",
    "Stage",
    "StepTime",
    "Term",
    "chip",
    "chips",
    "collective_seconds",
    "device_order",
    "fits",
    "group_seconds",
    "placement",
    "roofline",
    "route",
    "step_time",
    "time_of",
    "whole_bytes",
    "with_seconds",
]
