"""What every test gets: a machine without accelerators, wherever it runs; and what the marks `tpu` and `cuda` mean."""

import os

import pytest

# Set before anything imports jax. A test that wants another platform starts a process of its own.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

COMPILERS = {"tpu": "tpu", "cuda": "gpu"}
"""Mark, which is also the name of shardviz's extra → the kind of target whose compiler the test needs."""


def pytest_collection_modifyitems(items):
    """Skips what needs a compiler that is not installed; with SHARDVIZ_EXTRAS=tpu,cuda its absence is an error."""
    wanted = set(filter(None, os.environ.get("SHARDVIZ_EXTRAS", "").split(",")))
    marked = {mark: [item for item in items if item.get_closest_marker(mark)] for mark in COMPILERS}
    if not wanted and not any(marked.values()):
        return
    from shardviz.compiler.targets import targets

    status = {s.name: s for s in targets()}
    for mark, tests in marked.items():
        found = status[COMPILERS[mark]]
        if found.ready:
            continue
        why = f"{found.missing}: {found.install}"
        if mark in wanted:
            raise pytest.UsageError(f"SHARDVIZ_EXTRAS asks for {mark}: {why}")
        for test in tests:
            test.add_marker(pytest.mark.skip(reason=why))
