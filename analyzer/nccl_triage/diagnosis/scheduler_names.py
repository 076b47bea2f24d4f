"""The names that a scheduler's commands take for the hosts of a log: nodes of Slurm, of Kubernetes, of others.

A log calls a host by what its kernel, launcher or collector calls it: with its domain, or by its pod. What the scheduler
itself calls its nodes stands in its variables and lines. A name that neither shows is given as the log has it.
"""

from __future__ import annotations

from collections.abc import Iterator

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.facts import software
from nccl_triage.lazy_regex import lazily
from nccl_triage.story import addresses

#: Variables that hold a node's name, or a list of them.
_NODES = ("SLURMD_NODENAME", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST")
_POD_NODES = ("NODE_NAME", "MY_NODE_NAME", "K8S_NODE_NAME", "KUBE_NODE_NAME")
#: An entry of a node list, with its brackets.
_ENTRY = lazily(r"[^\s,\[\]]{1,250}(?:\[[\d,-]{1,400}\][^\s,\[\]]{0,250})?")
_NAME = lazily(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,250}[A-Za-z0-9])?")


def scheduler_name(case: Case, host: str) -> str | None:
    """Return the name of a host as its scheduler takes it; None for what is no name: an address, or words of others."""
    node = node_of_pod(case, host)
    if node is not None:
        return node
    if addresses.parse(host) is not None or _NAME.fullmatch(host) is None:
        return None
    short = host.partition(".")[0]
    known = set(_nodes(case))
    alike = sorted(one for one in known if one.partition(".")[0] == short)
    for name in (host, short, *alike):
        if name in known:
            return name
    # Slurm knows a node by the short name of its host, unless the log shows otherwise.
    return short if software.scheduler(case) == "slurm" else host


def node_of_pod(case: Case, pod: str) -> str | None:
    """Return the node of a pod, where the pod prints it."""
    variables = software.environment(case)
    for name in _POD_NODES:
        for value, event in variables.get(name, ()):
            if case.host(event) == pod:
                return value
    return None


def _nodes(case: Case) -> Iterator[str]:
    """Yield the nodes that Slurm names, in its variables and its own lines."""
    variables = software.environment(case)
    for name in _NODES:
        for value, _ in variables.get(name, ()):
            from nccl_triage.redaction.names import hosts_of_list  # with all of redaction, which few logs need

            for entry in _ENTRY.findall(value):
                yield from hosts_of_list(entry) or [entry]
    for event in case.of("slurm.*"):
        if event.fields.get("host"):
            yield event.fields["host"]
