"""The committed notebooks are what a reader is promised: executed, small, without errors, of no particular machine.

That their outputs are still true is nbval's part: it runs every notebook and compares (see pyproject.toml).
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest

from tests.machine_paths import machine_paths

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 2_200_000
"""Bytes of all lessons together: what Binder and a clone have to bring."""
MACHINE = ("site-packages", "/tmp/", "\\Temp\\", ".pyenv")


def faults(notebook: nbformat.NotebookNode) -> list[str]:
    """What is wrong with a notebook, a line of text each."""
    found = []
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        found.append("its kernelspec is not 'python3', which is what every reader has")
    for index, cell in enumerate(notebook.cells):
        texts = [cell.source]
        if cell.cell_type == "code":
            if cell.source.strip() and cell.execution_count is None:
                found.append(f"cell {index} was not executed, so nbval would not compare it")
            expected = "raises-exception" in cell.metadata.get("tags", ())
            for output in cell.outputs:
                if output.output_type == "error" and not expected:
                    found.append(f"cell {index} raised {output.ename}: {output.evalue}")
                texts += [output.get("text", ""), *output.get("traceback", ())]
                texts += [str(value) for mime, value in output.get("data", {}).items() if mime != "image/png"]
        for text in texts:
            hits = machine_paths(text) + [word for word in MACHINE if word in text]
            found += [f"cell {index} has a path of one machine: {hit}" for hit in hits]
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_is_as_a_reader_should_find_it(path: Path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    found = faults(notebook)
    assert not found, "\n".join(found)


def test_all_together_are_small():
    assert sum(path.stat().st_size for path in NOTEBOOKS) < LARGEST


def test_the_first_notebook_is_there():
    assert (FOLDER / "00_start_here.ipynb") in NOTEBOOKS, "shardviz lab opens on it"


def test_counts_go_up_from_one():
    """Run from top to bottom in a fresh kernel: otherwise what is shown may stem from cells that are gone."""
    for path in NOTEBOOKS:
        cells = nbformat.read(path, as_version=4).cells
        counts = [c.execution_count for c in cells if c.cell_type == "code" and c.source.strip()]
        assert counts == list(range(1, len(counts) + 1)), f"{path.name}: {counts}"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"execution_count": None}, "cell 0 was not executed"),
        ({"source": "open('" + "/".join(["", "home", "bob", "x"]) + "')"}, "cell 0 has a path of one machine"),
        ({"outputs": [nbformat.v4.new_output("error", ename="E", evalue="no", traceback=[])]}, "cell 0 raised E: no"),
        ({"outputs": [nbformat.v4.new_output("stream", text="/tmp/x")]}, "cell 0 has a path of one machine: /tmp/"),
        ({}, None),
    ],
)
def test_faults_are_found(change: dict, fault: str | None):
    cell = nbformat.v4.new_code_cell("1 + 1", execution_count=1)
    cell.update(change)
    kernelspec = {"name": "python3", "display_name": "Python 3"}
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": kernelspec})
    found = faults(notebook)
    assert (len(found) == 1 and found[0].startswith(fault)) if fault else not found, found


WIDEST = 104
"""Characters of a line of code that JupyterLab shows without scrolling, beside its file browser at 1280 pixels."""


def seen(notebook: nbformat.NotebookNode) -> dict[str, int]:
    """Where a page first shows a picture, a table, and code of more than three lines: the place, counted in cells."""
    first: dict[str, int] = {}
    for place, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown" and "\n|" in cell.source:
            first.setdefault("table", place)
        if cell.cell_type != "code":
            continue
        if not hidden(cell) and len(cell.source.splitlines()) > 3:
            first.setdefault("code", place)
        for output in cell.outputs:
            data = output.get("data", {})
            drawn = {"image/png", "application/vnd.jupyter.widget-view+json"} & {*data}
            if drawn or "┌" in data.get("text/plain", ""):  # sv.show draws boxes
                first.setdefault("picture", place)
            elif "text/markdown" in data or "<table" in data.get("text/html", ""):
                first.setdefault("table", place)
    return first


def hidden(cell: nbformat.NotebookNode) -> bool:
    return bool(cell.metadata.get("jupyter", {}).get("source_hidden"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_page_shows_a_picture_before_a_table_and_a_table_before_code(path: Path):
    notebook = nbformat.read(path, as_version=4)
    first = seen(notebook)
    order = [first.get(what, len(notebook.cells)) for what in ("picture", "table", "code")]
    assert order == sorted(order), first
    wide = [
        f"cell {place}: {line}"
        for place, cell in enumerate(notebook.cells)
        for line in cell.source.splitlines()
        if cell.cell_type == "code" and not hidden(cell) and len(line) > WIDEST
    ]
    assert not wide, "\n".join(wide)


def test_each_lesson_ends_with_a_link_to_the_next():
    last = [nbformat.read(path, as_version=4).cells[-1] for path in NOTEBOOKS]
    assert {cell.cell_type for cell in last} == {"markdown"}
    for cell, following in zip(last, [*NOTEBOOKS[1:], NOTEBOOKS[0]], strict=True):
        assert f"]({following.name})" in cell.source


BROUGHT = {"IPython": "jupyterlab", "PIL": "matplotlib"}
"""Modules of packages that come along with others."""


def test_the_extra_lab_has_what_the_lessons_import():
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["lab"]]
    installed = {re.split(r"[^\w-]", each)[0] for each in needed} | {"shardviz", *sys.stdlib_module_names}
    for path in NOTEBOOKS:
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                source = "\n".join(line for line in cell.source.splitlines() if not line.startswith("%"))
                nodes = [*ast.walk(ast.parse(source))]
                names = [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
                names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
                roots = {name.split(".")[0] for name in names}
                assert not {BROUGHT.get(root, root) for root in roots} - installed, (path.name, roots)
