"""`shardviz skill`: a guide from which a coding agent uses shardviz on a repository that it does not know."""

from __future__ import annotations

from importlib.resources import files

from shardviz.cli.frame import Answer, verb


@verb("skill", examples="shardviz skill > .claude/skills/shardviz/SKILL.md")
def skill() -> Answer:
    """Print a guide to these verbs for coding agents."""
    from shardviz.cli.schemas import SkillData

    return Answer(guide().rstrip(), record=SkillData(text=guide()))


def guide() -> str:
    """The guide, in Markdown."""
    return files("shardviz.cli").joinpath("skill.md").read_text(encoding="utf-8")
