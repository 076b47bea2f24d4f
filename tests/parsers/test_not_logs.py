"""Texts that are no logs: source code and pages that explain something; what quotes or prints them may be a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.parsers.not_logs import LATEX, PAGE, PYTHON, kind_of
from tests.scan_helpers import diagnose_text

ROOT = Path(__file__).parents[2]
STEPS = [f"step {n}/50 loss 2.{n}" for n in range(1, 12)]
CODE = """\
import torch
from pathlib import Path

def save(model, step):
    path = Path("out") / f"step{step}.pt"
    torch.save(model.state_dict(), path)
    print(f"Saved checkpoint at step {step}")

def main():
    for step in range(100):
        loss = train(step)
        if loss != loss:
            raise RuntimeError("loss is nan")
    save(model, 100)
"""
README = """\
# My trainer

Train with torchrun on eight GPUs.

## Troubleshooting
If the GPU has too little memory, you see:

```
RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB
```

Lower the batch size.

## Licence
MIT
"""
ISSUE = README.replace("RuntimeError", "\n".join(STEPS) + "\nRuntimeError")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (CODE, PYTHON),
        (README, PAGE),
        (ISSUE, None),
        ("\\documentclass{article}\n\\begin{document}\nAn error.\n\\end{document}\n", LATEX),
        ("\n".join(STEPS), None),
        ("\n".join([*STEPS, *CODE.splitlines()]), None),
        ("Config:\n" + "\n".join(f"lr_{n} = 0.{n}" for n in range(20)), None),
        ("# started by run.sh\n" + "\n".join(STEPS), None),
        ("", None),
    ],
    ids=["code", "readme", "pasted log", "latex", "log", "code in a log", "settings", "comment", "nothing"],
)
def test_what_a_text_is(text: str, kind: str | None) -> None:
    assert kind_of(text.splitlines()) == kind


def test_modules_of_this_project_are_code() -> None:
    paths = sorted((ROOT / "analyzer/nccl_triage/story").glob("*.py"))
    found = [kind_of(path.read_text().splitlines()) for path in paths if path.stat().st_size > 2000]
    assert found.count(PYTHON) > 0.9 * len(found)


@pytest.mark.parametrize("text", [CODE, README])
def test_it_accuses_nobody_and_asks_for_nothing(text: str, rules: RuleSet) -> None:
    found = diagnose_text(text, rules)
    document = found.to_dict(similar=False)
    assert (found.verdict, document["outcome"]["state"], document["diagnoses"]) == ("unknown", "none", [])
    assert document["headline"].endswith("not a log.") and document["not_seen"] == []


def test_a_pasted_log_is_diagnosed(rules: RuleSet) -> None:
    assert diagnose_text(ISSUE, rules).cause == "gpu-out-of-memory"
