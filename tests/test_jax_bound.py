"""The upper bound of JAX: it covers what the tests run with, and moves up only."""

import importlib.metadata

import pytest

from tests.scripts import loaded

jax_bound = loaded(".ci/jax_bound.py")


def project(bound):
    return f'dependencies = [\n    "jax>=0.10.2,<{bound}", # why\n    "jaxlib>=0.10.2",\n]\n'


def test_it_covers_the_jax_that_is_here():
    found = jax_bound.numbers(importlib.metadata.version("jax"))
    assert found < jax_bound.numbers(jax_bound.bound_of(jax_bound.PROJECT.read_text()))


@pytest.mark.parametrize(
    "bound, passed, new",
    [
        ("0.13", "0.13.0", "0.14"),
        ("0.13", "0.13.2.1", "0.14"),
        ("0.13", "0.15.1", "0.16"),
        ("0.13", "0.12.0.1", "0.13"),
        ("0.13", "0.10.2", "0.13"),
        ("0.9", "0.10.0", "0.11"),
        ("0.99", "1.0.0", "1.1"),
        ("1.10", "1.9.3", "1.10"),
    ],
)
def test_it_moves_to_the_minor_release_after_the_one_that_passed_and_never_down(bound, passed, new):
    moved = jax_bound.moved(project(bound), passed)
    assert moved == project(new) and jax_bound.numbers(passed) < jax_bound.numbers(jax_bound.bound_of(moved))
    assert jax_bound.moved(moved, passed) == moved
