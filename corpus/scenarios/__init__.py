"""Scripts that really provoke failures of distributed training and record what the processes print."""
