"""Stages of a pipeline, and reductions that overlap with computing."""

import time

import torch
import torch.distributed as dist

from routines import routine
from routines.ordinary import train_on


@routine("stages")
def run_schedule(worker):
    """Micro batches travel through the stages, activations from rank to rank."""
    for batch in range(8):
        activation = torch.ones(1 << 14)
        if worker.rank:
            dist.recv(activation, worker.rank - 1)
        if worker.is_odd and batch == 4:
            time.sleep(3 * worker.timeout)
        time.sleep(0.05)
        if worker.rank + 1 < worker.world:
            dist.send(activation, worker.rank + 1)
        worker.log.info("stage %d: micro batch %d forward", worker.rank, batch)
    dist.barrier()


@routine("overlapped")
def reduce_while_computing(worker):
    """Two buckets of gradients are reduced while the next layers are computed, and waited for later."""
    train_on(worker, 3)
    for step in range(12):
        sizes = (1 << 14, 3000 if worker.is_odd and step == 7 else 1 << 12)
        handles = [dist.all_reduce(torch.ones(size), async_op=True) for size in sizes]
        time.sleep(0.08)
        for handle in handles:
            handle.wait()
        if worker.rank == 0:
            worker.log.info("step %d", step)
    dist.barrier()
