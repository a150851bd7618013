"""What JAX itself says about thousands of random shardings, asked once a run, on simulated devices."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardviz.notation import DeviceMesh, Spec
from tests.truth import filled_once


@dataclass(frozen=True)
class Answers:
    """Cases, and JAX's answers end to end."""

    cases: dict[str, list[dict[str, Any]]]
    bounds: np.ndarray
    replicas: np.ndarray
    tiles: np.ndarray
    counts: np.ndarray
    assigned: np.ndarray


def given(case: dict[str, Any]) -> tuple[tuple[int, ...], Spec, DeviceMesh]:
    """A case's shape, spec and mesh as `layout` takes them."""
    mesh = DeviceMesh(tuple(case["names"]), tuple(case["sizes"]), (), tuple(case["devices"]))
    return tuple(case["shape"]), Spec(tuple(tuple(dim) for dim in case["dims"])), mesh


@pytest.fixture(scope="session")
def jax_answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    folder = filled_once(tmp_path_factory, Path(__file__).with_name("jax_answers.py"))
    with np.load(folder / "answers.npz") as arrays:
        return Answers(json.loads((folder / "cases.json").read_text()), **{name: arrays[name] for name in arrays.files})
