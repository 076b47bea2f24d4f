"""Rules and knowledge tested by the samples that they carry, and linted: ``nccl-triage rules test``."""
