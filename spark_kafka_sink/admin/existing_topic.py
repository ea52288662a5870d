"""Requests the metadata of a topic that must exist.

A topic counts as missing after one second. A write waits longer, because a broker may create the
topic automatically. ``datasource/checks/preflight.py`` has this longer wait.
"""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.base.errors import AuthorizationError
from spark_kafka_sink.protocol.cluster import Cluster

#: How long brokers must report a topic as unknown before it counts as missing, in ms.
_MISSING_TOPIC_TIMEOUT_MS: Final = 1_000


def existing(admin: AdminClient, topic: str, timeout_ms: int | None = None) -> Cluster:
    """Returns the cluster metadata with the partitions of ``topic``. If brokers report the topic as
    unknown for one second, raises KafkaTimeoutError.

    ``timeout_ms`` is the time limit in all other cases, for example if no broker responds. If it is
    None, the limit is max.block.ms.
    """
    return admin.describe_topics(
        (topic,),
        timeout_ms=timeout_ms,
        missing_topic_timeout_ms=_MISSING_TOPIC_TIMEOUT_MS,
        allow_auto_topic_creation=False,
    )


def existing_to_read(admin: AdminClient, topic: str, timeout_ms: int | None = None) -> Cluster:
    """Returns the same metadata as :func:`existing`, for a caller that reads the topic. The hint of
    an AuthorizationError names READ as the missing right.
    """
    try:
        return existing(admin, topic, timeout_ms)
    except AuthorizationError as error:  # its hint names the right of a write
        hint = "the principal needs READ on the topic"
        raise AuthorizationError(error.message, hint=hint, code=error.code) from error
