"""What a rank needs of the host that it runs on, and how signals reach it."""

import json
import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from routines import routine
from routines.ordinary import train_on


@routine("interrupt")
def train_and_sleep(worker):
    train_on(worker, 8)
    if worker.is_odd:
        os.kill(os.getpid(), signal.SIGINT)
    train_on(worker)


@routine("quit")
def train_and_quit(worker):
    train_on(worker, 8)
    if worker.is_odd:
        os.kill(os.getpid(), signal.SIGQUIT)
        time.sleep(5)
    train_on(worker)


class _Nested:
    """A tree of settings whose missing values are looked up in its parent."""

    def __getattr__(self, name):
        return getattr(self, name)


@routine("nested_settings")
def read_settings(worker):
    train_on(worker, 5)
    sys.setrecursionlimit(10**7)
    if worker.is_odd:
        worker.log.info("learning rate %s", _Nested().learning_rate)
    train_on(worker)


@routine("rotating")
def save_often(worker):
    """Every rank keeps the states of its last steps on the disk of its host."""
    for step in range(40):
        dist.all_reduce(torch.ones(2048))
        if step % 4 == 3:
            path = pathlib.Path(worker.folder) / f"state_{worker.rank}_{step}.pt"
            torch.save({"exp_avg": torch.randn(1 << 17)}, path)
            worker.log.info("step %d: saved %s", step, path)
    dist.barrier()


@routine("loader")
def load_batches(worker):
    """Batches come from worker processes through shared memory."""
    loader = DataLoader([torch.randn(1 << 16) for _ in range(64)], batch_size=16, num_workers=2)
    for epoch in range(6):
        for batch in loader:
            dist.all_reduce(batch.sum())
        worker.log.info("epoch %d done", epoch)


@routine("handles")
def open_shards(worker):
    """Shards are mapped and stay open."""
    train_on(worker, 4)
    folder = pathlib.Path(worker.folder)
    shards = []
    for number in range(200):
        path = folder / f"shard_{worker.rank}_{number:04d}.json"
        path.write_text(json.dumps({"tokens": number}), "utf-8")
        shards.append(open(path, encoding="utf-8"))
    worker.log.info("%d shards open", len(shards))
    train_on(worker, 20)


@routine("local_loss")
def report_local_loss(worker):
    """The mean over ranks is what is looked at; every rank also reports its own loss."""
    for step in range(20):
        loss = torch.tensor(0.7 / (step + 1))
        if worker.is_odd and step >= 12:
            loss = loss * float("inf") * 0.0
        worker.log.info("step %d local loss %.4f", step, loss.item())
        dist.all_reduce(loss)
        time.sleep(0.05)
        if not torch.isfinite(loss):
            raise FloatingPointError(f"mean loss is {loss.item() / worker.world} in step {step}")


@routine("growing")
def keep_activations(worker):
    """Activations of the last steps stay referenced."""
    kept = []
    for step in range(40):
        dist.all_reduce(torch.ones(2048))
        if worker.is_odd:
            kept.append(torch.ones(6 << 20))
        time.sleep(0.25)
        if worker.rank == 0:
            worker.log.info("step %d", step)


def _index(worker):
    if worker.is_odd:
        worker.log.info("indexing 48210 documents")
        time.sleep(4 * worker.timeout)
        worker.log.info("index ready")
    else:
        worker.log.info("index found in cache")


@routine("index_first", before=_index)
def train_with_index(worker):
    train_on(worker)
