"""What the name of a pod, container or host says of the job: ``llama-sft-worker-0`` is of ``llama-sft``, a worker of it."""

from __future__ import annotations

from typing import NamedTuple

from nccl_triage.lazy_regex import lazily

#: What the pods of one job are, in the singular.
_ROLES = frozenset(
    ("master", "worker", "launcher", "head", "chief", "trainer", "ps", "replica", "node", "server", "actor", "learner",
     "rollout", "evaluator", "driver", "leader", "scheduler")
)  # fmt: skip
#: The end of a name that a controller makes up, and numbers.
_MADE_UP = lazily(r"[bcdfghjklmnpqrstvwxz2456789]{5}|[0-9a-f]{8,10}")
_LAST_DIGITS = lazily(r"(?<!\d)\d{1,20}$")


class PodName(NamedTuple):
    """The job that a name belongs to, "" where it names none, and the role of the pod."""

    job: str
    role: str | None = None


def read(name: str) -> PodName:
    """Return what a name says; of a host that is the beginning which it shares with others of its kind."""
    parts = name.partition(".")[0].lower().split("-")
    # Of two made-up parts the first is that of a deployment.
    while len(parts) > 1 and _MADE_UP.fullmatch(parts[-1]) and not parts[-1].isdecimal():
        parts.pop()
    for at, part in enumerate(parts):
        role = _LAST_DIGITS.sub("", part)
        if role in _ROLES or role.removesuffix("s") in _ROLES:
            return PodName("-".join(parts[:at]), role.removesuffix("s"))
    while len(parts) > 1 and parts[-1].isdecimal():
        parts.pop()
    return PodName(_LAST_DIGITS.sub("", "-".join(parts)))
