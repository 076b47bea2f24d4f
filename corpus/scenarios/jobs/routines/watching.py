"""Ranks that watch each other: counters in the store, heartbeats; consoles and folders that they share."""

import datetime
import os
import pathlib
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

from routines import routine
from routines.ordinary import train_on


def _store():
    return dist.distributed_c10d._get_default_store()


@routine("counter")
def meet_in_store(worker):
    """A barrier made of counters in the store; rank 0 says who is missing."""
    train_on(worker, 5)
    if worker.is_odd:
        time.sleep(4 * worker.timeout)
    store = _store()
    store.set(f"sync/{worker.rank}", "here")
    names = [f"sync/{rank}" for rank in range(worker.world)]
    for waited in range(2 * int(worker.timeout)):
        missing = [rank for rank, name in enumerate(names) if not store.check([name])]
        if not missing:
            break
        if worker.rank == 0 and waited % 3 == 2:
            worker.log.warning("sync: %d s, still waiting for ranks %s", waited + 1, missing)
        time.sleep(1)
    else:
        raise TimeoutError(f"sync not complete, ranks {missing} missing")
    train_on(worker)


@routine("heartbeat")
def train_with_heartbeats(worker):
    """A thread of every rank writes the time into the store, rank 0 reads what all have written."""
    store = _store()

    def beat():
        while True:
            store.set(f"beat/{worker.rank}", str(time.time()))
            time.sleep(1)

    def watch():
        while True:
            time.sleep(1)
            for rank in range(worker.world):
                age = time.time() - float(store.get(f"beat/{rank}"))
                if age > 6:
                    worker.log.error("no heartbeat from rank %d for %.0f s, aborting the job", rank, age)
                    os._exit(1)

    threading.Thread(target=beat, daemon=True).start()
    time.sleep(1)
    dist.barrier()
    if worker.rank == 0:
        threading.Thread(target=watch, daemon=True).start()
    for step in range(200):
        dist.all_reduce(torch.ones(1024))
        if worker.is_odd and step == 20:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.05)
        if worker.rank == 0 and step % 10 == 0:
            worker.log.info("step %d", step)


@routine("run_folder")
def make_run_folder(worker):
    """All ranks make the folder of the run."""
    train_on(worker, 3)
    folder = pathlib.Path(worker.folder) / f"run_{datetime.date(2026, 3, 4)}"
    time.sleep(0.5 if worker.is_odd else 0.0)
    if worker.rank == 0 or worker.is_odd:
        folder.mkdir()
        worker.log.info("made %s", folder)
    train_on(worker)


@routine("chatty")
def print_progress(worker):
    """Progress goes to standard output, which may end earlier than the job."""
    for step in range(120):
        dist.all_reduce(torch.ones(1024))
        time.sleep(0.04)
        print(f"[{worker.rank}] step {step} loss {2.0 / (step + 1):.4f}", flush=True)
    sys.stdout.flush()
