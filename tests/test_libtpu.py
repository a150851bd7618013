"""Where libtpu is installed for its compiler alone, it prints nothing when the first array is made."""

import os
import subprocess
import sys

import pytest

FIRST_ARRAY = "import jax.numpy as jnp; print(jnp.ones(8).sum())"


def printed(code):
    """What a process prints that may look for any accelerator."""
    env = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS" and "TPU" not in name}
    env["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # else it looks for none while another process does
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert "8.0" in done.stdout, done.stderr
    return done.stdout + done.stderr


@pytest.mark.tpu
def test_libtpu_prints_nothing_into_a_notebook_that_imports_shardviz():
    assert "TPU" not in printed(f"import shardviz; {FIRST_ARRAY}")
