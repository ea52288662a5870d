"""A real Kafka 3.9, whose clusters can't write transactions of version 2 (KIP-890).

What the shared broker is asked elsewhere, each once: rows, the driver's commit, Spark. A producer's
transactions and the commit log are tested on both (``test_transactions_with_a_real_broker.py``,
``test_commit_log.py``). What a driver does about transactions that are lost, closed or too old is
in ``simulation/test_edges_decisions.py``: on a fake cluster, which ``conformance/`` compares with a
3.9. A 4.x broker that is set to write version 1 is not yet a 3.9 one: it offers newer versions of
most requests, lists transactions by pattern, and reports that feature.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.call import AnyBroker, Call
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.errors import ErrorCode, SupersededError
from spark_kafka_sink.local_kafka import KAFKA_3_VERSION
from spark_kafka_sink.protocol.node_api_versions import NodeApiVersions
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_state import CommitState, Done, Payload
from spark_kafka_sink.transactions.committer import Committer
from spark_kafka_sink.transactions.ownership import Owner
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import TransactionalId
from tests.engine.rows import Row, in_pieces, plan, stored, write
from tests.fakes.kafka_messages import API_VERSIONS
from tests.real_kafka import RealKafka, consume_topic
from tests.transactions.open_transactions import TIMEOUT_MS, fence, task_that_wrote, visible
from tests.transactions.operator_stage import Stage, names

# The first run on a machine fetches the broker.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def operators_kafka(kafka_3_9: RealKafka) -> RealKafka:
    return kafka_3_9


# --- the broker


def test_it_is_a_broker_that_offers_no_transactions_of_version_2(
    kafka_3_9: RealKafka, client: TransactionClient
) -> None:
    with AdminClient(client.config) as admin:
        answer = admin.loop.send_and_receive(
            Call(API_VERSIONS, AnyBroker(), "it"), admin.deadline()
        )
    versions = NodeApiVersions.of(answer)
    offered = versions.api_versions
    assert offered[ApiKey.PRODUCE].max == 11, "12 is the first of version 2"
    assert offered[ApiKey.END_TXN].max == 4, "5 is"
    assert offered[ApiKey.LIST_TRANSACTIONS].max == 1, "durations, and no patterns"
    assert "transaction.version" not in versions.finalized_features
    assert client.transaction_version(client.clock.now_ms() + TIMEOUT_MS) == 1
    assert f"Kafka version: {KAFKA_3_VERSION}" in kafka_3_9.node(1).log_path.read_text()


# --- rows


def test_rows_of_every_codec_are_read_back_as_they_were_written(kafka_3_9: RealKafka) -> None:
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    topic = kafka_3_9.unique_topic("rows", partitions=len(codecs))
    expected = []
    for partition, codec in enumerate(codecs):
        rows = [
            Row(
                b"v%d" % n * (n % 50),
                b"k%d" % n,
                [("h", b"%d" % n)],
                1_700_000_000_000 + n,
                partition,
            )
            for n in range(1000)
        ]
        options = {"compression.type": codec}
        report = write(kafka_3_9.bootstrap, plan(topic), in_pieces(rows, 300), options)
        assert report.rows == 1000
        expected.append(rows)
    found = consume_topic(kafka_3_9.bootstrap, topic)
    assert [stored(found, partition) for partition in range(len(codecs))] == expected


# --- transactions of a producer


def prepared(
    kafka: RealKafka, topic: str, transactional_id: str, values: Sequence[str]
) -> PreparedTransaction:
    """What a task writes and leaves to its driver."""
    with task_that_wrote(kafka.bootstrap, transactional_id, topic, *values) as task:
        found = task.prepare()
    assert found.transaction_version == 1
    return found


# --- the driver's commit


class Query:
    """A stream: its tasks' transactions, and drivers that commit them."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.kafka = stage.kafka
        self.topic = stage.kafka.unique_topic("query", partitions=2)

    def driver(self) -> Committer:
        return Committer(self.stage.log, self.stage.client)

    def owner(self, run: str = "run-1") -> Owner:
        """As it is planned now."""
        state = self.stage.read() or CommitState()
        return Owner(self.stage.prefix, run, "query-1", state.generation)

    def task(self, k: int, *values: str, run: str = "run-1") -> PreparedTransaction:
        name = str(TransactionalId(self.stage.prefix, run, "w", k, 2))
        return prepared(self.kafka, self.topic, name, values)

    def shows(self, *values: str) -> bool:
        return visible(self.kafka, self.topic, values)


@pytest.fixture
def query(stage: Stage) -> Query:
    return Query(stage)


def test_batches_are_committed_one_after_the_other_and_each_once(query: Query) -> None:
    driver, owner = query.driver(), query.owner()
    assert driver.roll_forward(owner.key) == CommitState()
    first = Batch(0, (query.task(0, "a", "b"), query.task(1, "c")))
    assert driver.commit(owner, first) is Commit.COMMITTED
    assert driver.commit(owner, Batch(1, ())) is Commit.EMPTY
    assert driver.commit(owner, Batch(2, (query.task(0, "d"),))) is Commit.COMMITTED
    again = query.task(1, "d")
    assert driver.commit(owner, Batch(2, (again,))) is Commit.ALREADY_DONE
    assert query.shows("a", "b", "c", "d")
    state = query.stage.read()
    done = tuple(Done(number, (Payload(),)) for number in range(3))
    assert state is not None
    assert state == CommitState(
        state.generation, "run-1", "query-1", last_done=2, done=done, take_over=state.take_over
    )
    assert state.take_over == (0, state.generation)
    assert query.driver().roll_forward(owner.key) == state
    assert query.stage.still_open() == set()


def test_an_abort_ends_what_was_prepared_and_what_was_left(query: Query) -> None:
    """What has an identity only stays: version 1 can't end that without hurting a later use."""
    driver, owner, stage = query.driver(), query.owner(), query.stage
    assert driver.commit(owner, Batch(0, (query.task(0, "kept"),))) is Commit.COMMITTED
    transaction = query.task(0, "dropped")
    orphans = stage.open(2, worker="dead")
    idle = str(TransactionalId(stage.prefix, "run-1", "idle", 0, 2))
    identity = stage.client.init_producer_id(idle, 60_000, stage.soon())
    swept = query.driver().abort(owner, 1, [transaction], tasks_may_run=False).swept
    assert sorted(swept) == sorted(names(orphans))
    assert stage.still_open() == set()
    assert stage.client.describe([idle], stage.soon())[idle].producer_epoch == identity.epoch
    answers = stage.client.end(orphans, committed=True, deadline_ms=stage.soon())
    assert set(answers.values()) == {ErrorCode.PRODUCER_FENCED}
    again = Batch(1, (query.task(0, "again", run="run-2"),))
    assert driver.commit(query.owner("run-2"), again) is Commit.COMMITTED
    assert query.driver().abort(owner, 1, [transaction], tasks_may_run=False).swept == ()
    assert query.shows("kept", "again")


def test_what_a_dead_driver_decided_is_rolled_forward(query: Query) -> None:
    stage = query.stage
    transactions = [query.task(k, value) for k, value in enumerate("abc")]
    state = stage.state(transactions, run_id="run-1", query_id="query-1")
    stage.write(state)
    stage.client.end(transactions[:1], committed=True, deadline_ms=stage.soon())
    done = state.finished()
    assert query.driver().roll_forward(stage.prefix) == done == stage.read()
    assert query.shows("a", "b", "c")


def test_the_later_driver_wins_and_sweeps_the_earlier_ones(query: Query) -> None:
    stage = query.stage
    assert query.driver().commit(query.owner(), Batch(0, (query.task(0, "a"),))) is Commit.COMMITTED
    orphan, beaten = stage.open(1, worker="dead"), query.task(0, "b")
    other = Stage(stage.kafka, stage.client, (stage.topic, stage.log_topic))
    other.prefix = f"{stage.prefix}.b"
    bystander = other.open(1)
    earlier, later = query.owner("run-1"), query.owner("run-2")
    batch = Batch(1, (query.task(0, "B", run="run-2"),))
    assert query.driver().commit(later, batch) is Commit.COMMITTED
    assert stage.still_open() == set()
    assert stage.states(orphan) == [TransactionState.EMPTY]
    assert other.still_open() == set(names(bystander))
    with pytest.raises(SupersededError, match="run run-2"):
        query.driver().commit(earlier, Batch(1, (beaten,)))
    assert query.driver().abort(earlier, 1, (), tasks_may_run=False).swept == ()
    assert query.shows("a", "B")
    fence(other.client, names(bystander))


def test_an_operator_sees_and_ends_what_is_open(stage: Stage) -> None:
    decided, orphan = stage.open(2), stage.open(1, run="run-0")
    stage.write(stage.state(decided, superseded=("run-0",)))
    listed = stage.json("list", stage.prefix)["open"]
    assert {t["transactionalId"] for t in listed} == set(names(decided + orphan))
    assert all(0 <= t["ageMs"] < 60_000 for t in listed)
    stage.run("commit", stage.prefix, "--yes")
    stage.run("sweep", stage.prefix, "--yes")
    done = (Done(8, (Payload(),)),)
    assert stage.read() == stage.state(last_done=8, superseded=("run-0",), done=done)
    assert stage.still_open() == set()
