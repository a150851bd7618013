"""Raw JAX's answers, made once a run in a process of their own."""

from pathlib import Path

import pytest

from tests.truth import filled_once


@pytest.fixture(scope="session")
def raw(tmp_path_factory):
    """The folder that `raw.py` has filled."""
    return filled_once(tmp_path_factory, Path(__file__).with_name("raw.py"))
