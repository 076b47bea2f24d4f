"""Two tasks on one backbone under DDP: each batch belongs to one task and uses that task's head only."""

import argparse
import datetime
import logging
import os

import torch
import torch.distributed as dist
from torch import nn

RANK = int(os.environ.get("RANK", "0"))
log = logging.getLogger(__name__)


class MultiTask(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, channels, 1), nn.ReLU(), nn.Conv2d(channels, 16, 3, padding=1))
        self.classifier = nn.Linear(16, 10)
        self.detector = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, images, tasks):
        features = self.backbone(images).mean((2, 3))
        loss = torch.zeros(())
        if "classify" in tasks:
            loss = loss + self.classifier(features).square().mean()
        if "detect" in tasks:
            loss = loss + self.detector(features).square().mean()
        return loss


def tasks_of(options, step):
    """Return the tasks of this rank's batch: both, until the phase in which they differ begins."""
    if step < options.phase_step:
        return ("classify", "detect")
    if options.phase == "both":
        return ("classify", "detect")
    if options.phase == "classify-only" or options.odd_rank == RANK:
        return ("classify",)
    return ("classify", "detect")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--phase", choices=["both", "classify-only", "mixed"], default="both")
    parser.add_argument("--phase-step", type=int, default=2)
    parser.add_argument("--odd-rank", type=int, default=1)
    parser.add_argument("--find-unused", action="store_true")
    parser.add_argument("--static-graph", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--timeout", type=float, default=15.0)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s %(levelname)s rank{RANK}: %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(RANK)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=options.timeout))
    plain = MultiTask(8)
    if options.channels_last:
        plain = plain.to(memory_format=torch.channels_last)
    model = nn.parallel.DistributedDataParallel(
        plain,
        find_unused_parameters=options.find_unused,
        static_graph=options.static_graph,
        gradient_as_bucket_view=not options.channels_last,
    )
    for step in range(options.steps):
        model.zero_grad()
        images = torch.randn(4, 3, 16, 16)
        loss = model(images, tasks_of(options, step))
        loss.backward()
        with torch.no_grad():
            for parameter in plain.parameters():
                if parameter.grad is not None:
                    parameter -= 1e-3 * parameter.grad
        log.info("iteration %d loss %.5f", step, loss.item())
    dist.barrier()
    log.info("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
