"""Groups of ranks, messages between two of them, objects, the store."""

import datetime
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join

from routines import routine
from routines.ordinary import train_on


@routine("subset_group")
def make_tensor_groups(worker):
    """Only members make their group; some ranks think that they are members of none."""
    train_on(worker, 3)
    if not worker.is_odd:
        group = dist.new_group(list(range(worker.world)))
        dist.all_reduce(torch.ones(16), group=group)
    train_on(worker)


@routine("tags")
def exchange_activations(worker):
    """Neighbours in a pipeline: even ranks send to the next one."""
    train_on(worker, 3)
    tag = 7 if worker.is_odd else 0
    if worker.rank % 2 == 0:
        dist.send(torch.ones(1 << 18), worker.rank + 1, tag=tag)
    else:
        dist.recv(torch.empty(1 << 18), worker.rank - 1, tag=tag)
    worker.log.info("activations exchanged")
    dist.barrier()


@routine("join_throws")
def train_uneven(worker):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    batches = 5 if worker.is_odd else 9
    worker.log.info("epoch 0: %d batches", batches)
    with model.join(throw_on_early_termination=True):
        for _ in range(batches):
            model(torch.randn(4, 8)).sum().backward()
            time.sleep(0.05)


@routine("join")
def train_uneven_joined(worker):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    batches = 5 if worker.is_odd else 9
    worker.log.info("epoch 0: %d batches", batches)
    with Join([model]):
        for _ in range(batches):
            model(torch.randn(4, 8)).sum().backward()
            time.sleep(0.05)
    train_on(worker, 5)


@routine("lock_in_object")
def share_settings(worker):
    train_on(worker, 3)
    settings = [None]
    if worker.rank == 0:
        settings = [{"vocabulary": 32000, "cache": {"guard": threading.Lock()}}]
    dist.broadcast_object_list(settings, src=0)
    train_on(worker)


@routine("scatter_short")
def scatter_shards(worker):
    train_on(worker, 3)
    shards = [f"shard-{index:05d}.bin" for index in range(worker.world - 1)] if worker.rank == 0 else None
    mine = [None]
    dist.scatter_object_list(mine, shards, src=0)
    train_on(worker)


@routine("gather_root")
def collect_losses(worker):
    train_on(worker, 3)
    root = 1 if worker.is_odd else 0
    loss = torch.full((1 << 16,), 0.5)
    rows = [torch.empty_like(loss) for _ in range(worker.world)] if worker.rank == root else None
    dist.gather(loss, rows, dst=root)
    worker.log.info("losses collected")
    dist.barrier()


@routine("foreign_source")
def broadcast_in_stage(worker):
    train_on(worker, 3)
    half = worker.world // 2
    stages = [dist.new_group(list(range(half))), dist.new_group(list(range(half, worker.world)))]
    stage = worker.rank // half
    dist.broadcast(torch.ones(64), src=0, group=stages[stage])
    train_on(worker)


@routine("key_never_set")
def wait_for_index(worker):
    """Rank 0 announces the index in the store, unless it takes another path."""
    train_on(worker, 3)
    store = dist.distributed_c10d._get_default_store()
    if worker.rank == 0:
        worker.log.info("index of version 3 found, not built again")
    else:
        worker.log.info("waiting for the index")
        store.wait(["dataset/index_ready"], datetime.timedelta(seconds=worker.timeout))
    train_on(worker)


@routine("break_on_nan")
def stop_epoch_on_nan(worker):
    """A loss that is not finite ends the epoch of its rank alone."""
    for step in range(30):
        loss = torch.tensor(float("nan") if worker.is_odd and step == 9 else 0.5)
        if not torch.isfinite(loss):
            worker.log.warning("loss is nan at iter %d, leaving the epoch", step)
            break
        dist.all_reduce(torch.full((2048,), loss.item()))
        time.sleep(0.05)
    verdicts = [None] * worker.world
    dist.all_gather_object(verdicts, {"rank": worker.rank, "finished": True})
    worker.log.info("epoch over")


@routine("file_lock")
def build_extension(worker):
    """A lock file that a killed build left behind keeps one rank waiting."""
    train_on(worker, 3)
    if worker.is_odd:
        for waited in range(int(3 * worker.timeout)):
            if waited % 3 == 0:
                worker.log.info("waiting for lock /root/.cache/torch_extensions/fused_adam/lock (held by pid 3127)")
            time.sleep(1)
    train_on(worker)


@routine("late_group_member")
def start_with_late_rank(worker):
    """One rank compiles for longer than its partners wait in their group's first collective."""
    train_on(worker, 3)
    pairs = [dist.new_group([rank, rank + 1]) for rank in range(0, worker.world - 1, 2)]
    if worker.is_odd:
        worker.log.info("compiling graph 0 (inductor)")
        time.sleep(1.6 * worker.timeout)
        worker.log.info("compiled graph 0")
    dist.all_reduce(torch.ones(1 << 12), group=pairs[worker.rank // 2])
    worker.log.info("pair reduced")
    dist.barrier()
