"""A small model under DeepSpeed that is saved and resumed, with a pipeline if wanted."""

import argparse
import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.pipe import PipelineModule
from torch import nn

# The CPU shared-memory operator would be compiled at the first start.
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None

RANK = int(os.environ.get("RANK", "0"))


def say(text):
    print(f"[rank {RANK}] {text}", flush=True)


def layers(width=64):
    return [nn.Linear(width, width) for _ in range(6)] + [nn.Linear(width, 1)]


def train(engine, steps):
    for step in range(steps):
        loss = engine(torch.randn(4, 64)).square().mean()
        engine.backward(loss)
        engine.step()
        if RANK == 0:
            say(f"step {step} loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.add_argument("--folder", default="/mnt/checkpoints")
    parser.add_argument("--stage", type=int, default=1)
    parser.add_argument("--stages", type=int, default=0, help="of a pipeline")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--odd-tag", type=int, default=-1, help="the rank that names its checkpoint otherwise")
    options = parser.parse_args()
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": options.stage},
        "checkpoint": {"tag_validation": "Fail"},
        "bf16": {"enabled": options.stage > 0},
    }
    if options.stages:
        model = PipelineModule(layers(), num_stages=options.stages, loss_fn=nn.MSELoss())
    else:
        model = nn.Sequential(*layers())
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    if options.resume:
        path, _ = engine.load_checkpoint(options.folder)
        say(f"resumed from {path}")
    half = engine.module
    forward = engine.forward
    engine.forward = lambda batch: forward(batch.to(next(half.parameters()).dtype))
    train(engine, 5)
    if options.save:
        tag = "step_5_b" if options.odd_tag == RANK else "step_5"
        engine.save_checkpoint(options.folder, tag=tag)
        say("checkpoint written")
    dist.barrier()
    say("training finished")


if __name__ == "__main__":
    sys.exit(main())
