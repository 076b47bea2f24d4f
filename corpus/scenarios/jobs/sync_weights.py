"""A trainer that sends its weights to rollout workers on other hosts after each update, as in online RL.

Rank 0 trains; every rank holds a copy of the model. After an update rank 0 broadcasts all tensors, the workers generate
a little and send the mean reward back with an all-gather.
"""

import argparse
import datetime
import logging
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

RANK = int(os.environ["RANK"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"])
log = logging.getLogger("trainer" if RANK == 0 else "rollout")


def parse_arguments():
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--generate-time", type=float, default=0.3, help="seconds of generating in each iteration")
    parser.add_argument("--timeout", type=float, default=12.0)
    return parser.parse_args()


def update_weights(model):
    """Send every tensor of rank 0's model to the others."""
    size = 0
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
        size += tensor.numel() * tensor.element_size()
    return size


def generate(model, options):
    """Return the mean reward of some generated samples."""
    time.sleep(options.generate_time)
    with torch.no_grad():
        return model(torch.randn(4, options.hidden)).mean().reshape(1)


def collect_rewards(reward):
    """Return the mean over all rollout workers."""
    rewards = [torch.zeros(1) for _ in range(WORLD_SIZE)]
    dist.all_gather(rewards, reward)
    return torch.cat(rewards)[1:].mean().item()


def train_step(model, options, learning_rate=1e-3):
    """Do one update of the trained model."""
    loss = model(torch.randn(4, options.hidden)).square().mean()
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter -= learning_rate * gradient


def main():
    """Train and roll out."""
    options = parse_arguments()
    logging.basicConfig(
        level=logging.INFO, format=f"[%(asctime)s] [%(name)s rank {RANK}] %(levelname)s: %(message)s", stream=sys.stdout
    )
    torch.set_num_threads(1)
    log.info("starting on %s, weight sync over gloo", os.uname().nodename)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=options.timeout))
    log.info("connected, %d ranks", WORLD_SIZE)
    model = nn.Sequential(*[nn.Linear(options.hidden, options.hidden) for _ in range(4)])
    for iteration in range(options.iterations):
        if RANK == 0:
            train_step(model, options)
        started = time.time()
        size = update_weights(model)
        if RANK == 0 or iteration == 0:
            log.info("iteration %d: weights synced, %.1f MB in %.2f s", iteration, size / 1e6, time.time() - started)
        mean = collect_rewards(generate(model, options))
        if RANK == 0:
            log.info("iteration %d: reward %.5f", iteration, mean)
    dist.barrier()
    log.info("done after %d iterations", options.iterations)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
