"""A small real training job on CPUs (DDP, FSDP2 or none), into which one fault is put at a hook point.

Faults live in phases.py, one function each; this file knows only where they may strike.
"""

import argparse
import datetime
import logging
import os
import sys
import time

import phases
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
log = logging.getLogger("train")


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="none", choices=["none", *phases.NAMES])
    parser.add_argument("--fault-rank", type=int, default=1)
    parser.add_argument("--fault-step", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds of the process group's time-out")
    parser.add_argument("--parallel", choices=["ddp", "fsdp", "none"], default="ddp")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--step-time", type=float, default=0.05, help="seconds of pretended computing a step")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--extra-mib", type=int, default=0, help="all-reduce that many MiB more in each step")
    parser.add_argument("--checkpoint", default="", help="folder")
    parser.add_argument("--checkpoint-every", type=int, default=0)
    return parser.parse_args()


class Tokens(Dataset):
    """Random token sequences; a fault may strike when a sample is read."""

    def __init__(self, options, length=4000, vocabulary=128, sequence=16):
        generator = torch.Generator().manual_seed(1)
        self.options = options
        self.samples = torch.randint(0, vocabulary, (length, sequence + 1), generator=generator)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return phases.on_sample(self.options, RANK, index, self.samples[index])


class Block(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, hidden=256, layers=2, vocabulary=128):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.ModuleList([Block(hidden) for _ in range(layers)])
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, x, layers=None):
        x = self.embedding(x)
        for block in self.blocks[:layers]:
            x = block(x)
        return self.head(x)


def wrap(model, options):
    if options.parallel == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if options.parallel == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (WORLD_SIZE,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def save(model, optimizer, options, step):
    path = f"{options.checkpoint}/step_{step}_rank{RANK}.pt"
    log.info("saving checkpoint %s", path)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def train(options):
    phases.before_model(options, RANK)
    plain = phases.make_model(options, RANK, Model)
    model = wrap(plain, options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    dataset = Tokens(options)
    sampler = DistributedSampler(dataset, WORLD_SIZE, RANK, shuffle=True)
    batches = iter(DataLoader(dataset, batch_size=options.batch, sampler=sampler, num_workers=options.workers))
    extra = torch.ones(options.extra_mib * 1024 * 256) if options.extra_mib else None
    started = time.time()
    for step in range(phases.number_of_steps(options, RANK)):
        batch = next(batches)
        inputs, targets = batch[:, :-1], batch[:, 1:]
        time.sleep(options.step_time)
        optimizer.zero_grad()
        if phases.before_step(options, RANK, step, model, inputs) == "skip":
            continue
        output = phases.forward(options, RANK, step, model, inputs)
        loss = nn.functional.cross_entropy(output.reshape(-1, output.shape[-1]), targets.reshape(-1))
        loss = phases.on_loss(options, RANK, step, loss)
        loss.backward()
        if extra is not None:
            dist.all_reduce(extra)
            extra /= WORLD_SIZE
        phases.on_gradients(options, RANK, step, model)
        optimizer.step()
        if RANK == 0 or step % 10 == 0:
            speed = options.batch * 16 * (step + 1) / (time.time() - started)
            log.info("step %d/%d loss %.4f lr %.1e %.0f tok/s", step, options.steps, loss.item(), 1e-3, speed)
        if options.checkpoint_every and step % options.checkpoint_every == options.checkpoint_every - 1:
            if options.fault == "none" or options.fault_rank in (RANK, -1):
                save(plain, optimizer, options, step)
            dist.barrier()
    if phases.after_training(options, RANK) != "leave":
        dist.barrier()
        log.info("training finished")


def main():
    options = parse_arguments()
    logging.basicConfig(
        level=logging.INFO,
        format=f"%(asctime)s - %(levelname)s - %(name)s - [rank {RANK}/{WORLD_SIZE}] %(message)s",
        stream=sys.stdout,
    )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    log.info("torch %s, pid %d, host %s", torch.__version__, os.getpid(), os.uname().nodename)
    phases.before_process_group(options, RANK)
    backend = os.environ.get("BACKEND", "gloo")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=options.timeout))
    log.info("process group ready, world size %d", dist.get_world_size())
    train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
