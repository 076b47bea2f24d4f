"""Where samples come from: a slow store, shards on a network file system, a pipe from a downloader."""

import faulthandler
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

log = logging.getLogger("train")


def fetch_sample(options, rank, index, sample):
    """Take long now and then, as a cold object store does."""
    if index % 23 == 5:
        time.sleep(2.5 * options.timeout)
    return sample


def fetch_from_object_store(options, rank, index, sample):
    """The same, with what a storage client logs."""
    if index % 23 == 5:
        for attempt in range(1, 6):
            log.warning("GET s3://corpus/c4/shard-%05d.tar took too long, attempt %d of 5", index, attempt)
            time.sleep(0.5 * options.timeout)
    return sample


def read_next_shard(options, rank, model, inputs):
    """Open a shard that a downloader is to fill: the writer never comes."""
    path = Path(tempfile.mkdtemp()) / "shard-0042.tar"
    os.mkfifo(path)
    log.info("opening the next shard /mnt/nfs/data/shard-0042.tar")
    with path.open("rb") as shard:
        return shard.read()


def read_next_shard_watched(options, rank, model, inputs):
    """The same, with the stacks dumped when it takes too long."""
    faulthandler.dump_traceback_later(0.7 * options.timeout, file=sys.stderr)
    return read_next_shard(options, rank, model, inputs)


def pack_sequences(options, rank, model, inputs):
    """Leave out a batch without tokens."""
    log.warning("batch holds only padding after packing, skipping it")
    return "skip"


def batches_of_this_rank(options, rank):
    """Return how many batches this rank's part of the data gives."""
    return options.steps - 7


def end_of_data(options, rank):
    """Say that the data is used up."""
    log.info("dataloader exhausted after %d batches, leaving the epoch", batches_of_this_rank(options, rank))
    return "leave"
