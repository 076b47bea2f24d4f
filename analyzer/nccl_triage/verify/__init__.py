"""The hardware verifier: plans the matching collective, reruns it on the job's hosts, judges what it shows."""
