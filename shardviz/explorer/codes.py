"""A plan as what can be run or applied: Python for JAX alone, a diff of the person's source, and the `sv.Plan` itself.

>>> Codes(plan="plan = sv.Plan(...)", why="a part of an axis").parts
(('as an sv.Plan', 'plan = sv.Plan(...)'),)
"""

from __future__ import annotations

from dataclasses import dataclass

from shardviz.ask.program import Program
from shardviz.errors import ShardvizError
from shardviz.program.plan import Plan


@dataclass(frozen=True)
class Codes:
    """A plan in each of these forms.

    Attributes:
        plan: the Python that rebuilds the `sv.Plan`.
        jax: the Python that runs it with JAX alone; empty where `why` says why there is none.
        diff: its constraints as a diff of the person's own source; empty where it has none.
        why: why JAX alone cannot be told it.
    """

    plan: str
    jax: str = ""
    diff: str = ""
    why: str = ""

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """What there is, what of it comes first, in words and as text."""
        all_of_it = (
            ("for JAX alone", self.jax),
            ("its constraints in your source", self.diff),
            ("as an sv.Plan", self.plan),
        )
        return tuple((words, text) for words, text in all_of_it if text)


def codes_of(program: Program, plan: Plan) -> Codes:
    """A program's plan in each form."""
    own = program.plan_code(plan)
    try:
        return Codes(own, program.code(plan), program.source_diff(plan))
    except ShardvizError as error:
        return Codes(own, why=str(error))
