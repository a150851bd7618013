"""Whole scripts run dry: what they compile, move and keep, with nothing computed."""

from shardviz.runs.dry import dry_run
from shardviz.runs.run import Run, RunStep
