"""The guide for coding agents: its commands are commands, and they find the fault of ten small repositories."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from shardviz.cli import main
from shardviz.cli.frame import State
from shardviz.cli.here import guide
from shardviz.cli.verbs import cli
from shardviz.diagnose.findings import RULES
from tests.diagnose import faulty_programs as programs
from tests.diagnose.faulty_programs import FAULTS

MENDED = {
    "weight gathered in a loop": "give w the spec P(None, None)",
    "KV cache without its heads": "give cache the spec P(None, 'data', None, 'model', None)",
    "logits as partial sums": "give head the spec P(None, 'model')",
}
"""Repository → the fix that is offered first; each takes its fault away by tests/diagnose."""

REPOSITORIES = (
    *MENDED,
    *("replicated optimizer", "replicated sibling", "parameters come back whole", "replicated result"),
    *("columns after columns", "gradients summed in each microbatch", "constraints that disagree"),
)

STEP = """\
from model import FAULTS, LARGE

FAULT = FAULTS[{fault!r}]
step, specs, results = FAULT.fn, FAULT.specs, FAULT.out


def arguments():
    return FAULT.args(LARGE)
"""

PROJECT = """\
[tool.shardviz.steps.train]
function = "{module}:step"
args = "{module}:arguments"
in_specs = "{module}:specs"
{results}
donate = {donated}
mesh = {{ data = 2, model = 4 }}
target = "tpu v5e:2x4"
forbid = ["all-gather inside loop"]
"""


@pytest.fixture
def repository(request, tmp_path: Path, monkeypatch) -> Iterator[str]:
    """A folder with a model, the file that an agent adds, and the step's name in pyproject.toml; the fault's name."""
    name, fault = request.param, FAULTS[request.param]
    module = re.sub(r"\W", "_", name)
    results = f'out_specs = "{module}:results"' if fault.out is not None else ""
    (tmp_path / "model.py").write_text(Path(programs.__file__).read_text())
    (tmp_path / f"{module}.py").write_text(STEP.format(fault=name))
    (tmp_path / "pyproject.toml").write_text(
        PROJECT.format(module=module, results=results, donated=list(fault.donated))
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield name
    for imported in ("model", module):
        sys.modules.pop(imported, None)


@pytest.mark.long
@pytest.mark.parametrize("repository", REPOSITORIES, indirect=True)
def test_the_report_names_the_fault(repository: str, capsys):
    assert main(["report", "train", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"][:3]
    rules = {finding["id"].partition(":")[0]: finding for finding in findings}
    (rule,) = {*FAULTS[repository].rules} & {*rules}
    assert rules[rule]["text"] and rules[rule]["numbers"]
    assert f"`{rule}`" in guide()


@pytest.mark.long
@pytest.mark.parametrize("repository", MENDED, indirect=True)
def test_the_first_fix_is_what_an_expert_writes(repository: str, capsys):
    assert main(["fixes", "train", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["fixes"][0]
    assert first["action"] == MENDED[repository] and first["seconds_saved"] > 0


@pytest.mark.long
@pytest.mark.parametrize("repository", ["weight gathered in a loop"], indirect=True)
def test_a_contract_names_the_line(repository: str, capsys):
    assert main(["check"]) == 1
    told = capsys.readouterr().out
    assert "all-gather" in told and "model.py:" in told
    assert main(["why", "train", "all-gather inside loop"]) == 0
    assert "P(('data', 'model'))" in capsys.readouterr().out


# The guide itself.


def commands() -> list[str]:
    """The command lines of the guide, those that go on in the next line in one."""
    text = guide().replace("\\\n", " ")
    return [line.split(" | ")[0] for line in re.findall(r"(?:^|`)(shardviz [^`\n;]*)", text, re.MULTILINE)]


@pytest.mark.parametrize("line", commands())
def test_its_commands_are_commands(line: str):
    _, *words = shlex.split(line, comments=True)
    if words[0] == "VERB":
        return
    command, own = cli.commands[words[0]], itertools.takewhile("--".__ne__, words[1:])
    command.make_context(words[0], [*own], obj=State(), parent=click.Context(cli, obj=State()))


def test_it_is_short_and_names_rules_that_there_are(capsys):
    assert len(guide().splitlines()) <= 120
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", re.search(r"## 4\..*## 5", guide(), re.DOTALL)[0]))
    source = "".join(path.read_text() for path in Path(programs.__file__).parents[2].glob("shardviz/diagnose/*.py"))
    assert RULES and not [rule for rule in named if f'"{rule}' not in source and f"{rule}:" not in source]
    assert main(["skill"]) == 0
    assert capsys.readouterr().out == guide()
