"""Findings and verdicts on what the probe told in real worlds: each cause is confirmed by its own findings only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from corpus.verifier.route_worlds import FIREWALL, LINK, ROUTE, WORLDS
from nccl_triage.engine.schema import RuleSet
from nccl_triage.verify.collective_run import RunFinding
from nccl_triage.verify.judge import ExperimentOutcome
from nccl_triage.verify.network_findings import interface_findings, path_findings
from nccl_triage.verify.reachability import Path as Way
from nccl_triage.verify.reachability import ReachabilityMatrix
from tests.verify.simulated import Behaviour, Script, Started, World, always, healthy
from tests.verify.test_conduct import across, conduct, unless

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "recorded_paths.json").read_text(encoding="utf-8"))
#: What old probes did not tell.
_SAID_BY = "said_by"


def way_of(told: dict[str, Any]) -> Way:
    numbers = {name: told[name] for name in ("error", "answer_lost", _SAID_BY) if name in told}
    ends = told["from"], told["to"], told["to_interface"], told["address"]
    return Way(*ends, 4000, told["state"], told["by_interface"], numbers=numbers)


def found_in(name: str, *, turned: bool = False, old: bool = False) -> list[RunFinding]:
    """Return the findings of a world, with its hosts in turned order, or as a probe would have told that knew less."""
    told = RECORDED[name]
    hosts = told["hosts"][::-1] if turned else told["hosts"]
    paths = [{key: value for key, value in path.items() if not old or key != _SAID_BY} for path in told["paths"]]
    names, wish = [host["host"] for host in hosts], WORLDS[name].interface
    env = {"NCCL_SOCKET_IFNAME": wish} if wish else {}
    matrix = ReachabilityMatrix([way_of(path) for path in paths])
    return interface_findings(names, hosts, "nccl", env) + path_findings(names, hosts, matrix, "nccl", env)


def test_every_world_is_recorded() -> None:
    assert set(RECORDED) == set(WORLDS)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", WORLDS)
def test_every_direction_of_a_world_speaks_for_what_is_wrong_in_it(name: str, turned: bool) -> None:
    found = found_in(name, turned=turned)
    assert {entry.cause for entry in found} == {WORLDS[name].cause}
    for path in RECORDED[name]["paths"]:
        asked = path["to_interface"] == (WORLDS[name].interface or "eth0")
        if asked and path["state"] not in ("reachable", "silent"):
            how = f"{path['state']} {path['error']}"
            assert any(f"from {path['from']} to" in entry.says["en"] and how in entry.says["en"] for entry in found)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "name", [name for name in WORLDS if name.startswith(("missing-", "prohibit-", "blackhole-", "gateway-"))]
)
def test_an_error_number_of_the_routing_table_is_enough(name: str, turned: bool) -> None:
    assert {entry.cause for entry in found_in(name, turned=turned, old=True)} == {ROUTE}


@pytest.mark.parametrize("name", WORLDS)
def test_a_cause_is_confirmed_by_its_own_findings_only(name: str, rules: RuleSet, tmp_path: Path) -> None:
    def behave(started: Started) -> Sequence[Script]:
        apart = any(env.get("GLOO_SOCKET_IFNAME") != "eth0" for env in started.env)
        return unless(across(started) and (apart or WORLDS[name].interface is None), started)

    for cause, outcome in _outcomes(name, behave, rules, tmp_path, ROUTE, FIREWALL, LINK).items():
        if cause == WORLDS[name].cause:
            assert (outcome.row.outcome, outcome.row.id) == ("confirmed", "fails-and-treatment-passes")
        else:
            assert (outcome.row.outcome, outcome.row.id) == ("inconclusive", "another-cause"), cause
            assert {finding.cause for finding in outcome.findings} == {WORLDS[name].cause}


@pytest.mark.parametrize("name", WORLDS)
def test_what_the_probe_found_is_told_although_the_collective_passes(name: str, rules: RuleSet, tmp_path: Path) -> None:
    """Its messages may be smaller than those that vanish, and Gloo connects one way only."""
    suspects = (ROUTE, FIREWALL, LINK, "network-wrong-interface", "rank-divergence")
    for cause, outcome in _outcomes(name, always(healthy), rules, tmp_path, *suspects).items():
        assert WORLDS[name].cause in {finding.cause for finding in outcome.findings}, cause
        assert outcome.row.outcome != "refuted", cause
        if cause != WORLDS[name].cause:
            assert outcome.row.outcome != "confirmed" and outcome.row.weight in ("none", "weak-against"), cause


def _outcomes(
    name: str, behave: Behaviour, rules: RuleSet, tmp_path: Path, *causes: str
) -> dict[str, ExperimentOutcome]:
    """Return what a session makes of each cause in a world in which probes tell what they told in the real one."""
    told = RECORDED[name]
    recorded: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for path in told["paths"]:
        kept = {key: path[key] for key in ("state", "error", _SAID_BY, "by_interface") if key in path}
        recorded.setdefault((path["from"], path["to"], path["address"]), []).append(kept)
    env = {"NCCL_SOCKET_IFNAME": WORLDS[name].interface or "eth0"}
    report = conduct(World(told["hosts"], behave, recorded=recorded), rules, tmp_path, *causes, env=env)
    return {outcome.planned.suspect.cause: outcome for outcome in report.outcomes}
