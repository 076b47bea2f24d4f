"""Dumps of PyTorch's flight recorder: read without running anything, compared across ranks in bounded space."""
