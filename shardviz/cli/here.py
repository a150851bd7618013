"""The verbs about this machine: `targets`, `lab`, `doctor`; and about the command itself: `schema`, `completion`."""

from __future__ import annotations

from pathlib import Path

import click

from shardviz.cli.frame import FAILED, Answer, cli, verb
from shardviz.cli.lab import DEFAULT_FOLDER, run_lab


@verb("targets", examples="shardviz targets\nshardviz targets --json | jq '.targets[] | select(.ready) | .name'")
def targets() -> Answer:
    """List the machines that this installation can compile for, and what is missing for the rest."""
    from shardviz.cli.schemas import TargetsAnswer
    from shardviz.compiler.targets import targets as statuses

    found = statuses()
    return Answer(repr(found), record=TargetsAnswer(targets=tuple(found)))


@verb("doctor", examples="shardviz doctor")
def doctor() -> Answer:
    """Say what works on this machine and what is missing; exits with 1 if the basics do not work."""
    from shardviz.cli.doctor import examine
    from shardviz.cli.schemas import DoctorAnswer

    text, works = examine()
    return Answer(text, record=DoctorAnswer(works=works, text=text), code=0 if works else FAILED)


@cli.command(
    "lab",
    epilog="What stands after `--` goes to JupyterLab: shardviz lab -- --ServerApp.ip=0.0.0.0",
)
@click.argument("folder", default=DEFAULT_FOLDER, type=click.Path(path_type=Path))
@click.option("--port", type=int, help="The server's port; the first free one from 8888 if not given.")
@click.option("--no-browser", "browser", flag_value=False, default=True, help="Only print the address.")
@click.pass_obj
def lab(state, folder: Path, port: int | None, browser: bool) -> int:
    """Open JupyterLab on a copy of the notebooks in FOLDER.

    What you have edited is never overwritten; what you have not is brought up to date.
    """
    return run_lab(folder, port=port, browser=browser, extra=state.extra)
