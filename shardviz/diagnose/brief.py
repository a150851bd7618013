"""A finding in at most twelve words, for a row beside its cost, its line and its fix.

>>> from shardviz.records import Finding
>>> brief(Finding("table-gathered:embed", "warning", "A lookup gathers ...", value="embed", axes=("data",)))
"A lookup gathers the whole table embed over 'data'"
"""

from __future__ import annotations

import re

from shardviz.diagnose.case import quoted_axes
from shardviz.records import Finding

BRIEFS = {
    "idle-axis": "Nothing is sharded along {axes}; devices repeat the same work",
    "slow-order": "This device order sends most of the traffic over slow links",
    "involuntary-rematerialisation": "XLA gathers a whole array on every device as last resort",
    "comes-back-otherwise": "{value} comes back with another sharding, so the step compiles twice",
    "result-gathered": "{value} is computed sharded, but the plan asks for it gathered",
    "not-donated": "{value} could be donated; its new value takes new memory",
    "donation-copied": "A loop computes the new {value} elsewhere, then copies it",
    "laid-otherwise": "A TPU copies {value} at each call, to read its rows",
    "kept-whole": "Activations kept for the backward pass are replicated along {axes}",
    "padded": "A dimension does not divide by its axes, so devices hold padding",
    "kept-dominates": "Activations kept for the backward pass take most of the memory",
    "gathered-each-run": "Each run of a loop gathers {value}, which stays the same",
    "stack-gathered": "A whole stack is gathered, though a loop reads single slices",
    "summed-each-run": "Each run of a loop adds partial sums over {axes}",
    "operands-unlike": "{value} is sharded unlike an array that it is combined with",
    "halo": "A convolution runs along a sharded dimension and exchanges borders",
    "there-and-back": "An array is resharded and back again, unused in between",
    "along-shards": "An operation runs along a dimension that {axes} shards",
    "table-gathered": "A lookup gathers the whole table {value} over {axes}",
    "gathered-wide": "An array is communicated in a wider type than it needs",
    "sum-sliced": "A psum gives each device the whole sum; it keeps a slice",
    "gathered-then-sliced": "An all_gather gives each device everything; it keeps a slice",
    "gathered-then-summed": "An all_gather collects all arrays only to add them",
    "repeated-work": "The devices along {axes} repeat the same matrix products",
    "conflict": "The operands of a product are sharded along different axes",
    "partial-sums": "A product sums over a dimension that only its weight shards",
    "unpaired": "The two operands of a product are both sharded by columns",
    "large-constant": "The function closes over large arrays, replicated on each device",
    "less-sharded": "{values} replicated along {axes}, unlike others",
    "unlike-parameter": "{values} sharded unlike the parameters",
    "read-in-slices": "{values} replicated; each device reads only a slice",
    "steps-along": "A loop steps along a dimension that {axes} shards",
    "not-divided": "No dimension of {value} divides by {axes}",
}
"""Rule → what its findings say; `values` counts the further arrays, and has their verb."""


def brief(finding: Finding) -> str:
    """Return a finding's cause in at most twelve words; or the beginning of its text if the rule has no such words."""
    if finding.rule not in BRIEFS:
        return re.split(r"(?<=[.;]) ", finding.text, maxsplit=1)[0]
    more, value = round(finding.numbers.get("arrays", 1.0)) - 1, finding.value or "an array"
    values = f"{value} and {more} more are" if more > 0 else f"{value} is"
    return BRIEFS[finding.rule].format(axes=quoted_axes(finding.axes), value=value, values=values)
