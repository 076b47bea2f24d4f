"""The story of what happened, built once per input, before any cause is weighed: runs, ends, fates, outcome."""
