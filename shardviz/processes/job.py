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

from shardviz import _jax
from shardviz.processes import dumps
from shardviz.processes.dumps import LEVELS

REQUEST = "request"
"""The file in a job's folder that has its `Request` or `Trial`, pickled."""

MAX_CPU_DEVICES = 2048
"""XLA's CPU client takes no more; beyond it says "Multiprocess computations aren't implemented"."""


# What libtpu wants to know where there is no TPU: no metadata server, no other workers, no lock file, few words.
TPU_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5p-8",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_STDERR_LOG_LEVEL": "3",
}

# main memory only: a kernel too large for VMEM is a refusal like any other
_NO_ROOM = re.compile(r"RESOURCE_EXHAUSTED.*(?:HbmOom|memory on HBM|memory space hbm)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Topology:
    """A machine to compile for that need not be there, in its compiler's own words: the `platform` (`tpu` or `gpu`);
    libtpu's name of a slice (`v5p:4x4x4`), or NVLink domains x hosts x GPUs (`2x1x8`); the id of the device at each
    place of the mesh; libtpu's further words, such as `num_slices`; and XLA's description of the GPU."""

    platform: str
    name: str
    device_ids: tuple[int, ...]
    details: Mapping[str, Any] = field(default_factory=dict)
    config: str = ""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to compile: StableHLO bytecode with Shardy's shardings, for so many devices; for each output, whether its
    sharding is the compiler's choice; the milestone after which nothing more is wanted (`partitioned` or `compiled`);
    further compiler options; and the machine, None for simulated CPU devices."""

    module: bytes
    devices: int
    out_chosen: tuple[bool, ...]
    until: str = "compiled"
    options: Mapping[str, Any] = field(default_factory=dict)
    topology: Topology | None = None

    @property
    def milestones(self) -> tuple[str, ...]:
        """The milestones up to the last that is wanted."""
        return LEVELS[: LEVELS.index(self.until) + 1]


@dataclass(frozen=True)
class Trial:
    """Something to try in a process of its own, which may die of it: `module:name` of a function (named, not pickled:
    only the child imports it), called with `data` and picklable keyword arguments; what it returns is dropped."""

    function: str
    data: bytes
    arguments: Mapping[str, Any] = field(default_factory=dict)

    milestones = ()

    def run(self) -> None:
        """Calls the function here."""
        module, _, name = self.function.partition(":")
        getattr(importlib.import_module(module), name)(self.data, **self.arguments)


def compile_in(folder: Path, request: Request) -> None:
    """Compiles, with XLA's dumps going to `folder / "dumps"`; returns, or raises, when the compiler does."""
    target = folder / "dumps"
    target.mkdir(exist_ok=True)
    options = {"xla_dump_to": str(target), "xla_dump_hlo_pass_re": dumps.PARTITIONER, **request.options}
    at = request.topology
    if at is None:
        _jax.compile_for_cpu(request.module, request.devices, request.out_chosen, options)
        return
    for_tpu = {**TPU_ENVIRONMENT, "TPU_LOG_DIR": str(folder)}  # libtpu has log files; they go with the folder
    with mock.patch.dict(os.environ, {"JAX_PLATFORMS": "cpu"} | (for_tpu if at.platform == "tpu" else {})):
        try:
            _compile_for(at, request, options)
        except Exception as error:  # that a program does not fit is an answer
            if not _NO_ROOM.search(str(error)) or not dumps.complete(target, "compiled", request.devices, ended=True):
                raise
            (target / dumps.NO_ROOM).write_text(str(error), errors="replace")


def _compile_for(at: Topology, request: Request, options: dict[str, Any]) -> Any:
    """For GPUs without Triton's kernels for all-reduces, in which they could not be seen, where XLA would use them."""
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
        return _jax.compile_only(request.module, "cuda", names, *machine, options)  # JAX 0.10's has none


def refusal(folder: Path, request: Request | Trial) -> str | None:
    """Does a job, and gives what the compiler raised, as text, or None."""
    try:
        if isinstance(request, Trial):
            request.run()
        else:
            compile_in(folder, request)
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises is the job's answer
        return f"{type(error).__name__}: {error}"
    return None
