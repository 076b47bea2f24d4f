"""The job: its hosts, ranks with their state, software and environment, and the collective in which it stood."""

from __future__ import annotations

from typing import Any

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.facts import software
from nccl_triage.diagnosis.findings import Findings
from nccl_triage.knowledge import report_advice
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.observations.recorder_table import GroupProgress, Way
from nccl_triage.recorder.vote import elements

#: Maximum number of ranks listed; a report says what it leaves out.
MAX_RANKS = 4096


def _first_errors(case: Case) -> dict[int, Event]:
    found: dict[int, Event] = {}
    for event in case.events:
        rank = case.rank(event)
        if rank is not None and event.is_failure and not event.signature.startswith("torchelastic."):
            found.setdefault(rank, event)
    return found


def rank_states(diagnosis: Findings) -> list[dict[str, Any]]:
    """Return every rank with its state in the failure: root, missing, behind, dead, entered, error, ok or unknown."""
    case = diagnosis.case
    world = case.identity.world_size
    ranks = sorted(set(case.identity.ranks) | (set(range(world)) if world and world <= MAX_RANKS else set()))[
        :MAX_RANKS
    ]
    culprits = {c.rank for candidate in diagnosis.candidates[:1] for c in candidate.culprits if c.rank is not None}
    stuck = {record.rank: record for record in case.value("collective.stuck") or []}
    exits = {found.rank: found for found in case.value("process.exits") or []}
    behind = set(case.value("collective.behind_ranks") or [])
    missing = set(case.value("progress.missing_ranks") or []) | set(case.value("progress.init_missing_ranks") or [])
    errors = _first_errors(case)
    states = []
    for rank in ranks:
        info, record, ended, error = case.identity.ranks.get(rank), stuck.get(rank), exits.get(rank), errors.get(rank)
        if rank in culprits:
            state = "root"
        elif rank in missing:
            state = "missing"
        elif rank in behind:
            state = "behind"
        elif record is not None:
            state = "entered"
        elif ended is not None and ended.signal in (6, 7, 8, 9, 11):
            state = "dead"
        elif error is not None:
            state = "error"
        elif diagnosis.verdict == "healthy":
            state = "ok"
        else:
            state = "unknown"
        states.append(
            {
                "rank": rank,
                "host": info.host if info else None,
                "local_rank": info.local_rank if info else None,
                "pid": next(iter(info.pids)) if info and len(info.pids) == 1 else None,
                "gpu": info.gpu if info else None,
                "address": info.address if info else None,
                "state": state,
                "last_enqueued": record.enqueued if record else None,
                "last_completed": record.completed if record else None,
                "exit": str(ended.code) if ended else None,
                "first_error": {
                    "path": error.source,
                    "line": error.line,
                    "signature": error.signature,
                    "text": error.text[:200],
                }
                if error
                else None,
            }
        )
    return states


#: The recorder's names of types (c10 ``ScalarType``) -> those of PyTorch's Python API.
_TYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Byte": "uint8", "Char": "int8",
    "Short": "int16", "Int": "int32", "Long": "int64", "Bool": "bool",
}  # fmt: skip


def op_type(op: str) -> str:
    """Return the ``OpType`` of an operation as PyTorch logs it: ALLREDUCE for all_reduce."""
    return op.upper().replace("ALL_TO_ALL", "ALLTOALL").replace("ALL_", "ALL")


def stuck_call(case: Case) -> dict[str, Any] | None:
    """Return the operation in which most ranks wait according to their flight recorder dumps, as keys of the collective."""
    table = case.observations.recorder
    waiting = [(key, standing) for (key, _), standing in table.standings.items() if standing.open_way is not None]
    if not waiting:
        return None
    votes: dict[tuple[Any, ...], list[GroupProgress]] = {}
    for key, standing in waiting:
        votes.setdefault((key, standing.open_seq, standing.open_way), []).append(standing)
    (key, seq, way), standings = max(votes.items(), key=lambda vote: (len(vote[1]), repr(vote[0])))
    assert isinstance(way, Way)
    named = next(iter((*way.input_types, *way.output_types)), "")
    return {
        "op": op_type(way.op),
        "seq": seq if seq > 0 else None,
        "numel_in": sum(elements(way.inputs)) or None,
        "numel_out": sum(elements(way.outputs)) or None,
        "dtype": _TYPES.get(named, named) if named else None,
        "process_group": key.name,
        "world_size": len(table.groups.get(key, ())) or None,
        "timeout_ms": next((standing.timeout_ms for standing in standings if standing.timeout_ms), None),
    }


def collective(case: Case) -> dict[str, Any] | None:
    """Return the collective in which the job stood still, by its log and its flight recorder dumps; else None."""
    records = case.value("collective.stuck")
    called = case.value("collective.called")
    dumped = stuck_call(case) or {}
    if not records and called is None and not dumped:
        return None
    first = records[0] if records else None
    found = {
        "op": case.value("collective.op") or called,
        "seq": case.value("collective.seq"),
        "numel_in": first.numel_in if first else None,
        "numel_out": first.numel_out if first else None,
        "dtype": None,
        "world_size": case.value("collective.group_size") or case.identity.world_size,
        "process_group": first.group if first else None,
        "timeout_ms": case.value("collective.timeout_ms"),
        "elapsed_ms": first.elapsed_ms if first else None,
    }
    found = {name: dumped.get(name) if value is None else value for name, value in found.items()}
    found["advice"] = report_advice.collective_advice(found, software.first_versions(case), software.frameworks(case))
    return found


#: Scheduler, the signatures of its own lines, and its variables with the id of a job.
_SCHEDULERS = (
    ("slurm", "slurm.*", ("SLURM_JOB_ID", "SLURM_JOBID")),
    ("pbs", "pbs.*", ("PBS_JOBID",)),
    ("lsf", "lsf.*", ("LSB_JOBID",)),
    ("kubernetes", "kubernetes.*", ()),
)
#: Variables that name the cluster.
_CLUSTERS = ("SLURM_CLUSTER_NAME", "CLUSTER_NAME")


def scheduled(case: Case) -> dict[str, str | None]:
    """Return the scheduler of the job, its id there and the cluster's name, each None where the log does not show it."""
    known = software.environment(case)

    def variable(*names: str) -> str | None:
        values = [known[name] for name in names if name in known]
        return values[0][0][0] if values and len(values[0]) == 1 else None

    scheduler = next(
        (name for name, lines, ids in _SCHEDULERS if case.of(lines) or any(one in known for one in ids)), None
    )
    number = variable(*(one for _, _, ids in _SCHEDULERS for one in ids))
    steps = case.telling("stepid")
    if number is None and steps:
        number = steps[-1].fields["stepid"].partition(".")[0]
    if scheduler is None and (found := software.scheduler(case)) != "ray":
        scheduler = found  # by the name of its output, or by another of its variables
    return {"scheduler": scheduler, "id": number, "cluster": variable(*_CLUSTERS)}


#: Lines that name the head of the Ray cluster: as ``address``, a few with the port apart.
_RAY_HEADS = ("ray.connected", "ray.gcs_connect_timeout", "ray.gcs_unable")
_RAY_ADDRESS = lazily(r"[A-Za-z0-9][A-Za-z0-9.-]{0,120}:\d{1,5}")


def ray_address(case: Case) -> str | None:
    """Return HOST:PORT of the head of the job's Ray cluster, None where the log shows none or several."""
    told = {value for value, _ in software.environment(case).get("RAY_ADDRESS", ())}
    for event in case.of(*_RAY_HEADS):
        address, port = (event.fields.get(name) or "" for name in ("address", "port"))
        told.add(f"{address}:{port}" if port else address)
    found = {address for address in told if _RAY_ADDRESS.fullmatch(address)}
    return found.pop() if len(found) == 1 else None


def job(diagnosis: Findings) -> dict[str, Any]:
    """Return what ran, where, with which software and settings."""
    case = diagnosis.case
    hosts: dict[str, dict[str, Any]] = {
        host: {"name": host, "addresses": sorted(case.identity.host_addresses.get(host, ())), "ranks": []}
        for host in case.identity.hosts
    }
    for rank, info in sorted(case.identity.ranks.items()):
        if info.host in hosts:
            hosts[info.host]["ranks"].append(rank)
    versions = software.first_versions(case)
    variables: dict[str, Any] = {}
    for name, values in sorted(software.environment(case).items()):
        variables[name] = values[0][0] if len(values) == 1 else [value for value, _ in values]
    return {
        "world_size": case.identity.world_size,
        "ranks": rank_states(diagnosis),
        "hosts": list(hosts.values()),
        "launcher": software.launcher(case),
        **scheduled(case),
        "ray_address": ray_address(case),
        "frameworks": software.frameworks(case),
        "software": versions,
        "env": variables,
        "env_remarks": report_advice.environment_remarks(variables, versions),
    }
