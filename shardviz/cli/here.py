"""The verbs about this machine, `targets`, `lab`, `doctor`; and about the command: `schema`, `completion`, `skill`."""

from __future__ import annotations

import json
from functools import partial
from importlib.resources import files
from pathlib import Path

import click
import click.shell_completion

from shardviz.cli.frame import FAILED, Answer, cli, verb
from shardviz.cli.lab import DEFAULT_FOLDER, run_lab


def two_columns(text: str, width: int) -> str:
    """Lines whose second column begins at the 16th; one that is too long goes on there."""
    from shardviz.paint.columns import wrap

    indent = " " * min(15, width // 3)
    return "\n".join(part for line in text.split("\n") for part in wrap(line, width, indent) or [""])


@verb("targets", examples="shardviz targets\nshardviz targets --json | jq '.targets[] | select(.ready) | .name'")
def targets() -> Answer:
    """List the machines that can be compiled for here.

    What is missing for the others is said with the command that installs it.
    """
    from shardviz.cli.schemas import TargetsData
    from shardviz.compiler.targets import targets as statuses

    states = statuses()
    return Answer(partial(two_columns, repr(states)), record=TargetsData(targets=list(states)), whole=repr(states))


@verb("doctor", examples="shardviz doctor")
def doctor() -> Answer:
    """Say what works on this machine, and what is missing.

    It exits with 1 if the basics do not work.
    """
    from shardviz.cli.doctor import examine
    from shardviz.cli.schemas import DoctorData

    text, works = examine()
    return Answer(
        partial(two_columns, text), record=DoctorData(works=works, text=text), code=0 if works else FAILED, whole=text
    )


@cli.command(
    "lab",
    epilog="What stands after `--` goes to JupyterLab: shardviz lab -- --ServerApp.ip=0.0.0.0",
)
@click.argument("folder", default=DEFAULT_FOLDER, type=click.Path(path_type=Path))
@click.option(
    "--port", type=click.IntRange(0, 65535), help="The server's port; the first free one from 8888 if not given."
)
@click.option("--no-browser", "browser", flag_value=False, default=True, help="Only print the address.")
@click.pass_obj
def lab(state, folder: Path, port: int | None, browser: bool) -> int:
    """Open JupyterLab on a copy of the notebooks in FOLDER.

    What is there is never overwritten: rename or delete a notebook to get the shipped one.
    """
    return run_lab(folder, port=port, browser=browser, extra=state.extra)


@verb(
    "schema",
    click.argument("name", metavar="VERB", required=False),
    examples="shardviz schema report\nshardviz schema > schemas.json",
)
def schema(name: str | None) -> Answer:
    """Print the JSON Schema of what a verb prints with --json.

    Without VERB, those of all verbs, by name.
    """
    from shardviz.cli.schemas import SCHEMAS, schema_of

    if name is not None and name not in SCHEMAS:
        raise click.UsageError(f"VERB {name!r}: it prints no JSON; there are {', '.join(SCHEMAS)}")
    schemas = schema_of(name) if name else {verb: schema_of(verb) for verb in SCHEMAS}
    return Answer(json.dumps(schemas, indent=1), record=schemas)


@verb(
    "completion",
    click.argument("shell", type=click.Choice(["bash", "zsh", "fish"])),
    examples="""
shardviz completion bash >> ~/.bashrc
shardviz completion zsh >> ~/.zshrc
shardviz completion fish > ~/.config/fish/completions/shardviz.fish
""",
)
def completion(shell: str) -> Answer:
    """Print what completes verbs and options in a shell."""
    kind = click.shell_completion.get_completion_class(shell)
    assert kind is not None
    return Answer(kind(cli, {}, "shardviz", "_SHARDVIZ_COMPLETE").source())


@verb("skill", examples="shardviz skill > .claude/skills/shardviz/SKILL.md")
def skill() -> Answer:
    """Print a guide to these verbs for coding agents."""
    from shardviz.cli.schemas import SkillData

    return Answer(guide().rstrip(), record=SkillData(text=guide()))


def guide() -> str:
    """The guide, in Markdown."""
    return files("shardviz.cli").joinpath("skill.md").read_text(encoding="utf-8")
