"""A compile job: a pure function from a picklable request to the compiler's texts.

It runs in a forked child of the compile server.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from shardviz import _jax, libtpu
from shardviz.processes import dumps
from shardviz.processes.dumps import LEVELS

REQUEST = "request"
"""The file in a job's folder with its pickled `Request` or `Trial`."""
ANSWER = "answer"
"""The file in a job's folder with the bytes that a `Trial` returned."""

MAX_CPU_DEVICES = 2048
"""The most devices of XLA's CPU client; with more it raises "Multiprocess computations aren't implemented"."""


TPU_ENVIRONMENT = {**libtpu.ALONE, "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
"""The environment of libtpu in a job: there is no TPU, and no lock file."""

# main memory only: a kernel that is too large for VMEM is an ordinary refusal
_NO_ROOM = re.compile(r"RESOURCE_EXHAUSTED.*(?:HbmOom|memory on HBM|memory space hbm)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Topology:
    """A machine to compile for, which need not be present, in its compiler's terms. `platform` is `tpu` or `gpu`.
    `name` is libtpu's name of a slice (`v5p:4x4x4`), or NVLink domains x hosts x GPUs (`2x1x8`). `device_ids` has the
    device at each position of the mesh. `details` are libtpu's further options, such as `num_slices`. `config` is XLA's
    description of the GPU."""

    platform: str
    name: str
    device_ids: tuple[int, ...]
    details: Mapping[str, Any] = field(default_factory=dict)
    config: str = ""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A program to compile: StableHLO bytecode with Shardy's shardings. `out_chosen` is, for each output, whether the
    compiler chooses its sharding. `until` is the last requested milestone (`partitioned` or `compiled`). `options` are
    further compiler options. `topology` is the machine, None for simulated CPU devices."""

    module: bytes
    devices: int
    out_chosen: tuple[bool, ...]
    until: str = "compiled"
    options: Mapping[str, Any] = field(default_factory=dict)
    topology: Topology | None = None

    @property
    def milestones(self) -> tuple[str, ...]:
        """The milestones up to the last requested one."""
        return LEVELS[: LEVELS.index(self.until) + 1]


@dataclass(frozen=True)
class Trial:
    """A function to run in its own process, which may crash: `module:name`, called with `data` and `arguments`. The
    function is named, not pickled, so that only the child imports it. It returns bytes, or None."""

    function: str
    data: bytes
    arguments: Mapping[str, Any] = field(default_factory=dict)

    milestones = ()

    def run(self) -> bytes | None:
        """Call the function in this process."""
        module, _, name = self.function.partition(":")
        return getattr(importlib.import_module(module), name)(self.data, **self.arguments)


def compile_in(folder: Path, request: Request) -> None:
    """Compile with XLA's dumps in `folder / "dumps"`; return or raise when the compiler does."""
    target = folder / "dumps"
    target.mkdir(exist_ok=True)
    options = {"xla_dump_to": str(target), "xla_dump_hlo_pass_re": dumps.PARTITIONER, **request.options}
    at = request.topology
    if at is None:
        _jax.compile_for_cpu(request.module, request.devices, request.out_chosen, options)
        return
    for_tpu = {**TPU_ENVIRONMENT, "TPU_LOG_DIR": str(folder)}  # libtpu's log files are removed with the folder
    with mock.patch.dict(os.environ, {"JAX_PLATFORMS": "cpu"} | (for_tpu if at.platform == "tpu" else {})):
        try:
            _compile_for(at, request, options)
        except Exception as error:  # a program that does not fit is an answer
            if not _NO_ROOM.search(str(error)) or not dumps.complete(target, "compiled", request.devices, ended=True):
                raise
            (target / dumps.NO_ROOM).write_text(str(error), errors="replace")


def _compile_for(at: Topology, request: Request, options: dict[str, Any]) -> Any:
    # On GPUs, XLA would use Triton kernels for all-reduces, in which the report could not see them. Disable these.
    machine = at.device_ids, request.out_chosen
    if at.platform == "tpu":
        return _jax.compile_only(request.module, "tpu", {"topology_name": at.name, **at.details}, *machine, options)
    names = {"topology": at.name, "target_config": at.config}
    plain = {"xla_gpu_experimental_use_collective_kernels": ""}
    try:
        return _jax.compile_only(request.module, "cuda", names, *machine, plain | options)
    except Exception as error:
        if "No such compile option" not in str(error):
            raise
        return _jax.compile_only(request.module, "cuda", names, *machine, options)  # JAX 0.10 lacks the option


def refusal(folder: Path, request: Request | Trial) -> str | None:
    """Run a job; return the compiler's error as text, or None."""
    try:
        if isinstance(request, Trial):
            if (answer := request.run()) is not None:
                (folder / ANSWER).write_bytes(answer)
        else:
            compile_in(folder, request)
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises is the job's answer
        return f"{type(error).__name__}: {error}"
    return None
