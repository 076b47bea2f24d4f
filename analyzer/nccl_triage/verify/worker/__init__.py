"""What runs beside the job's GPUs: agents (one a host), ranks and the reachability probe.

The package uses the standard library and torch only and imports nothing of its surroundings, so that it can be packed
into one file and carried to a machine, or into an interpreter, that has no nccl-triage: see ``verify.bundle``.
Everything is said in JSON lines.
"""
