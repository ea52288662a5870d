"""Checks whether a topic has enough in-sync replicas for writes with acks=all.

``topic_steps.py``, ``transaction_steps.py`` and ``dead_letter_checks.py`` use the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.base.errors import ErrorCode, named
from spark_kafka_sink.datasource.checks.topic_checks import LEAST_IN_SYNC
from spark_kafka_sink.protocol.metadata import TopicMetadata
from spark_kafka_sink.protocol.request import ApiKey

#: The largest number of partitions or brokers that a text lists.
MOST_NAMED: Final = 12
#: The newest version of Produce in Kafka 3.7. If min.insync.replicas is larger than the number of a
#: partition's replicas, brokers since 3.7 use the smaller number (KAFKA-15583). Earlier brokers
#: reject every write to such a partition.
_CAPPED: Final = 10


class InSync(NamedTuple):
    """Three counts of replicas for the partition with the number ``partition``: its in-sync
    replicas, all of its replicas, and the in-sync replicas that a write with acks=all needs.
    """

    partition: int
    in_sync: int
    replicas: int
    needed: int


def in_sync_of(
    admin: AdminClient, topic: TopicMetadata, settings: Mapping[str, str | None]
) -> Sequence[InSync]:
    """The number of in-sync replicas of each partition of ``topic``, and the number that a write
    needs.

    ``settings`` are the topic's configs. They are empty if the principal may not read them. In that
    case, one in-sync replica is assumed to be enough.
    """
    least, capped = least_of(settings), takes_fewer_replicas(admin)
    return [
        InSync(p, count, replicas, min(least, replicas) if capped else least)
        for p, (one, count) in enumerate(zip(topic.partitions, topic.in_sync, strict=True))
        for replicas in (len(one.replicas),)
    ]


def least_of(settings: Mapping[str, str | None]) -> int:
    """The topic's min.insync.replicas, or 1 if the config is unknown."""
    return int(settings.get(LEAST_IN_SYNC) or 1)


def below_minimum(
    admin: AdminClient, topic: TopicMetadata, settings: Mapping[str, str | None]
) -> str | None:
    """Describes the partitions where acks=all fails (NOT_ENOUGH_REPLICAS). Returns None if there
    are none.
    """
    below = [f"{p} ({n})" for p, n, _, needed in in_sync_of(admin, topic, settings) if n < needed]
    if not below:
        return None
    return (
        f"{len(below)} of {len(topic.in_sync)} partitions have fewer replicas in sync than "
        f"{LEAST_IN_SYNC}={least_of(settings)}: {named(below, MOST_NAMED)}{down(admin, topic)}"
    )


def check_replicas(
    admin: AdminClient, topic: TopicMetadata, settings: Mapping[str, str | None]
) -> None:
    """Raises the error NOT_ENOUGH_REPLICAS if writes with acks=all would fail in a partition of
    ``topic``.
    """
    said = below_minimum(admin, topic, settings)
    if said is not None:
        raise ErrorCode.NOT_ENOUGH_REPLICAS.error(f"topic {topic.name}", said)


def down(admin: AdminClient, topic: TopicMetadata) -> str:
    """Describes the dead brokers that have replicas of the topic. Empty if there are none."""
    live = admin.loop.cluster.nodes
    lost = sorted({r for one in topic.partitions for r in one.replicas if r not in live})
    return f"; down: broker {named(lost, MOST_NAMED)}" if lost else ""


def takes_fewer_replicas(admin: AdminClient) -> bool:
    """Whether all connected brokers are Kafka 3.7 or later. A partition may have fewer replicas
    than min.insync.replicas. Brokers before 3.7 reject every write with acks=all to such a
    partition. Later brokers accept the write if all replicas of the partition are in sync.
    """
    client = admin.loop.client
    known = [client.api_versions(node) for node in admin.loop.cluster.nodes]
    produce = [one.api_versions.get(ApiKey.PRODUCE) for one in known if one is not None]
    return bool(produce) and all(one is not None and one.max >= _CAPPED for one in produce)
