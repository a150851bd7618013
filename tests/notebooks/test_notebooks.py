"""The committed notebooks are what a reader is promised: executed, small, without errors, of no particular machine.

That their outputs are still true is nbval's part: it runs every notebook and compares (see pyproject.toml).
"""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.machine_paths import machine_paths

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 1_500_000
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
    if path.stat().st_size > LARGEST:
        found.append(f"{path.stat().st_size:,} bytes; at most {LARGEST:,}")
    assert not found, "\n".join(found)


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
