"""Tasks that prepare transactions, and drivers that decide them, in one process and simulated time,
on a fake cluster with the topic ``t`` of two partitions.
"""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from tests.fakes.producer_world import ProducerWorld, columns

LOG_TOPIC = "commits"


class CommittingWorld(ProducerWorld):
    """Only what :meth:`run` runs lets time pass."""

    def __init__(self, *, transaction_version: int = 2, **given: Any) -> None:
        super().__init__(transaction_version=transaction_version, **given)
        #: What a swept id is then: version 1 fences it by a new identity.
        self.swept = "CompleteAbort" if transaction_version == 2 else "Empty"
        self.cluster.create_topic(LOG_TOPIC, 1)

    def open(self, id_: str, *values: str) -> KafkaProducer:
        """A task's transaction that is open, with ``values`` acknowledged."""
        producer = self.producer(id_)
        producer.init_transactions()
        producer.begin_transaction()
        producer.start_attempt()
        producer.send_columns(columns(*values))
        assert producer.finish_attempt().rows == len(values)
        return producer

    def prepared(self, id_: str, *values: str) -> PreparedTransaction:
        return self.open(id_, *values).prepare()

    def driver(self) -> ExactlyOnceDriver:
        """A driver process: nothing is shared with another one."""
        return ExactlyOnceDriver(
            self.config, LOG_TOPIC, clock=self.scheduler, new_client=self.new_client
        )

    def client(self) -> TransactionClient:
        return TransactionClient(self.config, clock=self.scheduler, new_client=self.new_client)

    def logged(self, key: str) -> CommitState:
        """What another client reads."""
        with self.client() as client:
            log = CommitLog(client, LOG_TOPIC)
            state = log.read(key, self.scheduler.now_ms() + 30_000).state
        assert state is not None
        return state

    def log_bytes(self) -> int:
        """Of all values that the log was written with."""
        log = self.cluster.logs[TopicPartition(LOG_TOPIC, 0)]
        return sum(len(value or b"") for value in log.values(committed=True))

    def settled(self, transactional_id: str) -> str:
        """Its state, once the markers are there."""
        self.scheduler.sleep(200)
        return self.state_of(transactional_id)

    def visible(self) -> list[str]:
        """To read_committed consumers, once the markers are there."""
        self.scheduler.sleep(200)
        return [value.decode() for value in self.values() if value is not None]
