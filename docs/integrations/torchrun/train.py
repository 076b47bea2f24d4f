"""A training loop on the CPU in which one rank can fail, for trying the recipe: FAIL_RANK=1 torchrun ... train.py."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main() -> None:
    """Train a few steps; the rank that FAIL_RANK names meets a bad sample in the third."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    failing = int(os.environ.get("FAIL_RANK", -1))
    for step in range(1, 6):
        if step == 3 and rank == failing:
            raise ValueError(f"sample {step * world + rank} has 3 tokens, expected 4")
        gradient = torch.full((4,), float(rank))
        dist.all_reduce(gradient)
        print(f"step {step} rank {rank} gradient {gradient.mean() / world:.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
