"""The callback of Hugging Face's ``Trainer``.

A ``TrainerCallback`` is not told of exceptions (transformers ``trainer_callback.py``, 5.24), so this one installs the
hook for uncaught exceptions while training lasts.
"""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from nccl_triage.integrations.failures import DEADLINE, FailureHook


class TransformersCallback(TrainerCallback):
    """``Trainer(..., callbacks=[TransformersCallback("logs/")])``; the arguments are those of ``explain_failures``."""

    def __init__(self, logs: str | os.PathLike[str], *, redact: bool = False, deadline: float = DEADLINE) -> None:
        self._hook = FailureHook(logs, redact, deadline)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin to see uncaught exceptions."""
        self._hook.install()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training has succeeded; after an exception this is not called."""
        self._hook.uninstall()
