"""What a training script checks, loads and computes before and in a step; each of these can raise."""

import logging
import os
import sys
from pathlib import Path

import torch

log = logging.getLogger("train")


def project_logits(options, rank, model, inputs):
    hidden = torch.randn(inputs.shape[0], options.hidden)
    head = torch.randn(options.hidden // 2, 128)
    return hidden @ head


def embed_special_tokens(options, rank, model, inputs):
    embedding = getattr(model, "module", model).embedding
    return embedding(torch.full_like(inputs, 4096))


def shift_labels(options, rank, model, inputs):
    batch = {"input_ids": inputs, "attention_mask": torch.ones_like(inputs)}
    return batch["labels"]


def check_sequence_length(options, rank, model, inputs):
    assert inputs.shape[1] == 4096, f"sequence length {inputs.shape[1]} does not match max_position_embeddings 4096"


def check_config(options, rank):
    known = {"gelu": torch.nn.GELU, "relu": torch.nn.ReLU, "silu": torch.nn.SiLU}
    activation = "swiglu_v2"
    if activation not in known:
        raise ValueError(f"unknown activation {activation!r} in configs/model.yaml; known: {', '.join(sorted(known))}")
    return known[activation]


def select_attention(options, rank):
    from flash_attn import flash_attn_func

    return flash_attn_func


def load_tokenizer(options, rank):
    with Path("/data/models/llama-7b/tokenizer.json").open(encoding="utf-8") as file:
        return file.read()


def build_scheduler(options, rank, model, inputs):
    return torch.optim.lr_scheduler.OneCycleLR(model, max_lr=1e-3, total_steps=options.steps)


def check_manifest(options, rank, model, inputs):
    log.error("checkpoint manifest does not match the tokenizer (vocab 32000, expected 32016), giving up")
    os._exit(17)


def leave_with_status(options, rank, model, inputs):
    os._exit(3)


def stop_early(options, rank, model, inputs):
    log.info("early stopping: patience exhausted")
    sys.exit(0)
