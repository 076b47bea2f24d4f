"""Dumps of PyTorch's flight recorder: read without executing anything, and compared across ranks in bounded space."""
