"""The callbacks, in the trainers that they are for."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from .conftest import Job

pytestmark = pytest.mark.xdist_group("trainers")
QUIET = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "TOKENIZERS_PARALLELISM": "0"}

TRANSFORMERS = """
import os, sys, torch
from transformers import Trainer, TrainingArguments
from nccl_triage.integrations import TransformersCallback

class Net(torch.nn.Module):
    limit = 99
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def forward(self, x, labels=None):
        if x.max() > self.limit:
            raise ValueError("sample 7 has 3 tokens, expected 4")
        out = self.layer(x)
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}

data = [{"x": torch.tensor([float(i)]), "labels": torch.tensor([1.0])} for i in range(4)]
args = TrainingArguments("out", num_train_epochs=1, per_device_train_batch_size=1, report_to=[], use_cpu=True,
                         disable_tqdm=True, save_strategy="no")
before = sys.excepthook
trainer = Trainer(model=Net(), args=args, train_dataset=data)
trainer.add_callback(TransformersCallback("logs"))
trainer.train()
assert sys.excepthook is before and not os.path.exists("logs")
Net.limit = 2
trainer.train()
"""

LIGHTNING = """
import os, torch
from PACKAGE import LightningModule, Trainer
from nccl_triage.integrations import LightningCallback

class Net(LightningModule):
    limit = 99
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, index):
        if index == self.limit:
            raise ValueError("sample 7 has 3 tokens, expected 4")
        return self.layer(batch).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

data = torch.utils.data.DataLoader(torch.ones(4, 1), batch_size=1)
def train():
    Trainer(accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, callbacks=[LightningCallback("logs")]).fit(Net(), data)

train()
assert not os.path.exists("logs")
Net.limit = 2
train()
"""

RAY = """
import os, ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from nccl_triage.integrations import RayTrainCallback

def loop():
    if ray.train.get_context().get_world_rank() == 1:
        raise ValueError("sample 7 has 3 tokens, expected 4")

ray.init(num_cpus=2, include_dashboard=False)
config = RunConfig(storage_path=os.getcwd(), callbacks=[RayTrainCallback("logs")], failure_config=FailureConfig(0))
DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=2), run_config=config).fit()
"""


def test_transformers_explains_a_failed_step(job: Job) -> None:
    _needs("transformers", "accelerate")
    code, stderr = job.run(TRANSFORMERS, **QUIET)
    assert code == 1, stderr
    assert job.names() == {"nccl-triage-HOST.log", "nccl-triage-HOST.txt", "nccl-triage-HOST.html"}
    assert "root cause: application-exception" in job.text("nccl-triage-HOST.txt")
    assert stderr.index("ValueError: sample 7") < stderr.index("nccl-triage: ")


@pytest.mark.parametrize("package", ["lightning", "pytorch_lightning"])
def test_lightning_explains_a_failed_step_with_its_rank(job: Job, package: str) -> None:
    _needs(package)
    code, stderr = job.run(LIGHTNING.replace("PACKAGE", package), **QUIET)
    assert code == 1, stderr
    assert job.names() == {"nccl-triage-HOST-rank0.log", "nccl-triage-HOST.txt", "nccl-triage-HOST.html"}
    assert "culprit: rank 0" in job.text("nccl-triage-HOST.txt")
    assert "ValueError: sample 7 has 3 tokens, expected 4" in stderr


def test_ray_train_explains_a_failed_worker(job: Job) -> None:
    _needs("ray", "pandas", "pyarrow", "tensorboardX")
    code, stderr = job.run(RAY, **QUIET)
    assert code == 1, stderr
    assert job.names() == {"nccl-triage-rank1.log", "nccl-triage-HOST.txt", "nccl-triage-HOST.html"}
    assert "culprit: rank 1" in job.text("nccl-triage-HOST.txt")
    assert "WorkerGroupError" in stderr


def _needs(*modules: str) -> None:
    """Skip where a framework of the extra ``test`` is missing."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed (extra: test)")
