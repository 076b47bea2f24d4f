"""Checkpoints: sharded ones of torch.distributed.checkpoint, and plain files of each rank."""

import os
import pathlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from routines import routine
from routines.ordinary import train_on


def sharded(worker, width=256):
    mesh = init_device_mesh("cpu", (worker.world,))
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Linear(width, width))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


@routine("sharded_save")
def save_sharded(worker):
    model = sharded(worker, 512)
    train_on(worker, 3)
    for step in (100, 200):
        worker.log.info("saving step %d", step)
        dcp.save({"model": model.state_dict()}, checkpoint_id=f"{worker.folder}/step_{step}")
        worker.log.info("saved step %d", step)
    train_on(worker, 5)


@routine("sharded_missing_key")
def resume_other_model(worker):
    model = sharded(worker)
    folder = f"{worker.folder}/step_100"
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder)
    worker.log.info("resuming from %s", folder)
    wanted = {"model": model.state_dict(), "ema": {"decay": torch.zeros(1)}}
    dcp.load(wanted, checkpoint_id=folder)
    train_on(worker)


@routine("sharded_truncated")
def resume_damaged(worker):
    model = sharded(worker)
    folder = pathlib.Path(worker.folder) / "step_100"
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder)
    dist.barrier()
    if worker.is_odd:
        with open(folder / f"__{worker.rank}_0.distcp", "r+b") as shard:
            shard.truncate(1000)
    dist.barrier()
    worker.log.info("resuming from %s", folder)
    dcp.load({"model": model.state_dict()}, checkpoint_id=folder)
    train_on(worker)


@routine("own_empty")
def resume_own(worker):
    """Every rank reads its own optimizer state; one file is empty."""
    path = pathlib.Path(worker.folder) / f"optim_rank{worker.rank}.pt"
    torch.save({"step": 100, "exp_avg": torch.zeros(64)}, path)
    if worker.is_odd:
        os.truncate(path, 0)
    train_on(worker, 3)
    worker.log.info("loading %s", path)
    torch.load(path)
    train_on(worker)


@routine("own_halved")
def resume_own_half(worker):
    path = pathlib.Path(worker.folder) / f"optim_rank{worker.rank}.pt"
    torch.save({"step": 100, "exp_avg": torch.zeros(1 << 16)}, path)
    if worker.is_odd:
        os.truncate(path, path.stat().st_size // 2)
    train_on(worker, 3)
    worker.log.info("loading %s", path)
    torch.load(path)
    train_on(worker)
