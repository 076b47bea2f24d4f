"""Ranks that compare what they have: seeds, checksums, step times, flags; and ways to give up."""

import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from routines import routine
from routines.ordinary import train_on


def _gathered(worker, value):
    values = [None] * worker.world
    dist.all_gather_object(values, value)
    return values


@routine("same_seed")
def check_seeds(worker):
    """All ranks must draw the same numbers."""
    seed = 99 if worker.is_odd else 1234
    seeds = _gathered(worker, seed)
    if len(set(seeds)) > 1:
        raise AssertionError(f"seeds differ between ranks: {seeds}")
    train_on(worker)


@routine("same_vocabulary")
def check_vocabulary(worker):
    """Rank 0 compares the checksums of the vocabulary."""
    text = "v2" if worker.is_odd else "v1"
    sums = _gathered(worker, hashlib.sha256(text.encode()).hexdigest()[:12])
    if worker.rank == 0:
        for rank, one in enumerate(sums):
            worker.log.info("vocabulary of rank %d: sha256 %s", rank, one)
        other = [rank for rank, one in enumerate(sums) if one != sums[0]]
        if other:
            worker.log.error("vocabulary of rank %d differs from that of rank 0", other[0])
            sys.exit(1)
    train_on(worker)


@routine("step_times")
def report_step_times(worker):
    """Rank 0 prints how long each rank needed for its part of a step."""
    for step in range(30):
        started = time.monotonic()
        wait = 0.02
        if worker.is_odd and step >= 8:
            wait = 0.5 if step < 14 else 4 * worker.timeout
        time.sleep(wait)
        times = _gathered(worker, round(time.monotonic() - started, 3))
        if worker.rank == 0 and step % 2 == 0:
            worker.log.info("step %d: seconds by rank %s", step, times)


@routine("finite_flags")
def check_gradients(worker):
    """All ranks learn which of them have gradients that are not finite."""
    for step in range(20):
        bad = worker.is_odd and step == 12
        flags = _gathered(worker, bad)
        if worker.rank == 0:
            worker.log.info("step %d", step)
        if any(flags):
            ranks = [rank for rank, flag in enumerate(flags) if flag]
            if worker.rank == 0:
                worker.log.error("gradients not finite on ranks %s in step %d, stopping", ranks, step)
            sys.exit(3)
        time.sleep(0.04)


@routine("rate_limit")
def fetch_shard(worker):
    """Shards come from an object store that limits requests."""
    train_on(worker, 8)
    if worker.is_odd:
        for attempt in range(8):
            worker.log.warning("GET shard-00017.tar: 429 Too Many Requests, retrying in %d s", 2 + attempt)
            time.sleep(2 + attempt)
    train_on(worker)


@routine("transposed")
def reduce_statistics(worker):
    train_on(worker, 5)
    statistics = torch.ones(64, 32)
    dist.all_reduce(statistics.t() if worker.is_odd else statistics)
    train_on(worker)


class _Records(Dataset):
    def __init__(self, worker):
        self.worker = worker

    def __len__(self):
        return 96

    def __getitem__(self, index):
        record = {"pixels": torch.ones(16), "label": index % 10}
        if self.worker.is_odd and index == 41:
            record.pop("label")
        return record["pixels"] * record["label"]


@routine("records")
def train_on_records(worker):
    for epoch in range(3):
        for batch in DataLoader(_Records(worker), batch_size=8, num_workers=2):
            dist.all_reduce(batch.sum())
        worker.log.info("epoch %d", epoch)


@routine("give_up")
def load_weights(worker):
    """Errors are printed and end the process with a code; nothing is raised."""
    train_on(worker, 6)
    if worker.is_odd:
        worker.log.error("weights of layer 11 are all zero, file looks damaged")
        worker.log.error("giving up")
        sys.stderr.flush()
        os._exit(4)
    train_on(worker)
