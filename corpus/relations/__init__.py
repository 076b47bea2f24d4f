"""Relations over recorded runs: what may be done to a log without a change of the answer.

No label is needed, and no rule can be fitted to them: the tool's answer on a changed log is compared with its answer
on the log itself.
"""
