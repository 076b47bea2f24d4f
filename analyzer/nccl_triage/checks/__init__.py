"""Tests and lints rules and knowledge by the samples that they carry: ``nccl-triage rules test``."""
