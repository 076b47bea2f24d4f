"""Which rank of a run a launcher made of this process, and which start of the run it belongs to."""

from __future__ import annotations

from collections.abc import Mapping

#: Rank, world and rank on the host, as launchers set them. The shell of a batch job has SLURM_PROCID=0 and hands it to
#: all that mpirun starts there: Slurm's own come last.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


class RefusedError(Exception):
    """This process cannot be a rank of the run; the text says why."""


def position(environment: Mapping[str, str], world: int, per_host: int) -> tuple[int, int]:
    """Return the rank and the rank on its host; raises RefusedError without any, or when the world is another.

    Without a rank on the host (MPICH has none), ranks count as placed host by host, ``per_host`` on each.
    """
    seen = []
    for names in LAUNCHERS:
        rank, size, local = (_number(environment.get(name)) for name in names)
        if rank is None or size is None:
            continue
        if size == world and rank < world:
            return rank, local if local is not None else rank % per_host
        seen.append(f"{names[0]}={rank} {names[1]}={size}")
    if seen:
        raise RefusedError(f"this run has {world} ranks, but the launcher says {', '.join(seen)}")
    raise RefusedError("no rank: start this with srun, torchrun or mpirun (none of their variables is set)")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def attempt(environment: Mapping[str, str]) -> str:
    """Return what tells this start of the run from an earlier one, the same on all ranks; empty where nothing does."""
    for name in ("TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE"):
        if environment.get(name):
            return environment[name]
    step = [environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_STEP_ID", "")]
    return ".".join(step) if any(step) else ""
