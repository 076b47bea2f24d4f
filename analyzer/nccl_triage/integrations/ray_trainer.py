"""The callback of Ray Train, which runs in the controller and is told of the exceptions of all workers.

Source: ``ray/train/v2/api/callback.py`` of Ray 2.60, ``UserCallback.after_exception``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from ray.train import UserCallback

from nccl_triage.integrations.failures import DEADLINE, absolute


class RayTrainCallback(UserCallback):
    """``RunConfig(callbacks=[RayTrainCallback("/shared/logs")])``; the arguments are those of ``explain_failures``.

    The folder must be one that the controller's node sees. What Ray has written there for the job's workers is read too.
    """

    def __init__(self, logs: str | os.PathLike[str], *, redact: bool = False, deadline: float = DEADLINE) -> None:
        self._logs = absolute(logs)
        self._redact = redact
        self._deadline = deadline
        self._since: float | None = None

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Explain a failure; each gets its report, since the controller lives on when it starts the workers again."""
        try:
            from nccl_triage.integrations import reporting

            since = self._since or reporting.started() or time.time()
            place = reporting.ReportPlace(self._logs, since, tuple(_worker_logs()), local=False)
            reporting.start(place, dict(sorted(worker_exceptions.items())), self._redact, self._deadline).wait()
            self._since = time.time()
        except BaseException:
            # The controller goes on as if this callback was not there.
            return


def _worker_logs() -> list[str]:
    """Return the files of this job's workers on this node."""
    try:
        import ray
        from ray._private import worker

        node: Any = worker._global_node
        folder, job = node.get_logs_dir_path(), ray.get_runtime_context().get_job_id()
    except (ImportError, AttributeError, RuntimeError):
        return []
    return sorted(str(path) for path in Path(folder).glob(f"worker-*-{job}-*.*"))
