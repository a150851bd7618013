"""Programs that were really compiled, on eight simulated devices, with what JAX and jaxlib say about them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shardviz.caching import cached_property
from shardviz.compiler import Module, collectives, parse
from shardviz.notation import DeviceMesh
from shardviz.records import Collective
from tests.truth import filled_once


@dataclass(frozen=True)
class Compiled:
    """One compiled program: its modules at each stage, and others' facts about it."""

    name: str
    facts: dict[str, Any]

    @cached_property
    def mesh(self) -> DeviceMesh:
        return DeviceMesh.of(self.facts["mesh"])

    def text(self, stage: str) -> str:
        return Path(self.facts["walked"][stage]["file"]).read_text()

    @cached_property
    def before(self) -> Module:
        return parse(self.text("before"))

    @cached_property
    def after(self) -> Module:
        return parse(self.text("after"))

    @cached_property
    def optimized(self) -> Module:
        return parse(self.text("optimized"))

    @cached_property
    def collectives(self) -> Iterable[Collective]:
        """The partitioner's."""
        return collectives(self.after, self.mesh, self.before)


NAMES = (
    "mlp_float32", "mlp_bfloat16", "mlp_1x8", "llama", "shard_map", "shard_map_grad", "partly_manual", "while_dynamic",
    "while_down", "cond", "nested", "reverse_unrolled", "uneven", "three_axes", "permuted", "resharded", "convolution",
)  # fmt: skip


@pytest.fixture(scope="session")
def all_compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Compiled]:
    folder = filled_once(tmp_path_factory, Path(__file__).with_name("programs.py"))
    facts = json.loads((folder / "facts.json").read_text())
    assert set(facts) == set(NAMES)
    return {name: Compiled(name, fact) for name, fact in facts.items()}


@pytest.fixture(params=NAMES)
def compiled(request: pytest.FixtureRequest, all_compiled: dict[str, Compiled]) -> Compiled:
    return all_compiled[request.param]


@pytest.fixture(params=("before", "after", "optimized"))
def stage(request: pytest.FixtureRequest) -> str:
    return request.param
