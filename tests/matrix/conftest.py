"""Raw JAX's answers, made once a session in a process of their own."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def raw(tmp_path_factory):
    """The folder that `raw.py` has filled."""
    folder = tmp_path_factory.mktemp("raw")
    script = Path(__file__).with_name("raw.py")
    done = subprocess.run([sys.executable, str(script), str(folder)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder
