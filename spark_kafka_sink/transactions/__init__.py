"""The driver's side of exactly-once: it decides durably, then ends every task's transaction.

Owns: the protocol of a commit. Never: Spark (``datasource/exactly_once``), requests (``admin``).

The sink calls ``exactly_once``. ``table`` has the next step of a commit, a planning or an abort,
``steps`` its values, ``results`` how it ends, ``result_errors`` the exceptions for that;
``committer`` performs the steps, with ``deciding`` (the conditions of a decision), ``ownership``
(the run that may decide), ``lease`` (the deadline of a decision), ``ending`` and ``outcomes``
(EndTxn and its responses) and ``sweep`` (orphans).
``commit_state`` is the state of a key, ``commit_log`` the topic that keeps it,
``transactional_ids`` the names. ``driver_transactions`` are the transactions that the driver fills
itself, with a report or a group's offsets (``offset_commits``). ``operations``, a room, has the
reads and changes for operators.
"""
