"""What a host shows: its interfaces, limits and versions (``host``), GPUs (``inventory``), torch, NCCL's RAS. Nothing is changed.

Standard library only, and nothing from outside of this package: it is sent to hosts that have no nccl-triage.
"""
