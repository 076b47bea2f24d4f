"""A DDP training job for real GPUs over NCCL; with BACKEND=gloo it runs on CPUs. ``--fault`` chooses what goes wrong.

Ranks of one host share a GPU when it has fewer GPUs than ranks. NCCL refuses that unless each rank seems to be a host
of its own: ``--own-host`` gives each rank its NCCL_HOSTID.
"""

import argparse
import datetime
import logging
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

RANK = int(os.environ["RANK"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"])
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", "0"))
BACKEND = os.environ.get("BACKEND", "nccl")
MIB = 1024 * 1024
log = logging.getLogger("train")


def parse_arguments():
    """Return the options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--step-time", type=float, default=0.1)
    parser.add_argument("--timeout", type=float, default=15.0, help="seconds of the process group's time-out")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--extra-mib", type=int, default=16, help="all-reduce that many MiB more in each step")
    parser.add_argument("--own-host", action="store_true", help="let each rank seem to be a host of its own")
    parser.add_argument("--eager", action="store_true", help="make the communicator in init_process_group")
    parser.add_argument("--fault", default="none", choices=["none", *BEHAVIOURS])
    parser.add_argument("--fault-rank", type=int, default=1)
    parser.add_argument("--fault-step", type=int, default=8)
    return parser.parse_args()


class ExternalBuffer:
    """Memory of another library, described as the CUDA array interface does."""

    def __init__(self, owner, elements):
        """Keep the owner alive and describe its memory."""
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (elements,),
            "typestr": "<f4",
            "data": (owner.data_ptr(), False),
            "version": 3,
        }


def kill(options, device):
    """Die as by the kernel's hand."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(30)


def native_failure(options, device):
    """Die as by a failed check in native code."""
    os.abort()


def compute_reward(options, device):
    """Score a sample of a task that nobody knows."""
    weights = {"math": 1.0, "code": 0.5}
    return weights["translation"]


def keep_activations(options, device):
    """Hold the activations of ever more micro batches."""
    if device.type != "cuda":
        raise RuntimeError("a CUDA device is needed")
    held = []
    while True:
        held.append(torch.empty(2048 * MIB, dtype=torch.uint8, device=device))


def read_replay_buffer(options, device):
    """Read a buffer that claims to be longer than it is."""
    if device.type != "cuda":
        raise RuntimeError("a CUDA device is needed")
    buffer = torch.as_tensor(ExternalBuffer(torch.ones(MIB, device=device), 1 << 36), device=device)
    return buffer[:: 1 << 20].sum().item()


def embed_tokens(options, device):
    """Look up a token that lies outside the vocabulary."""
    table = torch.ones(32000, 16, device=device)
    return nn.functional.embedding(torch.tensor([32017], device=device), table).sum().item()


def wait_for_lock(options, device):
    """Wait for a lock that nobody releases."""
    import threading

    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=options.timeout * 6)


def write_state(options, device):
    """Write for longer than the others wait."""
    log.info("writing 96 GiB of optimizer state")
    time.sleep(options.timeout * 2)
    log.info("optimizer state written")


def stop_early(options, device):
    """Leave the training loop."""
    log.info("data loader exhausted, leaving the training loop")
    dist.barrier()
    log.info("training finished")
    sys.exit(0)


def leave(options, device):
    """End this rank without a word to the others."""
    log.info("validation loss has not improved for 3 evaluations, stopping")
    os._exit(0)


def reduce_metrics(options, device):
    """Reduce fewer elements than the others do at this place."""
    dist.all_reduce(torch.ones(1000, device=device))


def broadcast_metrics(options, device):
    """Broadcast where the others reduce."""
    dist.broadcast(torch.ones(options.extra_mib * MIB // 4, device=device), src=RANK)


def poison(options, device):
    """Reduce numbers that are none."""
    dist.all_reduce(torch.full((options.extra_mib * MIB // 4,), float("nan"), device=device))


BEHAVIOURS = {
    function.__name__: function
    for function in (
        kill, native_failure, compute_reward, keep_activations, read_replay_buffer, embed_tokens, wait_for_lock,
        write_state, stop_early, leave, reduce_metrics, broadcast_metrics, poison,
    )
}  # fmt: skip
#: What takes the place of the step's extra all-reduce on the rank that is hit.
INSTEAD = {"reduce_metrics", "broadcast_metrics", "poison"}


def train(options, device):
    """Run the steps; the fault strikes between backward and the extra all-reduce."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(options.hidden, 4 * options.hidden), nn.GELU(), nn.Linear(4 * options.hidden, options.hidden)
    ).to(device)
    parallel = nn.parallel.DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-3)
    metrics = torch.ones(options.extra_mib * MIB // 4, device=device)
    for step in range(options.steps):
        batch = torch.randn(16, options.hidden, device=device)
        time.sleep(options.step_time)
        optimizer.zero_grad()
        loss = (parallel(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        hit = step == options.fault_step and options.fault_rank in (RANK, -1) and options.fault != "none"
        if hit:
            BEHAVIOURS[options.fault](options, device)
        if not (hit and options.fault in INSTEAD):
            dist.all_reduce(metrics)
            metrics /= WORLD_SIZE
        if step % 5 == 0:
            log.info("step %d/%d loss %.4f", step, options.steps, loss.item())
    dist.barrier()
    log.info("training finished")


def main():
    """Run the job."""
    options = parse_arguments()
    logging.basicConfig(
        level=logging.INFO,
        format=f"%(asctime)s - %(levelname)s - %(name)s - [rank {RANK}/{WORLD_SIZE}] %(message)s",
        stream=sys.stdout,
    )
    if options.own_host:
        os.environ["NCCL_HOSTID"] = f"{os.uname().nodename}-{RANK}"
    torch.set_num_threads(1)
    device = torch.device("cpu")
    if BACKEND == "nccl":
        device = torch.device("cuda", LOCAL_RANK % torch.cuda.device_count())
        torch.cuda.set_device(device)
        version = ".".join(map(str, torch.cuda.nccl.version()))
        log.info(
            "torch %s, NCCL %s, device %s (%s)", torch.__version__, version, device, torch.cuda.get_device_name(device)
        )
    dist.init_process_group(
        BACKEND,
        timeout=datetime.timedelta(seconds=options.timeout),
        device_id=device if options.eager and device.type == "cuda" else None,
    )
    log.info("process group ready, world size %d", dist.get_world_size())
    train(options, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
