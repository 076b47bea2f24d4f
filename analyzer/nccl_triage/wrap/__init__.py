"""Run a command as if it ran alone, and keep what it prints: ``nccl-triage run``."""
