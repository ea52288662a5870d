"""``kprod txn``: transactions and the commit log, listed and repaired.

Owns: the commands. Never: a decision (``transactions/operations/operator.py``).

``txn_commands`` has the arguments and help. It imports ``txn_reads`` (commands that only read) and
``txn_changes`` when one of them runs.
"""
