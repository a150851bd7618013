"""The JSON of the verbs: structs for what has no JSON of its own in the API, and the JSON Schema of each verb."""

from __future__ import annotations

import msgspec

from shardviz.compiler.targets import TargetStatus


class TargetsAnswer(msgspec.Struct, kw_only=True):
    """`shardviz targets --json`."""

    shardviz_targets: int = 1
    targets: tuple[TargetStatus, ...]


class DoctorAnswer(msgspec.Struct, kw_only=True):
    """`shardviz doctor --json`: whether the basics work, and what `shardviz doctor` prints."""

    shardviz_doctor: int = 1
    works: bool
    text: str
