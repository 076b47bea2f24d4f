"""The doubles of CUDA, NCCL and nvidia-smi, as a host's processes see them: see tests/verify/gpu_host."""
