"""All verbs: each of these modules adds its own to `cli`."""

from shardviz.cli import arrays, asking, comment, here, judging, mcp  # noqa: F401
from shardviz.cli.frame import cli, run

__all__ = ["cli", "run"]
