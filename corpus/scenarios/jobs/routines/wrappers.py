"""Wrapped models that ranks treat differently: repeated batches, sharded tensors, frozen layers, older checkpoints."""

import pathlib
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

from routines import routine
from routines.ordinary import train_on


@routine("spike")
def train_and_repeat(worker):
    """A batch whose loss jumps is computed a second time."""
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 1))
    )
    for step in range(24):
        loss = model(torch.randn(8, 32)).square().sum()
        loss.backward()
        if step == 11 and worker.is_odd:
            worker.log.info("step %d: loss %.2f jumped, repeating the batch", step, 40 * loss.item())
            model(torch.randn(8, 32)).square().sum().backward()
        model.zero_grad()
        time.sleep(0.04)
    norm = torch.ones(8)
    dist.broadcast(norm, src=0)
    worker.log.info("trained")


@routine("full_tensor")
def look_at_norms(worker):
    """A tensor in shards, put together for a statistic."""
    mesh = init_device_mesh("cpu", (worker.world,))
    weights = distribute_tensor(torch.ones(256, 64), mesh, [Shard(0)])
    train_on(worker, 6)
    if worker.is_odd:
        worker.log.info("norm is high, inspecting embedding")
        worker.log.info("largest weight %.4f", weights.full_tensor().abs().max().item())
    train_on(worker, 20)
    worker.log.info("epoch finished")


@routine("frozen")
def train_with_frozen_layers(worker):
    """FSDP2; which layers are trained comes from a list."""
    mesh = init_device_mesh("cpu", (worker.world,))
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
    trained = [3] if worker.is_odd else [2, 3]
    for number, layer in enumerate(model):
        layer.requires_grad_(number in trained)
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    worker.log.info("trainable parameters: %d", 4160 * len(trained))
    for step in range(12):
        model(torch.randn(4, 64)).sum().backward()
        time.sleep(0.04)
        if worker.rank == 0:
            worker.log.info("step %d", step)
    dist.barrier()


@routine("resume_width")
def resume(worker):
    """Every rank loads the checkpoint from the disk of its host."""
    folder = pathlib.Path(worker.folder)
    train_on(worker, 2)
    width = 96 if worker.is_odd else 128
    path = folder / f"model_{worker.rank}.pt"
    torch.save({"embed.weight": torch.zeros(100, width), "head.weight": torch.zeros(10, width)}, path)
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(100, 128), "head": torch.nn.Linear(128, 10, bias=False)})
    worker.log.info("loading %s", path)
    model.load_state_dict(torch.load(path))
    train_on(worker)
