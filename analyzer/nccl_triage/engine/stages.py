"""Read the stages of a cause: what to do at once, soon and for good."""

from __future__ import annotations

from nccl_triage.engine.nodes import Node
from nccl_triage.engine.schema import LANGUAGES, Step
from nccl_triage.errors import RuleError

#: Within five minutes, within a quarter of an hour, for good.
STAGES = ("now", "soon", "lasting")
URGENCIES = ("high", "medium", "low")


def _step(node: Node) -> Step:
    part = node.keys((), ("what", "command", "urgency", "use"))
    if ("what" in part) == ("use" in part):
        raise RuleError("a step needs 'what' or 'use', and not both", where=node.where)
    texts = part["what"].keys(LANGUAGES) if "what" in part else None
    return Step(
        what={language: texts[language].text() for language in LANGUAGES} if texts is not None else None,
        command=part["command"].text() if "command" in part else None,
        urgency=part["urgency"].choice(URGENCIES) if "urgency" in part else None,
        use=part["use"].text() if "use" in part else None,
    )


def read(node: Node) -> dict[str, tuple[Step, ...]]:
    """Return stage -> steps; raises RuleError with file:line."""
    part = node.keys(STAGES)
    return {stage: tuple(_step(item) for item in part[stage].items()) for stage in STAGES}
