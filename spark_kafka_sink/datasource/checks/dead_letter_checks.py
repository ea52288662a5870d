"""Creates or checks the dead-letter topic before the first task.

The preflight creates a missing topic, and ``kprod check`` has a step for the topic.
``topic_checks.py`` has the checks that apply to every topic.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ApiError, ConfigError, ErrorCode
from spark_kafka_sink.config.sink_config import DeadLetterOptions
from spark_kafka_sink.datasource.checks.replicas import check_replicas
from spark_kafka_sink.datasource.checks.topic_checks import (
    check_write,
    topic_settings,
    topics_in_full,
)
from spark_kafka_sink.protocol.metadata import TopicMetadata
from spark_kafka_sink.protocol.topic_requests import NewTopic
from spark_kafka_sink.records.bad_rows.topic_limits import LARGEST, TopicLimits

_TOPIC: Final = "errors.deadletterqueue.topic.name"
_CREATION: Final = (
    "the principal needs CREATE on it, and the cluster as many brokers as"
    " errors.deadletterqueue.topic.replication.factor says; or create it yourself, with one"
    " partition"
)


def create_if_missing(
    admin: AdminClient, options: DeadLetterOptions, timeout_ms: int, *, validate_only: bool = False
) -> TopicMetadata | None:
    """Creates the dead-letter topic and returns None. If the topic exists already, returns its
    metadata.

    With ``validate_only`` nothing is created: the brokers only check whether they would create the
    topic. Raises ApiError if the brokers refuse to create the topic.
    """
    found = topics_in_full(admin, (options.topic,), timeout_ms)[options.topic]
    if found.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return found
    # One partition, as Kafka Connect creates it.
    new = NewTopic(options.topic, 1, options.replicas or -1, {"cleanup.policy": "delete"})
    try:
        admin.create_topic(new, timeout_ms=timeout_ms, validate_only=validate_only)
    except ApiError as error:
        what = f"the dead letter queue ({_TOPIC}) can't be created: {error.message}"
        raise type(error)(what, hint=_CREATION, code=error.code) from error
    return None


def queue_check(admin: AdminClient, options: DeadLetterOptions, timeout_ms: int) -> str:
    """Returns the state of the dead-letter topic as a text for ``kprod check``. Creates no topic.

    Raises ApiError if the topic can't be created or written to, or if it has too few in-sync
    replicas. Raises ConfigError if the topic is compacted.
    """
    topic = options.topic
    found = create_if_missing(admin, options, timeout_ms, validate_only=True)
    if found is None:
        return f"{topic} does not exist yet: the first write creates it"
    if found.error is not ErrorCode.NONE:
        raise found.error.error(f"topic {topic}")
    check_write(topic, found.authorized_operations)
    settings = topic_settings(admin, (topic,), timeout_ms).get(topic, {})
    refuse_compacted(options, [topic] if TopicLimits.of(settings).compacted else [])
    check_replicas(admin, found, settings)
    size = settings.get(LARGEST)
    return topic if size is None else f"{topic}, {LARGEST}={size}"


def refuse_compacted(options: DeadLetterOptions, compacted: Container[str]) -> None:
    """Raises ConfigError if the dead-letter topic is compacted. A compacted topic rejects dead
    letters without a key, and keeps only the last dead letter of a key. A dead letter without a
    value would be a tombstone for earlier dead letters.
    """
    if options.topic in compacted:
        raise ConfigError(
            f"{_TOPIC} names {options.topic}, which is compacted (cleanup.policy): dead letters "
            "would be refused or deleted",
            hint="name another topic, or a missing one: it is created",
            kind=Kind.TOPIC_LIMIT,
        )
