"""What a host is like that matters to NCCL, seen without root: facts, what is wrong with them, what differs between hosts."""
