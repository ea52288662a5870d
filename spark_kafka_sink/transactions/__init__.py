"""The driver's side of exactly-once. After all tasks of a batch have succeeded, the driver writes
its decision to the commit log, and then commits the transactions of the tasks. Without a decision,
the transactions are aborted.

This package implements docs/design/commit-protocol.md. It does not import Spark:
``datasource/exactly_once`` connects the package to Spark.

These words have one meaning in the whole package:

* *Commit log*: a compacted topic in the cluster that the sink writes to. It has one *state* for
  each key.
* *Key*: the name of a query or a job in the commit log.
* *Run*: one start of a query or a job.
* *Batch*: the rows that are committed together, such as the rows of a micro-batch. Kafka's batches
  are called record batches.
* *Report*: a record about a batch for the topic of the option reportTopic.
* *Planning*: the work of the driver before the tasks of a batch start. It reads the state of the
  key.
* *Prepared*: a transaction is prepared if all its records are acknowledged, and it stays open for
  the driver, which commits or aborts it.
* *Decision*: the entry in a state that all transactions of a batch are to be committed. A batch is
  *decided* if the log has its decision.
* *Done*: a batch is done if the log shows that nothing of the batch is left to commit.
* *Block*: a statement ``with spark_kafka_sink.transaction(...)``. Its writes form one batch.
* *Part*: one write of a block, as the state records it until the batch is decided.
* *Owner*: the run that may commit the batches of a key.
* *Take over*: a run takes over a key when it becomes the owner in place of another run.
* *Superseded*: a run that can't commit any more, because another run has taken over, or because the
  run was aborted.
* *Generation*: a number in the state of a key. Each take-over raises it. The generation of a batch
  is the generation of the key at the planning.
* *Open a key*: to fence the earlier writers of the key, and to read its state.
* *Orphan*: an open transaction that will not be committed. A *sweep* finds and aborts orphans.

The files:

* ``exactly_once``: the class that ``datasource`` uses.
* ``table``: chooses the next step of a commit, an abort, a planning or an operator's command.
* ``steps``: the possible steps, and the facts that ``table`` chooses by.
* ``results``: the possible results of a commit and of the other operations.
* ``abort_results``: the result of an abort: how many rows of the batch are visible.
* ``result_errors``: the exceptions for the results that are failures.
* ``outcome_hints``: the hint of an exception after a decision.
* ``committer``: performs the steps.
* ``deciding``: the checks before a decision.
* ``ownership``: which run may decide a batch.
* ``lease``: the time limits of a decision.
* ``ending``: EndTxn for all transactions of a decision.
* ``outcomes``: the outcome of a transaction, from the response of its coordinator.
* ``by_hand``: EndTxn for the transactions that an operator's command names.
* ``sweep``: the abort of orphans.
* ``commit_state``: the state that the log has for each key.
* ``batches``: compares a batch with this state.
* ``driver_transactions``, ``offset_commits``: the transactions in which the driver itself writes
  the report of a batch, or the offsets of a consumer group.
* ``transactional_ids``: the format of the ids.
* ``commit_log`` (a package): reads and writes the topic of the commit log.
* ``operations`` (a package): the commands of operators.

The package ``admin`` sends the requests to the brokers.
"""
