"""Tensor (and pipeline and data) parallel training of one attention block on a device mesh."""

import argparse
import datetime
import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
log = logging.getLogger("train_tp")


class Attention(nn.Module):
    def __init__(self, width, heads, local_heads):
        super().__init__()
        self.local_heads = local_heads
        self.head_width = width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(self, x):
        batch, length, _ = x.shape
        shape = (batch, length, self.local_heads, self.head_width)
        q, k, v = (layer(x).view(shape).transpose(1, 2) for layer in (self.query, self.key, self.value))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, -1))


def check_sizes(options):
    """Check the sizes as a launcher does before anything else is built."""
    model_parallel = options.tp * options.pp
    if options.check == "divisible" and WORLD_SIZE % model_parallel:
        raise RuntimeError(
            f"world_size ({WORLD_SIZE}) is not divisible by total_model_size ({model_parallel} = tensor model parallel "
            f"size {options.tp} x pipeline model parallel size {options.pp})"
        )
    if options.check == "assert":
        assert options.dp * options.tp * options.pp == WORLD_SIZE, (
            f"Invalid parallel dims: dp({options.dp}) * tp({options.tp}) * pp({options.pp}) != WORLD_SIZE({WORLD_SIZE})"
        )
    if options.check == "heads":
        assert options.heads % options.tp == 0, f"{options.heads} is not divisible by {options.tp}"


def pipeline_groups(options):
    """Make one group for each pipeline, of ranks that lie a stage apart."""
    stride = WORLD_SIZE // options.pp if options.stride == 0 else options.stride
    return [
        dist.new_group([first + stage * stride for stage in range(options.pp)])
        for first in range(min(stride, WORLD_SIZE))
    ]


def load_shard(model, options):
    """Read this rank's part of a checkpoint that was written with --saved-tp."""
    path = f"/mnt/ckpt/mp_rank_{RANK % options.saved_tp:02d}_model_states.pt"
    model.load_state_dict(torch.load(path, map_location="cpu"))


def write_shards(options):
    """Write what a run with --saved-tp ranks would have left."""
    for rank in range(options.saved_tp):
        part = nn.ModuleDict({"up": nn.Linear(options.width, 4 * options.width // options.saved_tp)})
        torch.save(part.state_dict(), f"/mnt/ckpt/mp_rank_{rank:02d}_model_states.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dp", type=int, default=1)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--stride", type=int, default=0)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--check", choices=["none", "divisible", "assert", "heads"], default="none")
    parser.add_argument("--saved-tp", type=int, default=0)
    parser.add_argument("--write-shards", action="store_true")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--timeout", type=float, default=15.0)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[rank{RANK}]: %(asctime)s %(name)s %(levelname)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.write_shards:
        write_shards(options)
        return
    log.info("world size %d, dp=%d tp=%d pp=%d", WORLD_SIZE, options.dp, options.tp, options.pp)
    check_sizes(options)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=options.timeout))
    if options.pp > 1:
        groups = pipeline_groups(options)
        log.info("%d pipelines of %d stages", len(groups), options.pp)
    if options.saved_tp:
        load_shard(nn.ModuleDict({"up": nn.Linear(options.width, 4 * options.width // options.tp)}), options)
    mesh = init_device_mesh("cpu", (options.dp, options.tp), mesh_dim_names=("dp", "tp"))
    log.info("%s", mesh)
    model = Attention(options.width, options.heads, options.heads // options.tp)
    plan = {name: ColwiseParallel() for name in ("query", "key", "value")} | {"output": RowwiseParallel()}
    parallelize_module(model, mesh["tp"], plan)
    group = mesh["dp"].get_group()
    for step in range(options.steps):
        loss = model(torch.randn(2, 16, options.width)).square().mean()
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad.to_local(), group=group)
        log.info("step %d loss %.4f", step, loss.item())
    dist.barrier()
    log.info("finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
