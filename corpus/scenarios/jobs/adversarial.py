"""Adversarial training on texts: the first half of the ranks generates, the second half judges, all share their scores."""

import argparse
import datetime
import importlib
import logging
import os
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"])
log = logging.getLogger("adversarial")


class Watch(threading.Thread):
    """Writes the flight recorder of this rank once it has made no step for a while."""

    def __init__(self, folder, patience):
        super().__init__(daemon=True)
        self.folder, self.patience = Path(folder), patience
        self.last = time.monotonic()

    def run(self):
        while time.monotonic() - self.last < self.patience:
            time.sleep(0.2)
        native = importlib.import_module("torch._C._distributed_c10d")
        (self.folder / f"nccl_trace_rank_{RANK}.json").write_bytes(native._dump_fr_trace_json())
        log.info("wrote the flight recorder")


class Texts:
    """Texts of this rank, as numbers."""

    def __init__(self, count, shards):
        self.count, self.shards = count, shards

    def tokenize(self, seconds):
        """Turn the texts into numbers, shard by shard."""
        for shard in range(self.shards):
            log.info("tokenizing shard %d/%d", shard + 1, self.shards)
            end = time.monotonic() + seconds / self.shards
            while time.monotonic() < end:
                sum(number * number % 7 for number in range(1000))
        log.info("tokenized %d texts", self.count)

    def batch(self, step, width, skip):
        """Return a batch of texts; None where it has no usable one."""
        return None if skip else torch.full((width,), 1.0 / step)


class Model:
    """The part of the model that this rank trains, with its half of the ranks."""

    def __init__(self, half):
        self.half = half
        self.weights = torch.ones(2048)

    def compile(self, seconds):
        """Make the kernels of the model."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sum(number * number % 11 for number in range(1000))

    def improve(self, batch):
        """Average the gradients of the half and apply them."""
        gradients = batch * 0.5
        dist.all_reduce(gradients, group=self.half)
        self.weights[: len(batch)] -= 1e-3 * gradients

    def score(self, width):
        """Share the scores of all ranks and return their mean."""
        scores = torch.full((width,), float(self.weights.mean()))
        dist.all_reduce(scores)
        return float(scores.mean()) / WORLD_SIZE


def feedback(inbox, seconds):
    """Wait for feedback of a reader."""
    inbox.wait(seconds)


def save(step, seconds):
    """Write what rank 0 has; the others wait."""
    if RANK == 0:
        log.info("saving checkpoint of step %d to /tmp/job/checkpoints", step)
        time.sleep(seconds)
        log.info("saved checkpoint of step %d", step)
    dist.barrier()


def train(options, odd):
    """Train until the last step."""
    halves = [dist.new_group(list(range(WORLD_SIZE // 2))), dist.new_group(list(range(WORLD_SIZE // 2, WORLD_SIZE)))]
    model = Model(halves[RANK >= WORLD_SIZE // 2])
    texts = Texts(5000, 8)
    watch = Watch(options.records, options.patience) if options.records else None
    texts.tokenize(options.seconds if odd == "tokenize" else 0.1)
    if watch is not None:
        watch.last = time.monotonic()
        watch.start()
    dist.barrier()
    for step in range(1, options.steps + 1):
        now = step == options.first
        if now and odd == "compile":
            model.compile(options.seconds)
        if now and odd == "feedback":
            feedback(threading.Event(), options.seconds)
        batch = texts.batch(step, 1024, now and odd == "gap")
        if batch is None:
            continue
        if now and odd == "score-first":
            score = model.score(64)
            model.improve(batch)
        else:
            model.improve(batch)
            score = model.score(16 if now and odd == "narrow" else 64)
        if step % options.every == 0:
            save(step, options.seconds if now and odd == "save" else 0.1)
        time.sleep(options.pause)
        if options.speaks == "all" or RANK == 0:
            log.info("step %d/%d score %.4f", step, options.steps, score)
        if watch is not None:
            watch.last = time.monotonic()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--odd", type=int, default=-1)
    parser.add_argument("--does", default="none")
    parser.add_argument("--from", dest="first", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--timeout", type=int, default=9)
    parser.add_argument("--pause", type=float, default=0.15)
    parser.add_argument("--records")
    parser.add_argument("--patience", type=float, default=4.0)
    parser.add_argument("--speaks", choices=("first", "all"), default="all")
    options = parser.parse_args()
    logging.basicConfig(format=f"%(asctime)s rank {RANK} %(levelname)s %(message)s", level=logging.INFO)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=options.timeout))
    train(options, options.does if options.odd == RANK else "none")
    log.info("training is done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
