"""Bytes to Observations: read, prefilter, peel, match, assemble."""
