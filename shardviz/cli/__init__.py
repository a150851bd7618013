"""The command `shardviz`: a verb a task; see `shardviz --help`.

`main` runs it in this process and gives its exit code, so that tests and other programs can call it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command on the words after `shardviz` (None: this process's own words) and return its exit code."""
    try:
        from shardviz.cli.verbs import run
    except KeyboardInterrupt:
        print("shardviz: interrupted", file=sys.stderr)
        return 130
    return run(argv)
