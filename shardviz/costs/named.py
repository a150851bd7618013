"""Functions under the names that they have in `shardviz`."""

from shardviz.costs.step_cost import cost_of as cost
from shardviz.costs.timeline import timeline_of as timeline

__all__ = ["cost", "timeline"]
