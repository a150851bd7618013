"""The environment of libtpu on a machine without a TPU, where only its compiler is used.

JAX makes libtpu look for a TPU when the first array is created. Without a TPU, libtpu prints its failures into the
notebook, unless the environment answers its questions first.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

ALONE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5p-8",
    "TPU_STDERR_LOG_LEVEL": "3",
}
"""No metadata server, no other workers, a machine of one host, few words."""
_GOOGLE = "0x1ae0"  # the vendor of TPUs among PCI devices, by which JAX finds them too


def keep_quiet() -> None:
    """Set the missing variables of `ALONE` in the environment, if libtpu is installed and there is no TPU."""
    if importlib.util.find_spec("libtpu") is None:
        return
    vendors = Path("/sys/bus/pci/devices").glob("*/vendor")
    if not any(vendor.read_text().strip() == _GOOGLE for vendor in vendors):
        for name, value in ALONE.items():
            os.environ.setdefault(name, value)
