"""The decision table: what is worth a finding, which changes are tried, and which of them are offered.

Shares are of the arguments' bytes, the bytes moved or the step, as the rule says.
"""

# Findings.
TINY = 1e-3
"""Below this share, communication is no finding."""
SLIGHT = 0.01
"""Below this share, memory is no finding."""
NOTABLE = 0.02
"""From this share of the step on, a copy is a warning."""
GRAVE = 0.05
"""From this share on, a finding is a warning."""
LARGE = 0.1
"""From this share on, kept activations, padding and repeated products are findings."""
HELPS = 0.02
"""A change that frees a smaller share of the bytes that are too much is not listed where the program does not fit."""
REPEATED = 0.5
"""From this share of all FLOPs on, repeated products are a finding at level `propagated`."""
SUMMED = 2
"""A product is gathered rather than summed if that moves less; an all-reduce moves its result this many times."""
CUT = 3
"""How many of the largest arguments are suggested to be sharded along an axis whose devices repeat each other."""
LARGEST = 0.5
"""An argument that takes more than this share of a program's memory is named where the program does not fit."""
SMALL_BYTES = 2**20
"""Arrays of fewer bytes per device are no finding."""

# Changes to try.
FINDINGS = 5
"""Number of findings whose suggestions are tried."""
COSTLY_AXES = 3
"""How many mesh axes are considered: those with the most bytes moved."""
HELD = 2
"""Maximum number of values inside the function to constrain."""
OWN_CONSTRAINTS = 4
"""Maximum number of the function's own constraints to change, most bytes moved first; if it has no more, all."""
PAIRS = 12
"""How many changes are tried with the function's own constraints dropped, where no single change helps."""
FIGHTS = 0.05
"""Of more constraints, one is considered if its line moves at least this share of all bytes."""

# Changes to confirm.
CONFIRMED, CONFIRMED_ELSE = 2, 3
"""How many changes go through the partitioner: per finding, and per other kind of change."""
EARLY = 2
"""How many changes against the gravest findings are tried before others are proposed; and how many changes that save
more than `LARGE` of the step the partitioner is asked about before all are tried."""
UNFORESEEN = 0.1
"""The partitioner is asked about what propagation cannot foresee if the predicted step grows by less than this share.
"""
COMPILED = 3
"""How many of the first fixes the target's compiler confirms, where it is installed."""

# Changes to offer.
WORTH = 0.005
"""A change that saves a smaller share of the cost is not offered."""
LESS = 0.02
"""A finding counts as improved if its cost falls by at least this share."""
FREED = 0.5
"""A fix that saves only memory must free at least this share of the bytes that the finding reports."""
EQUAL = 1e-6
"""Relative differences up to this one are rounding errors."""
