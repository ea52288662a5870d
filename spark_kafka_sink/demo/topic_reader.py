"""Reads and counts a topic with confluent-kafka, a client that shares no code with the sink."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

#: How long a topic may take to be read, in s.
_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Contents:
    """The counts of a topic whose rows should have the ids from 0 to ``expected`` - 1.

    * ``records``: the number of records.
    * ``lost``: the number of ids without a record.
    * ``doubled``: the number of records that repeat an id.
    """

    expected: int
    records: int
    lost: int
    doubled: int

    @property
    def is_exact(self) -> bool:
        return self.records == self.expected and not self.lost and not self.doubled


@contextmanager
def id_of_avro(registry: str) -> Iterator[Callable[[bytes], int]]:
    """A context manager that yields a function. The function decodes the id of a row from the row's
    Avro value, with the schema in the registry.
    """
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    with SchemaRegistryClient({"url": registry}) as client:
        deserialize = AvroDeserializer(client)
        yield lambda value: int(deserialize(value)["value"])


def read(
    bootstrap: str, topic: str, expected: int, id_of: Callable[[bytes], int] = int
) -> Contents:
    """Reads ``topic`` up to its end with ``isolation.level=read_committed``, and counts the rows.
    ``id_of`` returns the id of a row from the value of its record.

    After 60 seconds the function stops reading. The rows that it has not read then count as lost.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "kprod-demo",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 5,
        }
    )
    found: Counter[int] = Counter()
    try:
        partitions = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        unread, deadline = set(partitions), time.monotonic() + _TIMEOUT_S
        while unread and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.2):
                error, value = message.error(), message.value()
                if error is None and value is not None:
                    found[id_of(value)] += 1
                elif error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    unread.discard(message.partition())
    finally:
        consumer.close()
    records = sum(found.values())
    known = sum(1 for one in found if 0 <= one < expected)
    return Contents(expected, records, expected - known, records - len(found))
