"""One module for each family of faults; each has a tuple SCENARIOS."""
