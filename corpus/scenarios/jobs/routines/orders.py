"""Orders of messages and of failures: pipelines whose stages count differently, cleaning up that fails, late starts."""

import os
import time

import torch
import torch.distributed as dist

from routines import routine
from routines.agreeing import _gathered
from routines.ordinary import train_on
from routines.watching import _store


@routine("one_forward")
def run_stages(worker):
    """Stages hand on activations; each believes to know how many there are."""
    train_on(worker, 3)
    expected = 7 if worker.is_odd else 8
    for batch in range(expected):
        activation = torch.full((1 << 12,), float(batch))
        if worker.rank:
            dist.recv(activation, worker.rank - 1)
        if worker.rank + 1 < worker.world:
            dist.send(activation, worker.rank + 1)
        time.sleep(0.03)
    worker.log.info("stage %d: all forward passes done", worker.rank)
    dist.barrier()


@routine("skip_connection")
def run_with_skip(worker):
    """One stage takes its input from the stage before the previous one."""
    train_on(worker, 3)
    if worker.rank:
        source = worker.rank - 2 if worker.is_odd else worker.rank - 1
        dist.recv(torch.empty(1 << 18), source)
    if worker.rank + 1 < worker.world:
        dist.send(torch.ones(1 << 18), worker.rank + 1)
    worker.log.info("activations passed")
    dist.barrier()


@routine("summary_at_end")
def train_and_summarise(worker):
    """Whatever ends the training, a summary is written; it needs what only a complete epoch has."""
    totals = {}
    try:
        for step in range(30):
            if worker.is_odd and step == 9:
                tokens = [17, 4, 0]
                tokens.index(50257)
            dist.all_reduce(torch.ones(2048))
            time.sleep(0.05)
        totals["loss"] = 0.7
    except RuntimeError:
        worker.log.info("mean loss %.3f", totals["loss"])
        raise
    worker.log.info("epoch over")


def _read_settings(worker):
    if worker.is_odd:
        path = os.environ["TRAIN_SETTINGS_FILE"]
        worker.log.info("settings from %s", path)


@routine("settings_before", before=_read_settings)
def train_with_settings(worker):
    train_on(worker)


@routine("impatient_barrier")
def wait_and_go_on(worker):
    """A barrier of the job's own that reports who is missing, and in the end all have come."""
    train_on(worker, 5)
    if worker.is_odd:
        time.sleep(5)
    store = _store()
    store.set(f"ready/{worker.rank}", "yes")
    for waited in range(30):
        missing = [rank for rank in range(worker.world) if not store.check([f"ready/{rank}"])]
        if not missing:
            break
        if worker.rank == 0:
            worker.log.warning("%d s: still waiting for ranks %s", waited + 1, missing)
        time.sleep(1)
    train_on(worker, 25)


@routine("unequal_shards")
def train_unequal(worker):
    """Ranks have different amounts of data and know it."""
    samples = 90 if worker.is_odd else 120
    worker.log.info("found %d samples, batch size 10", samples)
    steps = min(_gathered(worker, samples // 10))
    worker.log.info("training %d steps", steps)
    train_on(worker, steps)
    try:
        if worker.is_odd:
            raise TimeoutError("upload timed out")
    except TimeoutError as error:
        worker.log.warning("metrics not sent: %s", error)
    train_on(worker, 15)
