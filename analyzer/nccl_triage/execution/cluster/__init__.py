"""Scans logs on the nodes of a Ray cluster, where they are stored; only the observations travel to the driver.

``targets`` says what the arguments mean, ``engine`` is the driver, ``cluster_scan`` decides which worker reads what.
``workers`` holds the driver's handles of actors, each with a ``node_service`` that lists, scans and merges logs. ``codec`` packs what travels.
"""
