"""The driver's side of exactly-once: it decides durably, then ends every task's transaction.

Owns: the protocol of a commit. Never: Spark (``datasource/exactly_once``), requests (``admin``).

``exactly_once`` is what the sink calls; ``committer`` and ``aborter`` are the steps, with
``ownership`` (which run may take them), ``lease`` (until when), ``ending`` and ``outcomes`` (EndTxn
and its responses) and ``sweep`` (orphans). ``commit_state`` is what is decided, ``commit_log`` the
topic that keeps it, ``transactional_ids`` the names. ``driver_transactions`` are those that the
driver fills itself, with a report or a group's offsets (``offset_commits``).
"""
