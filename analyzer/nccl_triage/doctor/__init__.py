"""Examines a host for what matters to NCCL, without root: its facts, what is wrong with them, and what differs between hosts."""
