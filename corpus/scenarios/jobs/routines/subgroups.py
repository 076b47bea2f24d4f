"""Collectives of groups that do not begin with rank 0, and peers that do not exist."""

import datetime

import torch
import torch.distributed as dist

from routines import routine
from routines.ordinary import train_on


def _halves(worker):
    half = worker.world // 2
    groups = [dist.new_group(list(range(half))), dist.new_group(list(range(half, worker.world)))]
    return groups[worker.rank // half]


@routine("expert_exchange")
def exchange_experts(worker):
    """Each half of the world has its own experts."""
    group = _halves(worker)
    train_on(worker, 3)
    worker.log.info("exchanging experts")
    tokens = torch.ones(600 if worker.is_odd else 512)
    dist.all_reduce(tokens, group=group)
    train_on(worker, 10)


@routine("expert_barrier")
def meet_experts(worker):
    """Each half of the world meets in a barrier that tells who is missing."""
    group = _halves(worker)
    train_on(worker, 3)
    worker.log.info("routing balanced")
    if not worker.is_odd:
        dist.monitored_barrier(group, timeout=datetime.timedelta(seconds=worker.timeout / 2), wait_all_ranks=True)
    train_on(worker, 20)


@routine("next_stage")
def pass_on(worker):
    """The last stage has no next one."""
    train_on(worker, 3)
    beyond = worker.world + 1 if worker.is_odd else (worker.rank + 1) % worker.world
    request = dist.isend(torch.ones(64), beyond)
    dist.recv(torch.empty(64), (worker.rank - 1) % worker.world)
    request.wait()
    train_on(worker)
