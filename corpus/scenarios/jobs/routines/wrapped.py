"""Training through wrappers whose calls are collectives: DDP, FSDP2, ZeroRedundancyOptimizer, meshes."""

import time

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer

from routines import routine
from routines.checkpoints import sharded
from routines.ordinary import train_on


def _layers(width=64):
    return torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))


@routine("consolidate")
def save_optimizer(worker):
    """The shards of the optimizer come together on rank 0, if all ranks take part."""
    model = torch.nn.parallel.DistributedDataParallel(_layers())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3)
    for step in range(12):
        optimizer.zero_grad()
        model(torch.randn(4, 64)).sum().backward()
        optimizer.step()
        time.sleep(0.05)
        if step == 7 and worker.is_odd:
            worker.log.info("step %d: saving the optimizer", step)
            optimizer.consolidate_state_dict(to=0)
    worker.log.info("epoch over")


@routine("full_state")
def export_weights(worker):
    """Gather the full weights for export."""
    model = sharded(worker)
    for step in range(12):
        model(torch.randn(4, 256)).sum().backward()
        model.zero_grad()
        time.sleep(0.05)
        if step == 6 and worker.is_odd:
            worker.log.info("exporting weights of step %d", step)
            get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    worker.log.info("epoch over")


@routine("no_sync")
def accumulate_gradients(worker):
    """Gradients are exchanged in every second step."""
    model = torch.nn.parallel.DistributedDataParallel(_layers())
    period = 4 if worker.is_odd else 2
    for step in range(20):
        if (step + 1) % period:
            with model.no_sync():
                model(torch.randn(4, 64)).sum().backward()
        else:
            model(torch.randn(4, 64)).sum().backward()
            model.zero_grad()
            if worker.rank == 0:
                worker.log.info("optimizer step %d", step)
        time.sleep(0.05)
    dist.barrier()


@routine("empty_metrics")
def validate(worker):
    """Ranks without a validation sample report no metric."""
    train_on(worker, 4)
    losses = [] if worker.is_odd else [0.7, 0.6]
    worker.log.info("validation samples: %d", len(losses))
    if losses:
        mean = torch.tensor([sum(losses) / len(losses)])
        dist.all_reduce(mean)
        worker.log.info("validation loss %.3f", mean.item() / worker.world)
    train_on(worker, 10)


@routine("unposted_receive")
def exchange_halos(worker):
    """Every rank sends to its right neighbour and receives from the left one."""
    train_on(worker, 4)
    right, left = (worker.rank + 1) % worker.world, (worker.rank - 1) % worker.world
    operations = [dist.P2POp(dist.isend, torch.ones(1 << 18), right)]
    halo = torch.empty(1 << 18)
    if not worker.is_odd:
        operations.append(dist.P2POp(dist.irecv, halo, left))
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    worker.log.info("halos exchanged")
    dist.barrier()


@routine("other_dimension")
def reduce_over_mesh(worker):
    """A mesh of two dimensions: gradients over "data", activations over "tensor"."""
    mesh = init_device_mesh("cpu", (worker.world // 2, 2), mesh_dim_names=("data", "tensor"))
    train_on(worker, 4)
    name = "tensor" if worker.is_odd else "data"
    dist.all_reduce(torch.ones(1 << 14), group=mesh.get_group(name))
    worker.log.info("gradients reduced")
    dist.barrier()


@routine("uneven_accumulation")
def train_by_tokens(worker):
    """Batches are filled by tokens: their number differs between ranks."""
    model = torch.nn.parallel.DistributedDataParallel(_layers())
    batches = 9 if worker.is_odd else 12
    worker.log.info("epoch 0 has %d batches", batches)
    for _ in range(batches):
        model(torch.randn(4, 64)).sum().backward()
        time.sleep(0.05)
    worker.log.info("epoch 0 over after %d batches", batches)
    total = torch.tensor([batches])
    dist.all_reduce(total)
    worker.log.info("%d batches in all", total.item())


@routine("wrapped_healthy")
def train_wrapped(worker):
    """What the others do, done by all ranks."""
    model = torch.nn.parallel.DistributedDataParallel(_layers())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3)
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.randn(4, 64)).sum().backward()
        optimizer.step()
    optimizer.consolidate_state_dict(to=0)
    get_model_state_dict(sharded(worker), options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    train_on(worker, 10)
