"""The driver's side of exactly-once. After all tasks of a batch have succeeded, the driver writes
its decision to the commit log, and then commits the transactions of the tasks. Without a decision,
the transactions are aborted.

This package implements docs/design/commit-protocol.md. It does not import Spark:
``datasource/exactly_once`` connects the package to Spark.

* ``exactly_once``: the entry for ``datasource``.
* ``table``: chooses the next step of a commit, an abort, a planning or an operator's command.
* ``steps``, ``results``: the steps and the results.
* ``result_errors``, ``outcome_hints``: the exceptions for failures.
* ``committer``: performs the steps.
* ``deciding``: the checks before a decision.
* ``ownership``: which run may decide.
* ``lease``: the time limits of a decision.
* ``ending``: EndTxn for all transactions of a decision.
* ``outcomes``: the outcome of a transaction, from the response of its coordinator.
* ``by_hand``: EndTxn for the transactions that an operator's command names.
* ``sweep``: the abort of transactions that crashed tasks left open.
* ``commit_state``: the state that the log has for each key. A key is the name of a query or a job.
* ``batches``: compares a batch with this state.
* ``driver_transactions``, ``offset_commits``: transactions of the driver itself, with a report or
  with a consumer group's offsets.
* ``transactional_ids``: the format of the ids.
* ``commit_log`` (a package): reads and writes the topic of the commit log.
* ``operations`` (a package): the commands of operators.

The package ``admin`` sends the requests.
"""
