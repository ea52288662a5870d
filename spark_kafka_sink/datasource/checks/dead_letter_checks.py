"""The topic of dead letters, before the first task: created when it is missing, and looked at.

Owns: the creation, and the step of ``kprod check``. Never: what other topics must be
(``topic_checks``), a letter.
"""

from __future__ import annotations

from spark_kafka_sink.admin.admin_client import AdminClient, NewTopic
from spark_kafka_sink.base.errors import ApiError, AuthorizationError, ErrorCode
from spark_kafka_sink.config.dead_letter_options import (
    TOPIC,
    DeadLetterOptions,
    refuse_compacted,
)
from spark_kafka_sink.datasource.checks.topic_checks import (
    CHECK_MS,
    check_write,
    topic_settings,
    topics_in_full,
)
from spark_kafka_sink.records.bad_rows.topic_limits import LARGEST, TopicLimits

#: As Connect's.
_PARTITIONS = 1


def create_if_missing(admin: AdminClient, options: DeadLetterOptions, timeout_ms: int) -> None:
    """Create the topic, unless brokers know it. Raises ApiError when they refuse that."""
    found = topics_in_full(admin, (options.topic,), min(timeout_ms, CHECK_MS))[options.topic]
    if found.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return
    try:
        admin.create_topic(_new(options), timeout_ms=timeout_ms)
    except ApiError as error:
        raise _refused(error) from error


def queue_check(admin: AdminClient, options: DeadLetterOptions, timeout_ms: int) -> str:
    """What there is of the topic, in words. Raises ApiError when it can't be created or written
    to, and ConfigError when it is compacted.
    """
    topic = options.topic
    found = topics_in_full(admin, (topic,), timeout_ms)[topic]
    if found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        try:
            admin.create_topic(_new(options), timeout_ms=timeout_ms, validate_only=True)
        except ApiError as error:
            raise _refused(error) from error
        return f"{topic} does not exist yet: the first write creates it"
    if found.error is not ErrorCode.NONE:
        raise found.error.error(f"topic {topic}")
    check_write(topic, found.authorized_operations)
    settings = topic_settings(admin, (topic,), timeout_ms).get(topic, {})
    refuse_compacted(options, [topic] if TopicLimits.of(settings).compacted else [])
    size = settings.get(LARGEST)
    return topic if size is None else f"{topic}, {LARGEST}={size}"


def _new(options: DeadLetterOptions) -> NewTopic:
    return NewTopic(options.topic, _PARTITIONS, options.replicas, {"cleanup.policy": "delete"})


def _refused(error: ApiError) -> ApiError:
    what = f"the dead letter queue ({TOPIC}) can't be created: {error.message}"
    hint = error.hint
    if isinstance(error, AuthorizationError):
        hint = "the principal needs CREATE on it, or create it yourself, with one partition"
    return type(error)(what, hint=hint, code=error.code)
