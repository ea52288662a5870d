"""``kprod txn``: lists and repairs transactions and the commit log.

* ``txn_commands``: the arguments and help of all commands.
* ``txn_reads``: the commands that only read. ``txn_changes``: all other commands. These two modules
  are imported when one of their commands runs.

``transactions/operations/operator.py`` decides which transactions are committed or aborted.
"""
