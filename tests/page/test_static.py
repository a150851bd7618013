"""The page's JavaScript is formatted, free of lint, type-checked, unit-tested and put together into one module.

One tool does all four: Deno, whose binary comes from PyPI with the extra `test`. `deno.json` has its settings, and
names the modules that are left out. The unit tests use `node:test`, so `node --test tests/page` runs them too.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from shardviz.page import bundle

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def deno(tmp_path_factory):
    """Runs deno with some arguments; fails with what it said if it was not content."""
    try:
        from deno import find_deno_bin

        program = find_deno_bin()
    except (ImportError, FileNotFoundError):
        program = shutil.which("deno")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("no deno: pip install -e '.[test]' brings it")
        pytest.skip("no deno: pip install deno")
    cache = tmp_path_factory.mktemp("deno")
    env = {**os.environ, "DENO_DIR": str(cache), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}

    def run(*arguments):
        done = subprocess.run([program, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_format(deno):
    deno("fmt", "--check")


def test_lint(deno):
    deno("lint")


def test_types(deno):
    deno("check", "shardviz/page/static", "tests/page")


def test_every_module_is_checked():
    modules = {path.name: path.read_text(encoding="utf-8") for path in bundle.STATIC.glob("*.js")}
    assert {name for name, text in modules.items() if not text.startswith("// @ts-check\n")} == set()


def test_units(deno):
    deno("test", "--no-check")  # `test_types` has checked them


def test_the_bundle_is_one_module_that_runs(deno, tmp_path):
    page = tmp_path / "page.js"
    page.write_text(bundle.module(), encoding="utf-8")
    (tmp_path / "run.js").write_text(
        'import * as page from "./page.js";\n'
        "console.log(JSON.stringify([Object.keys(page), Object.keys(page.default), typeof page.default.render]));\n"
    )
    assert json.loads(deno("run", "--no-config", str(tmp_path / "run.js"))) == [["default"], ["render"], "function"]


def test_the_bundle_has_every_module_and_no_import_left():
    text = bundle.module()
    for file in set(bundle.STATIC.glob("*.js")) - {bundle.STATIC / "start.js"}:
        assert f"const ${file.stem} = " in text, f"static/{file.name} is used by nothing"
    assert not re.search(r"^\s*(import|export)\b(?! default \$explorer)", text, re.MULTILINE)
    own = "".join(file.read_text(encoding="utf-8") for file in bundle.STATIC.glob("*.js"))
    assert not re.search("innerHTML|outerHTML|insertAdjacentHTML|InnerHTML", own)
    assert "http://www.w3.org/2000/svg" in text and not re.search(r"https?://(?!www\.w3\.org)", text + bundle.styles())
