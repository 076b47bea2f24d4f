"""The one way to reach hosts: a launcher opens a link to each, over which a program that needs no installation there answers.

``places`` says which hosts (``ssh``, ``slurm``, the nodes of Ray), ``programs`` packs what runs there, ``processes`` (this host,
ssh, srun, any command) and ``ray_launcher`` open links, ``asking`` asks once, with deadlines. ``agent`` and ``probes`` run on the
hosts: standard library only. Nothing is imported here: a program on a host begins with ``safe_path``.
"""
