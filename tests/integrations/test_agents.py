"""The page and the skill file for coding agents: what they name exists, and the client's configuration starts the server."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from nccl_triage import resources
from nccl_triage.cli import COMMANDS
from tests.cli.processes import environment
from tests.event_loops import run_apart

from .conftest import EXAMPLES
from .pages import block

SKILL = EXAMPLES / "agents" / "SKILL.md"


def front_matter() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(SKILL.read_text(encoding="utf-8").split("---\n")[1])
    return found


def test_an_agent_finds_the_skill_by_its_front_matter() -> None:
    found = front_matter()
    assert re.fullmatch("[a-z0-9-]{1,64}", found["name"])
    assert "Use when" in found["description"] and len(found["description"]) <= 1024


def test_every_key_of_the_skill_is_in_the_schema() -> None:
    schema = json.loads((resources.reports_dir() / "schema" / "report.schema.json").read_bytes())
    table = SKILL.read_text(encoding="utf-8").partition("## How to read the JSON")[2].partition("\n## ")[0]
    names = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    keys = [key for name in names for key in re.findall(r"`([\w.\[\]]+)`", name)]
    assert len(keys) > 10
    for key in keys:
        where: Any = schema
        for part in key.split("."):
            where = resolved(where, schema)["properties"][part.removesuffix("[]")]
            if part.endswith("[]"):
                where = resolved(where, schema)["items"]


def resolved(where: Any, schema: Any) -> Any:
    if "$ref" in where:
        return resolved(schema["$defs"][where["$ref"].rpartition("/")[2]], schema)
    options = [one for one in where.get("anyOf", where.get("oneOf", [])) if one != {"type": "null"}]
    return resolved(options[0], schema) if options else where


@pytest.mark.parametrize("page", [SKILL, EXAMPLES / "agents.md"], ids=lambda page: page.name)
def test_every_command_exists(page: Path) -> None:
    named = set(re.findall(r"nccl-triage ([a-z]+)\b", " ".join(re.findall(r"`([^`]+)`", page.read_text("utf-8")))))
    assert named <= set(COMMANDS)


def test_the_configuration_of_a_client_starts_the_server(tmp_path: Path) -> None:
    from mcp import Client, StdioServerParameters  # seconds, also for those who only collect the tests

    entry = json.loads(block("agents.md", "mcpServers", "json"))["mcpServers"]["nccl-triage"]
    assert entry["command"] == "nccl-triage"
    words = [word.replace("/shared/logs", str(tmp_path)) for word in entry["args"]]
    server = StdioServerParameters(command=sys.executable, args=["-m", "nccl_triage", *words], env=environment())

    async def names() -> set[str]:
        async with Client(server, read_timeout_seconds=60) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    page = (EXAMPLES / "agents.md").read_text(encoding="utf-8")
    assert run_apart(names) == set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
