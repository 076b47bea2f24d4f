"""A training loop on the CPU that explains its own failure: FAIL_RANK=1 torchrun ... train.py."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

from nccl_triage.integrations import explain_failures

explain_failures("logs/")
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
for step in range(1, 6):
    if step == 3 and rank == int(os.environ.get("FAIL_RANK", -1)):
        raise ValueError(f"sample {step * world + rank} has 3 tokens, expected 4")
    gradient = torch.full((4,), float(rank))
    dist.all_reduce(gradient)
    print(f"step {step} rank {rank} gradient {gradient.mean() / world:.2f}", flush=True)
dist.destroy_process_group()
