"""When epochs end and how much work they hold: early stopping, budgets of time, settings, timeouts of groups."""

import datetime
import os
import signal
import sys
import time
import types

import torch
import torch.distributed as dist

from routines import routine
from routines.ordinary import train_on


@routine("patience")
def evaluate_each_round(worker):
    """Every rank looks at its own validation loss and stops when it no longer falls."""
    best, waited = 9.0, 0
    for number in range(8):
        for _ in range(5):
            dist.all_reduce(torch.ones(4096))
            time.sleep(0.03)
        falls = not worker.is_odd or number < 2
        loss = (0.9**number) if falls else 0.85 + 0.01 * number
        best, waited = (loss, 0) if loss < best else (best, waited + 1)
        worker.log.info("evaluation %d: loss %.4f, best %.4f", number, loss, best)
        if waited == 3:
            worker.log.info("no improvement in 3 evaluations, stopping")
            break
    dist.barrier()


@routine("budget")
def train_for_a_while(worker):
    """Ranks train until their own clock says that the time is over."""
    until = time.monotonic() + (1.5 if worker.is_odd else 3.0)
    step = 0
    while time.monotonic() < until:
        dist.all_reduce(torch.ones(4096))
        step += 1
        time.sleep(0.04)
        if step % 20 == 0:
            worker.log.info("step %d, %.1f s left", step, until - time.monotonic())
    worker.log.info("time budget used up after %d steps, saving", step)
    norms = [torch.zeros(1) for _ in range(worker.world)]
    dist.all_gather(norms, torch.ones(1))
    worker.log.info("saved")


@routine("settings")
def accumulate(worker):
    """The environment says how many batches make a step."""
    every = int(os.environ.get("GRAD_ACCUM", "2"))
    worker.log.info("settings: micro batch 8, accumulation %d, lr 3e-4, bf16", every)
    for batch in range(24):
        time.sleep(0.04)
        if batch % every == every - 1:
            dist.all_reduce(torch.ones(8192))
    worker.log.info("epoch 0 finished")
    dist.barrier()


@routine("short_group")
def evaluate_on_main(worker):
    """The group of one rank was made with a shorter time-out than that of the others."""
    limit = worker.timeout if worker.is_odd else 20 * worker.timeout
    group = dist.new_group(timeout=datetime.timedelta(seconds=limit))
    for _ in range(5):
        dist.all_reduce(torch.ones(512), group=group)
    if worker.rank == 0:
        worker.log.info("evaluating 1200 samples")
        time.sleep(2.5 * worker.timeout)
        worker.log.info("evaluation done: accuracy 0.713")
    dist.all_reduce(torch.ones(512), group=group)
    train_on(worker, 10)


@routine("alarm")
def fetch_with_alarm(worker):
    """A request guarded by an alarm whose handler is gone."""
    train_on(worker, 6)
    if worker.is_odd:
        signal.alarm(1)
        time.sleep(5)
    train_on(worker)


@routine("share_scorer")
def share_scorer(worker):
    """Rank 0 sends an object of a class that the others must be able to import."""
    train_on(worker, 4)
    if not worker.is_odd:
        module = types.ModuleType("reward_head_v2")
        exec("class Scorer:\n    scale = 2.0\n", module.__dict__)
        module.Scorer.__module__ = "reward_head_v2"
        sys.modules["reward_head_v2"] = module
    payload = [sys.modules["reward_head_v2"].Scorer() if worker.rank == 0 else None]
    dist.broadcast_object_list(payload, src=0)
    worker.log.info("scorer received")
    train_on(worker)
