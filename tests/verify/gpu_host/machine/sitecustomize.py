"""Makes an interpreter one of a host that exists only in a file, where GPU_HOST names it; otherwise does nothing."""

import os

if os.environ.get("GPU_HOST"):
    from gpu_double import process

    process.become(os.environ["GPU_HOST"])
