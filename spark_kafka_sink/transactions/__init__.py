"""The driver's side of exactly-once: the driver records its decision durably in the commit log,
then commits or aborts the transaction of every task.

Owns: the protocol of a commit. Never: Spark (``datasource/exactly_once``), requests (``admin``).

``exactly_once`` is the entry for ``datasource``. ``table`` chooses the next step of a commit, an
abort, or the planning of a batch. ``steps`` defines the steps, ``results`` the results, and
``result_errors`` the exceptions for failures. ``committer`` performs the steps. It uses
``deciding`` (the checks before a decision), ``ownership`` (which run may decide), ``lease`` (the
time limit of a decision), ``ending`` and ``outcomes`` (EndTxn, and the meaning of its responses)
and ``sweep`` (the abort of transactions that crashed tasks left open).

``commit_state`` is the state that the log keeps for each key, which is the name of a query or a
job. ``commit_log`` reads and writes the topic, and ``transactional_ids`` formats the ids.
``driver_transactions`` are the transactions that the driver itself writes: a report, or a consumer
group's offsets (``offset_commits``). The package ``operations`` implements the commands of
operators.
"""
