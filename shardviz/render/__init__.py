"""Reports and shardings made visible: text, HTML and matplotlib (`shardviz.render.matplotlib`, imported only there)."""

from shardviz.paint.theme import AxisColour, axis_colours
from shardviz.records.sums import CollectiveTotal as Total
from shardviz.records.sums import sum_collectives as totals_by
from shardviz.render.rosetta import ShownRosetta, rosetta_html, rosetta_text, show_rosetta
from shardviz.render.rosetta import show_rosetta as rosetta
from shardviz.render.scene import Scene, Side, build_scene, coarsen, describe, device_ranges
from shardviz.render.shardmap_html import shard_map_html
from shardviz.render.shardmap_text import shard_map_text
from shardviz.render.show import show
from shardviz.render.shown import Shown, ShownChange, ShownTree
from shardviz.render.unknown import ShownUnknown

__all__ = [
    "AxisColour",
    "Scene",
    "Shown",
    "ShownChange",
    "ShownRosetta",
    "ShownTree",
    "ShownUnknown",
    "Side",
    "Total",
    "axis_colours",
    "build_scene",
    "coarsen",
    "describe",
    "device_ranges",
    "rosetta",
    "rosetta_html",
    "rosetta_text",
    "shard_map_html",
    "shard_map_text",
    "show",
    "show_rosetta",
    "totals_by",
]
