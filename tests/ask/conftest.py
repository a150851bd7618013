"""The ground truth, made once by raw JAX in a process of its own."""

import json
from pathlib import Path

import pytest

from tests.truth import filled_once


class Truth:
    """What raw JAX and XLA say about a gallery program on a mesh."""

    def __init__(self, folder: Path):
        self.folder = folder

    def facts(self, key: str) -> dict:
        return json.loads((self.folder / f"{key}.json").read_text())

    def text(self, key: str, stage: str) -> str:
        return (self.folder / f"{key}.{stage}.txt").read_text()


@pytest.fixture(scope="session")
def truth(tmp_path_factory):
    return Truth(filled_once(tmp_path_factory, Path(__file__).with_name("ground_truth.py")))
