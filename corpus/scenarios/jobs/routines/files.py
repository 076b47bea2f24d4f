"""Files that ranks share: configurations, vocabularies, checkpoints."""

import json
import pathlib
import time

import torch
import torch.distributed as dist

from routines import routine
from routines.ordinary import train_on


@routine("shared_config")
def read_shared_config(worker):
    """Rank 0 writes the resolved configuration, the others read it."""
    path = pathlib.Path(worker.folder) / "resolved_config.json"
    text = json.dumps({f"layer_{number}": {"hidden": 1024, "heads": 16} for number in range(60)})
    train_on(worker, 3)
    if worker.rank == 0:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text[:1000])
            file.flush()
            time.sleep(1.5)
            file.write(text[1000:])
        worker.log.info("configuration written to %s", path)
    time.sleep(0.7 if worker.is_odd else 3.0)
    layers = json.loads(path.read_text("utf-8"))
    worker.log.info("%d layers", len(layers))
    train_on(worker)


@routine("vocabulary")
def load_vocabulary(worker):
    """Every rank reads the vocabulary from its host's local disk."""
    path = pathlib.Path(worker.folder) / "vocab.json"
    worker.log.info("reading %s", path)
    tokens = json.loads(path.read_text("utf-8"))
    worker.log.info("%d tokens", len(tokens))
    train_on(worker)


@routine("own_checkpoint")
def save_own(worker):
    """Every rank saves its own part."""
    train_on(worker, 8)
    path = pathlib.Path(worker.folder) / f"rank_{worker.rank}.pt"
    worker.log.info("saving %s", path)
    with open(path, "wb") as file:
        torch.save({"step": 8, "weights": torch.zeros(256, 256)}, file)
    dist.barrier()
    worker.log.info("saved")
    train_on(worker)
