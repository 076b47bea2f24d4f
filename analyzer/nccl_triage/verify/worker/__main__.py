"""The worker's command line: the parts of the agent, and ``task``, a rank that srun or torchrun started."""

from __future__ import annotations

import json
import os
import resource
import sys


def main() -> int:
    """Run the part that the first word names; returns the exit code."""
    # A rank that crashes is a result; its core of gigabytes would end in the user's folder.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    part, *rest = sys.argv[1:] or ["help"]
    if part == "agent":
        from .agent import Agent

        Agent(carries="carry" in rest).serve()
        sys.stderr.flush()
        os._exit(0)  # torch takes a second or two to be taken down
    if part == "rank":
        from .rank import run

        code = run(json.loads(os.environ.pop("VERIFY_SPEC")), *(int(word) for word in rest))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # nothing of torch's or NCCL's own end may hang
    if part == "listen":
        from .reach import serve

        serve(int(rest[0]), rest[1] == "1", int(rest[2]) if len(rest) > 2 else 0)
        return 0
    if part == "probe":
        from .reach import probe

        request = json.load(sys.stdin)
        print(json.dumps(probe(request["targets"], float(request.get("timeout", 4.0)))))
        return 0
    if part == "gpus":
        from nccl_triage.hosts.probes.inventory import answer

        print(f"\n{json.dumps(answer(imports=json.load(sys.stdin)['imports']))}", flush=True)
        return 0
    if part == "torch":
        from nccl_triage.hosts.probes.torch_build import imported

        print(f"\n{json.dumps(imported())}", flush=True)  # the line is the last one, whatever torch prints
        os._exit(0)
    if part == "ras":
        from nccl_triage.hosts.probes.ras import ask

        print(json.dumps(ask(rest[0])))
        return 0
    if part == "task":
        from .task import run_task

        return int(run_task(rest[0], rest[1]))
    print("usage: agent [carry] | rank | listen | probe | gpus | torch | ras | task SPEC OUT", file=sys.stderr)
    return 2
