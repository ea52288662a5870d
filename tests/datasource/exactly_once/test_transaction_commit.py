"""Commit messages with transactions: what the driver ends, and what it refuses to end."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from spark_kafka_sink.base.errors import CommitError, KafkaTimeoutError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.exactly_once.transaction_commit import (
    payload_of,
    prepared_transactions,
)
from spark_kafka_sink.datasource.plan.planned_batch import PlannedBatch
from spark_kafka_sink.datasource.plan.write_plan import WritePlan
from spark_kafka_sink.datasource.report.log_line import line_of
from spark_kafka_sink.datasource.report.report_of_batch import report_of_batch
from spark_kafka_sink.datasource.report.write_report import WriteOutcome
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.transactions.commit_state import Payload
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from tests.datasource.commit_messages import message
from tests.datasource.exactly_once.transaction_plans import NAMED_JOB, config

CONFIG = parse_sink_config(
    {"kafka.bootstrap.servers": "h:1", "topic": "t", "deliveryGuarantee": "exactly-once"}
)
JOBS = Owner("p~app", "j0b", "", 3, Numbering.VERSIONS)
STREAMS = Owner("p", "run-2", "query-1", 3)


def of_job(id_="p~app~j0b~g1.0123456789ab~17", **changes):
    values = {
        "generation": 3,
        "start_ms": 1,
        "prepared": PreparedTransaction(id_, 4711, 0, 2),
        "payload": (3, 30),
    }
    return message(**(values | changes))


def of_stream(id_="p~run-2~g1.0123456789ab~0", **changes):
    values = {"query_id": "query-1", "run_id": "run-2", "batch_id": 7}
    return of_job(id_, **(values | changes))


def empty(**changes):
    none = {"rows": 0, "prepared": None, "start_ms": -1, "nodes": {}}
    return of_stream(**(none | {"offsets": {}, "payload": (0, 0)} | changes))


def test_a_batchs_payload_is_unknown_when_a_task_did_not_count():
    told = [of_stream(), empty(), of_stream("p~run-2~g1.ba9876543210~4", payload=(4, 70))]
    assert payload_of(told, "t") == Payload(7, 100, "t", 0)
    assert payload_of(told, None) == Payload(7, 100, "", 0)
    assert payload_of([], "t") == Payload(0, 0, "t", 0)
    assert payload_of([*told, empty(payload=None)], "t") is None


def test_what_was_prepared_is_what_is_ended():
    told = [of_stream(), empty(), of_stream("p~run-2~g1.ba9876543210~4")]
    assert [t.transactional_id for t in prepared_transactions(told, STREAMS)] == [
        "p~run-2~g1.0123456789ab~0",
        "p~run-2~g1.ba9876543210~4",
    ]
    assert prepared_transactions([of_job()], JOBS) == (of_job().prepared,)


@pytest.mark.parametrize(
    ("of", "owner", "id_", "why"),
    [
        (of_stream, STREAMS, "p.q~run-2~g1.0123456789ab~0", "its key is not 'p'"),
        (of_stream, STREAMS, "P~run-2~g1.0123456789ab~0", "its key is not 'p'"),
        (of_stream, STREAMS, "p~run-1~g1.0123456789ab~0", "its run is not run-2"),
        (of_stream, STREAMS, "p~app~run-2~g1.0123456789ab~0", "its key is not 'p'"),
        *(
            (of_stream, STREAMS, id_, "not the transactional id of a task")
            for id_ in (
                "p~run-2~0", "p~run-2~g1.0123456789ab~00", "p~~log", "p~run-2~~0",
                "p~a~app~run-2~g1.0123456789ab~0",
                "their-payments", "", "p~run-2~g1.0123456789ab~0\n",
            )
        ),
        (of_job, JOBS, "p~app~other~g1.0123456789ab~17", "its run is not j0b"),
        (of_job, JOBS, "p~j0b~g1.0123456789ab~17", "its key is not 'p~app'"),
        (of_job, JOBS, "p~app.b~j0b~g1.0123456789ab~17", "its key is not 'p~app'"),
        (of_job, JOBS, "q~app~j0b~g1.0123456789ab~17", "its key is not 'p~app'"),
    ],
)  # fmt: skip
def test_an_id_that_is_not_its_own_is_refused(of, owner, id_, why):
    with pytest.raises(CommitError) as raised:
        prepared_transactions([of(id_)], owner)
    assert why in raised.value.message
    assert "\n" not in raised.value.message


def test_one_transaction_of_two_tasks_is_refused():
    with pytest.raises(CommitError, match="another task has it, too"):
        prepared_transactions([of_stream(), of_stream(partition_id=1)], STREAMS)


def test_rows_and_transactions_must_come_together():
    with pytest.raises(CommitError, match="wrote 3 rows, and its commit message names no"):
        prepared_transactions([of_stream(prepared=None)], STREAMS)
    with pytest.raises(CommitError, match="wrote 0 rows, and its commit message names a"):
        prepared_transactions([of_stream(rows=0)], STREAMS)


# --- who commits -------------------------------------------------------------------------------


def plan(transactions=None, **options):
    given = config(transactionalIdPrefix="p", **options)
    return WritePlan(given, ColumnPlan(topic="t", value_column=0), None, transactions)


ANOTHER = "p~run-2~g1.0123456789ab~1"
OF_TWO = [
    [of_stream(), of_stream(ANOTHER, partition_id=1, **other)]
    for other in ({"run_id": "run-3"}, {"query_id": "query-9"}, {"generation": 4})
]
OF_NONE = [
    [of_stream(**missing)] for missing in ({"run_id": ""}, {"query_id": ""}, {"generation": -1})
]


@pytest.mark.parametrize(
    ("transactions", "messages", "why"),
    [
        *((None, two, "name 2 runs, queries or generations") for two in OF_TWO),
        *((None, none, "don't have the run") for none in OF_NONE),
        (NAMED_JOB, [of_job(generation=2)], "of another plan"),
        (None, [of_stream("their-payments")], "which is not its own"),
        (None, [of_stream(), None], "1 of 2 tasks sent no commit message"),
        (None, [of_stream(batch_id=6)], "was given a message of micro-batch 6"),
    ],
)
def test_messages_that_do_not_fit_are_refused_before_any_request(transactions, messages, why):
    with pytest.raises(CommitError, match=why):
        PlannedBatch(plan(transactions)).commit(messages, 7 if transactions is None else None)


def test_a_skipped_version_is_compared_and_its_abort_is_empty(caplog):
    skipped = plan(replace(NAMED_JOB, number=6))
    nothing = empty(query_id="", run_id="", batch_id=-1, payload=(3, 30))
    with pytest.raises(KafkaTimeoutError, match="__kprod_commits"):  # nobody listens there
        PlannedBatch(skipped).commit([nothing])
    with caplog.at_level(logging.WARNING):
        PlannedBatch(skipped).abort([None])
    assert "could not be aborted" not in caplog.text


@pytest.mark.parametrize(
    ("aborted", "messages"),
    [
        (plan(), [of_stream(), None]),
        (plan(NAMED_JOB), [of_job(), None]),
        # Of the tasks of its own driver.
        (replace(plan(), driver="abcdef01"), [None, None]),
        (plan(), [of_stream("their-payments"), of_stream(run_id="")]),
    ],
    ids=["stream", "job", "no message", "forged"],
)
def test_an_abort_that_reaches_no_broker_says_so_and_returns(caplog, aborted, messages):
    with caplog.at_level(logging.WARNING):
        PlannedBatch(aborted).abort(messages, 7 if aborted.transactions is None else None)
    assert caplog.text.count("could not be aborted") == 1
    assert "no task reported" not in caplog.text
    if messages[0] != of_stream("their-payments"):
        assert "127.0.0.1:1" in caplog.text
        assert "kafka.transaction.timeout.ms (900000)" in caplog.text


def test_an_abort_comes_before_the_checkpoint_is_read(caplog, monkeypatch):
    """Whose object store may not respond for minutes; it has the query id of the report."""
    read = []

    class SlowStore:
        @staticmethod
        def from_uri(uri):
            read.append((uri, "could not be aborted" in caplog.text))
            raise OSError

    monkeypatch.setattr("pyarrow.fs.FileSystem", SlowStore)
    stopped = plan(checkpointLocation="s3://bucket/orders")
    with caplog.at_level(logging.WARNING):
        PlannedBatch(replace(stopped, driver="abcdef01")).abort([None], 7)
    assert read == [("s3://bucket/orders/metadata", True)]


def test_an_abort_without_a_run_says_what_ends_it(caplog):
    with caplog.at_level(logging.WARNING):
        PlannedBatch(plan()).abort([None, None], 7)
    assert "no task reported its run, and this process has no JVM" in caplog.text
    assert "could not be aborted" not in caplog.text, "no broker was asked"


def test_the_line_names_guarantee_transactions_and_outcome():
    report = report_of_batch(CONFIG, [of_stream(), empty()], WriteOutcome.COMMITTED)
    assert "guarantee=exactly-once transactions=1 outcome=committed" in line_of(report)
