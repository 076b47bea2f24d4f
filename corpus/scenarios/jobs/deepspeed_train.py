"""A small DeepSpeed training job on CPUs: ZeRO 1 to 3, generation, checkpoints; ``--fault`` chooses what goes wrong."""

import argparse
import datetime
import logging
import os
import signal
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

# The CPU shared-memory operator would be compiled at the first start.
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None

RANK = int(os.environ["RANK"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"])
VOCABULARY = 64
log = logging.getLogger("trainer")


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--timeout", type=float, default=12.0)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--train-batch", type=int, default=0)
    parser.add_argument(
        "--gather", action="store_true", help="parameters are gathered at each use, as those of big models"
    )
    parser.add_argument("--precision", choices=["fp32", "bf16", "fp16"], default="fp32")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--checkpoint", default="")
    parser.add_argument("--generate-at", type=int, default=-1)
    parser.add_argument("--fault", default=os.environ.get("FAULT", "none"))
    parser.add_argument("--fault-rank", type=int, default=int(os.environ.get("FAULT_RANK", "1")))
    parser.add_argument("--fault-step", type=int, default=3)
    parser.add_argument("--local_rank", type=int, default=0)
    return parser.parse_args()


class Block(nn.Module):
    """A residual block."""

    def __init__(self, hidden):
        super().__init__()
        self.linear, self.norm = nn.Linear(hidden, hidden), nn.LayerNorm(hidden)

    def forward(self, x):
        return x + torch.relu(self.linear(self.norm(x)))


class Model(nn.Module):
    """A language model without attention."""

    def __init__(self, hidden, layers):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, hidden)
        self.blocks = nn.ModuleList([Block(hidden) for _ in range(layers)])
        self.head = nn.Linear(hidden, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def zero_config(options):
    zero = {"stage": options.stage}
    if options.stage == 3:
        zero["stage3_param_persistence_threshold"] = 0
        if options.gather:
            zero.update(stage3_max_live_parameters=0, stage3_max_reuse_distance=0, stage3_prefetch_bucket_size=0)
    return zero


def make_config(options):
    """Return the configuration; a few faults are wrong settings."""
    config = {
        "train_micro_batch_size_per_gpu": options.micro_batch,
        "gradient_accumulation_steps": options.accumulate,
        "optimizer": {"type": "Adam", "params": {"lr": options.learning_rate, "torch_adam": True}},
        "zero_optimization": zero_config(options),
        "steps_per_print": 2,
    }
    if options.train_batch:
        config["train_batch_size"] = options.train_batch
    if options.precision != "fp32":
        config[options.precision] = {"enabled": True}
    if options.precision == "fp16":
        config["fp16"].update(initial_scale_power=16, loss_scale_window=2, hysteresis=1, min_loss_scale=1)
    changes = {
        "stage_5": {"zero_optimization": {"stage": 5}},
        "offload_name": {"zero_optimization": {"stage": 2, "offload_optimiser": {"device": "cpu"}}},
        "no_batch": {"train_micro_batch_size_per_gpu": None, "gradient_accumulation_steps": None},
        "only_accumulation": {"train_micro_batch_size_per_gpu": None},
        "infer_accumulation": {"gradient_accumulation_steps": None},
        "both_precisions": {"fp16": {"enabled": True}, "bf16": {"enabled": True}},
    }
    config.update(changes.get(options.fault, {}))
    return {key: value for key, value in config.items() if value is not None}


def generate(engine, prompt, tokens):
    """Generate greedily; under ZeRO-3 each token gathers the parameters of every rank."""
    log.info("generating up to %d tokens", tokens)
    engine.eval()
    with torch.no_grad():
        for _ in range(tokens):
            prompt = torch.cat([prompt, engine(prompt)[:, -1:].argmax(-1)], dim=1)
    engine.train()
    log.info("generated %d tokens", tokens)
    return prompt


def score_samples(samples):
    scores = {"helpful": [], "harmless": []}
    return sum(scores["helpful"]) / len(scores["helpful"]) + len(samples)


def before_step(options, engine, step, batch):
    """Let the fault strike; returns True when this rank is to leave the step out."""
    if step != options.fault_step or options.fault_rank not in (RANK, -1):
        return False
    if options.fault == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(30)
    if options.fault == "exception":
        score_samples(batch)
    if options.fault == "skip":
        log.warning("step %d: batch has no valid labels, skipping it", step)
        return True
    if options.fault == "save_here":
        engine.save_checkpoint(options.checkpoint, tag=f"step{step}")
        log.info("checkpoint written")
    if options.fault == "slow_data":
        log.warning("step %d: shard 17 is not in the cache, reading it from object storage", step)
        time.sleep(options.timeout * 2)
    return False


def train(options, engine):
    generator = torch.Generator().manual_seed(RANK)
    for step in range(options.steps):
        batch = torch.randint(0, VOCABULARY, (options.micro_batch, 16), generator=generator)
        if before_step(options, engine, step, batch):
            continue
        logits = engine(batch)
        loss = nn.functional.cross_entropy(logits.float().reshape(-1, VOCABULARY), batch.reshape(-1))
        if options.fault == "overflow" and step >= options.fault_step:
            loss = loss * float("inf")
        engine.backward(loss)
        engine.step()
        if RANK == 0:
            log.info("step %d loss %.4f", step, loss.item())
        if step == options.generate_at:
            tokens = 4 if options.fault == "short_answer" and options.fault_rank == RANK else 12
            generate(engine, batch[:1, :4], tokens)
        if options.checkpoint and options.fault != "save_here" and step == options.steps - 1:
            engine.save_checkpoint(options.checkpoint, tag=f"step{step}")


def main():
    options = parse_arguments()
    logging.basicConfig(
        level=logging.INFO,
        format=f"%(asctime)s %(levelname)s %(name)s [rank{RANK}] %(message)s",
        stream=sys.stdout,
        force=True,
    )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    timeout = datetime.timedelta(seconds=options.timeout)
    deepspeed.init_distributed(dist_backend=os.environ.get("BACKEND", "gloo"), timeout=timeout)
    if options.precision == "fp16":
        # Torch computes in half precision on any CPU, if slowly; DeepSpeed asks for instructions made for it.
        deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
    model = Model(options.hidden, options.layers)
    engine, _, _, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=make_config(options)
    )
    log.info("engine ready, world size %d, ZeRO stage %d", WORLD_SIZE, options.stage)
    train(options, engine)
    dist.barrier()
    log.info("training finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
