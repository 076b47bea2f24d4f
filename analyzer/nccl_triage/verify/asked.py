"""An experiment as a reader of a plan needs it: the collective, what is changed, what an answer decides, who is contacted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nccl_triage.engine.schema import Experiment, Text
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun
from nccl_triage.verify.host_names import host_of
from nccl_triage.verify.plan import REPEATS, Plan, Planned
from nccl_triage.verify.question import Question
from nccl_triage.verify.reachability import ports_of
from nccl_triage.verify.treatments import words
from nccl_triage.verify.worker.ops import DTYPES, operation

#: Operations with one rank that sends to all, and with one that receives from all.
_FROM_ROOT, _TO_ROOT = ("BROADCAST", "SCATTER"), ("REDUCE", "GATHER")


def _pair(key: str, text: Text | None) -> dict[str, str | None]:
    return {key: text["en"] if text else None, f"{key}_zh": text["zh"] if text else None}


def collective(message: CollectiveMessage) -> dict[str, Any]:
    """Return a collective: its call, its root or pair, elements and bytes of one rank's input, dtype."""
    row = operation(message.op)
    rooted = message.op in (*_FROM_ROOT, *_TO_ROOT)
    return {
        "op": message.op,
        "call": row.calls,
        "root": message.root if rooted else None,
        "from_root": message.op in _FROM_ROOT if rooted else None,
        "pair": list(message.pair) if row.pair else None,
        "numel": message.numel,
        "dtype": message.dtype,
        "bytes": message.numel * DTYPES[message.dtype],
    }


def asked(planned: Planned, plan: Plan) -> dict[str, Any] | None:
    """Return the experiment as it is on the job's own hosts, None for what no collective can show."""
    run = planned.control
    if run is None:
        return None
    question, names = plan.question, list(plan.means.names_in_log(run.places, plan.question))
    return {
        "collective": collective(run.message),
        "further": [collective(part) for part in run.more],
        "size_known": question.numel is not None or run.message.op in ("INIT", "BARRIER"),
        "world_size": run.world,
        "world_known": question.world is not None,
        "hosts": names,
        "ranks_per_host": [sum(slot.place == place for slot in run.slots) for place in run.places],
        "backend": run.backend,
        "env": dict(run.env),
        "treatments": [
            {"changed": words(item)["en"], "changed_zh": words(item)["zh"]} for item in planned.experiment.vary
        ],
        "repeats": REPEATS,
        "seconds_at_most": round(planned.seconds, 1),
        "memory_per_rank": planned.memory,
        "differs": [item["en"] for item in planned.differs],
        "differs_zh": [item["zh"] for item in planned.differs],
    }


def decides(experiment: Experiment) -> dict[str, Any]:
    """Return what an outcome decides, in the words of the cause's file, and what a control that passes says."""
    return {
        **_pair("confirmed_if", experiment.confirmed_if),
        **_pair("refuted_if", experiment.refuted_if),
        **_pair("needs", experiment.needs),
        "passing": experiment.passing,
    }


def contacts(plan: Plan, ways: Sequence[str]) -> dict[str, Any]:
    """Return who is contacted, and on which ports: the hosts of a plan and nobody else, but for what ``elsewhere`` lists.

    ``ways`` are the commands by which the hosts are reached, in the order of the plan's hosts. A port that is null is
    any free one.
    """
    runs = [entry.control for entry in plan.experiments if entry.control is not None]
    used = sorted({place for run in runs for place in run.places})
    question = plan.question
    names = plan.means.names_in_log(range(len(plan.means.places)), question)
    ports = sorted({run.port for run in runs if run.port is not None})
    probes = plan.probes and len(used) > 1
    return {
        "hosts": [
            {
                "name": names[place],
                "addresses": list(question.addresses.get(names[place], ())),
                "by": ways[place] if place < len(ways) else None,
            }
            for place in used
        ],
        "store": {"host": names[runs[0].slots[0].place], "ports": [*ports, None] if _free(runs) else ports}
        if runs
        else None,
        "probe": {"ports_per_address": ports_of(len(used)), "port_of_log": question.port} if probes else None,
        "elsewhere": _elsewhere(question, runs),
    }


def _free(runs: Sequence[CollectiveRun]) -> bool:
    return any(run.port is None for run in runs)


def _elsewhere(question: Question, runs: Sequence[CollectiveRun]) -> list[str]:
    """Return addresses of the log's store that the log does not tie to one of the named hosts."""
    told = {run.store_address for run in runs if run.store_address is not None}
    return sorted(address for address in told if host_of(question, address) is None)
