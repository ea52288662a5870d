"""The driver's side of exactly-once: the driver records its decision durably, then ends every
task's transaction.

Owns: the protocol of a commit. Never: Spark (``datasource/exactly_once``), requests (``admin``).

The sink calls ``exactly_once``. ``table`` chooses the next step of a commit, a planning or an
abort; ``steps`` has the steps, ``results`` the results, ``result_errors`` the exceptions for
failures. ``committer`` performs the steps, with ``deciding`` (the conditions of a decision),
``ownership`` (the run that may decide), ``lease`` (the deadline of a decision), ``ending`` and
``outcomes`` (EndTxn and its responses) and ``sweep`` (orphans).

``commit_state`` is the state of a key, ``commit_log`` the topic that keeps it,
``transactional_ids`` the format of ids. ``driver_transactions`` are the transactions that the
driver fills itself, with a report or a group's offsets (``offset_commits``). The package
``operations`` has the reads and changes for operators.
"""
