"""The command `shardviz`: a verb a task; see `shardviz --help`.

`main` runs it in this process and gives its exit code, so that tests and other programs can call it.
"""

from __future__ import annotations

from shardviz.cli import arrays, asking, comment, here, judging, mcp, skill  # each adds its verbs
from shardviz.cli.frame import run as main
