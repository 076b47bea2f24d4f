"""Runs scans on this machine, in one process or several, or on a Ray cluster."""
