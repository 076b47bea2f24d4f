"""Ranks at another pace, groups of every second rank, calls too many, ends without words."""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

from routines import routine
from routines.ordinary import train_on


def _every_second(worker):
    groups = [dist.new_group(list(range(first, worker.world, 2))) for first in (0, 1)]
    return groups[worker.rank % 2]


@routine("second_mean")
def compute_mean(worker):
    """A mean over ranks; one rank computes it once more."""
    train_on(worker, 3)
    value = torch.tensor([0.5])
    for _ in range(2 if worker.is_odd else 1):
        dist.all_reduce(value)
    worker.log.info("mean computed")
    dist.broadcast(torch.ones(256), src=0)
    train_on(worker, 10)


@routine("stripe_exchange")
def exchange_stripes(worker):
    """Every second rank forms a group; its members reduce masks."""
    group = _every_second(worker)
    train_on(worker, 3)
    mask = torch.ones(64, dtype=torch.int64 if worker.is_odd else torch.int32)
    dist.all_reduce(mask, group=group)
    train_on(worker, 10)


@routine("stripe_barrier")
def meet_in_stripes(worker):
    group = _every_second(worker)
    train_on(worker, 3)
    if worker.is_odd:
        time.sleep(3 * worker.timeout)
    dist.monitored_barrier(group, timeout=datetime.timedelta(seconds=worker.timeout / 2))
    train_on(worker, 20)


@routine("own_step_time")
def report_own_steps(worker):
    """Every rank says how long its own part of each step took."""
    for step in range(40):
        started = time.monotonic()
        time.sleep(0.05 if not worker.is_odd or step < 6 else min(0.3 * 2 ** (step - 6), 5 * worker.timeout))
        worker.log.info("step %d: forward and backward took %.2f s", step, time.monotonic() - started)
        dist.all_reduce(torch.ones(4096))


@routine("stands_still")
def wait_for_prefetch(worker):
    train_on(worker, 6)
    if worker.is_odd:
        time.sleep(4 * worker.timeout)
    train_on(worker)


@routine("leave_with_code")
def stop_with_code(worker):
    train_on(worker, 6)
    if worker.is_odd:
        sys.stderr.flush()
        os._exit(7)
    train_on(worker)
