"""The explorer in other hosts than JupyterLab, with the network off: it opens, an edit goes to the kernel and back, it
looks as its host looks, whatever the operating system likes, and it saves itself."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.browser.harness import ARTIFACTS
from tests.browser.views import edits, settled
from tests.serving import serving

OPEN = """import shardviz as sv
explorer = sv.explore(sv.gallery.mlp(), level="partitioned")
explorer"""
MARIMO = f"""# /// script
# [tool.marimo.display]
# theme = "dark"
# ///
import marimo

app = marimo.App()

@app.cell
def _():
    {OPEN.replace(chr(10), chr(10) + "    ")}
    return

if __name__ == "__main__":
    app.run()
"""
HARMLESS = ("favicon", "net::ERR_", "shared module", "404", "Not Found", "chema", "layout restorer")
"""Of the hosts themselves: what they would load from elsewhere, or have installed apart."""


def notebook(folder: Path) -> None:
    import nbformat

    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(OPEN)])
    made.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(made, folder / "x.ipynb")


HOSTS = {
    "voila": (["voila", "x.ipynb", "--no-browser", "--theme=dark", "--Voila.ip=127.0.0.1"], "--port", ""),
    "marimo": (["marimo", "run", "x.py", "--headless", "--no-token", "--host=127.0.0.1"], "--port", ""),
    "notebook": (
        ["notebook", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", "--IdentityProvider.token="],
        "--ServerApp.port",
        "notebooks/x.ipynb",
    ),
}


@pytest.mark.parametrize(("host", "dark"), [("voila", True), ("marimo", True), ("notebook", False)])
def test_the_explorer_lives_there(browser, tmp_path, host, dark):
    if importlib.util.find_spec(host) is None:
        pytest.skip(f"no {host}: pip install {host}")
    notebook(tmp_path)
    (tmp_path / "x.py").write_text(MARIMO)
    command, port, page = HOSTS[host]
    errors: list[str] = []
    with serving(tmp_path, command, port, page) as server:
        context = browser.new_context(
            color_scheme="light" if dark else "dark", viewport={"width": 1400, "height": 1000}
        )
        try:
            context.route(lambda asked: not asked.startswith("http://127.0.0.1:"), lambda route: route.abort())
            view = context.new_page()
            view.set_default_timeout(60_000)
            view.on("console", lambda message: message.type == "error" and errors.append(message.text))
            view.goto(server.url)
            if host == "notebook":
                view.locator(".jp-Notebook .jp-Cell").first.click()
                view.get_by_role("button", name="Run", exact=False).first.wait_for()
                view.wait_for_function(
                    "document.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status == 'idle'"
                )
                view.keyboard.press("Shift+Enter")
            view.get_by_test_id("level").wait_for()
            settled(view, -1, "partitioned")
            assert view.locator(".shardviz").evaluate("(el) => el.classList.contains('sv-dark')") is dark
            for still in view.locator("[data-shardviz-still]").all():
                assert not still.is_visible()
            before = edits(view)
            view.get_by_test_id("axis-size-data").fill("4")
            view.get_by_test_id("axis-size-data").press("Enter")
            settled(view, before, "partitioned")
            assert "16 devices" in view.get_by_test_id("devices").inner_text()
            with view.expect_download() as downloading:
                view.get_by_test_id("keep-html").click()
            assert downloading.value.suggested_filename == "train_step.html"
            ARTIFACTS.mkdir(parents=True, exist_ok=True)
            view.screenshot(path=ARTIFACTS / f"host_{host}.png")
        finally:
            context.close()
    assert [text for text in errors if not any(word in text for word in HARMLESS)] == []
