"""What every test gets: a machine without accelerators, wherever it runs; and what the marks of extras mean."""

import importlib.util
import os

import pytest

# Set before anything imports jax. A test that wants another platform starts a process of its own.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

COMPILERS = {"tpu": "tpu", "cuda": "gpu"}
"""Mark, which is also the name of shardviz's extra → the kind of target whose compiler the test needs."""


PACKAGES = {"dask": "distributed"}
"""Mark, which is also the name of shardviz's extra → the package that the test needs."""


def pytest_collection_modifyitems(items):
    """Skips what needs something that is not installed; with SHARDVIZ_EXTRAS=tpu,cuda,dask its absence is an error.

    What is measured is measured up to three times, since a machine may do something else meanwhile: what became slower
    fails all three. So is a wait in the browser tried twice that came to no end.
    """
    for item in items:
        place = item.nodeid.split("/")[1:2]
        if place == ["benchmarks"]:
            item.add_marker(pytest.mark.flaky(reruns=2))
        elif place in (["browser"], ["hosts"], ["widgets"]):
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=["TimeoutError", "Locator expected"]))
    wanted = set(filter(None, os.environ.get("SHARDVIZ_EXTRAS", "").split(",")))
    marked = {mark: [i for i in items if i.get_closest_marker(mark)] for mark in (*COMPILERS, *PACKAGES)}
    if not wanted and not any(marked.values()):
        return
    from shardviz.compiler.targets import targets

    status = {s.name: s for s in targets()}
    for mark, tests in marked.items():
        if mark in PACKAGES:
            missing = importlib.util.find_spec(PACKAGES[mark]) is None
            why = f"{PACKAGES[mark]} is not installed: pip install 'shardviz[{mark}]'" if missing else ""
        else:
            found = status[COMPILERS[mark]]
            why = "" if found.ready else f"{found.missing}: {found.install}"
        if not why:
            continue
        if mark in wanted:
            raise pytest.UsageError(f"SHARDVIZ_EXTRAS asks for {mark}: {why}")
        for test in tests:
            test.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(autouse=True)
def no_callback_fails_unseen(caplog):
    """What fails in an event loop's callback is only logged by asyncio: here it fails the test."""
    yield
    failed = [r for phase in ("setup", "call") for r in caplog.get_records(phase) if r.name == "asyncio"]
    assert not failed, "\n".join(
        r.getMessage() + (f"\n{r.exc_text or r.exc_info}" if r.exc_info else "") for r in failed
    )
