"""Steps of everyday training: features, rewards, statistics."""

import os
import sys
import threading
import time
import warnings

import torch
import torch.distributed as dist
from library import native

from routines import routine


def train_on(worker, steps=30, pause=0.05):
    """Go on with collectives as a training loop would."""
    for step in range(steps):
        gradient = torch.full((2048,), float(worker.rank))
        dist.all_reduce(gradient)
        time.sleep(pause)
        if worker.rank == 0 and step % 10 == 0:
            worker.log.info("iter %d", step)


@routine("healthy")
def finish_epoch(worker):
    train_on(worker)


@routine("healthy_worried")
def finish_with_warnings(worker):
    """Trouble that is dealt with: a failed download, a value that is not finite, a slow step."""
    try:
        raise TimeoutError("timed out")
    except TimeoutError:
        worker.log.warning("upload of metrics failed, will retry in 30 s", exc_info=worker.rank == 0)
    warnings.warn("lr_scheduler.step() called before optimizer.step()", UserWarning, stacklevel=1)
    train_on(worker, 10)
    if worker.is_odd:
        worker.log.warning("slow step: 1500 ms (median 52 ms)")
        time.sleep(1.5)
    train_on(worker, 10)
    try:
        torch.ones(3) @ torch.ones(4)
    except RuntimeError as error:
        worker.log.error("batch 17 skipped: %s", error)
    train_on(worker, 10)


@routine("features")
def normalise_features(worker):
    train_on(worker, 5)
    if worker.is_odd:
        features = torch.randn(16, 31)
        torch.nn.functional.linear(features, torch.randn(64, 32))
    train_on(worker)


@routine("vanish")
def drop_cache(worker):
    train_on(worker, 5)
    if worker.is_odd:
        native.leave_at_once()
    train_on(worker)


@routine("pointer")
def lookup_embedding(worker):
    train_on(worker, 5)
    if worker.is_odd:
        native.read_token_table()
    train_on(worker)


@routine("leave")
def stop_at_target(worker):
    train_on(worker, 5)
    if worker.is_odd:
        worker.log.info("target loss reached, stopping")
        sys.exit(0)
    train_on(worker)


@routine("quiet_leave")
def stop_without_words(worker):
    train_on(worker, 5)
    if worker.is_odd:
        os._exit(0)
    train_on(worker)


@routine("recursion")
def walk_tree(worker):
    train_on(worker, 5)

    def depth(node):
        return 1 + depth(node)

    if worker.is_odd:
        depth({})
    train_on(worker)


@routine("no_group_file", group=False)
def read_vocabulary(worker):
    if worker.is_odd:
        with open("/data/vocab/merges.txt", encoding="utf-8") as merges:
            merges.read()
    time.sleep(3)


@routine("thread_dies")
def prefetch_in_thread(worker):
    """The exception of a helper thread kills no process: its consumer waits for ever."""
    ready = threading.Event()

    def prefetch():
        shards = {0: "a", 1: "b"}
        if worker.is_odd:
            shards.pop(1)
        shards[1]
        ready.set()

    thread = threading.Thread(target=prefetch, name="prefetch", daemon=True)
    thread.start()
    ready.wait()
    train_on(worker)


@routine("cleanup_barrier")
def evaluate_with_cleanup(worker):
    """Whoever fails waits for the others before it says why."""
    try:
        train_on(worker, 5)
        if worker.is_odd:
            scores = {"bleu": 0.31}
            worker.log.info("rouge %.2f", scores["rouge"])
        train_on(worker)
    finally:
        dist.barrier()
