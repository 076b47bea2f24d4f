#!/usr/bin/env python3
"""Requeue a failed Slurm job if its diagnosis says that a restart helps, without the nodes that are to blame.

    requeue.py JOBID MOST < report.json

MOST: how often the job may have been restarted before. The job's owner or an administrator runs this while Slurm still
knows the job (MinJobAge, five minutes by default). What was decided is printed. Exit code: 0 requeued, 1 not.

Standard library only, for Python 3.7 and later. The report holds names from logs: a host is excluded only if it is a
node of the job.
"""

import json
import re
import subprocess
import sys

#: Ends after which a restart can be meant. CANCELLED is none: somebody wanted the job to stop.
FAILED = ("BOOT_FAIL", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT")


class NotRequeued(Exception):
    """Why the job is left alone."""


def scontrol(*words: str) -> str:
    """Return what scontrol prints. Raises NotRequeued with what it complains about."""
    try:
        done = subprocess.run(["scontrol", *words], capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotRequeued(str(error)) from None
    if done.returncode:
        raise NotRequeued(done.stderr.decode(errors="replace").strip())
    return done.stdout.decode(errors="replace")


def field(record: str, name: str) -> str:
    """Return a field of the record that begins a line: only these cannot be made up by the name of a job."""
    found = re.search(rf"^ +{name}=(\S*)", record, re.MULTILINE)
    return found.group(1) if found else ""


def nodes(text: str) -> "list[str]":
    """Return the names in a list of nodes such as ``gpu[01-03]``."""
    return scontrol("show", "hostnames", text).split() if text not in ("", "(null)") else []


def requeue(job: str, most: int, restart: "dict[str, object]") -> str:
    """Requeue the job; return what was done. Raises NotRequeued."""
    decision = restart.get("decision")
    if decision not in ("restart", "exclude_then_restart"):
        raise NotRequeued("{}: {}".format(decision, restart.get("why")) if decision else "no failure was seen")
    record = scontrol("show", "job", job)
    state = field(record, "JobState")
    if state not in FAILED:
        raise NotRequeued(f"its state is {state}")
    restarts = re.search(r"^ +Requeue=1 Restarts=(\d+) ", record, re.MULTILINE)
    if restarts is None:
        raise NotRequeued("it was submitted with --no-requeue")
    if int(restarts.group(1)) >= most:
        raise NotRequeued(f"it was restarted before, {restarts.group(1)} of {most} times")
    if decision == "restart":
        scontrol("requeue", job)
        return "requeued"
    short = {name.split(".")[0]: name for name in nodes(field(record, "NodeList"))}
    hosts = [str(host) for host in restart.get("exclude") or []]  # type: ignore[attr-defined]
    unknown = [host for host in hosts if host.split(".")[0] not in short]
    if unknown or not hosts:
        raise NotRequeued("no node of the job: {}".format(", ".join(map(ascii, unknown)) or "nothing to exclude"))
    before = re.search(r"^ +ReqNodeList=\S* ExcNodeList=(\S+)", record, re.MULTILINE)
    excluded = nodes(before.group(1)) if before else []
    excluded = sorted({*excluded, *(short[host.split(".")[0]] for host in hosts)})
    # Held until the nodes are excluded: only a pending job can be changed.
    scontrol("requeuehold", job)
    try:
        scontrol("update", "JobId=" + job, "ExcNodeList=" + ",".join(excluded))
    except NotRequeued as error:
        raise NotRequeued(f"it is held, since its nodes cannot be excluded: {error}") from None
    scontrol("release", job)
    return "requeued without {}".format(", ".join(excluded))


def main() -> int:
    """Read the report; return the exit code."""
    if len(sys.argv) != 3 or not (sys.argv[1].isdigit() and sys.argv[2].isdigit()):
        sys.stderr.write(__doc__ or "")
        return 2
    job = sys.argv[1]
    try:
        print("job {}: {}".format(job, requeue(job, int(sys.argv[2]), json.load(sys.stdin).get("restart") or {})))
    except NotRequeued as error:
        print(f"job {job}: not requeued: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
