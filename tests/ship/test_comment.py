"""What a pull request is told: the lines of the action and of the GitLab job, run on two revisions of a repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import msgspec
import pytest
import yaml

import shardviz as sv
from shardviz.cli import main
from shardviz.cli.comment import MARK, changed
from shardviz.cli.schemas import CommentData, schema_of
from tests.cli.conftest import committed, git

ROOT = Path(__file__).resolve().parents[2]
MODEL = """\
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P


def step(w, x):
    return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, w)[0]


def arguments():
    return jax.ShapeDtypeStruct((8, 4096, 4096), jnp.bfloat16), jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16)


SPECS = P(None, None, None), P("data")
"""
PROJECT = """\
[tool.shardviz.steps.train]
function = "model:step"
args = "model:arguments"
mesh = { data = 8 }
in_specs = "model:SPECS"
target = "tpu v5e:2x4"
forbid = ["all-gather inside loop"]
"""
GATHERED = MODEL.replace('P(None, None, None), P("data")', 'P(None, "data", None), P("data")')
SCRIPT = """\
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))


@jax.jit
def train_step(w, x):
    return w - jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)


@jax.jit
def evaluate(w, x):
    return jnp.mean(x @ w)


w = jax.device_put(np.zeros((4096, 4096), np.float32), NamedSharding(mesh, P()))
x = jax.device_put(np.zeros((8192, 4096), np.float32), NamedSharding(mesh, P("data")))
for _ in range(3):
    w = train_step(w, x)
evaluate(w, x)
"""
RUN = """\
[tool.shardviz.steps.train]
run = "python train.py"
target = "tpu v5e:2x4"
forbid = ["all-gather"]
"""
GATHERS = SCRIPT.replace(
    "    return jnp.mean(x @ w)",
    "    x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P()))\n    return jnp.mean(x @ w)",
)
GH = """\
#!/bin/sh
echo "$*" >>gh.txt
case "$*" in *paginate*) cat "$PWD/old.txt" ;; esac
"""
CURL = """\
#!/bin/sh
echo "$*" >>curl.txt
case "$*" in *per_page*) cat "$PWD/old.json" ;; esac
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A project of one commit, with `shardviz`, and a `gh` and a `curl` that note how they are called."""
    folder, tools = tmp_path / "project", tmp_path / "bin"
    folder.mkdir()
    tools.mkdir()
    (folder / "model.py").write_text(MODEL)
    (folder / "pyproject.toml").write_text(PROJECT)
    committed(folder)
    python = f'#!/bin/sh\nexec "{sys.executable}"'
    scripts = {"shardviz": f'{python} -m shardviz.cli "$@"\n', "python": f'{python} "$@"\n', "gh": GH, "curl": CURL}
    for name, script in scripts.items():
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    (folder / "old.txt").write_text("")
    return folder


def run(lines: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Shell lines, as a runner runs them."""
    paths = {"PATH": f"{folder.parent / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    runner = {"RUNNER_TEMP": str(folder), "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    command = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", lines)
    environment = {**os.environ, **paths, **runner, **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.long
def test_an_action_tells_of_a_gathered_weight_once_and_is_silent_where_nothing_changed(repository: Path):
    action = yaml.safe_load((ROOT / ".github/actions/check/action.yml").read_text())
    compare, comment, check = (step["run"] for step in action["runs"]["steps"])
    inputs = {"BASE": git(repository, "rev-parse", "HEAD"), "STEPS": "", "THRESHOLD": "1%"}
    github = {"COMMENTS": "repos/me/project/issues/7/comments", "ONE": "repos/me/project/issues/comments"}

    (repository / "model.py").write_text(GATHERED)
    done = run(compare, repository, **inputs)
    assert done.returncode == 0, done.stderr
    text = (repository / "shardviz.md").read_text()
    assert text == (repository / "summary.md").read_text()
    assert text.startswith(f"{MARK}\n\n## shardviz: `train` slower, ")
    told, _, fold = text.partition("<details>")
    (row,) = [line for line in told.splitlines() if "all-gather" in line]
    assert "appeared" in row and "model.py:7 `return jax.lax.scan(" in row
    assert "| FLOPs | 137 GFLOP | 137 GFLOP | the same |" in fold and "FLOPs" not in told
    assert git(repository, "worktree", "list").count("\n") == 0

    assert run(comment, repository, **github).returncode == 0
    (repository / "old.txt").write_text("42\n")
    assert run(comment, repository, **github).returncode == 0
    calls = (repository / "gh.txt").read_text().splitlines()
    assert [f"--method POST {github['COMMENTS']}" in calls[1], f"--method PATCH {github['ONE']}/42" in calls[3]] == [
        True,
        True,
    ]
    done = run(check, repository, **inputs)
    assert done.returncode == 1 and "all-gather" in done.stdout and "model.py:7" in done.stdout

    (repository / "model.py").write_text("# a line more\n" + MODEL)
    done = run(f"{compare}\n{comment}", repository, **inputs, **github)
    assert done.returncode == 0 and (repository / "shardviz.md").read_text() == ""
    assert (repository / "gh.txt").read_text().splitlines()[-1] == f"api --method DELETE {github['ONE']}/42"


@pytest.mark.long
def test_a_job_of_gitlab_does_the_same(repository: Path):
    job = yaml.safe_load((ROOT / ".gitlab/shardviz-check.yml").read_text())["shardviz-check"]
    first, compare, comment, check = job["script"]
    api = {"CI_API_V4_URL": "https://host/api/v4", "CI_PROJECT_ID": "5", "CI_MERGE_REQUEST_IID": "7"}
    job = {"SHARDVIZ_STEPS": "", "SHARDVIZ_THRESHOLD": "1%", "SHARDVIZ_TOKEN": "t", **api}
    job["CI_MERGE_REQUEST_DIFF_BASE_SHA"] = git(repository, "rev-parse", "HEAD")
    others = {"id": 41, "body": "looks good"}, {"id": 42, "body": f"{MARK}\n\nas it was"}
    notes = "https://host/api/v4/projects/5/merge_requests/7/notes"

    (repository / "model.py").write_text(GATHERED)
    (repository / "old.json").write_text(json.dumps(others))
    done = run("\n".join((first, compare, comment, check)), repository, **job)
    assert done.returncode == 1 and "all-gather" in done.stdout and "model.py:7" in done.stdout, done.stderr
    assert (repository / "shardviz.md").read_text().startswith(f"{MARK}\n\n## shardviz: `train` slower, ")
    (repository / "old.json").write_text(json.dumps(others[:1]))
    assert run(comment, repository, **job).returncode == 0
    (repository / "shardviz.md").write_text("")
    assert run(comment, repository, **job).returncode == 0
    (repository / "old.json").write_text(json.dumps(others))
    assert run(comment, repository, **job).returncode == 0
    assert run(comment, repository, **job | {"SHARDVIZ_TOKEN": ""}).returncode == 0  # which asks nobody
    calls = [line.partition("PRIVATE-TOKEN: t ")[2] for line in (repository / "curl.txt").read_text().splitlines()]
    body = "--data-urlencode body@shardviz.md"
    assert [call for call in calls if "per_page" not in call] == [
        *(f"--request PUT {notes}/42 {body}", f"--request POST {notes} {body}", f"--request DELETE {notes}/42")
    ]


@pytest.mark.long
@pytest.mark.parametrize("door", ["GitHub", "GitLab"])
def test_a_script_that_runs_dry_is_told_of_program_by_program(repository: Path, door: str):
    if door == "GitHub":
        action = yaml.safe_load((ROOT / ".github/actions/check/action.yml").read_text())
        compare, _, check = (step["run"] for step in action["runs"]["steps"])
    else:
        job = yaml.safe_load((ROOT / ".gitlab/shardviz-check.yml").read_text())["shardviz-check"]
        compare, check = job["script"][1], job["script"][3]
    (repository / "train.py").write_text(SCRIPT)
    (repository / "pyproject.toml").write_text(RUN)
    git(repository, "add", "-A")
    git(repository, "commit", "--quiet", "-m", "train")
    base = git(repository, "rev-parse", "HEAD")
    inputs = {"BASE": base, "STEPS": "", "THRESHOLD": "1%"}
    inputs |= {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base, "SHARDVIZ_STEPS": "", "SHARDVIZ_THRESHOLD": "1%"}

    done = run(f"{compare}\n{check}", repository, **inputs)
    assert done.returncode == 0 and (repository / "shardviz.md").read_text() == "", done.stderr

    (repository / "train.py").write_text(GATHERS)
    done = run(compare, repository, **inputs)
    assert done.returncode == 0, done.stderr
    text = (repository / "shardviz.md").read_text()
    assert text.startswith(f"{MARK}\n\n## shardviz: `evaluate of train` slower, ") and text.count("## shardviz:") == 1
    (row,) = [line for line in text.partition("<details>")[0].splitlines() if "all-gather" in line]
    assert "appeared" in row and re.search(r"train\.py:1[67] `", row)  # the constraint, or what uses its result
    done = run(check, repository, **inputs)
    assert done.returncode == 1 and "evaluate of train: FAILED" in done.stdout, done.stdout
    assert "train_step of train: ok" in done.stdout


def test_names_of_steps_reach_both_verbs_as_they_are_written(repository: Path):
    """On several lines, and with what the shell would take for a pattern of files."""
    (repository.parent / "bin" / "shardviz").write_text('#!/bin/sh\nprintf "%s " "$@" >>asked.txt\n')
    action = yaml.safe_load((ROOT / ".github/actions/check/action.yml").read_text())["runs"]["steps"]
    gitlab = yaml.safe_load((ROOT / ".gitlab/shardviz-check.yml").read_text())["shardviz-check"]["script"]
    names = "train decode\n  eval*\nm*\n"
    for lines in ((action[0]["run"], action[2]["run"]), (gitlab[0], gitlab[1], gitlab[3])):
        (repository / "asked.txt").unlink(missing_ok=True)
        done = run("\n".join(lines), repository, STEPS=names, SHARDVIZ_STEPS=names, BASE="main", THRESHOLD="1%")
        asked = (repository / "asked.txt").read_text()
        assert done.returncode == 0 and asked.count("train decode eval* m* --base") == 2, asked


def test_the_lines_of_both_doors_are_good_shell():
    action = yaml.safe_load((ROOT / ".github/actions/check/action.yml").read_text())
    gitlab = yaml.safe_load((ROOT / ".gitlab/shardviz-check.yml").read_text())["shardviz-check"]
    steps = [step["run"] for step in action["runs"]["steps"]]
    for lines in (*steps, *gitlab["script"]):
        assert subprocess.run(("bash", "-n", "-c", lines)).returncode == 0
    for lines in (steps[0], gitlab["script"][1]):
        assert "shardviz comment " in lines and "--base " in lines and "--threshold " in lines
    assert [lines.split()[:2] for lines in (steps[-1].splitlines()[-1], gitlab["script"][-1])] == [
        ["shardviz", "check"]
    ] * 2


# What is told, from reports that are there.


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, sv.Report]:
    """The step's reports, of the whole and of the sharded weight."""
    found = {}
    for name, text in (("whole", MODEL), ("sharded", GATHERED)):
        made: dict = {}
        exec(compile(text, "model.py", "exec"), made)
        program = sv.trace(made["step"], *made["arguments"]())
        found[name] = program.partition(sv.Plan("data=8", made["SPECS"]), "tpu v5e:2x4")
    return found


def test_what_is_below_the_threshold_is_not_told(reports):
    whole, sharded = reports["whole"], reports["sharded"]
    assert changed("train", whole, whole, threshold=0.0) is None
    change, text = changed("train", sharded, whole, threshold=0.5)
    answer = json.loads(msgspec.json.encode(CommentData(steps=(change,), markdown=text)))
    jsonschema.validate(answer, schema_of("comment"))
    assert [a.name for a in change.amounts] == ["step", "arguments", "operand bytes"]
    change, _ = changed("train", sharded, whole, threshold=2.0)
    assert [a.name for a in change.amounts] == ["arguments"]  # 7 times as much; less is never less than −100 %


def test_a_base_that_has_no_such_step_is_told(reports):
    change, text = changed("train", "STEP 'train': there is none", reports["whole"], threshold=0.01)
    assert change.problem and "the base has no report to compare with" in text


@pytest.mark.parametrize(
    "words, said",
    [
        (["--base", "main", "--threshold", "much"], "--threshold 'much': expected a share such as 1%"),
        (["--base", "nonesuch"], "--base 'nonesuch': there is no such revision"),
    ],
)
def test_what_is_wrong_is_told(words, said, repository: Path, monkeypatch, capsys):
    monkeypatch.chdir(repository)
    assert main(["comment", *words]) == 2
    assert said in capsys.readouterr().err
