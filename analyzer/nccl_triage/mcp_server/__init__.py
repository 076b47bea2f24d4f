"""``nccl-triage mcp``: diagnoses for language models over the Model Context Protocol.

``server`` has the tools and is alone in importing the SDK; ``access`` decides which paths are read; ``workers`` runs
``work``, one child process a call, so that a call can be ended; ``answers`` makes an answer small enough to be read.
"""
