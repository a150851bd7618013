"""Reports and shardings made visible: text, HTML and matplotlib (`shardviz.render.matplotlib`, imported only there)."""

from shardviz.paint.theme import AxisColour, axis_colours
from shardviz.records.sums import CollectiveTotal as Total
from shardviz.records.sums import sum_collectives as totals_by
from shardviz.render.scene import Scene, Side, build_scene, coarsen, describe, device_ranges
from shardviz.render.shardmap_html import shard_map_html
from shardviz.render.shardmap_text import shard_map_text

__all__ = [
    "AxisColour",
    "Scene",
    "Side",
    "Total",
    "axis_colours",
    "build_scene",
    "coarsen",
    "describe",
    "device_ranges",
    "shard_map_html",
    "shard_map_text",
    "totals_by",
]
