"""The callback of Lightning's ``Trainer``, which tells callbacks of exceptions (``on_exception``, since 1.5)."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from nccl_triage.integrations.failures import DEADLINE, FailureHook

#: The two names under which Lightning is installed, each with a ``Callback`` of its own.
_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def _bases() -> tuple[type, ...]:
    """Return the ``Callback`` of each Lightning that the program uses. Raises ImportError where there is none."""
    names = [name for name in _PACKAGES if name in sys.modules]
    if not names:
        try:
            importlib.import_module(_PACKAGES[0])
            names = [_PACKAGES[0]]
        except ImportError:
            names = [_PACKAGES[1]]
    return tuple(importlib.import_module(name).Callback for name in names)


class _OnException:
    def __init__(self, logs: str | os.PathLike[str], *, redact: bool = False, deadline: float = DEADLINE) -> None:
        self._hook = FailureHook(logs, redact, deadline)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Explain an exception of fit, validate, test or predict before Lightning raises it again."""
        self._hook.explain(exception, getattr(trainer, "global_rank", None))


#: ``Trainer(callbacks=[LightningCallback("logs/")])``; the arguments are those of ``explain_failures``.
LightningCallback: Any = type("LightningCallback", (_OnException, *_bases()), {"__module__": __name__})
