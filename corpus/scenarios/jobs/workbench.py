"""Small work of many kinds after a short warm-up, under any launcher or as its own one.

What is done lies in ``routines``, one function for each; this file starts processes, groups and logging.
"""

import argparse
import datetime
import multiprocessing
import os
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

import routines
import torch
import torch.distributed as dist
from library import consoles
from torch import nn


@dataclass
class Worker:
    """What a routine may use."""

    rank: int
    world: int
    odd: int
    timeout: float
    folder: str
    log: Any

    @property
    def is_odd(self):
        return self.odd in (self.rank, -1)


def warm_up(worker, steps, pause):
    """Train a small model for some steps, gradients averaged by hand."""
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        loss = (model(torch.randn(16, 32)).sum(1) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= worker.world
        optimizer.step()
        time.sleep(pause)
        if worker.rank == 0:
            worker.log.info("iter %d loss %.4f", step, loss.item())


def work(rank, options):
    worker = Worker(
        rank, options.world, options.odd, options.timeout, options.folder, consoles.make(options.console, rank)
    )
    torch.set_num_threads(1)
    torch.manual_seed(1234)
    routine = routines.ROUTINES[options.routine]
    if routine.before is not None:
        routine.before(worker)
    if routine.group:
        method = options.endpoint or "env://"
        if "://" not in method:
            method = f"tcp://{method}"
        dist.init_process_group(
            "gloo",
            init_method=method,
            rank=rank,
            world_size=options.world,
            timeout=datetime.timedelta(seconds=options.timeout),
        )
        worker.log.info("joined: rank %d of %d on %s", rank, options.world, socket.gethostname())
        warm_up(worker, options.steps, options.pause)
    routine.function(worker)
    worker.log.info("done")
    if routine.group:
        dist.destroy_process_group()


def start_processes(options):
    """Start one process a rank and wait for them, as a home-made launcher does."""
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=work, args=(rank, options), name=f"Worker-{rank}") for rank in range(options.world)
    ]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        time.sleep(0.2)
        failed = [process for process in processes if process.exitcode]
        if failed and not options.patient:
            for process in processes:
                process.terminate()
            break
    for process in processes:
        process.join()
        print(f"launcher: {process.name} exited with code {process.exitcode}", flush=True)
    sys.exit(max(abs(process.exitcode) for process in processes) and 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("routine", choices=sorted(routines.ROUTINES))
    parser.add_argument("--odd", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.02)
    parser.add_argument("--folder", default="/tmp")
    parser.add_argument("--console", choices=sorted(consoles.CONSOLES), default="plain")
    parser.add_argument(
        "--endpoint", default="", help="HOST:PORT of the store or file://PATH; MASTER_ADDR and MASTER_PORT without"
    )
    parser.add_argument("--world", type=int, default=int(os.environ.get("WORLD_SIZE", "1")))
    parser.add_argument("--spawn", action="store_true", help="torch.multiprocessing starts the ranks")
    parser.add_argument("--processes", action="store_true", help="multiprocessing starts the ranks")
    parser.add_argument("--patient", action="store_true", help="with --processes: wait for all, kill nobody")
    options = parser.parse_args()
    if options.spawn:
        torch.multiprocessing.spawn(work, args=(options,), nprocs=options.world)
    elif options.processes:
        start_processes(options)
    else:
        work(int(os.environ.get("RANK", "0")), options)


if __name__ == "__main__":
    main()
