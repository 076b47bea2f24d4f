"""A good run against a bad one: what differs, as events that rules weigh like any other evidence.

``against`` (module ``run``) takes what was scanned of the good logs and returns a producer of further observations;
its ``COMPARISONS`` list one module a subject. The good run's events never mix with the bad run's: a difference lies at a
line of the bad log, and its fields name the good run's value and line.
"""
