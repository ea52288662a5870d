"""The commit log on real brokers, transactions of both versions, and read by an independent
client.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)

from spark_kafka_sink.admin.request_loop import NewClient
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.base.errors import (
    CommitLogError,
    ConfigError,
    IllegalStateError,
    RecordTooLargeError,
    SupersededError,
)
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client.client_factory import new_network_client
from spark_kafka_sink.network.client.client_request import ClientRequest
from spark_kafka_sink.network.client.metadata import Metadata
from spark_kafka_sink.network.client.network_client import NetworkClient
from spark_kafka_sink.protocol.messages.fetch import FetchRequest
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.topic_requests import NewTopic
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState, Decision
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.real_kafka import RealKafka, consume_topic
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.broker

SOON_MS = 30_000


@pytest.fixture(params=["kafka_3_9", "kafka"], ids=["3.9", "4.x"])
def broker(request: pytest.FixtureRequest) -> RealKafka:
    """One whose cluster writes transactions of version 1, and one of version 2."""
    found: RealKafka = request.getfixturevalue(request.param)
    assert found.transaction_version == (1 if request.param == "kafka_3_9" else 2)
    return found


class Drivers:
    """Drivers of one topic: each :meth:`new` is one, with connections of its own."""

    def __init__(self, kafka: RealKafka, topic: str) -> None:
        self.kafka = kafka
        self.topic = topic
        self.clients: list[TransactionClient] = []

    def new(self, new_client: NewClient | None = None, **options: object) -> CommitLog:
        config = parse_producer_config({"bootstrap.servers": self.kafka.bootstrap})
        self.clients.append(TransactionClient(config, new_client=new_client))
        return CommitLog(self.clients[-1], self.topic, **options)  # type: ignore[arg-type]


@pytest.fixture
def drivers(broker: RealKafka) -> Iterator[Drivers]:
    topic = broker.unique_topic("commits", 1, {"cleanup.policy": "compact"})
    found = Drivers(broker, topic)
    yield found
    for client in found.clients:
        client.close()


def soon() -> int:
    return SystemClock().now_ms() + SOON_MS


def new_key() -> str:
    return f"p~k{uuid.uuid4().hex[:8]}"


def state(number: int, transactions: int = 1, stem: str = "worker", *, key: str) -> CommitState:
    """Batch ``number`` of ``key`` is decided."""
    return CommitState(generation=1, run_id="run", query_id="query", last_done=number - 1).decided(
        Decision(
            number,
            tuple(
                PreparedTransaction(f"{key}~run~g2.{stem}{i}~0", 7000 + i, 3, 2)
                for i in range(transactions)
            ),
        )
    )


def test_a_state_is_written_read_replaced_and_removed(drivers: Drivers) -> None:
    key = new_key()
    assert drivers.new().read(key, soon()).state is None
    session = drivers.new().open(key, soon())
    assert session.state == CommitState()
    for wanted in (
        None,  # only a write shows that the log has nothing to remove
        state(1, key=key),
        state(1, key=key).finished(),
        state(2, key=key),
        None,
        state(3, key=key),
    ):
        session.write(wanted, soon())
        assert session.state == (wanted or CommitState())
        assert drivers.new().read(key, soon()).state == wanted
    assert drivers.new().open(key, soon()).state == state(3, key=key)
    told = consume_topic(drivers.kafka.bootstrap, drivers.topic, isolation="read_committed")
    assert set(told.keys) == {key.encode()}
    assert [v and CommitState.decode(key, v) for v in told.values] == [
        None,
        state(1, key=key),
        state(1, key=key).finished(),
        state(2, key=key),
        None,
        state(3, key=key),
    ]


def test_the_earlier_of_two_sessions_is_superseded(drivers: Drivers) -> None:
    key = new_key()
    earlier = drivers.new().open(key, soon())
    earlier.write(state(1, key=key), soon())
    later = drivers.new().open(key, soon())
    assert later.state == state(1, key=key)
    with pytest.raises(SupersededError, match="another driver now writes the commit log"):
        earlier.write(state(2, key=key), soon())
    with pytest.raises(IllegalStateError, match="a write failed; open the key again"):
        earlier.write(state(2, key=key), soon())
    later.write(state(3, key=key), soon())
    assert drivers.new().read(key, soon()).state == state(3, key=key)


def test_a_long_state_is_cut_and_put_together(drivers: Drivers) -> None:
    """5000 transactions; and what is left of it when a short one follows."""
    key = new_key()
    long, longer = state(1, 5000, "w" * 90, key=key), state(2, 10_000, "w" * 90, key=key)
    assert len(long.encode()) > 512 * 1024
    session = drivers.new().open(key, soon())
    for wanted in (long, longer, long):
        session.write(wanted, soon())
        assert drivers.new().read(key, soon()).state == wanted
    session = drivers.new().open(key, soon())
    assert session.state == long
    session.write(state(3, key=key), soon())
    assert drivers.new().read(key, soon()).state == state(3, key=key)
    told = consume_topic(drivers.kafka.bootstrap, drivers.topic, isolation="read_committed")
    last = dict(zip(told.keys, told.values, strict=True))
    assert {k for k, v in last.items() if v is not None} == {key.encode()}
    assert set(last) == {f"{key}{part}".encode() for part in ("", "#1", "#2")}


def test_an_open_write_is_reported_and_delays_no_other_key(drivers: Drivers) -> None:
    """All keys lie in one partition here."""
    key = new_key()
    drivers.new().open(key, soon()).write(state(1, key=key), soon())
    other = new_key()
    stuck = DyingWriter(drivers, other)
    assert drivers.new().read(key, soon()) == (state(1, key=key), True)
    drivers.new().open(key, soon()).write(state(2, key=key), soon())
    assert drivers.new().read(key, soon()) == (state(2, key=key), True)
    assert drivers.new().read(other, soon()) == (None, False)
    assert drivers.new().open(other, soon()).state == CommitState()
    assert drivers.new().read(other, soon()) == (None, True)
    assert stuck.commits_in_vain()


def begun(kafka: RealKafka, transactional_id: str, **options: object) -> Producer:
    """Another client, in a transaction."""
    given = {"bootstrap.servers": kafka.bootstrap, "transactional.id": transactional_id}
    producer = Producer(given | {k.replace("_", "."): v for k, v in options.items()})
    producer.init_transactions(30)
    producer.begin_transaction()
    return producer


class DyingWriter:
    """A driver, by another client, that dies between its Produce and its EndTxn; or is stunned."""

    def __init__(self, drivers: Drivers, key: str) -> None:
        self.producer = begun(drivers.kafka, log_id(key))
        self.producer.produce(drivers.topic, state(99, key=key).encode(), key.encode())
        assert self.producer.flush(30) == 0

    def commits_in_vain(self) -> bool:
        try:
            self.producer.commit_transaction(30)
        except KafkaException as refused:
            return bool(refused.args[0].fatal() or refused.args[0].txn_requires_abort())
        return False


def test_only_what_is_new_is_read_again(drivers: Drivers) -> None:
    key = new_key()
    session = drivers.new().open(key, soon())
    for number in range(1, 6):
        session.write(state(number, key=key), soon())
    fetched = Fetches(drivers)
    log = fetched.log()
    assert log.read(key, soon()).state == state(5, key=key)
    assert fetched.offsets[0] == 0
    fetched.offsets.clear()
    assert log.read(key, soon()).state == state(5, key=key)
    assert fetched.offsets == [10]  # the end
    session.write(state(6, key=key), soon())
    assert log.read(key, soon()).state == state(6, key=key)
    assert fetched.offsets[0] == 10


class Fetches:
    """Logs whose clients tell from which offsets they fetch."""

    def __init__(self, drivers: Drivers) -> None:
        self.drivers = drivers
        self.offsets: list[int] = []

    def log(self, **options: object) -> CommitLog:
        return self.drivers.new(self._new_client, **options)

    def _new_client(
        self, config: ProducerConfig, metadata: Metadata, clock: Clock
    ) -> NetworkClient:
        client = new_network_client(config, metadata, clock)
        send = client.send

        def noted(request: ClientRequest, now: int) -> None:
            if isinstance(request.request, FetchRequest):
                self.offsets.append(request.request.topics[0].partitions[0].fetch_offset)
            send(request, now)

        client.send = noted  # type: ignore[method-assign]
        return client


# --- the topic


def test_a_missing_topic_is_created_compacted(kafka: RealKafka, client: TransactionClient) -> None:
    topic = f"commits-{uuid.uuid4().hex[:12]}"
    log = CommitLog(client, topic)
    assert log.read("k", soon()).state is None
    assert len(client.loop.cluster.topics[topic]) == 16
    names = ("cleanup.policy", "segment.bytes", "segment.ms", "min.cleanable.dirty.ratio")
    assert dict(client.topic_configs((topic,), names, soon())[topic]) == {
        "cleanup.policy": "compact",
        "segment.bytes": "16777216",
        "segment.ms": "3600000",
        "min.cleanable.dirty.ratio": "0.1",
    }
    keys = [f"p~k{i}" for i in range(5)]
    for number, key in enumerate(keys):
        log.open(key, soon()).write(state(number, key=key), soon())
    assert [log.read(key, soon()).state for key in keys] == [
        state(n, key=k) for n, k in enumerate(keys)
    ]
    partitions = consume_topic(kafka.bootstrap, topic).partitions
    assert len(set(partitions)) > 1


@pytest.mark.parametrize(("there", "then"), [(3, 7), (16, 20)])
def test_adding_partitions_to_the_topic_loses_nothing(
    kafka: RealKafka, client: TransactionClient, there: int, then: int
) -> None:
    topic = kafka.unique_topic("commits", there, {"cleanup.policy": "compact"})
    log = CommitLog(client, topic)
    keys = [f"p~k{i}" for i in range(4)]
    for number, key in enumerate(keys):
        log.open(key, soon()).write(state(number, key=key), soon())
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(topic, then)])[topic].result(60)
    deadline, seen = soon(), there
    while seen != then:
        assert SystemClock().now_ms() < deadline
        with TransactionClient(client.config) as other:
            again = CommitLog(other, topic)
            found = [again.read(key, soon()).state for key in keys]
            assert again.states("p", soon()) == {k: state(n, key=k) for n, k in enumerate(keys)}
            seen = len(other.loop.cluster.topics[topic])
    assert found == [state(n, key=k) for n, k in enumerate(keys)]


def test_settings_that_may_lose_decisions_are_warned_of(
    kafka3: RealKafka, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing else of a topic is worth a word."""
    compact = {"cleanup.policy": "compact"}
    risky = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    safe = {"min.insync.replicas": "2"}
    config = parse_producer_config({"bootstrap.servers": kafka3.bootstrap})

    def told_of(topic: str, configs: dict[str, str], replicas: int = 3) -> list[str]:
        with TransactionClient(config) as client:
            client.create_topic(NewTopic(topic, 1, replicas, configs))
        caplog.clear()
        with TransactionClient(config) as client:
            CommitLog(client, topic).read(new_key(), soon())
        return [r.getMessage() for r in caplog.records if r.name.endswith("commit_log")]

    topic = f"commits-{uuid.uuid4().hex[:8]}"
    unclean, replicas = told_of(topic, compact | risky)
    assert f"'{topic}' has unclean.leader.election.enable=true" in unclean
    assert f"'{topic}' has replication.factor 3 and min.insync.replicas=1" in replicas
    (single,) = told_of(f"{topic}-single", compact, replicas=1)
    assert "has replication.factor 1 and min.insync.replicas=" in single
    assert told_of(f"{topic}-safe", compact | safe) == []


def test_a_topic_that_deletes_is_refused(kafka: RealKafka, client: TransactionClient) -> None:
    topic = kafka.unique_topic("commits", 1, {"cleanup.policy": "compact,delete"})
    with pytest.raises(ConfigError, match=r"cleanup\.policy=compact,delete; it must be compact"):
        CommitLog(client, topic).read("k", soon())


def test_a_refused_record_leaves_no_transaction_open(
    kafka: RealKafka, client: TransactionClient
) -> None:
    topic = kafka.unique_topic(
        "commits", 1, {"cleanup.policy": "compact", "max.message.bytes": "300"}
    )
    log, key = CommitLog(client, topic), new_key()
    with pytest.raises(RecordTooLargeError):
        log.open(key, soon()).write(state(1, 1000, uuid.uuid4().hex, key=key), soon())
    # Were it open, the read would tell so.
    assert log.read(key, soon()) == (None, True)


def test_what_we_can_not_have_written_does_not_count(
    kafka: RealKafka, client: TransactionClient
) -> None:
    """Records outside of transactions, of whatever key."""
    topic = kafka.unique_topic("commits", 1, {"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value, key in ((b"{", b"k"), (b"no key", None), (state(1, key="k").encode(), b"k")):
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0
    log = CommitLog(client, topic)
    assert log.read("k", soon()) == (None, True)
    log.open("k", soon()).write(CommitState(last_done=7), soon())
    assert log.read("k", soon()) == (CommitState(last_done=7), True)


def test_a_too_large_record_affects_only_its_own_key(
    kafka: RealKafka, client: TransactionClient
) -> None:
    """17 MiB of zeros, which are 600 bytes in the log."""
    topic = kafka.unique_topic("commits", 1, {"cleanup.policy": "compact"})
    large = {"compression_type": "zstd", "message_max_bytes": 20_000_000}
    bomb = begun(kafka, f"bomb-{uuid.uuid4().hex}", **large)
    bomb.produce(topic, bytes(17 * 1024 * 1024), b"k")
    bomb.commit_transaction(30)
    log = CommitLog(client, topic)
    log.open("other", soon()).write(CommitState(last_done=7), soon())
    assert log.read("other", soon()) == (CommitState(last_done=7), True)
    with pytest.raises(CommitLogError, match=rf"offset 0 of {topic}-0, the commit log") as told:
        log.read("k", soon())
    hint = "with cleanup.policy=compact,delete for a moment kafka-delete-records.sh removes"
    assert hint in str(told.value)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def set_policy(value: str) -> None:
        entry = ConfigEntry("cleanup.policy", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)

    def is_deleted() -> bool:
        """The broker applies the new policy a moment after it has answered."""
        try:
            admin.delete_records([TopicPartition(topic, 0, 1)])[TopicPartition(topic, 0)].result(30)
        except KafkaException as error:
            assert error.args[0].code() == KafkaError.POLICY_VIOLATION  # noqa: PT017
            return False
        return True

    set_policy("compact,delete")
    wait_for(is_deleted, 60, "the record before an offset is removed")
    set_policy("compact")
    assert log.read("k", soon()) == (None, True)
    assert log.read("other", soon()) == (CommitState(last_done=7), True)


def test_a_record_of_another_client_is_an_error(
    kafka: RealKafka, client: TransactionClient
) -> None:
    topic = kafka.unique_topic("commits", 1, {"cleanup.policy": "compact"})
    for value in (b"{", b"[1]", b'{"part":0,"of":2,"revision":1}\nabc', b'{"part":"x"}'):
        producer = begun(kafka, f"x-{uuid.uuid4().hex}")
        producer.produce(topic, value, b"k")
        producer.commit_transaction(30)
        with pytest.raises(CommitLogError, match=r"no other client may write"):
            CommitLog(client, topic).read("k", soon())
        assert CommitLog(client, topic).read("other", soon()) == (None, True)


def test_a_compacted_log_is_read_over_its_holes(
    kafka: RealKafka, client: TransactionClient
) -> None:
    """Many keys in one partition, most of them overwritten; the cleaner is awaited."""
    topic = kafka.unique_topic(
        "commits",
        1,
        {
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "min.compaction.lag.ms": "0",
            "delete.retention.ms": "0",
        },
    )
    log = CommitLog(client, topic)
    sessions = [log.open(f"p~k{i}", soon()) for i in range(3)]
    wanted: list[CommitState | None] = []
    deadline = time.monotonic() + 60 * PATIENCE
    number = 0
    while True:
        number += 1
        for i, session in enumerate(sessions):
            session.write(state(number, key=f"p~k{i}"), soon())
        wanted = [s.state for s in sessions]
        offsets = consume_topic(kafka.bootstrap, topic).offsets
        assert [CommitLog(client, topic).read(f"p~k{i}", soon()).state for i in range(3)] == wanted
        if offsets[0] > 0 and number > 3:
            break
        assert time.monotonic() < deadline, "the cleaner did not come"
        time.sleep(0.5)


@pytest.mark.timing
def test_what_a_log_costs(
    kafka: RealKafka, client: TransactionClient, record_property: Callable[[str, object], None]
) -> None:
    """A micro-batch opens the log, writes DECIDED and DONE: p50 of all of it below 60 ms."""
    topic = kafka.unique_topic("commits", 1, {"cleanup.policy": "compact"})
    log = CommitLog(client, topic)
    taken = []
    for number in range(1, 22):
        start = time.monotonic()
        session = log.open("k", soon())
        session.write(state(number, 2, key="k"), soon())
        session.write(state(number, 2, key="k").finished(), soon())
        taken.append(time.monotonic() - start)
    record_property("p50 ms", sorted(taken)[10] * 1000)
    assert sorted(taken)[10] < 3 * 0.06, "three times: the machine does other things, too"
