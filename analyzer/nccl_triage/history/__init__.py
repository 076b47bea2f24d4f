"""Keeps earlier diagnoses in a local SQLite database, which is consulted before the next diagnosis and never blocks it.

``incidents``   an incident as it is kept, and the digests by which a log is recognised
``place``       the path of the database
``schema``      its tables, their migrations, and incidents as rows
``store``       opens, reads and writes it; incidents that find it locked wait in files
``record``      makes an incident from a report document
``recurrence``  how often hosts, GPUs, ranks and causes failed, as observations for the next diagnosis
``signatures``  the names of these observations
``export``      incidents as JSON, and lists of failed hosts for schedulers
``memory``      the history of one run: read before the diagnosis, written after it
"""
