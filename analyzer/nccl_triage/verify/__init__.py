"""Verifies a diagnosis by experiment: plans the matching collective, reruns it on the hosts of the job, and judges the results."""
