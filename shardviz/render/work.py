"""Words of a step's work, for the figures that are not Pictures yet."""

from shardviz.view.work import PHASES, phase_words

__all__ = ["PHASES", "phase_words"]
