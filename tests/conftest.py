"""What every test gets: a machine without accelerators, wherever it runs; and what the marks of extras mean."""

import gc
import importlib.util
import os
import shutil
import signal
from pathlib import Path

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

# A trace makes some hundred thousand objects that stay: by default the garbage collector takes a third of the time.
gc.set_threshold(50_000, 50, 20)

# Set before anything imports jax. A test that wants another platform starts a process of its own.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# A shell has what it puts into the background ignore Ctrl-C; some tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test is timed: how long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("untimed", hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("untimed")

MOST_PROCESSES = 8
"""Each takes up to 2 GB with what it compiles."""

COMPILERS = {"tpu": "tpu", "cuda": "gpu"}
"""Mark, which is also the name of shardviz's extra → the kind of target whose compiler the test needs."""

IN_ONE_PROCESS = ("tests/browser/", "tests/hosts/")
"""Where the tests are that share a server and a browser."""

LONGEST = ("tests/docs/test_demo.py", "tests/study/test_bad_plans.py", "tests/study/test_fixes.py")
"""Files that take minutes: they begin early, or one would still run when all others are done."""

ONCE = ("cli", "costs", "diagnose", "explorer", "judge", "layouts", "notation")
ONCE += ("page", "paint", "records", "ship", "study", "view")
"""Folders of tests that ask little of JAX, so that what one end of JAX showed, the other need not show with every
parameter: where SHARDVIZ_AGAIN is set, each test runs with one. So does what compiles for TPUs and GPUs."""

PACKAGES = {
    "dask": ("distributed", "'shardviz[dask]'"),
    "docs": ("mkdocs", "'shardviz[docs]'"),
    "maxtext": ("maxtext", "--no-deps maxtext aqtp qwix omegaconf antlr4-python3-runtime ml_collections"),
    "mcp": ("mcp", "'shardviz[mcp]'"),
    "tunix": ("tunix", "--no-deps google-tunix"),  # the weight sync alone needs none of its many packages
}
"""Mark → the package that the test needs, and how pip installs it."""


def pytest_xdist_auto_num_workers(config):
    """A process more than there are cores, two more where no browser waits for its page; but one for what is measured,
    and where files are named."""
    paths = [Path(text.partition("::")[0]) for text in config.args]
    if any("benchmarks" in path.parts for path in paths) or all(path.is_file() for path in paths):
        return 0
    more = 2 if os.environ.get("SHARDVIZ_AGAIN") else 1  # each waits for compile servers half of its time
    return min((os.cpu_count() or 1) + more, MOST_PROCESSES)


class ByFile(LoadFileScheduling):
    """Shares out files; but what drives JupyterLab and its like goes to one process: one server, one browser."""

    def _split_scope(self, nodeid):
        return "hosts" if nodeid.startswith(IN_ONE_PROCESS) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config, log):
    """Who gets which tests."""
    return ByFile(config, log) if config.option.dist == "loadfile" else None


def leave_out_repeated(config, items):
    """Deselects the tests of the folders in `ONCE`, and those for compilers, but for one parameter of each; and not
    those with marks whose tests have not been run before.
    """
    new, compilers = {"long", *PACKAGES}, set(COMPILERS)
    seen, repeated = set(), []
    for item in items:
        test, folder = item.nodeid.partition("[")[0], "".join(item.nodeid.split("/")[1:2])
        marks = {mark.name for mark in item.iter_markers()}
        if (folder in ONCE or compilers & marks) and not new & marks:
            if test in seen:
                repeated.append(item)
            seen.add(test)
    config.hook.pytest_deselected(items=repeated)
    gone = set(repeated)
    items[:] = [item for item in items if item not in gone]


def pytest_collection_modifyitems(config, items):
    """Skips what needs something that is not installed; what SHARDVIZ_EXTRAS=tpu,mcp names must be there.

    What one process has to do alone comes first, as do the longest files: begun in the middle, they would still run
    when the others are done.

    What is measured is measured up to three times, since a machine may do something else meanwhile: what became slower
    fails all three. So is a wait in the browser tried twice that came to no end.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(IN_ONE_PROCESS + LONGEST))
    if os.environ.get("SHARDVIZ_AGAIN"):
        leave_out_repeated(config, items)
    for item in items:
        place = item.nodeid.split("/")[1:2]
        if place == ["benchmarks"]:
            item.add_marker(pytest.mark.flaky(reruns=2))
        elif place in (["browser"], ["hosts"], ["page"]):
            item.add_marker(
                pytest.mark.flaky(reruns=1, only_rerun=["TimeoutError", "Locator expected", "has not come to its end"])
            )
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
        elif item.nodeid.startswith("notebooks/"):
            item.add_marker(pytest.mark.notebooks)
    wanted = set(filter(None, os.environ.get("SHARDVIZ_EXTRAS", "").split(",")))
    marked = {mark: [i for i in items if i.get_closest_marker(mark)] for mark in (*COMPILERS, *PACKAGES)}
    if not wanted and not any(marked.values()):
        return
    from shardviz.compiler.targets import targets

    status = {s.name: s for s in targets()}
    for mark, tests in marked.items():
        if mark in PACKAGES:
            package, install = PACKAGES[mark]
            missing = importlib.util.find_spec(package) is None
            why = f"{package} is not installed: pip install {install}" if missing else ""
        else:
            found = status[COMPILERS[mark]]
            why = "" if found.ready else f"{found.missing}: {found.install}"
        if not why:
            continue
        if mark in wanted:
            raise pytest.UsageError(f"SHARDVIZ_EXTRAS asks for {mark}: {why}")
        for test in tests:
            test.add_marker(pytest.mark.skip(reason=why))


def pytest_collection_finish():
    """What was loaded stays: the garbage collector need not go through it again."""
    gc.freeze()


@pytest.fixture(autouse=True)
def no_callback_fails_unseen(caplog):
    """What fails in an event loop's callback is only logged by asyncio: here it fails the test."""
    yield
    failed = [r for phase in ("setup", "call") for r in caplog.get_records(phase) if r.name == "asyncio"]
    assert not failed, "\n".join(
        r.getMessage() + (f"\n{r.exc_text or r.exc_info}" if r.exc_info else "") for r in failed
    )


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium, for a module's tests: playwright keeps an event loop running in this process."""
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("no playwright: pip install 'shardviz[test]'")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium: install your system's (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    from tests.browser.harness import CHROMIUM_FLAGS

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, headless=True, args=list(CHROMIUM_FLAGS))
        yield browser
        browser.close()
