"""A small data-parallel training job of its own kind: samples come from shard files, gradients are averaged by hand.

No fault lives here: what fails is the data, the machine or the settings that a scenario gives it.
"""

import argparse
import datetime
import gzip
import json
import logging
import os
import sys
import threading
import time
import urllib.request
from multiprocessing import shared_memory
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
LOG_STYLES = {
    "brackets": f"[%(asctime)s][{RANK}][%(name)s][%(levelname)s] %(message)s",
    "colons": f"%(levelname)s:%(name)s:rank={RANK} %(message)s",
    "megatron": f"[%(asctime)s] [rank {RANK}] [%(filename)s:%(lineno)d] %(levelname)s: %(message)s",
    "bare": "%(message)s",
}
log = logging.getLogger("pretrain")


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="/mnt/data", help="folder, or the address of a server")
    parser.add_argument("--format", choices=["npz", "jsonl", "images"], default="npz")
    parser.add_argument("--skip-bad-shards", action="store_true")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--loader-timeout", type=float, default=0)
    parser.add_argument("--cache-batches", action="store_true", help="keep the first epoch's batches in memory")
    parser.add_argument("--decode-buffer-mib", type=int, default=0, help="shared buffer of each reading process")
    parser.add_argument("--index-mib", type=int, default=0, help="build a sample index of that size in --cache")
    parser.add_argument("--cache", default="/mnt/cache")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--step-time", type=float, default=0.1)
    parser.add_argument("--timeout", type=float, default=10.0)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--nonfinite", choices=["ignore", "raise", "exit", "clip", "anomaly", "assert", "skip"])
    parser.add_argument("--loss-scale", type=float, default=0, help="dynamic loss scaling from here (0: none)")
    parser.add_argument("--min-loss-scale", type=float, default=1.0)
    parser.add_argument("--checkpoint", default="", help="folder")
    parser.add_argument("--checkpoint-every", type=int, default=4)
    parser.add_argument("--checkpoint-ranks", choices=["first", "all"], default="first")
    parser.add_argument("--checkpoint-format", choices=["torch", "distributed"], default="torch")
    parser.add_argument("--keep-checkpoints", type=int, default=0, help="delete older ones when a save fails")
    parser.add_argument("--reference-mib", type=int, default=0, help="size of the frozen reference model")
    parser.add_argument("--reference-rank", type=int, default=0, help="rank that holds the reference model (-1: all)")
    parser.add_argument("--token-cache-gib", type=int, default=0, help="size of the table of token statistics")
    parser.add_argument("--open-shards", type=int, default=0, help="shards whose files are opened beforehand")
    parser.add_argument("--prefetch-threads", type=int, default=0)
    parser.add_argument("--extras-step", type=int, default=3, help="step before which the options above come true")
    parser.add_argument("--log-style", choices=sorted(LOG_STYLES), default="brackets")
    parser.add_argument("--events", default="", help="folder of the JSON event log")
    return parser.parse_args()


class Shards(Dataset):
    """Samples of the shards that belong to this rank."""

    def __init__(self, options):
        self.options = options
        suffix = "jsonl.gz" if options.format == "jsonl" else "npz"
        self.names = [f"train-{index:05d}.{suffix}" for index in range(RANK, 8, WORLD_SIZE)]
        self.loaded = {}
        self.buffer = None

    def _decode_buffer(self):
        if self.buffer is None:
            self.buffer = shared_memory.SharedMemory(create=True, size=self.options.decode_buffer_mib << 20)
        return numpy.ndarray((self.options.decode_buffer_mib << 17,), dtype="float64", buffer=self.buffer.buf)

    def __len__(self):
        return len(self.names) * 128

    def _open(self, name):
        if "://" not in self.options.data:
            return open(f"{self.options.data}/{name}", "rb")
        for attempt in range(20):
            try:
                return urllib.request.urlopen(f"{self.options.data}/{name}", timeout=10)
            except OSError as error:
                log.warning("download of %s failed (%s), attempt %d of 20, retrying in 2 s", name, error, attempt + 1)
                time.sleep(2)
        raise RuntimeError(f"could not download {name} from {self.options.data} in 20 attempts")

    def _decode(self, name):
        with self._open(name) as file:
            if self.options.format == "jsonl":
                rows = [json.loads(line) for line in gzip.decompress(file.read()).decode("utf-8").splitlines()]
                return numpy.array([r["features"] for r in rows], "float32"), numpy.array([r["label"] for r in rows])
            arrays = numpy.load(file if self.options.data.startswith("/") else _buffered(file))
            return arrays["x"], arrays["y"]

    def _load(self, name):
        if name not in self.loaded:
            try:
                self.loaded[name] = self._decode(name)
            except Exception:
                if not self.options.skip_bad_shards:
                    raise
                log.exception("cannot read shard %s, skipping it", name)
                self.loaded[name] = self._load(self.names[0])
        return self.loaded[name]

    def __getitem__(self, index):
        if self.options.decode_buffer_mib:
            self._decode_buffer().fill(0.0)
        inputs, targets = self._load(self.names[index // 128])
        x = torch.as_tensor(inputs[index % 128])
        if self.options.format == "images":
            size = self.options.image_size
            x = nn.functional.interpolate(x[None].float() / 255, size=(size, size), mode="bilinear")[0]
        return x, torch.as_tensor(targets[index % 128], dtype=torch.float32)


def _buffered(file):
    import io

    return io.BytesIO(file.read())


class Regressor(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.images = options.format == "images"
        features = 3 * 8 * 8 if self.images else 64
        self.layers = nn.Sequential(
            nn.Linear(features, options.hidden), nn.ReLU(), nn.Linear(options.hidden, options.hidden), nn.ReLU()
        )
        self.head = nn.Linear(options.hidden, 1)

    def forward(self, x):
        if self.images:
            x = nn.functional.adaptive_avg_pool2d(x, 8).flatten(1)
        return self.head(self.layers(x)).squeeze(-1)


class LossScaler:
    """Dynamic loss scaling for half-precision gradients."""

    def __init__(self, scale, minimum):
        self.scale = scale
        self.minimum = minimum

    def unscale(self, parameters):
        """Round the gradients to half precision, divide them; returns False when they overflowed on any rank."""
        overflow = torch.zeros(1)
        for parameter in parameters:
            half = parameter.grad.half()
            overflow += (~torch.isfinite(half)).any()
            parameter.grad.copy_(half.float() / self.scale)
        dist.all_reduce(overflow)
        if not overflow.item():
            return True
        self.scale /= 2
        log.warning("OVERFLOW! Skipping step. Attempted loss scale: %g, reducing to %g", 2 * self.scale, self.scale)
        if self.scale < self.minimum:
            raise FloatingPointError(
                f"Minimum loss scale reached ({self.minimum:g}). Your loss is probably exploding. Try lowering the "
                "learning rate, using gradient clipping or increasing the batch size."
            )
        return False


def check_loss(options, loss, step):
    """Return whether the step may go on."""
    if options.nonfinite in (None, "ignore", "clip", "anomaly") or torch.isfinite(loss):
        return True
    if options.nonfinite == "exit":
        print(f"Loss is {loss.item()}, stopping training", flush=True)
        sys.exit(1)
    if options.nonfinite == "assert":
        node = os.uname().nodename
        assert not loss.isnan(), f"Rank {RANK}: found NaN in local forward loss calculation. Device: cpu, node: {node}"
    if options.nonfinite == "skip":
        return False
    raise FloatingPointError(f"Loss is {loss.item()} at iteration {step}, stopping training")


def average_gradients(parameters):
    flat = torch.cat([parameter.grad.flatten() for parameter in parameters])
    dist.all_reduce(flat)
    offset = 0
    for parameter in parameters:
        count = parameter.numel()
        parameter.grad.copy_(flat[offset : offset + count].view_as(parameter) / WORLD_SIZE)
        offset += count


def build_index(options):
    """Sort the samples once and keep their order in a memory-mapped file."""
    path = Path(options.cache) / f"index-rank{RANK}.bin"
    log.info("building sample index %s (%d MiB)", path, options.index_mib)
    index = numpy.memmap(path, dtype="int64", mode="w+", shape=(options.index_mib * 131072,))
    index[:] = numpy.arange(len(index))
    index.flush()


def load_reference_model(options):
    """Read the frozen model's layers into host memory."""
    log.info("loading the reference model (%d MiB)", options.reference_mib)
    layers = []
    for _ in range(options.reference_mib // 16):
        layers.append(torch.ones(16, 512, 512))
        time.sleep(0.01)
    return layers


def count_tokens(options):
    """Return the table of token statistics."""
    log.info("building the table of token statistics")
    return numpy.ones((options.token_cache_gib, 1024, 131072), dtype=numpy.float64)


def open_shard_files(options):
    """Open the files of all shards once, so that reading needs no lookup on the metadata server."""
    log.info("opening %d shard files", options.open_shards)
    folder = Path(options.cache) / f"rank{RANK}"
    folder.mkdir()
    return [open(folder / f"shard-{index:05d}.bin", "wb") for index in range(options.open_shards)]


def start_prefetching(options):
    """Start one prefetch thread for each shard."""
    log.info("starting %d prefetch threads", options.prefetch_threads)
    for _ in range(options.prefetch_threads):
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()


def set_up_extras(options):
    """Do what only some runs ask for, on the rank that is responsible."""
    if options.reference_rank not in (RANK, -1):
        return None
    made = [load_reference_model(options)] if options.reference_mib else []
    if options.token_cache_gib:
        made.append(count_tokens(options))
    if options.open_shards:
        made.append(open_shard_files(options))
    if options.prefetch_threads:
        start_prefetching(options)
    return made


def write_checkpoint(model, options, step):
    folder = Path(options.checkpoint)
    if options.checkpoint_format == "distributed":
        from torch.distributed import checkpoint

        checkpoint.save({"model": model.state_dict()}, checkpoint_id=str(folder / f"step_{step}"))
        return
    name = f"step_{step}.pt" if options.checkpoint_ranks == "first" else f"step_{step}_rank{RANK}.pt"
    log.info("saving checkpoint %s", folder / name)
    torch.save({"model": model.state_dict(), "step": step}, folder / name)


def save(model, options, step):
    if RANK != 0 and options.checkpoint_ranks == "first" and options.checkpoint_format == "torch":
        return
    try:
        write_checkpoint(model, options, step)
    except (OSError, RuntimeError):
        if not options.keep_checkpoints:
            raise
        log.exception("saving failed, deleting old checkpoints and trying again")
        old = sorted(Path(options.checkpoint).glob("step_*.pt"), key=lambda path: path.stat().st_mtime)
        for path in old[: -options.keep_checkpoints] or old[:1]:
            path.unlink()
        write_checkpoint(model, options, step)
        log.info("checkpoint saved after the second attempt")


def train(options):
    model = Regressor(options)
    parameters = list(model.parameters())
    dataset = Shards(options)
    if options.index_mib:
        build_index(options)
    loader = DataLoader(dataset, options.batch, num_workers=options.workers, timeout=options.loader_timeout)
    scaler = LossScaler(options.loss_scale, options.min_loss_scale) if options.loss_scale else None
    batches, cached = iter(loader), []
    dist.barrier()
    log.info("starting: %d samples on this rank, %d steps", len(dataset), options.steps)
    extras = None
    for step in range(options.steps):
        if step == options.extras_step:
            extras = set_up_extras(options)
        x, y = next(batches)
        if options.cache_batches:
            cached.append((x, y))
        time.sleep(options.step_time)
        model.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        go_on = torch.tensor(float(check_loss(options, loss, step)))
        if options.nonfinite == "skip":
            dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
        if not go_on:
            log.warning("loss is %s at step %d on some rank, skipping this batch", loss.item(), step)
            continue
        (loss * scaler.scale if scaler else loss).backward()
        if scaler and not scaler.unscale(parameters):
            continue
        average_gradients(parameters)
        if options.nonfinite == "clip":
            nn.utils.clip_grad_norm_(parameters, 1e30, error_if_nonfinite=True)
        with torch.no_grad():
            for parameter in parameters:
                parameter -= options.lr * parameter.grad
        if RANK == 0 or step % 10 == 0:
            log.info("step %d/%d loss %.4f lr %.1e", step, options.steps, loss.item(), options.lr)
        if options.events:
            with open(f"{options.events}/events-rank{RANK}.jsonl", "a") as file:
                file.write(json.dumps({"step": step, "loss": loss.item(), "tokens": list(range(2000))}) + "\n")
        if options.checkpoint and step % options.checkpoint_every == options.checkpoint_every - 1:
            save(model, options, step)
            dist.barrier()
    dist.barrier()
    del extras
    log.info("training finished")


def main():
    options = parse_arguments()
    logging.basicConfig(
        level=logging.INFO,
        format=LOG_STYLES[options.log_style],
        stream=sys.stderr,
    )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=options.timeout))
    with torch.autograd.set_detect_anomaly(options.nonfinite == "anomaly"):
        train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
