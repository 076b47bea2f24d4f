"""Remote calls between workers (torch.distributed.rpc)."""

import os
import time

import torch
import torch.distributed.rpc as rpc
from library import native

from routines import routine


def _gradient(step, broken):
    if broken == "raise" and step == 3:
        raise ValueError(f"no embedding for token 50301 in step {step}")
    if broken == "vanish" and step == 3:
        native.leave_at_once()
    if broken == "slow" and step == 3:
        time.sleep(60)
    return torch.ones(8) * step


def _serve(worker, broken):
    options = rpc.TensorPipeRpcBackendOptions(
        rpc_timeout=worker.timeout, init_method=f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    )
    name = "master" if worker.rank == 0 else f"worker{worker.rank}"
    rpc.init_rpc(name, rank=worker.rank, world_size=worker.world, rpc_backend_options=options)
    worker.log.info("%s is up (rank %d of %d)", name, worker.rank, worker.world)
    if worker.rank == 0:
        for step in range(8):
            futures = [
                rpc.rpc_async(f"worker{rank}", _gradient, (step, broken if rank == worker.odd else ""))
                for rank in range(1, worker.world)
            ]
            total = sum(future.wait().sum().item() for future in futures)
            worker.log.info("step %d gradient norm %.2f", step, total)
            time.sleep(0.05)
    rpc.shutdown()


@routine("remote", group=False)
def serve(worker):
    _serve(worker, "")


@routine("remote_raises", group=False)
def serve_embeddings(worker):
    _serve(worker, "raise")


@routine("remote_vanishes", group=False)
def serve_cache(worker):
    _serve(worker, "vanish")


@routine("remote_slow", group=False)
def serve_slowly(worker):
    _serve(worker, "slow")
