"""What stands beside the code for a release goes with pyproject.toml: the recipe, Binder's lock, the workflow."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import shardviz as sv

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OF_CONDA = {"matplotlib": "matplotlib-base", "flatbuffers": "python-flatbuffers"}
"""A package's name on PyPI → on conda-forge, where they differ; the former brings no GUI."""


def parts(requirement: str) -> tuple[str, set[str]]:
    """The name and the bounds of a requirement, as pip or conda writes it."""
    name, bounds = re.fullmatch(r"([\w.-]+)\s*(.*)", requirement).groups()
    return name, set(filter(None, bounds.split(",")))


def test_the_recipe_needs_what_the_wheel_needs():
    recipe = yaml.safe_load((ROOT / "recipe/recipe.yaml").read_text())
    run = dict(map(parts, recipe["requirements"]["run"]))
    python = run.pop("python")
    assert {f">={recipe['context']['python_min']}"} == {PROJECT["requires-python"]} and python == {
        ">=${{ python_min }}"
    }
    wanted = dict(map(parts, PROJECT["dependencies"]))
    assert run == {OF_CONDA.get(name, name): bounds for name, bounds in wanted.items()}
    assert recipe["context"]["version"] == sv.__version__
    scripts = [f"{name} = {where}" for name, where in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts


def test_binders_lock_has_all_that_is_needed_with_hashes_and_no_address():
    text = (ROOT / "binder/lock.txt").read_text()
    pins = dict(re.findall(r"^([\w.-]+)==(\S+) \\\n    --hash=sha256:", text, re.MULTILINE))
    assert len(pins) == len(re.findall(r"^[\w.-]+==", text, re.MULTILINE))  # each has a hash
    wanted = dict(map(parts, (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["lab"])))
    assert not [name for name in wanted if name.lower().replace("_", "-") not in pins]
    newest = re.search(r"<(\d+)\.(\d+)", next(d for d in PROJECT["dependencies"] if d.startswith("jax>")))
    assert tuple(map(int, pins["jax"].split(".")[:2])) < tuple(map(int, newest.groups()))
    assert "://" not in text and "--index" not in text and "--find-links" not in text
    build = (ROOT / "binder/postBuild").read_text()
    assert "--require-hashes -r binder/lock.txt" in build and "--no-deps ." in build


def test_a_release_is_published_from_upstream_alone_and_by_no_token():
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    jobs = workflow["jobs"]
    assert jobs["build"]["if"] == "vars.RELEASE == 'pypi'" and jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"} and workflow["permissions"] == {}
    assert workflow[True].keys() == {"push", "workflow_dispatch"} and [*workflow[True]["push"]] == ["tags"]  # `on`
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text()


PUBLISHED = {
    "github-actions": ".github/actions/check/action.yml",
    "github-workflows": ".github/workflows/*.yml",
    "github-issue-forms": ".github/ISSUE_TEMPLATE/w*.yml",
    "github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "gitlab-ci": ".gitlab/shardviz-check.yml",
    "citation-file-format": "CITATION.cff",
}
"""The schema that others publish → the files that keep it."""


@pytest.mark.parametrize("schema", PUBLISHED)
def test_what_others_read_is_as_they_say_it_must_be(schema: str):
    pytest.importorskip("check_jsonschema", reason="no check-jsonschema: pip install 'shardviz[test]'")
    files = [str(file) for file in ROOT.glob(PUBLISHED[schema])]
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    transform = ["--data-transform", "gitlab-ci"] if schema == "gitlab-ci" else []
    done = subprocess.run([*command, *transform], capture_output=True, text=True, timeout=60)
    assert files and done.returncode == 0, done.stdout + done.stderr


def test_this_version_is_told():
    assert f"## [{sv.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == sv.__version__
    for form in (ROOT / ".github/ISSUE_TEMPLATE").glob("w*.yml"):
        assert {"name", "description", "body"} <= yaml.safe_load(form.read_text()).keys()
