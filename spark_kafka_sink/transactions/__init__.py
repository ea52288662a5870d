"""The driver's side of exactly-once: the driver records its decision durably in the commit log,
then commits the transaction of every task. Without a decision, the transactions are aborted.

This package implements the protocol of docs/design/commit-protocol.md. It does not import Spark:
``datasource/exactly_once`` connects the package to Spark. The package ``admin`` sends the requests.

``exactly_once`` is the entry for ``datasource``. ``table`` chooses the next step of a commit, an
abort, or the planning of a batch. ``steps`` defines the steps, ``results`` the results, and
``result_errors`` the exceptions for failures. ``committer`` performs the steps. It uses
``deciding`` (the checks before a decision), ``ownership`` (which run may decide), ``lease`` (the
time limit of a decision), ``ending`` and ``outcomes`` (EndTxn, and the meaning of its responses)
and ``sweep`` (the abort of transactions that crashed tasks left open).

``commit_state`` is the state that the log keeps for each key. A key is the name of a query or a
job. ``batches`` compares a batch with this state. The package ``commit_log`` reads and writes the
topic, and ``transactional_ids`` formats the ids. ``driver_transactions`` writes the transactions of
the driver itself: a report, or a consumer group's offsets (``offset_commits``). The package
``operations`` implements the commands of operators.
"""
