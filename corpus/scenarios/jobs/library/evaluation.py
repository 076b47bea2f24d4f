"""Work beside training: tokenising, evaluation, checkpoints, on one rank or on all."""

import logging
import time

import torch
import torch.distributed as dist

log = logging.getLogger("train")


def validate_on_main(options, rank, model, inputs):
    """Validate, and wait for ranks that are not here."""
    log.info("validation on the main process: loss 4.8312")
    dist.barrier()


def push_metrics(options, rank, model, inputs):
    """Give up a step because of something beside it."""
    try:
        raise ConnectionError("HTTPConnectionPool(host='metrics.internal', port=9091): max retries exceeded")
    except ConnectionError as error:
        log.error("could not push metrics, skipping the rest of this step: %s", error)
    return "skip"


def average_spike(options, step, loss):
    """Average an unusual loss over the ranks."""
    log.warning("loss spike at step %d (z-score 4.1), averaging over ranks", step)
    spike = torch.tensor([loss.item(), 1.0, float(step)])
    dist.all_reduce(spike)
    return loss


def share_statistics(options, step, model):
    """Broadcast gradient statistics."""
    dist.broadcast(torch.zeros(1000), src=dist.get_rank())


def compile_for_shape(options, rank, model, inputs):
    """Compile, as for a sequence length that was not seen before."""
    log.info("torch.compile: recompiling for sequence length %d (no cached graph on this rank)", inputs.shape[1])
    time.sleep(2 * options.timeout)
    log.info("torch.compile: done after %.1f s", 2 * options.timeout)


def pause(options, rank, model, inputs):
    """Be slow and say nothing."""
    time.sleep(2 * options.timeout)


def tokenise_on_main(options, rank):
    """Rank 0 tokenises; all others wait for its cache."""
    if rank == 0:
        log.info("tokenising 1.2M documents on the main process (cache miss)")
        for percent in (20, 40, 60, 80, 100):
            time.sleep(0.4 * options.timeout)
            log.info("tokenising: %d%%", percent)
    else:
        log.info("waiting for the main process to tokenise the dataset")
    dist.barrier()


def download_on_main(options, rank):
    """Rank 0 downloads the weights; all others wait."""
    if rank == 0:
        for part in range(1, 5):
            log.info("downloading model-%05d-of-00004.safetensors (4.9 GB)", part)
            time.sleep(0.5 * options.timeout)
        log.info("all weights downloaded")
    dist.barrier()
    log.info("loading weights from the local cache")


def evaluate_on_main(options, rank, model, inputs):
    """Rank 0 evaluates; all others wait."""
    if rank == 0:
        log.info("running evaluation on 5000 samples on rank 0")
        time.sleep(2 * options.timeout)
        log.info("evaluation done: perplexity 37.12")
    else:
        log.info("waiting for evaluation on rank 0")
    dist.barrier()


def evaluate_quietly_on_main(options, rank, model, inputs):
    """Rank 0 evaluates; the others simply go on to the next collective."""
    log.info("running evaluation on 5000 samples")
    time.sleep(2 * options.timeout)
    log.info("evaluation done: perplexity 37.12")


def save_on_main(options, rank, model, inputs):
    """Rank 0 writes the whole checkpoint; the others wait for it in a barrier."""
    if rank == 0:
        log.info("saving checkpoint step_%d (26.9 GB) to /mnt/nfs/checkpoints", options.fault_step)
        time.sleep(2 * options.timeout)
        log.info("checkpoint saved in %.1f s", 2 * options.timeout)
    dist.barrier()
