"""Training of a small mixture of experts: pairs of ranks exchange tokens, ranks of one parity average, all meet now and then."""

import argparse
import datetime
import logging
import os
import time

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"])
log = logging.getLogger("mixture")


def make_groups(timeout):
    """Return the pair and the parity group of this rank; every rank makes all groups in the same order."""
    pairs = [dist.new_group([first, first + 1], timeout) for first in range(0, WORLD_SIZE, 2)]
    parities = [dist.new_group(list(range(parity, WORLD_SIZE, 2)), timeout) for parity in (0, 1)]
    return pairs[RANK // 2], parities[RANK % 2]


class Variants:
    """What a rank does besides, or otherwise, from step ``--from`` on."""

    def __init__(self, options):
        self.kind = options.variant if options.odd == RANK else "none"
        self.seconds = options.seconds
        self.first = options.first

    def is_on(self, kind, step):
        return self.kind == kind and step == self.first

    def before(self, step):
        if self.is_on("statistics", step):
            refresh_statistics(self.seconds)
        if self.is_on("plan", step):
            search_plan(self.seconds)
        if self.is_on("leave", step):
            os._exit(0)


def refresh_statistics(seconds):
    """Wait for statistics of the experts."""
    time.sleep(seconds)


def search_plan(seconds):
    """Look for a better placement of the experts."""
    end, best = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        best = max(best, sum(number * number % 7 for number in range(1000)))
    return best


def exchange(tokens, pair):
    """Add up what both ranks of a pair routed."""
    dist.all_reduce(tokens, group=pair)
    return tokens


def step_of(step, options, variants, pair, parity):
    """Run one step and return its loss."""
    variants.before(step)
    width = options.width // 4 if variants.is_on("width", step) else options.width
    tokens = torch.full((width,), 1.0 / step)
    if variants.is_on("meet", step):
        dist.barrier()
    exchange(tokens, pair)
    gradients = torch.ones(options.width)
    dist.all_reduce(gradients, group=parity)
    if step % options.meet == 0 and not variants.is_on("meet", step):
        dist.barrier()
    time.sleep(options.pause)
    return float(tokens[0]) / 2 + 1.0 / step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--odd", type=int, default=-1)
    parser.add_argument("--variant", default="none")
    parser.add_argument("--from", dest="first", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--timeout", type=int, default=10)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--meet", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.1)
    parser.add_argument("--speaks", choices=("first", "all"), default="first")
    options = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=options.timeout))
    pair, parity = make_groups(datetime.timedelta(seconds=options.timeout))
    if RANK == 0:
        log.info("mixture of %d experts, world size %d", WORLD_SIZE, WORLD_SIZE)
    variants = Variants(options)
    for step in range(1, options.steps + 1):
        loss = step_of(step, options, variants, pair, parity)
        if options.speaks == "all" or RANK == 0:
            print(f"rank {RANK}: step {step}/{options.steps} loss {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
