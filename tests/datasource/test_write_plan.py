"""What a driver confirms, without a broker: the limits of dead letters, one report of a failure."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_kafka_sink.base.errors import CommitError, DeliveryError
from spark_kafka_sink.datasource.exactly_once.transaction_commit import _block
from spark_kafka_sink.datasource.plan.planned_batch import PlannedBatch
from spark_kafka_sink.datasource.plan.write_plan import WritePlan
from spark_kafka_sink.datasource.write.letter_counts import LetterCount
from spark_kafka_sink.datasource.write.write_context import WriteContext
from spark_kafka_sink.records.column_plan import ColumnPlan
from tests.datasource.commit_messages import config, message
from tests.datasource.exactly_once import transaction_plans
from tests.datasource.exactly_once.transaction_plans import NAMED_JOB

COLUMNS = ColumnPlan(topic="t", value_column=0)
LETTERS = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "letters"}
#: A tenth of its rows could not be sent.
BAD = message(rows=30, rows_in=30, letters=(LetterCount("KP0231", "invalid timestamp", 3),))


def plan(transactions=None, given=config, **options):
    return PlannedBatch(WritePlan(given(**options), COLUMNS, None, transactions))


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"errors.max.records": "2"}, "errors.max.records is 2"),
        ({"errors.max.fraction": "0.09"}, "errors.max.fraction is 0.09"),
        ({"errors.max.records": "3", "errors.max.fraction": "0.1"}, None),
    ],
    ids=["records", "fraction", "neither"],
)
def test_more_letters_than_there_may_be_fail_the_commit(limit, said):
    """Their rows are acknowledged by now: at least once."""
    wanted = plan(**LETTERS, **limit)
    if said is None:
        wanted.commit([BAD], 7)
        return
    with pytest.raises(DeliveryError) as caught:
        wanted.commit([BAD], 7)
    assert f"3 of 30 rows can't be sent, and {said}, so the batch fails" in caught.value.message
    assert "3 invalid timestamp (KP0231" in caught.value.message


def test_a_write_of_a_block_is_not_judged_by_its_own_share():
    """The end judges the rows of all: the next write may have a million good ones."""
    part = replace(NAMED_JOB, context=WriteContext("j0b", token="block"))
    options = LETTERS | {"errors.max.fraction": "0.01", "txnAppId": "app", "txnVersion": "7"}
    for transactions, said in ((NAMED_JOB, "errors.max.fraction"), (part, "of another plan")):
        with pytest.raises(CommitError, match=said):
            plan(transactions, transaction_plans.config, **options).commit([BAD])


def test_the_limits_of_a_block_are_those_of_all_its_writes():
    wanted = config(**LETTERS, **{"errors.max.fraction": "0.05"})
    part = WriteContext("j0b", token="block", write=1)
    assert _block(wanted, part, [BAD, BAD]).letters == (6, 60)
    end = _block(wanted, part.of_end(2), [])
    assert (end.letters, end.writes) == ((0, 0), 2)
    end.check_letters(5, 100)
    with pytest.raises(CommitError, match=r"errors\.max\.fraction is 0\.05, so the transaction"):
        end.check_letters(6, 100)
    without = _block(config(), part, [BAD])
    assert (without.letters, without.check_letters) == ((0, 0), None)


def test_a_failed_commit_has_one_report(monkeypatch, tmp_path):
    """Spark aborts after it."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    reports = tmp_path / "reports.jsonl"
    failing = plan(**LETTERS, **{"errors.max.records": "0", "reportPath": str(reports)})
    with pytest.raises(DeliveryError):
        failing.commit([BAD], 7)
    failing.abort([BAD], 7)
    (line,) = reports.read_text().splitlines()
    assert json.loads(line)["outcome"] == "failed"
    assert "errors.max.records" in json.loads(line)["error"]["message"]


def test_a_commit_that_is_watched_fails_as_any_other(monkeypatch):
    """With progressTopic it says how long it has taken, in a thread of its own."""
    given = {"transactionalIdPrefix": "p", "progressTopic": "progress"}
    watched = plan(None, transaction_plans.config, **given)
    with pytest.raises(CommitError, match="don't have the run"):
        watched.commit([message()], None)
