"""Compares a run with a good one: differences become events that rules weigh like any other evidence.

``against`` (module ``run``) takes the observations of the good logs and returns a producer of further observations; its
``COMPARISONS`` list one function per subject. Events of the good run never mix with those of the bad one: a difference is
placed at a line of the bad log, and its fields hold the good run's value and line.
"""
