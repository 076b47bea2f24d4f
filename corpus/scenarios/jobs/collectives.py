"""Bare collectives without a training loop: a warm-up, then one exchange in which a rank may do something else."""

import argparse
import datetime
import logging
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

RANK = int(os.environ["RANK"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"])
log = logging.getLogger("exchange")
EXCHANGES = {}


def exchange(name):
    """Register a function as one of the exchanges."""

    def register(function):
        EXCHANGES[name] = function
        return function

    return register


def others(odd):
    """Return whether this rank is not the odd one."""
    return odd not in (RANK, -1)


@exchange("none")
def reduce_loss(odd, timeout):
    dist.all_reduce(torch.ones(4096))
    dist.barrier()


@exchange("shape")
def reduce_gradients(odd, timeout):
    gradients = torch.ones(4000 if others(odd) else 1000)
    dist.all_reduce(gradients)


@exchange("small_shape")
def reduce_metrics(odd, timeout):
    metrics = torch.ones(8 if others(odd) else 9)
    dist.all_reduce(metrics)
    log.info("metrics %s", metrics.tolist())


@exchange("dtype")
def reduce_mixed_precision(odd, timeout):
    gradients = torch.ones(4096, dtype=torch.float32 if others(odd) else torch.float64)
    dist.all_reduce(gradients)


@exchange("op")
def share_weights(odd, timeout):
    weights = torch.ones(4096)
    if others(odd):
        dist.all_reduce(weights)
    else:
        dist.broadcast(weights, src=RANK)


@exchange("order")
def reduce_buckets(odd, timeout):
    buckets = [torch.ones(4096), torch.ones(128)]
    for bucket in buckets if others(odd) else reversed(buckets):
        dist.all_reduce(bucket)
    log.info("buckets reduced: %s", [bucket[0].item() for bucket in buckets])


@exchange("root")
def broadcast_state(odd, timeout):
    state = torch.ones(4096)
    root = 0 if others(odd) else 1
    dist.broadcast(state, src=root)
    log.info("state received")
    dist.barrier()


@exchange("gather")
def gather_logits(odd, timeout):
    rows = 4096 if others(odd) else 100
    gathered = torch.empty(rows * WORLD_SIZE)
    dist.all_gather_into_tensor(gathered, torch.ones(rows))


@exchange("gather_list")
def gather_sequences(odd, timeout):
    length = 512 + 64 * RANK
    gathered = [torch.empty(length) for _ in range(WORLD_SIZE)]
    dist.all_gather(gathered, torch.ones(length))


@exchange("broadcast_shape")
def broadcast_weights(odd, timeout):
    weights = torch.ones(4096 if others(odd) else 10)
    dist.broadcast(weights, src=0)
    log.info("weights received")
    dist.barrier()


@exchange("scatter")
def shard_gradients(odd, timeout):
    rows = 1024 if others(odd) else 1000
    shard = torch.empty(rows)
    dist.reduce_scatter_tensor(shard, torch.ones(rows * WORLD_SIZE))


@exchange("splits")
def dispatch_tokens(odd, timeout):
    sent = [4] * WORLD_SIZE
    if not others(odd):
        sent[0] = 700
    received = torch.empty(4 * WORLD_SIZE)
    dist.all_to_all_single(received, torch.ones(sum(sent)), [4] * WORLD_SIZE, sent)
    log.info("tokens dispatched")
    dist.barrier()


@exchange("membership")
def build_groups(odd, timeout):
    members = [0, 1] if others(odd) else [0, 1, 2]
    group = dist.new_group(members)
    if RANK in members:
        dist.all_reduce(torch.ones(64), group=group)
    dist.barrier()


@exchange("group_order")
def reduce_over_grid(odd, timeout):
    rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    row, column = rows[RANK // 2], columns[RANK % 2]
    for group in (row, column) if RANK in (0, 3) else (column, row):
        dist.all_reduce(torch.ones(1024), group=group)


@exchange("ring")
def pass_activations(odd, timeout):
    received = torch.empty(1 << 20)
    dist.recv(received, (RANK - 1) % WORLD_SIZE)
    dist.send(torch.ones(1 << 20), (RANK + 1) % WORLD_SIZE)


@exchange("message_size")
def pass_hidden_states(odd, timeout):
    if RANK == 0:
        dist.send(torch.ones(4096), 1)
    elif RANK == 1:
        dist.recv(torch.empty(1024), 0)
    dist.barrier()


@exchange("late_receiver")
def stream_weights(odd, timeout):
    if odd == RANK:
        log.info("loading engine weights before the receive")
        time.sleep(2.2 * timeout)
        log.info("ready to receive")
        dist.recv(torch.empty(1 << 22), 0)
    elif RANK == 0:
        dist.send(torch.ones(1 << 22), odd)
        log.info("weights sent")
    dist.barrier()


@exchange("late")
def synchronise(odd, timeout):
    if not others(odd):
        time.sleep(2 * timeout)
    dist.all_reduce(torch.ones(1 << 16))


@exchange("late_monitored")
def start_epoch(odd, timeout):
    if not others(odd):
        time.sleep(2.5 * timeout)
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=timeout))
    log.info("epoch 1")


@exchange("late_monitored_some")
def start_phase(odd, timeout):
    if RANK in (odd, odd + 2):
        log.info("building the index of shard %d", RANK)
        time.sleep(2.5 * timeout)
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=timeout), wait_all_ranks=True)
    log.info("phase 2")


@exchange("absent_monitored")
def prepare_cache(odd, timeout):
    if others(odd):
        log.info("cache miss, waiting for all ranks to build it")
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=timeout), wait_all_ranks=True)
    else:
        log.info("cache hit, nothing to build")
    dist.all_reduce(torch.ones(1 << 16))


@exchange("main_works_monitored")
def prepare_dataset(odd, timeout):
    if RANK == 0:
        log.info("main process builds the dataset index (others wait in a barrier)")
        time.sleep(2.5 * timeout)
        log.info("dataset index written")
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=timeout))


@exchange("early_destroy")
def finish(odd, timeout):
    if not others(odd):
        dist.destroy_process_group()
        log.info("process group destroyed, bye")
        sys.exit(0)
    time.sleep(1)
    dist.all_reduce(torch.ones(1 << 16))


@exchange("branch")
def log_accuracy(odd, timeout):
    accuracy = torch.tensor([0.5 if others(odd) else 0.97])
    if accuracy.item() > 0.9:
        log.info("new best accuracy %.2f, averaging over ranks", accuracy.item())
        dist.all_reduce(accuracy)
    gathered = [None] * WORLD_SIZE
    dist.all_gather_object(gathered, {"rank": RANK, "accuracy": accuracy.item()})


@exchange("reward")
def collect_rewards(odd, timeout):
    prompts = [f"prompt {index}" for index in range(8)]
    rewards = dict.fromkeys(prompts[: 8 if others(odd) else 5], 1.0)
    missing = [prompt for prompt in prompts if prompt not in rewards]
    if missing:
        raise RuntimeError(f"reward model returned no score for {len(missing)} of {len(prompts)} prompts")
    gathered = [None] * WORLD_SIZE
    dist.all_gather_object(gathered, rewards)


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--exchange", choices=sorted(EXCHANGES), default="none")
    parser.add_argument("--odd-rank", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=8.0)
    options = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO,
        format=f"%(asctime)s | %(levelname)-7s | rank {RANK} | %(message)s",
        stream=sys.stdout,
    )
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=options.timeout))
    log.info("connected, %d ranks, torch %s", WORLD_SIZE, torch.__version__)
    warm_up = torch.ones(1 << 16)
    for _ in range(3):
        dist.all_reduce(warm_up)
    log.info("warm-up done")
    EXCHANGES[options.exchange](options.odd_rank, options.timeout)
    log.info("exchange done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
