"""Signal handlers that save a checkpoint before the job's time is over."""

import logging
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

log = logging.getLogger("train")


def _save():
    time.sleep(0.5)
    torch.save({"step": -1}, Path(tempfile.gettempdir()) / f"preempted_{os.getpid()}.pt")


def _on_sigterm(number, frame):
    log.warning("received %s, saving a checkpoint before exit", signal.Signals(number).name)
    _save()
    log.warning("checkpoint saved, exiting")
    sys.exit(128 + number)


def _on_sigusr1(number, frame):
    log.warning("Caught signal SIGUSR1 on %s: this job is timed-out.", os.uname().nodename)
    log.info("checkpointing and requeueing")
    _save()
    sys.exit(0)


def install_handlers(options, rank):
    signal.signal(signal.SIGTERM, _on_sigterm)
    signal.signal(signal.SIGUSR1, _on_sigusr1)
