"""Requests the metadata of a topic that must exist.

Owns: the time until a missing topic is an error, and the hint for a topic that the principal may
not read. Never: waiting for a topic that a write may create (``datasource/checks/preflight.py``).
"""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.base.errors import AuthorizationError
from spark_kafka_sink.protocol.cluster import Cluster

#: How long brokers must report a topic as unknown before it counts as missing, in ms.
_MISSING_TOPIC_TIMEOUT_MS: Final = 1_000


def existing(admin: AdminClient, topic: str, timeout_ms: int | None = None) -> Cluster:
    """Returns the cluster, with the partitions of ``topic``. If the topic does not exist, raises
    KafkaTimeoutError after one second.
    """
    return admin.describe_topics(
        (topic,),
        timeout_ms=timeout_ms,
        missing_topic_timeout_ms=_MISSING_TOPIC_TIMEOUT_MS,
        allow_auto_topic_creation=False,
    )


def existing_to_read(admin: AdminClient, topic: str, timeout_ms: int | None = None) -> Cluster:
    """Returns the cluster with the partitions of ``topic``, like :func:`existing`. Used before the
    topic is read: the hint of an AuthorizationError names the right READ.
    """
    try:
        return existing(admin, topic, timeout_ms)
    except AuthorizationError as error:  # whose hint is that of a write
        hint = "the principal needs READ on the topic"
        raise AuthorizationError(error.message, hint=hint, code=error.code) from error
