"""The documentation: every public name is in it, its code runs, its links lead somewhere, and it needs no network."""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import shardviz as sv
from shardviz.cli.schemas import SCHEMAS, schema_of
from tests.scripts import loaded

ROOT = Path(__file__).parents[2]
NETWORK = ("http:", "https:", "//")


def test_every_public_name_has_an_entry_in_the_reference():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    entries = re.findall(r"^::: shardviz\.(\w+)$", pages, re.MULTILINE)
    assert sorted(set(sv.__all__) - set(entries)) == [], "put `::: shardviz.<name>` into a page of docs/reference"
    assert sorted(name for name in entries if entries.count(name) > 1) == []


def test_every_public_name_has_an_example():
    """Those in docstrings are run by tests/test_house.py; IPython alone calls the two of its extension."""
    without = [
        name for name in sv.__all__ if callable(value := getattr(sv, name)) and ">>> " not in (value.__doc__ or "")
    ]
    assert without == ["load_ipython_extension", "unload_ipython_extension"]


def test_the_readmes_python_runs():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, outputs = loaded("docs/site/hooks.py").run_page("README.md", text)
    assert outputs


def test_the_readmes_links_lead_somewhere():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)", text)
    assert len(links) > 5
    assert not [link for link in links if not link.startswith(NETWORK) and not (ROOT / link).exists()]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The built site; a warning fails the build."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "SHARDVIZ_DEMO_STATES": "4"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Links(HTMLParser):
    """What a page links to, what it loads, and what can be linked to in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(values["href"])
        elif "src" in values:
            self.loads.append(values["src"])


@pytest.mark.docs
def test_every_link_inside_leads_somewhere(site: Path):
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}  # that is a server's
    assert len(pages) > 30
    broken = defaultdict(list)
    for page, found in pages.items():
        for link in (*found.links, *found.loads):
            parts = urlsplit(link)
            if parts.scheme or link.startswith("//"):
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchors = pages[target].anchors | {""} if target in pages else {parts.fragment}
            if not target.exists() or unquote(parts.fragment) not in anchors:
                broken[page.relative_to(site)].append(link)
    assert not broken


@pytest.mark.docs
def test_the_schema_of_each_verb_is_a_file_of_it(site: Path):
    of_site = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in (site / "schemas").glob("*.json")}
    assert of_site == {verb: json.loads(json.dumps(schema_of(verb))) for verb in SCHEMAS}
    assert sum("schemas/" in link for link in Links(site / "command_line.html").links) == len(SCHEMAS)


@pytest.mark.docs
def test_it_loads_nothing_from_the_network(site: Path):
    loads = {load for page in site.rglob("*.html") for load in Links(page).loads if load.startswith(NETWORK)}
    styles = "".join(style.read_text(encoding="utf-8") for style in site.rglob("*.css"))
    assert not loads and not re.findall(r"url\([\"']?https?:[^)]*|@import[^;]*https?:", styles)


CUT = """() => [...document.querySelectorAll("cell-output")].some((output) =>
  [...output.shadowRoot.querySelectorAll("img")].some((image) => image.getBoundingClientRect().right
    > output.getBoundingClientRect().right))"""


@pytest.mark.docs
def test_it_is_read_from_the_disk_on_a_phone_and_in_the_dark(site: Path, browser):
    """No page or picture is wider than a phone, the search finds, the theme is the reader's, no network is asked."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    page = context.new_page()
    asked, errors, wide = [], [], {}
    page.on("request", lambda request: asked.append(request.url) if request.url.startswith(NETWORK) else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    for file in sorted(set(site.rglob("*.html")) - {site / "404.html"}):
        page.goto(file.as_uri())
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > 390 or page.evaluate(CUT):
            wide[str(file.relative_to(site))] = width
    assert not wide
    page.goto((site / "index.html").as_uri())
    assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"
    page.set_viewport_size({"width": 1300, "height": 900})
    page.locator("input.md-search__input").press_sequentially("reduce-scatter")
    page.wait_for_selector(".md-search-result__item", state="attached")
    context.close()
    assert not asked and not errors
