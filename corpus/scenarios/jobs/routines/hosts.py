"""What a rank asks of its host: processor time, files, semaphores, downloads."""

import multiprocessing
import os
import pathlib
import time

import torch
import torch.distributed as dist

from routines import routine
from routines.ordinary import train_on


@routine("busy")
def augment_images(worker):
    """Work on the processor between collectives."""
    image = torch.randn(256, 256)
    for step in range(400):
        until = time.monotonic() + (0.4 if worker.is_odd else 0.01)
        while time.monotonic() < until:
            image = torch.relu(image @ image.T) / 256
        dist.all_reduce(torch.ones(512))
        if worker.rank == 0 and step % 5 == 0:
            worker.log.info("iter %d", step)


@routine("large_file")
def save_features(worker):
    train_on(worker, 5)
    path = pathlib.Path(worker.folder) / f"features_rank{worker.rank}.bin"
    worker.log.info("writing %s", path)
    with open(path, "wb") as features:
        for _ in range(64):
            features.write(os.urandom(1 << 16))
            features.flush()
    worker.log.info("wrote %d bytes", path.stat().st_size)
    train_on(worker, 5)


@routine("semaphores")
def start_pool(worker):
    train_on(worker, 3)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        worker.log.info("tokenized %s", pool.map(len, ["a b", "c"]))
    train_on(worker, 3)


@routine("retries")
def fetch_with_retries(worker):
    for attempt in range(4):
        try:
            if worker.is_odd and attempt < 3:
                raise ConnectionResetError(104, "Connection reset by peer")
            break
        except ConnectionResetError as error:
            worker.log.warning("attempt %d of 5 failed: %r, trying again in 1 s", attempt + 1, error)
            time.sleep(1)
    train_on(worker, 25)


@routine("hang_dump")
def read_with_watchdog(worker):
    """A rank's own watchdog prints where it stands, then goes on waiting."""
    import faulthandler

    train_on(worker, 4)
    if worker.is_odd:
        faulthandler.dump_traceback_later(3, repeat=True)
        read, _ = os.pipe()
        os.read(read, 1)
    train_on(worker)


@routine("terminate_itself")
def stop_when_asked(worker):
    """A maintenance notice reaches one host only."""
    train_on(worker, 5)
    if worker.is_odd:
        worker.log.warning("maintenance notice received: instance will be terminated in 30 s, leaving")
        os.kill(os.getpid(), 15)
        time.sleep(5)
    train_on(worker)
