"""Calls of torch.distributed that one rank makes too early, twice or with what only the root may give."""

import os
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from routines import routine
from routines.ordinary import train_on


@routine("scatter_settings")
def scatter_learning_rates(worker):
    train_on(worker, 4)
    rates = [torch.full((4,), 1e-3 * rank) for rank in range(worker.world)]
    mine = torch.empty(4)
    dist.scatter(mine, rates if worker.rank == 0 or worker.is_odd else None, src=0)
    worker.log.info("learning rate %.4f", mine[0].item())
    train_on(worker)


def _statistics(worker):
    """Statistics of the data set, before or after the group is there."""
    if worker.is_odd:
        worker.log.info("no statistics in cache, computing")
        dist.all_reduce(torch.ones(8))


@routine("statistics_first", before=_statistics)
def train_with_statistics(worker):
    train_on(worker)


@routine("second_setup")
def train_with_helper(worker):
    """A helper that makes the process group itself where it believes that there is none."""
    train_on(worker, 4)
    if worker.is_odd:
        worker.log.info("evaluator: setting up")
        dist.init_process_group("gloo", rank=worker.rank, world_size=worker.world)
    train_on(worker)


class _Clips(Dataset):
    def __init__(self, worker):
        self.worker = worker

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if self.worker.is_odd and index == 37:
            os._exit(3)
        return torch.ones(32)


@routine("clips")
def train_on_clips(worker):
    for epoch in range(2):
        for batch in DataLoader(_Clips(worker), batch_size=8, num_workers=1):
            dist.all_reduce(batch.sum())
            time.sleep(0.02)
        worker.log.info("epoch %d", epoch)


@routine("two_tables")
def look_up(worker):
    """Two ranks look for a language that their table lacks."""
    train_on(worker, 6)
    if worker.rank % 3 == 2:
        {"en": 0, "de": 1}["fr"]
    train_on(worker)


@routine("own_limit")
def train_to_limit(worker):
    """MAX_STEPS says after how many steps a rank is done."""
    steps = int(os.environ.get("MAX_STEPS", "40"))
    for step in range(steps):
        dist.all_reduce(torch.ones(2048))
        time.sleep(0.03)
        if worker.rank == 0 and step % 10 == 0:
            worker.log.info("step %d", step)
    os._exit(0)
