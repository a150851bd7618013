"""What every test gets: a machine without accelerators, wherever it runs."""

import os

# Set before anything imports jax. A test that wants another platform starts a process of its own.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
