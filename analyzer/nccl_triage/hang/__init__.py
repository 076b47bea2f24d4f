"""``nccl-triage hang``: takes the evidence of a hanging job from its processes, without stopping or signalling any of them.

``processes``, ``stacks``, ``evidence`` and ``collect`` run on the hosts of the job: they are sent there, and import only the
standard library, each other, and the RAS client of ``verify``. ``hosts`` reaches the hosts, ``folder`` keeps what they sent.
"""
