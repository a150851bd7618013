"""Reports and shardings made visible: text, HTML and matplotlib (`shardviz.render.matplotlib`, imported only there)."""

from shardviz.paint.theme import AxisColour, axis_colours
from shardviz.records.sums import CollectiveTotal as Total
from shardviz.records.sums import sum_collectives as totals_by
from shardviz.render.collectives import bars_html, collectives_html, collectives_text
from shardviz.render.html import diagnostics_html, report_html
from shardviz.render.mime import mimebundle
from shardviz.render.rosetta import ShownRosetta, rosetta_html, rosetta_text, show_rosetta
from shardviz.render.rosetta import show_rosetta as rosetta
from shardviz.render.scene import Scene, Side, build_scene, coarsen, describe, device_ranges
from shardviz.render.shardmap_html import shard_map_html
from shardviz.render.shardmap_text import shard_map_text
from shardviz.render.show import show
from shardviz.render.shown import Shown, ShownChange, ShownTree
from shardviz.render.text import report_text
from shardviz.render.unknown import ShownUnknown
from shardviz.render.values import values_html, values_text

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
    "bars_html",
    "build_scene",
    "coarsen",
    "collectives_html",
    "collectives_text",
    "describe",
    "device_ranges",
    "diagnostics_html",
    "mimebundle",
    "report_html",
    "report_text",
    "rosetta",
    "rosetta_html",
    "rosetta_text",
    "shard_map_html",
    "shard_map_text",
    "show",
    "show_rosetta",
    "totals_by",
    "values_html",
    "values_text",
]
