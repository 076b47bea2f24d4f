"""How a log ends: within NCCL's start."""

from __future__ import annotations
