"""What was diagnosed before: kept in a local SQLite database, asked before the next diagnosis, never in its way.

``model``       an incident as it is kept
``place``       where the database lies
``schema``      its tables, and how older ones become those of today
``rows``        incidents as rows of its tables, and back
``store``       opening, reading and writing it
``waiting``     incidents that found it busy
``record``      from a report document to an incident
``marks``       by what a log is known again
``recurrence``  who failed how often, from incidents alone
``recall``      what earlier failures say of the hosts of this job, as observations
``signatures``  what such observations are called
``exclude``     the hosts that failed, as Slurm, a hostfile or a person want them
``patience``    how long anybody waits for it
``memory``      all of it for one run: asked before the diagnosis, told after it
"""
