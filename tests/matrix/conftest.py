"""Raw JAX's answers, made once a session in a process of their own."""

from pathlib import Path

import pytest

from tests.truth import answers_of


@pytest.fixture(scope="session")
def raw(tmp_path_factory):
    """The folder that `raw.py` has filled."""
    folder = tmp_path_factory.mktemp("raw")
    script = Path(__file__).with_name("raw.py")
    answers_of(script, folder)
    return folder
