"""What is known apart from messages and causes: variables, doubtful advice, error numbers, symptoms, steps, timeouts.

The facts are YAML below ``rules/``; this package reads them, looks them up and judges values by them.
"""
