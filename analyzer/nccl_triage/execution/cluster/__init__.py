"""Logs are scanned on the nodes of a Ray cluster, where they lie; only Observations travel.

``targets`` (what the arguments mean) -> ``engine`` (the driver) -> ``campaign`` (who reads what) over a ``crew`` of
members, each with a ``worker`` on its node and in it a ``desk`` that finds, scans and merges -> ``tree`` (what they
found, put together).
"""
