"""A real JupyterLab, and a page in a real browser that drives it the way a person does.

`Lab` is the server: a process of its own with its own folders for everything that Jupyter writes. `LabPage` is a
browser's page on it. The fixtures `lab` and `page` (see `conftest.py`) hand them out ready to use:

    def test_something(page):
        page.open_notebook("01_first_light.ipynb")
        page.run_all()
        page.cell_output(2).get_by_role("button", name="all-gather").click()
        expect(page.cell_output(2)).to_contain_text("model")
        page.screenshot("first_light")
        page.assert_no_errors()
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tests.serving import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = Path(os.environ.get("SHARDVIZ_ARTIFACTS", ROOT / "artifacts"))

PYTHON = os.environ.get("SHARDVIZ_LAB_PYTHON", sys.executable)
"""Who runs the server and its kernels; another installation's, and it is what is installed there that is tried."""

CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # what the page needs must come from the server
)

# No news, no update checks; and every cell in the page at once, so that a test can read outputs out of sight.
_SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}

# Chromium's words for what is no fault of a notebook.
_HARMLESS = ("favicon", "net::ERR_NAME_NOT_RESOLVED", "net::ERR_INTERNET_DISCONNECTED")

_KERNEL_STATUS = """() => {
    const panel = window.jupyterapp?.shell.currentWidget;
    return panel?.context?.sessionContext?.session?.kernel?.status ?? "none";
}"""

_NOT_FINISHED = """() => {
    const panel = window.jupyterapp.shell.currentWidget;
    const waiting = [];
    panel.content.widgets.forEach((cell, index) => {
        if (cell.model.type !== "code" || !cell.model.sharedModel.getSource().trim()) return;
        if (cell.promptNode?.textContent.includes("*") || cell.model.executionCount === null) waiting.push(index);
    });
    return waiting;
}"""

_START_COMMAND = """name => {
    window.commandIsDone = false;
    window.jupyterapp.commands.execute(name).finally(() => { window.commandIsDone = true; });
}"""

_SELECT = """index => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    notebook.activeCellIndex = index;
    notebook.deselectAll();
}"""

_ERRORS = """() => {
    const panel = window.jupyterapp.shell.currentWidget;
    const errors = [];
    panel.content.widgets.forEach((cell, index) => {
        if (cell.model.type !== "code" || cell.model.getMetadata("tags")?.includes("raises-exception")) return;
        for (const output of cell.model.outputs.toJSON()) {
            if (output.output_type === "error") errors.push(`cell ${index}: ${output.ename}: ${output.evalue}`);
        }
    });
    return errors;
}"""


class Lab:
    """A JupyterLab server on a free port, in folders of its own.

    Attributes:
        folder: the folder that JupyterLab shows; put notebooks there (`add`, `write`).
        url: the server's address, ending in a slash.
        token: what a browser shows to be let in.
        log: the file of the server's own messages.
    """

    def __init__(self, home: Path):
        self.home = home
        self.folder = home / "notebooks"
        self.folder.mkdir(parents=True)
        self.token = secrets.token_hex(16)
        for name, content in _SETTINGS.items():
            path = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content))

    @contextlib.contextmanager
    def running(self) -> Iterator[Lab]:
        """The server, for as long as the context lasts."""
        command = [
            *("jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1"),
            *(f"--ServerApp.root_dir={self.folder}", f"--IdentityProvider.token={self.token}"),
            *("--LabApp.expose_app_in_browser=True", "--LabApp.news_url=", "--ServerApp.terminals_enabled=False"),
        ]
        with serving(self.home, command, "--ServerApp.port", "", python=PYTHON) as self.server:
            self.url, self.log = self.server.url, self.server.log
            yield self

    def add(self, notebook: Path) -> str:
        """Copies a notebook into the server's folder; returns its name."""
        return Path(shutil.copy(notebook, self.folder)).name

    def write(self, name: str, *cells: str) -> str:
        """Makes a notebook of code cells with these sources; returns its name."""
        import nbformat

        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, self.folder / name)
        return name

    def memory(self) -> int:
        """Bytes that the server, its kernels and all that they started take, shared pages counted once."""
        total = 0
        for process in (psutil.Process(self.server.pid), *self.server.family()):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                memory = process.memory_full_info()
                total += getattr(memory, "pss", memory.rss)
        return total

    def kernels(self) -> list[psutil.Process]:
        """The kernel processes that now run."""
        found = []
        for process in self.server.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "ipykernel_launcher" in process.cmdline():
                    found.append(process)
        return found


@contextlib.contextmanager
def running_lab() -> Iterator[Lab]:
    """A JupyterLab server for as long as the context lasts; nothing is left of it afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="shardviz-lab-", ignore_cleanup_errors=True) as home,
        Lab(Path(home)).running() as lab,
    ):
        yield lab


class LabPage:
    """A browser's page on a JupyterLab server.

    Attributes:
        raw: playwright's page, for whatever is not here.
        lab: the server.
        errors: what went to the browser's console as an error, and exceptions that nobody caught.
    """

    def __init__(self, browser: Browser, lab: Lab, *, width: int = 1500, height: int = 1100):
        self.lab = lab
        self.errors: list[str] = []
        self.raw: Page = browser.new_page(viewport={"width": width, "height": height}, reduced_motion="reduce")
        self.raw.set_default_timeout(30_000)
        self.raw.on("console", self._on_console)
        self.raw.on("pageerror", self._on_error)

    def _on_error(self, error: Any) -> None:
        """JupyterLab's start removes its splash from the page twice when its parts are ready in another order: that one
        call in its own timer is no error of a notebook."""
        calls = [line for line in (error.stack or "").splitlines() if line.strip().startswith("at ")]
        if "removeChild" in error.message and len(calls) == 1 and "/static/lab/jlab_core" in calls[0]:
            return
        self.errors.append(f"uncaught: {error}")

    def open_notebook(self, name: str) -> None:
        """Opens a notebook of the server's folder and waits until its kernel is idle."""
        self.raw.goto(f"{self.lab.url}lab/tree/{name}?token={self.lab.token}&reset")
        self.notebook.wait_for()
        self.wait_idle()

    def run_all(self, seconds: float = 180) -> None:
        """Runs all cells, as the menu does, and waits until all of them have finished.

        Raises:
            AssertionError: if a cell raised that is not tagged `raises-exception`, or the time is over.
        """
        self._command("notebook:run-all-cells", seconds)
        errors = self.raw.evaluate(_ERRORS)
        assert not errors, "\n".join(errors)
        self.wait_finished(seconds)

    def run_cell(self, index: int, seconds: float = 60) -> None:
        """Runs one cell and waits until it has finished."""
        self.raw.evaluate(_SELECT, index)
        self._command("notebook:run-cell", seconds)
        self.wait_idle(seconds)

    def wait_idle(self, seconds: float = 60) -> None:
        """Waits until the kernel has nothing to do.

        Right after a click the kernel may not have heard of it yet and still be idle: wait for what the click brings
        about with playwright's `expect` instead.
        """
        self._wait(lambda: self.raw.evaluate(_KERNEL_STATUS) == "idle", seconds, "the kernel is not idle")

    def wait_finished(self, seconds: float = 60) -> None:
        """Waits until every code cell has run to its end and the kernel is idle."""

        def finished() -> bool:
            return not self.raw.evaluate(_NOT_FINISHED) and self.raw.evaluate(_KERNEL_STATUS) == "idle"

        self._wait(finished, seconds, "cells are still running")

    @property
    def notebook(self) -> Locator:
        """The notebook."""
        return self.raw.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook")

    def cell(self, index: int) -> Locator:
        """A cell, code or text, by its place from 0."""
        return self.notebook.locator(".jp-Cell").nth(index)

    def cell_output(self, index: int) -> Locator:
        """All that a cell has put out; its place counts all cells from 0."""
        return self.cell(index).locator(".jp-Cell-outputArea")

    def screenshot(self, name: str, of: Locator | None = None, *, height: int | None = None) -> Path:
        """Saves a picture to the artifacts folder.

        Args:
            name: the file's name without `.png`.
            of: what to take; the window where None.
            height: make the window this high, in pixels, for the picture: a long notebook then fits.

        Returns:
            The path of the picture.
        """
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        size = self.raw.viewport_size
        if height is not None and size is not None:
            self.raw.set_viewport_size({"width": size["width"], "height": height})
            self.raw.wait_for_timeout(300)  # Lumino lays out anew after a resize
        (of or self.raw).screenshot(path=path)
        if height is not None and size is not None:
            self.raw.set_viewport_size(size)
        return path

    def assert_no_errors(self) -> None:
        """Fails if the browser's console has errors."""
        assert not self.errors, "the browser's console has errors:\n" + "\n".join(self.errors)

    def close(self) -> None:
        """Ends the notebooks' kernels, then closes the page."""
        if self.raw.evaluate("() => Boolean(window.jupyterapp)"):
            self.raw.evaluate("() => window.jupyterapp.serviceManager.sessions.shutdownAll()")
        self.raw.close()

    def _on_console(self, message: Any) -> None:
        text = f"{message.text} [{message.location.get('url', '')}]"
        if message.type == "error" and not re.search("|".join(map(re.escape, _HARMLESS)), text):
            self.errors.append(text)

    def _command(self, name: str, seconds: float) -> None:
        """Runs one of JupyterLab's commands and waits until it says that it is done."""
        self.raw.evaluate(_START_COMMAND, name)
        self._wait(lambda: self.raw.evaluate("() => window.commandIsDone"), seconds, f"{name} has not come to its end")

    def _wait(self, ready: Any, seconds: float, trouble: str) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > deadline:
                log = "\n".join(self.lab.log.read_text(errors="replace").splitlines()[-20:])
                raise AssertionError(f"after {seconds:g} s {trouble}; the end of the server's log:\n{log}")
            self.raw.wait_for_timeout(50)
