"""``kprod txn``: transactions and the commit log, listed and repaired.

Owns: the commands. Never: the decision which transactions are committed or aborted, which is in
``transactions/operations/operator.py``.

``txn_commands`` has the arguments and help of all commands. The commands that only read are in
``txn_reads``, the others in ``txn_changes``. Each module is imported when a command of it runs.
"""
