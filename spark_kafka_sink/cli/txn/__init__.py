"""``kprod txn``: transactions and the commit log, listed and repaired.

This package has the commands. ``transactions/operations/operator.py`` decides which transactions
are committed or aborted.

``txn_commands`` has the arguments and help of all commands. The commands that only read are in
``txn_reads``, the others in ``txn_changes``. Each module is imported when one of its commands runs.
"""
