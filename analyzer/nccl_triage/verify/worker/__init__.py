"""The worker that runs beside the GPUs of the job: agents (one per host), ranks and the reachability probe.

The package uses only the standard library, torch and ``hosts.probes``, so that it can be packed into one file and sent to a
machine, or an interpreter, that has no nccl-triage: see ``hosts.programs``. All messages are JSON lines.
"""
