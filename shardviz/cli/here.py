"""The verbs about this machine, `targets`, `lab`, `doctor`; and about the command: `schema`, `completion`, `skill`."""

from __future__ import annotations

import json
from importlib.resources import files

import click
import click.shell_completion

from shardviz.cli.doctor import examine
from shardviz.cli.frame import DONE, FAILED, Answer, cli
from shardviz.cli.schemas import SCHEMAS, DoctorData, TargetsData, schema_of
from shardviz.compiler.targets import targets as statuses


def targets() -> Answer:
    states = statuses()
    return Answer(repr(states), record=TargetsData(targets=list(states)))


def doctor() -> Answer:
    text, works = examine()
    return Answer(text, record=DoctorData(works=works, text=text), code=DONE if works else FAILED)


def schema(name: str | None) -> Answer:
    if name is not None and name not in SCHEMAS:
        raise click.UsageError(f"VERB {name!r}: it prints no JSON; there are {', '.join(SCHEMAS)}")
    schemas = schema_of(name) if name else {verb: schema_of(verb) for verb in SCHEMAS}
    return Answer(json.dumps(schemas, indent=1), record=schemas)


def completion(shell: str) -> Answer:
    kind = click.shell_completion.get_completion_class(shell)
    assert kind is not None
    return Answer(kind(cli, {}, "shardviz", "_SHARDVIZ_COMPLETE").source())


def skill() -> Answer:
    return Answer(guide().rstrip())


def guide() -> str:
    return files("shardviz.cli").joinpath("skill.md").read_text(encoding="utf-8")
