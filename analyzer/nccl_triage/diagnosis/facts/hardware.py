"""What the hosts say of their hardware: Xids, paths between GPUs, ports of adapters."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.events import Event
from nccl_triage.parsers import times
from nccl_triage.patterns import lazily
from nccl_triage.story.kernel_log import XID, job_sources

#: Facts that name the ranks where a failure began.
_SUSPECTS = (
    "progress.silent_ranks", "process.first_exit_ranks", "process.aborted_ranks", "process.crashed_ranks",
    "process.killed_ranks", "exception.ranks",
)  # fmt: skip
_USED = lazily(r"\[\d{1,3}\]([\w.-]{1,40}):(\d{1,2})")


def xids_of(case: Case, *kinds: str) -> list[Event]:
    """Return the Xid lines whose numbers are of one of these kinds (``rules/codes/xid.yaml``)."""
    return [event for event in case.of(XID) if event.fields.get("code_kind") in kinds]


@fact("gpu.hardware_xid", "the number of the first Xid that speaks of broken hardware")
def _hardware(case: Case) -> Fact | None:
    found = xids_of(case, "hardware")
    return Fact(int(found[0].fields["xid"]), found[:3]) if found else None


@fact(
    "gpu.xids",
    "the Xids that concern the job: code, name, severity, role, action, GPU, host, rank and time of each",
)
def _xids(case: Case) -> Fact | None:
    rows = []
    for event in case.of(XID):
        place, fields, moment = case.devices.place(event), event.fields, event.context.time
        rows.append(
            {
                "code": int(fields["xid"]),
                "name": fields.get("code_name"),
                "severity": fields.get("code_severity"),
                "role": event.role,
                "action": fields.get("code_action"),
                "gpu": str(place.address) if place.address is not None else None,
                "host": place.host,
                "rank": place.rank,
                "time": times.show(moment) if moment is not None else None,
            }
        )
    return Fact(rows, case.of(XID)[:6]) if rows else None


def _suspects(case: Case) -> set[int]:
    return {rank for name in _SUSPECTS for rank in case.value(name) or []}


@fact(
    "gpu.undated_xid",
    "the Xids stand in a kernel's log without a clock, and none is of a GPU whose rank failed first: they may be old",
)
def _undated(case: Case) -> Fact | None:
    found = xids_of(case, "hardware", "engine", "link")
    sources = job_sources(case.events)
    if not found or not sources or any(e.context.time is not None or e.source in sources for e in found):
        return None
    suspects = _suspects(case)
    return Fact(all(case.devices.place(event).rank not in suspects for event in found), found[:2])


@fact(
    "gpu.bad_memory_ranks",
    "ranks that fell silent or died first and whose GPU counts uncorrected memory errors since the driver was loaded",
)
def _bad_memory(case: Case) -> Fact | None:
    counted = case.having("measurement", span="volatile")
    counted += [e for e in case.having("measurement", "bdf", "index", "value") if (e.number("value") or 0) > 0]
    suspects = _suspects(case)
    found = {place.rank: event for event in counted if (place := case.devices.place(event)).rank in suspects}
    return Fact(sorted(rank for rank in found if rank is not None), list(found.values())[:3]) if found else None


def _pairs(case: Case, matrix: str) -> Iterator[tuple[int, int, str, Event]]:
    """Yield (GPU, other GPU, word, line) of the rows of a matrix whose columns begin with the GPUs."""
    rows = [
        event
        for event in case.having("measurement", "row", "device", matrix=matrix)
        if event.fields["device"].startswith("GPU")
    ]
    by_source: dict[str, dict[int, Event]] = {}
    for event in rows:
        by_source.setdefault(event.source, {})[int(event.fields["device"][3:])] = event
    for found in by_source.values():
        for gpu, event in found.items():
            cells = event.fields["row"].split()
            for other in found:
                if gpu < other < len(cells):
                    yield gpu, other, cells[other], event


def _told(pairs: list[tuple[int, int, str, Event]]) -> Fact | None:
    if not pairs:
        return None
    return Fact([f"GPU{gpu}-GPU{other} {word}" for gpu, other, word, _ in pairs[:4]], [row[3] for row in pairs[:3]])


@fact("gpu.far_pairs", "pairs of GPUs that reach each other only through the link between processors (topo -m: SYS)")
def _far(case: Case) -> Fact | None:
    return _told([row for row in _pairs(case, "paths") if row[2] == "SYS"])


@fact("gpu.p2p_refused", "pairs of GPUs that cannot reach each other directly (topo -p2p: not OK)")
def _refused(case: Case) -> Fact | None:
    return _told([row for row in _pairs(case, "p2p") if row[2] not in ("OK", "X")])


@fact("network.ib_ports_down", "ports of RDMA adapters that NCCL uses and a report shows as not active")
def _ports(case: Case) -> Fact | None:
    used = {
        (name, port)
        for event in case.having("interface.chosen", "devs")
        for name, port in _USED.findall(event.fields.get("devs") or event.text)
    }
    down: dict[str, Event] = {}
    for event in case.of("link.down"):
        fields = event.fields
        name = fields.get("name") or fields.get("name2") or fields.get("name3") or ""
        port = fields.get("port") or fields.get("port2") or fields.get("port3") or "1"
        if (name, port) in used:
            host = case.host(event)
            down.setdefault(f"{name}:{port}" + (f" on {host}" if host else ""), event)
    return Fact(sorted(down), list(down.values())[:4]) if down else None
