"""`check`: budgets and goldens by their numbers, and what a change brings that another revision has not."""

from __future__ import annotations

import jsonschema
import pytest

import shardviz as sv
from shardviz.cli.schemas import schema_of
from tests.cli.conftest import committed, git

pytestmark = pytest.mark.slow

GATHERED = 'down = jax.lax.with_sharding_constraint(params["down"], P())\n    return jnp.mean(h @ down)'
BASE = ("--base", "main", "--level", "propagated")


@pytest.fixture
def repository(project):
    """The project as a repository of git, with the branch `main`, and a branch for a change."""
    committed(project)
    git(project, "checkout", "--quiet", "-b", "change")
    return project


def change(project) -> None:
    """Gathers a weight, two lines further down than the line that uses it was."""
    model = (project / "stranger.py").read_text()
    model = model.replace('return jnp.mean(h @ params["down"])', GATHERED)
    (project / "stranger.py").write_text("import math\nimport sys\n" + model)


def test_budgets_are_kept_or_passed_by_the_numbers_of_the_report(project, run):
    with (project / "pyproject.toml").open("a") as configuration:
        configuration.write('level = "propagated"\n')
    report = run("report", "--json").data["step"]
    more, less = report["seconds"] * 1.01, report["seconds"] * 0.99
    assert run("check", "--max-step-time", f"{more:.9f}s").code == 0
    ran = run("check", "--max-step-time", f"{less:.9f}s")
    assert ran.code == 1 and "max-step-time" in ran.out and "1 of 1 step FAILED" in ran.out
    ran = run("check", "--forbid", "all-reduce over data", "--json")
    jsonschema.validate(ran.data, schema_of("check"))
    (failure,) = ran.data["steps"][0]["failures"]
    assert ran.code == 1 and not ran.data["ok"]
    assert failure["rule"] == "forbid:all-reduce over data" and failure["line"].startswith("stranger.py:")
    assert run("check", "--forbid", "ragged-all-to-all", "--forbid", "any inside loop").code == 0


@pytest.mark.parametrize("limit", ["90%", "1 GB"])
def test_memory_that_a_level_cannot_tell_is_no_pass(project, run, limit):
    ran = run("check", "--max-memory", limit)
    assert ran.code == 1 and "not known at level partitioned" in " ".join(ran.out.split())


@pytest.mark.tpu
def test_memory_is_of_what_a_device_has_where_a_compiler_planned_it(project, run):
    level = ("--level", "compiled", "--json")
    step = run("report", *level).data["step"]
    share = step["memory_bytes"] / step["usable_bytes"]
    assert step["memory_is_whole"]
    assert run("check", *level, "--max-memory", f"{share * 101:.9f}%").code == 0
    assert run("check", *level, "--max-memory", f"{share * 99:.9f}%").code == 1


def test_a_configuration_alone_is_enough(project, run):
    configuration = (project / "pyproject.toml").read_text()
    budgets = 'max_step_time = "1 s"\nforbid = ["all-to-all"]\ngolden = "goldens/train.json"\n'
    (project / "pyproject.toml").write_text(configuration + budgets)
    ran = run("check")
    assert ran.code == 1 and "there is no golden file" in ran.out and "--update" in ran.out
    assert run("check", "--update").code == 0 and (project / "goldens" / "train.json").exists()
    assert run("check").code == 0
    ran = run("check", "--in-specs", "P('data'); P('data')")
    assert ran.code == 1 and "argument params['up']: P('data', 'model') → P('data')" in " ".join(ran.out.split())


def test_a_weight_that_a_change_gathers_is_found_with_its_line(repository, run):
    assert run("check", *BASE).code == 0, "nothing has changed"
    change(repository)
    ran = run("check", *BASE, "--json", "--max-step-time", "+5%")
    assert ran.code == 1
    jsonschema.validate(ran.data, schema_of("check"))
    (step,) = ran.data["steps"]
    by_rule = {failure["rule"]: failure for failure in step["failures"]}
    gathered = by_rule["gathered:params['down']"]
    lines = (repository / "stranger.py").read_text().split("\n")
    number = next(n for n, line in enumerate(lines, 1) if "with_sharding_constraint" in line)
    # by JAX 0.10 the constraint's line, by 0.12 the next one's, which uses the constrained value
    assert gathered["line"] in (f"stranger.py:{number}", f"stranger.py:{number + 1}")
    assert "gathered over model: 16.8 MB of it on each device in a step, none before" in gathered["text"]
    assert step["step"]["seconds"] > 1.05 * step["base"]["seconds"] and "max-step-time" in by_rule
    changes = [c for c in step["comparison"]["collectives"] if c["what"] == "appeared"]
    assert any(c["after"]["line"] == gathered["line"] and c["after"]["kind"] == "all-gather" for c in changes)
    assert run("check", *BASE, "--accept", "gathered:*", "--accept", "new:*").code == 0
    assert git(repository, "worktree", "list").count("\n") == 0, "nothing is left"


@pytest.mark.long
def test_the_base_is_where_the_working_tree_left_the_branch(repository, run):
    git(repository, "checkout", "--quiet", "main")
    change(repository)
    git(repository, "commit", "--quiet", "--all", "--message=main goes on")
    git(repository, "checkout", "--quiet", "change")
    ran = run("check", "--base", "main", "--json")
    assert ran.code == 0 and ran.data["steps"][0]["comparison"]["collectives"] == []


def test_a_step_that_the_base_has_not_is_said_to_have_none(repository, run):
    model = (repository / "stranger.py").read_text().replace("train_step", "new_step")
    (repository / "stranger.py").write_text(model)
    (repository / "pyproject.toml").write_text((repository / "pyproject.toml").read_text().replace("train", "new"))
    ran = run("check", "new", *BASE, "--max-step-time", "+5%")
    told = " ".join(ran.out.split())
    assert ran.code == 1 and "no base to compare with: STEP 'stranger:new_step'" in told
    assert "+5%: not known, because the base has no report" in told


def test_a_base_that_does_not_import_is_no_pass(repository, run):
    model = (repository / "stranger.py").read_text()
    (repository / "stranger.py").write_text(f"print('loud')\nimport sys\nsys.exit(0)\n{model}")
    git(repository, "checkout", "--quiet", "-B", "main")
    git(repository, "commit", "--quiet", "--all", "--message=it exits")
    (repository / "stranger.py").write_text(model)
    ran = run("check", *BASE, "--json")
    (failure,) = ran.data["steps"][0]["failures"]
    assert ran.code == 1 and failure["rule"] == "base" and "sys.exit(0) is called" in failure["text"]
    assert run("check", *BASE, "--accept", "base").code == 0


@pytest.mark.parametrize(
    ("step", "base", "message"),
    [
        ("train", "nonesuch", "--base 'nonesuch': there is no such revision here; fetch it first"),
        ("train", "--help", "there is no such revision"),
    ],
)
def test_a_base_that_is_not_there_is_wrong_input(repository, run, step, base, message):
    ran = run("check", step, f"--base={base}")
    assert ran.code == 2 and message in " ".join(ran.err.split())


def test_what_is_not_of_the_repository_has_no_base(repository, run):
    ran = run("check", "mlp", *BASE)
    assert ran.code == 0 and "nothing of mlp comes from this repository" in " ".join(ran.out.split())
    (repository / ".git").rename(repository / "git")
    ran = run("check", "train", *BASE)
    assert ran.code == 2 and "--base needs a git repository" in ran.err


def test_a_saved_report_is_the_golden_that_the_api_checks(project, run):
    assert run("check", "--golden", "train.json", "--update").code == 0
    report = sv.Report.from_json(run("report", "--json").out)
    report.check_golden(project / "train.json")
