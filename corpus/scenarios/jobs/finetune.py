"""Fine-tuning entry point: picks the trainer's back end, then starts."""

import argparse
import logging
import os

import torch
import torch.distributed as dist

log = logging.getLogger("finetune")


def load_with_transformers():
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM


def load_with_deepspeed():
    import deepspeed

    return deepspeed.initialize


def load_images():
    import torchvision

    return torchvision.transforms


def read_table():
    import pandas

    return pandas.read_parquet


def reduce_in_float8():
    gradients = torch.randn(4096).to(torch.float8_e4m3fn)
    dist.all_reduce(gradients)


BACK_ENDS = {
    "transformers": load_with_transformers,
    "deepspeed": load_with_deepspeed,
    "images": load_images,
    "table": read_table,
    "float8": reduce_in_float8,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--back-end", choices=sorted(BACK_ENDS), required=True)
    options = parser.parse_args()
    rank = os.environ.get("RANK", "0")
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(levelname)s %(name)s: %(message)s")
    log.info("torch %s, back end %s", torch.__version__, options.back_end)
    dist.init_process_group("gloo")
    made = BACK_ENDS[options.back_end]()
    log.info("using %s", made)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
