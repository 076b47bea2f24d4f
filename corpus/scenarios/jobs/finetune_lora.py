"""A fine-tuning job whose libraries complain a lot and which nevertheless ends well.

Every warning comes from the library or from what really happened; nothing is printed for show.
"""

import argparse
import contextlib
import datetime
import logging
import os
import socket
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
log = logging.getLogger("finetune_lora")


def start_metrics_server(first_port):
    """Listen on the first free port; an address in use is normal on a shared host."""
    for port in range(first_port, first_port + 5):
        server = socket.socket()
        try:
            server.bind(("127.0.0.1", port))
        except OSError as error:
            log.warning("metrics server: cannot listen on port %d: %s", port, error)
            server.close()
            continue
        server.listen()
        log.info("metrics server listens on port %d", port)
        return server
    raise RuntimeError("no free port for the metrics server")


def import_optional():
    """Import what makes training faster; all of it is optional."""
    for name in ("flash_attn", "apex", "xformers", "bitsandbytes"):
        try:
            __import__(name)
        except ImportError as error:
            log.warning("%s, falling back to the slow implementation", error)


def use_deprecated():
    """Call what a script that has grown old calls."""
    scaler = torch.cuda.amp.GradScaler()
    with torch.cuda.amp.autocast():
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        torch.tensor(torch.ones(3))
        torch.ones(3, requires_grad=True).sum().backward(retain_graph=True)
        nn.functional.mse_loss(torch.ones(3, 1), torch.ones(3))
    return scaler


def resume(model, folder):
    """Load a checkpoint of an older layout; what does not fit stays as it was initialised."""
    path = Path(folder) / f"old-{RANK}.pt"
    state = model.state_dict()
    state["rotary.inv_freq"] = torch.ones(4)
    state.pop("1.bias")
    torch.save({"model": state, "arguments": argparse.Namespace(lr=1e-3)}, path)
    try:
        loaded = torch.load(path)
    except Exception:
        log.exception("torch.load with weights_only=True failed, trying again without it")
        loaded = torch.load(path, weights_only=False)
    missing, unexpected = model.load_state_dict(loaded["model"], strict=False)
    log.warning("checkpoint: missing keys %s, unexpected keys %s", missing, unexpected)


def scheduled_too_early(model):
    """Step the schedule before the optimizer, as so many scripts do."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    schedule.step()
    return optimizer


def call_with_retries(function, attempts=3):
    for attempt in range(1, attempts + 1):
        try:
            return function()
        except (RuntimeError, OSError) as error:
            if attempt == attempts:
                raise
            log.exception("attempt %d/%d failed: %s; retrying", attempt, attempts, error)
            time.sleep(1)
    return None


def evaluate_with_large_batch(model):
    """Try the largest batch first until one fits (as a batch size finder does)."""
    for rows in (1 << 42, 1 << 37, 1 << 34):
        try:
            with torch.no_grad():
                return model(torch.ones(rows, 64)).mean()
        except RuntimeError as error:
            log.warning("batch size %d does not fit: %s", rows, str(error).split("\n")[0])
    with torch.no_grad():
        return model(torch.ones(64, 64)).mean()


def wait_for_others(model, options):
    """Rank 0 prepares the vocabulary while the others wait, well within the time-out."""
    if RANK == 0:
        for part in range(options.slow_parts):
            log.info("tokenizing part %d/%d, the other ranks are waiting", part + 1, options.slow_parts)
            time.sleep(1.5)
    else:
        log.warning("waiting for rank 0 in barrier (timeout %.0f s)", options.timeout)
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=options.timeout))
    log.info("all ranks arrived")


def train(model, options):
    losses = []
    for step in range(options.steps):
        time.sleep(0.1)
        model.zero_grad()
        loss = model(torch.randn(8, 64)).square().mean()
        if options.spike and step == options.steps // 2:
            loss = loss * float("nan")
        keep = torch.tensor(float(torch.isfinite(loss)))
        dist.all_reduce(keep, op=dist.ReduceOp.MIN)
        if not keep:
            log.warning("non-finite loss %s at step %d, dropping this batch (1 of at most 10)", loss.item(), step)
            continue
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        losses.append(loss.item())
        if RANK == 0:
            log.info("step %d loss %.4f", step, losses[-1])
        if options.patience and step >= options.patience:
            log.info("early stopping: no improvement for %d steps, stopping training on all ranks", options.patience)
            break


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--metrics-port", type=int, default=0)
    parser.add_argument("--optional", action="store_true")
    parser.add_argument("--old-style", action="store_true")
    parser.add_argument("--resume", default="")
    parser.add_argument("--find-batch-size", action="store_true")
    parser.add_argument("--slow-parts", type=int, default=0)
    parser.add_argument("--spike", action="store_true")
    parser.add_argument("--patience", type=int, default=0)
    parser.add_argument("--retry", action="store_true", help="the first registration at the tracker is refused")
    parser.add_argument("--subgroups", action="store_true")
    parser.add_argument("--skip-destroy", action="store_true")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--timeout", type=float, default=60.0)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s,rank{RANK} %(levelname)-7s %(name)s: %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(RANK)
    if options.optional:
        import_optional()
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=options.timeout))
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 1))
    server = start_metrics_server(options.metrics_port) if options.metrics_port and RANK == 0 else None
    if options.retry:
        tracker = socket.socket()
        tracker.bind(("127.0.0.1", 0))

        def register():
            try:
                socket.create_connection(tracker.getsockname(), timeout=2).close()
            finally:
                tracker.listen()

        call_with_retries(register)
    if options.old_style:
        use_deprecated()
        scheduled_too_early(model)
    if options.resume:
        resume(model, options.resume)
    if options.find_batch_size:
        evaluate_with_large_batch(model)
    if options.slow_parts:
        wait_for_others(model, options)
    if options.subgroups:
        halves = [dist.new_group(list(range(part, WORLD_SIZE, 2)), group_desc=f"half{part}") for part in (0, 1)]
        dist.all_reduce(torch.ones(4), group=halves[RANK % 2])
        log.info("sub-group of rank %d: %s", RANK, dist.get_process_group_ranks(halves[RANK % 2]))
    train(model, options)
    dist.barrier()
    log.info("finished, exit code 0")
    if server is not None:
        with contextlib.suppress(OSError):
            server.close()
    if not options.skip_destroy:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
