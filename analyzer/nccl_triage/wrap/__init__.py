"""Runs a command as if it ran alone, and keeps what it prints: ``nccl-triage run``."""
