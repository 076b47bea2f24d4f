"""A stand-in for the CUDA driver, with which NCCL's host code runs on a machine without a GPU (see cuda_double.c)."""
