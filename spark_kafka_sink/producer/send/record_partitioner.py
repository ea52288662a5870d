"""Chooses the partition of a single record, with the same results as Java's
``KafkaProducer.partition`` (KIP-794).

This module also keeps the *sticky partition* of each topic. Records without a key go to this
partition until enough bytes are sent. Then another partition becomes the sticky partition.
``records/partitioning`` has the same rules for rows of ``send_columns``.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Protocol

from spark_kafka_sink.producer.accumulator.batch_filler import BatchFiller
from spark_kafka_sink.protocol.cluster import Cluster, PartitionInfos
from spark_kafka_sink.records.arrow_schema import columns_of_record
from spark_kafka_sink.records.partitioning.key_rules import JAVA_RULE, Choice, KeyRule
from spark_kafka_sink.records.partitioning.partitioners import Partitioner, RoundRobinPartitioner
from spark_kafka_sink.records.partitioning.topic_view import TopicView

#: A function that returns, for a topic, the number of uncompressed bytes after which another
#: partition becomes the sticky partition. In Java, the number is batch.size.
StickySize = Callable[[str], int]

#: The largest number of cached keys, and the longest cached key in bytes: up to 11 MB, 8 MB if keys
#: have 12 bytes. (Hashing a key is a third of its record's cost.)
_MAX_CACHED, _MAX_CACHED_KEY = 65_536, 64

#: A function that chooses the next sticky partition of a topic.
NextPartition = Callable[[str, Cluster], int]


class RecordPartitionerPlugin(Protocol):
    """The interface of a partitioner for single records. It is used if partitioner.class is
    RoundRobinPartitioner or a user's class. For every other partitioner, a :class:`KeyRule` is
    used.

    :class:`ColumnsPartitioner` is the only implementation.
    """

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, cluster: Cluster
    ) -> int:
        """Returns the number of the partition for a record of ``topic``."""
        ...


class StickyPartition:
    """The current sticky partition of a topic, with the number of bytes that were sent to it
    (Java's StickyPartitionInfo).

    When another partition becomes the sticky partition, a new object is created.
    """

    __slots__ = ("_owner", "_produced", "_size", "_topic", "partition")

    def __init__(self, owner: RecordPartitioner, topic: str, partition: int, size: int) -> None:
        self._owner = owner
        self._topic = topic
        self._size = size
        self._produced = 0
        self.partition = partition

    def changed(self, *, all_full: bool) -> bool:
        """Returns True if the topic has another sticky partition now. The caller must then choose
        the partition of its record again. Called under the accumulator's lock.

        ``all_full`` means that no batch in the partition's queue accepts more records. If it is
        True, and this partition has received enough bytes, this method itself chooses another
        sticky partition for the topic.
        """
        # Between the choice of the sticky partition and the append of the record, another thread
        # may have changed the topic's sticky partition. So the append calls this method.
        if not self._owner.is_current(self._topic, self):
            return True
        if all_full:
            # A switch that an open batch had put off.
            self.appended(0, all_full=True)
            return not self._owner.is_current(self._topic, self)
        return False

    def appended(self, size: int, *, all_full: bool) -> None:
        """Counts ``size`` bytes of a record that was appended to this partition. Called under the
        accumulator's lock.

        ``all_full`` means that no batch in the partition's queue accepts more records. The topic
        gets another sticky partition after this partition has received a number of bytes:

        * if ``all_full`` is True: at least the number from :data:`StickySize`
        * if ``all_full`` is False: at least twice this number
        """
        self._produced += size
        if self._produced >= self._size and (all_full or self._produced >= 2 * self._size):
            self._owner.move_on(self._topic)


class RecordPartitioner:
    """Chooses the partitions of single records whose partition is not given.

    * ``cluster``: a function that returns the current metadata.
    * ``own``: the partitioner of single records if partitioner.class is RoundRobinPartitioner or a
      user's class. None for any other partitioner.class.
    * ``rule``: used if ``own`` is None. It decides whether the partition of a record is computed
      from the hash of its key, is the topic's sticky partition, or is random.
    * ``next_partition``: chooses the next sticky partition. If it is None, :func:`uniform` chooses.
    """

    def __init__(
        self,
        cluster: Callable[[], Cluster],
        sticky_size: StickySize,
        *,
        own: RecordPartitionerPlugin | None = None,
        rule: KeyRule = JAVA_RULE,
        next_partition: NextPartition | None = None,
    ) -> None:
        self._cluster = cluster
        self._sticky_size = sticky_size
        self._own = own
        self._rule = rule
        #: The cache of :meth:`number`: the hash of each cached key. A caller can read the cache
        #: directly, which saves a function call for each record. None if the hash of a key does not
        #: always decide the key's partition.
        self.numbers: dict[bytes, int] | None = (
            {} if own is None and rule.other is Choice.HASH and rule.widths is None else None
        )
        self._next = uniform if next_partition is None else next_partition
        self._sticky: dict[str, StickyPartition] = {}

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: PartitionInfos,
    ) -> int | StickyPartition:
        """Chooses the partition of a record whose partition is not given.

        Returns the number of the partition. For a record that goes to the sticky partition, such as
        a record without a key, returns the topic's :class:`StickyPartition`.
        """
        if self._own is not None:
            return self._own.partition(topic, key, value, self._cluster())
        choice = self._rule.choice(key)
        if choice is Choice.HASH:
            return self.number(key or b"") % partitions.partition_count
        if choice is Choice.RANDOM:
            return uniform(topic, self._cluster())
        sticky = self._sticky.get(topic)
        # setdefault: two threads may both find none, and must agree.
        return self._sticky.setdefault(topic, self._new(topic)) if sticky is None else sticky

    def number(self, key: bytes) -> int:
        """The hash of ``key``. The hashes of short keys are cached, because keys often repeat."""
        number = self._rule.number(key)
        # buffer.memory does not count the bytes of the cache, so the cache must stay small. Long
        # keys are not cached.
        if self.numbers is not None and len(key) <= _MAX_CACHED_KEY:
            if len(self.numbers) >= _MAX_CACHED:
                self.numbers.clear()
            self.numbers[key] = number
        return number

    def is_current(self, topic: str, sticky: StickyPartition) -> bool:
        return self._sticky[topic] is sticky

    def move_on(self, topic: str) -> None:
        """Chooses a new sticky partition for the topic."""
        self._sticky[topic] = self._new(topic)

    def _new(self, topic: str) -> StickyPartition:
        chosen = self._next(topic, self._cluster())
        return StickyPartition(self, topic, chosen, self._sticky_size(topic))


def uniform(topic: str, cluster: Cluster) -> int:
    """A random partition among the partitions with a leader. If no partition has a leader, any
    random partition.
    """
    partitions = cluster.topics.get(topic)
    if partitions is None:
        return 0
    led = partitions.available
    return random.choice(led or range(max(1, len(partitions))))  # noqa: S311 - spreads load


class ColumnsPartitioner:
    """Uses a partitioner for columns to choose the partition of single records. Thread-safe.

    Each record is converted to columns with one row, which is slow. Only the round-robin
    partitioner needs no columns.
    """

    def __init__(self, by_columns: Partitioner, filler: BatchFiller) -> None:
        self._by_columns = by_columns
        self._turns = by_columns if isinstance(by_columns, RoundRobinPartitioner) else None
        self._filler = filler
        self._lock = threading.Lock()

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, cluster: Cluster
    ) -> int:
        """Returns the number of the partition for a record of ``topic``. Implements
        :class:`RecordPartitionerPlugin`.
        """
        if self._turns is not None:
            partitions = cluster.topics[topic]
            with self._lock:
                return self._turns.next(topic, partitions.available or range(len(partitions)))
        filler = self._filler
        views = {topic: TopicView.of(cluster, topic, filler.limits.raw_limit(topic))}
        columns = columns_of_record(topic, key, value)
        with self._lock:
            return int(self._by_columns.assign(columns, views, filler.open_room)[0])
