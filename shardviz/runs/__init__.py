"""Whole scripts run dry: what they compile, move and keep, with nothing computed; and trees that change their mesh."""

from shardviz.runs.checkpoint import checkpoint as checkpoint
from shardviz.runs.dry import dry_run
from shardviz.runs.reshard import reshard as reshard
from shardviz.runs.run import Run, RunStep
from shardviz.runs.together import Together as Together
from shardviz.runs.together import together as together
