"""The command `shardviz`: `lab` opens JupyterLab on the notebooks, `doctor` says what works and what is missing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from shardviz.cli.lab import DEFAULT_FOLDER, LabError, run_lab


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        argv: the words after `shardviz`; the process's own where None.

    Returns:
        The exit code: 0 where all went well, 1 for trouble that is told in a line on standard error.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    words, extra = words[:cut], words[cut + 1 :]
    parser = _parser()
    options = parser.parse_args(words)
    if extra and options.command != "lab":
        parser.error(f"only `shardviz lab` takes arguments for JupyterLab after `--`, not {' '.join(extra)}")
    if options.version:
        print(f"shardviz {version('shardviz')}")
        return 0
    if options.command == "lab":
        try:
            return run_lab(options.folder, port=options.port, browser=options.browser, extra=extra)
        except LabError as error:
            print(f"shardviz lab: {error}", file=sys.stderr)
            return 1
    if options.command == "doctor":
        from shardviz.cli.doctor import examine  # it needs JAX, which `lab` need not wait for

        text, works = examine()
        print(text)
        return 0 if works else 1
    parser.print_help()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="shardviz", description="An interactive explorer of sharding in JAX.")
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    start = commands.add_parser(
        "lab",
        help="open JupyterLab on a copy of the notebooks",
        description="Copies the notebooks to FOLDER and opens JupyterLab there. What you have edited is never "
        "overwritten; what you have not is brought up to date.",
        epilog="What stands after `--` goes to JupyterLab: shardviz lab -- --ip=0.0.0.0",
    )
    start.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        type=Path,
        default=Path(DEFAULT_FOLDER),
        help=f"where your copy is, or is to be (default: ./{DEFAULT_FOLDER})",
    )
    start.add_argument("--port", type=int, help="the server's port (default: the first free one from 8888)")
    start.add_argument("--no-browser", dest="browser", action="store_false", help="only print the address")
    commands.add_parser(
        "doctor",
        help="say what works here and what is missing",
        description="Prints versions, devices, memory, and which targets can be compiled for. Exits with 0 if the "
        "basics work.",
    )
    return parser
