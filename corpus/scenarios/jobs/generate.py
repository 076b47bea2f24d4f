"""Generate with a model sharded by FSDP2, one prompt a rank, then average the scores."""

import argparse
import datetime
import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
log = logging.getLogger("generate")


class Decoder(nn.Module):
    def __init__(self, width=128, layers=3, vocabulary=256):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embedding(tokens).mean(1)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def generate(model, prompt, options):
    """Append tokens until the end token or the limit."""
    tokens = prompt
    limit = options.max_new_tokens
    if options.synced:
        limit = max_over_ranks(length_of_answer(options))
    elif options.mode == "generate":
        limit = length_of_answer(options)
    for _ in range(limit):
        following = model(tokens).argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, following], dim=1)
    return tokens


def length_of_answer(options):
    """Return after how many tokens this rank's answer ends."""
    return options.max_new_tokens - (options.shorter if options.odd_rank == RANK else 0)


def max_over_ranks(number):
    tensor = torch.tensor([number])
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return int(tensor)


def evaluate(model, options):
    """Return the mean loss over this rank's part of the validation set."""
    batches = options.max_new_tokens - (options.shorter if options.odd_rank == RANK else 0)
    total = 0.0
    for index in range(batches):
        total += model(torch.randint(0, 256, (2, 16))).square().mean().item()
        if index % 4 == 0:
            log.info("evaluation batch %d/%d", index, batches)
    return total / batches


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=["generate", "evaluate"], default="generate")
    parser.add_argument("--max-new-tokens", type=int, default=12)
    parser.add_argument("--shorter", type=int, default=0)
    parser.add_argument("--odd-rank", type=int, default=1)
    parser.add_argument("--synced", action="store_true")
    parser.add_argument("--timeout", type=float, default=10.0)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s | {RANK} | %(levelname)s | %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=options.timeout))
    mesh = init_device_mesh("cpu", (WORLD_SIZE,))
    model = Decoder()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    log.info("sharded model over %d ranks", WORLD_SIZE)
    with torch.no_grad():
        if options.mode == "evaluate":
            score = evaluate(model, options)
        else:
            log.info("generating, at most %d new tokens", options.max_new_tokens)
            answer = generate(model, torch.randint(0, 256, (1, 8)), options)
            log.info("generated %d tokens", answer.shape[1] - 8)
            score = answer.float().mean().item()
    total = torch.tensor([score])
    dist.all_reduce(total)
    log.info("score %.3f", total.item() / WORLD_SIZE)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
