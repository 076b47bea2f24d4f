"""The actors of ray_train.py: trainers, rollout engines, and the tasks around them."""

import ctypes
import datetime
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings

import ray

log = logging.getLogger("actor")


class Member:
    """An actor that is one rank of the process group."""

    def __init__(self, rank, options):
        self.rank, self.options = rank, options
        self.hoard = []
        logging.basicConfig(
            level=logging.INFO,
            format=f"%(asctime)s %(levelname)s {type(self).__name__}[{rank}]: %(message)s",
            force=True,
        )
        import torch

        torch.set_num_threads(1)
        self.load_weights()

    def is_hit(self, step, *faults):
        hit = self.options.fault_rank in (self.rank, -1) and step == self.options.fault_step
        return hit and self.options.fault in faults

    def load_weights(self):
        import torch

        torch.manual_seed(0)
        if self.options.fault_rank == self.rank and self.options.fault == "no_weights":
            self.weights = torch.load("/models/policy-7b/pytorch_model.bin")
        else:
            self.weights = torch.randn(1 << 18)

    def address(self, port):
        with socket.socket() as probe:
            probe.bind(("", 0))
            return ray.util.get_node_ip_address(), port or probe.getsockname()[1]

    def join(self, address, port, world_size):
        import torch.distributed as dist

        if self.options.fault_rank == self.rank and self.options.fault == "no_join":
            self.wait_for_cache()
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{address}:{port}",
            rank=self.rank,
            world_size=world_size,
            timeout=datetime.timedelta(seconds=self.options.timeout),
        )
        # Trainers reduce among themselves; every pair of ranks connects before the first step.
        self.trainers = dist.new_group(
            list(range(self.options.trainers)), timeout=datetime.timedelta(seconds=self.options.timeout)
        )
        dist.barrier()
        log.info("joined the process group, pid %d, world size %d", os.getpid(), world_size)

    def wait_for_cache(self):
        """Wait until another process has filled the cache."""
        threading.Event().wait(600)

    def sync_weights(self, step):
        import torch
        import torch.distributed as dist

        count = self.weights.numel()
        if self.is_hit(step, "other_vocabulary"):
            count -= 1024
        buffer = self.weights[:count].clone() if self.rank == 0 else torch.empty(count)
        dist.broadcast(buffer, 0)
        return count


def allocate_buffers(hoard, mib=32, pause=0.02):
    """Keep activations of ever more micro batches."""
    import torch

    while True:
        hoard.append(torch.ones(mib * 1024 * 256))
        time.sleep(pause)


def compute_reward(step, prompt):
    rewards = {"math": 1.0, "code": 0.5}
    return rewards[prompt["task"]] / (step + 1)


def read_native_buffer():
    ctypes.string_at(0)


@ray.remote
class Trainer(Member):
    def train_step(self, step, rollouts):
        import torch
        import torch.distributed as dist

        time.sleep(self.options.step_time)
        self.prepare_batch(step)
        gradient = self.weights * 1e-3
        if self.is_hit(step, "nan"):
            gradient = gradient * float("inf") * 0
        dist.all_reduce(gradient, group=self.trainers)
        if not torch.isfinite(gradient).all():
            log.error("grad_norm is nan at step %d", step)
            raise FloatingPointError(f"Non-finite gradient norm at step {step}, cannot continue")
        self.weights -= gradient
        if self.rank == 0 and step % 5 == 0:
            log.info("step %d grad_norm %.4f", step, gradient.norm().item())
        return 5.0 / (step + 1)

    def prepare_batch(self, step):
        if self.is_hit(step, "sigkill"):
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(30)
        if self.is_hit(step, "segfault"):
            read_native_buffer()
        if self.is_hit(step, "abort"):
            os.abort()
        if self.is_hit(step, "exception"):
            compute_reward(step, {"task": "translation"})
        if self.is_hit(step, "exit"):
            log.error("could not reach the licence server, giving up")
            sys.exit(3)
        if self.is_hit(step, "memory"):
            allocate_buffers(self.hoard)
        if self.is_hit(step, "stuck"):
            self.wait_for_cache()
        if self.is_hit(step, "late"):
            log.info("step %d: writing 48 GiB of optimizer state to /checkpoints", step)
            time.sleep(2 * self.options.timeout)
            log.info("step %d: optimizer state written", step)
        if self.is_hit(step, "deprecated"):
            warnings.warn("`torch.cuda.amp.GradScaler(args...)` is deprecated.", FutureWarning, stacklevel=2)

    def save(self):
        log.info("checkpoint of rank %d saved", self.rank)


@ray.remote
class RolloutEngine(Member):
    """Generates text; gets new weights from trainer 0 after each step."""

    def generate(self, step):
        log.debug("generating %d", step)
        if self.is_hit(step, "engine_kill"):
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(30)
        if self.is_hit(step, "engine_segfault"):
            read_native_buffer()
        if self.is_hit(step, "engine_memory"):
            allocate_buffers(self.hoard)
        if self.is_hit(step, "engine_context"):
            raise ValueError(
                "This model's maximum context length is 4096 tokens. However, you requested 5120 tokens in the messages"
            )
        if self.is_hit(step, "engine_stuck"):
            self.wait_for_cache()
        time.sleep(self.options.step_time)
        return [f"sample {step}.{index}" for index in range(16)]


@ray.remote(num_cpus=1, max_retries=2)
def tokenize_shard(index):
    time.sleep(0.2)
    if index % 4 == 1:
        print(f"shard {index}: Token indices sequence length is longer than the specified maximum (2310 > 2048)")
    return 1000 + index


@ray.remote(num_cpus=0)
def evaluate_prompt(index):
    time.sleep(0.5)
    logging.getLogger("evaluation").warning("prompt %d was truncated to 2048 tokens", index)
    return index
