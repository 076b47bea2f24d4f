"""A pipeline-parallel job: each rank is a stage, activations go forward and gradients back with send and recv."""

import argparse
import datetime
import logging
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

STAGE = int(os.environ["RANK"])
STAGES = int(os.environ["WORLD_SIZE"])
log = logging.getLogger("pipeline")


def parse_arguments():
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--micro-batches", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--step-time", type=float, default=0.05)
    parser.add_argument("--timeout", type=float, default=10.0)
    return parser.parse_args()


def forward_micro_batch(module, options):
    """Receive activations, run this stage's module, send the result on."""
    inputs = torch.randn(8, options.hidden)
    if STAGE > 0:
        dist.recv(inputs, STAGE - 1)
    inputs.requires_grad_()
    outputs = module(inputs)
    if STAGE < STAGES - 1:
        dist.send(outputs.detach(), STAGE + 1)
    return inputs, outputs


def backward_micro_batch(inputs, outputs):
    """Receive gradients, go backward, send on those of the inputs."""
    if STAGE < STAGES - 1:
        gradient = torch.empty_like(outputs)
        dist.recv(gradient, STAGE + 1)
        outputs.backward(gradient)
    else:
        outputs.square().mean().backward()
    if STAGE > 0:
        dist.send(inputs.grad, STAGE - 1)


def update(module, learning_rate=1e-2):
    """Descend along the gradients and forget them."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter -= learning_rate * parameter.grad
            parameter.grad = None


def main():
    """Train."""
    options = parse_arguments()
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s stage {STAGE}: %(levelname)s %(message)s", stream=sys.stdout
    )
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=options.timeout))
    log.info("stage %d of %d on %s", STAGE, STAGES, os.uname().nodename)
    module = nn.Sequential(nn.Linear(options.hidden, options.hidden), nn.GELU())
    for step in range(options.steps):
        time.sleep(options.step_time)
        held = [forward_micro_batch(module, options) for _ in range(options.micro_batches)]
        for inputs, outputs in held:
            backward_micro_batch(inputs, outputs)
        update(module)
        if STAGE == STAGES - 1 or step % 10 == 0:
            log.info("step %d done", step)
    dist.barrier()
    log.info("training finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
