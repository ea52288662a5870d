"""Checks whether topics accept the records of this job: rights and configs.

* the principal's right WRITE
* max.message.bytes, compared with batch.size and max.request.size
* compression.type, compared with the producer's compression.type
* the topic's limits for timestamps, compared with this machine's clock

If a write may still work, the result is a warning. If the principal may not read the configs, they
are not checked. The driver calls :func:`check_topics` before the first task. ``kprod check`` calls
the other functions, and a task calls some of them for its dead letters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.call import AnyBroker, Call
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    TOPIC_UNAVAILABLE,
    AuthorizationError,
    ConfigError,
    ErrorCode,
    KafkaError,
    coded,
    warn_once,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.checks.clock_difference import ClockDifference
from spark_kafka_sink.datasource.report.write_report import MAX_JSON_BYTES
from spark_kafka_sink.protocol.cluster import PartitionInfos
from spark_kafka_sink.protocol.metadata import MetadataRequest, TopicMetadata
from spark_kafka_sink.records.bad_rows.topic_limits import (
    AFTER,
    BEFORE,
    BROKERS_TIME,
    CLEANUP,
    LARGEST,
    TIMESTAMPS,
    TopicLimits,
)

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: The timeout in ms of each of the two requests. It is short, because a write works without them.
#: It does not apply to the configs if rows can become dead letters.
CHECK_MS: Final = 5_000

#: The timeout in ms of requests that decide which rows become dead letters, or max.block.ms if that
#: is shorter. A service that never responds delays each write by this time, at most once a minute.
NEEDED_MS: Final = 30_000

COMPRESSION: Final = "compression.type"
LEAST_IN_SYNC: Final = "min.insync.replicas"
#: A larger clock difference is a warning whatever a topic accepts: logins by token or by signature
#: begin to fail.
_CLOCK_OFF_MS: Final = 60_000
#: Upper bound on the overhead of a record batch of one record.
_AROUND_A_REPORT: Final = 1_000
#: Bits of authorized operations: the codes of Kafka's AclOperation.
_OPERATIONS: Final = {
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
}
#: The compression.type of topics that keep batches as they are sent.
_AS_SENT: Final = "producer"


@dataclass(frozen=True, slots=True)
class TopicWarning:
    """A topic config, ``setting``, that conflicts with the producer's options or with this
    machine's clock.

    ``error`` has the message and the hint of the warning. This error is never raised. ``refuses``
    is True if brokers may reject rows. If it is False, brokers accept the rows, but with a
    disadvantage such as a second compression.
    """

    setting: str
    error: KafkaError
    refuses: bool = False


def check_topics(
    admin: AdminClient, config: SinkConfig, topics: Collection[str], timeout_ms: int
) -> dict[str, TopicLimits]:
    """Checks rights and configs of the topics. Returns the limits of each topic for record sizes
    and timestamps. A topic is missing in the result if the principal may not read its configs.

    * Raises AuthorizationError if the principal may not write to one of ``topics``. With
      exactly-once, also checks the commit log's topic, if it exists.
    * For the topic of the option ``topic``, logs a warning for each config that conflicts with the
      producer's options.
    * For the topic of the option ``reportTopic``, logs a warning if brokers may reject a large
      report about a write.

    Each warning is logged once per process. A check whose request fails is skipped without an
    error. If the write can't work, the tasks raise the error. With errors.tolerance=all, unknown
    configs are one of the warnings.
    """
    written = {*topics, *([config.commit_log_topic] if config.is_exactly_once else ())}
    limit_ms = min(timeout_ms, CHECK_MS)
    rights = _if_possible(lambda: topic_rights(admin, written, limit_ms)) if written else {}
    for name, operations in rights.items():
        check_write(name, operations)
    if not topics:
        return {}
    letters = config.dead_letters
    if letters is None:
        configs = _if_possible(lambda: topic_settings(admin, topics, limit_ms))
    else:
        configs = _settings_for_dead_letters(admin, topics, (config.topic, letters.topic))
    for name, settings in configs.items():
        # Reports are batches of one record, to which options of the producer don't apply.
        found: Iterator[TopicWarning] = iter(())
        if name == config.topic:
            found = warnings_of(config.producer, name, settings)
        elif name == config.report_topic:
            found = report_warnings(name, settings)
        warn_once(_log, (one.error.one_line() for one in found))
    return {name: TopicLimits.of(settings) for name, settings in configs.items()}


def _settings_for_dead_letters(
    admin: AdminClient, topics: Collection[str], needed: Collection[str | None]
) -> Mapping[str, Mapping[str, str | None]]:
    """Returns :func:`topic_settings`. Logs a warning if the configs of a topic in ``needed`` are
    unknown: the topic of the rows, and the dead-letter topic.

    The configs decide which rows become dead letters. Without them, a task sends for example a row
    that is larger than max.message.bytes. The broker refuses the row, and the write fails.
    """
    why = "the principal lacks DESCRIBE_CONFIGS, or brokers did not return the configs"
    found: Mapping[str, Mapping[str, str | None]] = {}
    try:
        found = topic_settings(admin, topics, _needed_wait_ms(admin.config))
    except KafkaError as error:
        why = error.message
    unknown = [name for name in topics if name in needed and not found.get(name)]
    if unknown:
        text = (
            f"the configs of {', '.join(unknown)} are unknown: a row or a dead letter that they do"
            f" not allow makes its task fail ({why})"
        )
        warn_once(_log, [coded(Kind.TOPIC_LIMIT.kp_code, text)])
    return found


def _needed_wait_ms(config: ProducerConfig) -> int:
    """The wait for figures that decide which rows become dead letters."""
    return max(CHECK_MS, min(config.max_block_ms, NEEDED_MS))


def _if_possible(request: Callable[[], Mapping[str, T]]) -> Mapping[str, T]:
    try:
        return request()
    except KafkaError as error:
        _log.debug("the preflight's check of rights and configs: %s", error.one_line())
        return {}


def topic_rights(
    admin: AdminClient, topics: Collection[str], timeout_ms: int
) -> Mapping[str, int | None]:
    """The operations that the principal may use on each topic, as Kafka's bit field of authorized
    operations. The value is None if brokers don't report the operations.
    """
    found = topics_in_full(admin, topics, timeout_ms)
    return {name: topic.authorized_operations for name, topic in found.items()}


def forbidden_topics(config: ProducerConfig, topics: Collection[str]) -> dict[str, ErrorCode]:
    """The topics that the principal may not write to, each with the broker's error code. A topic is
    not in the result if the brokers don't report the principal's rights on it.

    Opens a connection of its own. If this fails, or if there is no response in time, logs a
    warning, and the result is empty.
    """
    # The metadata that a task's producer requests does not contain the principal's rights.
    if not topics:
        return {}
    try:
        with AdminClient(config) as admin:
            rights = topic_rights(admin, topics, _needed_wait_ms(config))
    except KafkaError as error:
        text = (
            f"the rights on {', '.join(sorted(topics))} are unknown: a row for a topic that the"
            f" principal may not write to makes its task fail ({error.message})"
        )
        warn_once(_log, [coded(error.kind.kp_code, text, error.hint)])
        return {}
    found: dict[str, ErrorCode] = {}
    for topic, operations in rights.items():
        try:
            check_write(topic, operations)
        except AuthorizationError as error:
            found[topic] = error.code
    return found


@dataclass(frozen=True, slots=True)
class TopicsNow:
    """Requests the current metadata of topics, for a task without a producer. Each method creates
    an admin client, sends one request, and closes the client.
    """

    new_admin: Callable[[], AdminClient]

    def partitions_for(self, topic: str, *, fresh: bool = False) -> PartitionInfos:  # noqa: ARG002 - always fresh
        """Requests the partitions of a topic. ``fresh`` has no effect, because each call sends a
        request. Raises KafkaError if the topic does not exist, or if the principal may not see it.
        """
        (found,) = self._described([topic]).values()
        if found.error is not ErrorCode.NONE:
            raise found.error.error(f"topic {topic}")
        return found.partitions

    def unavailable_topics(self, topics: Sequence[str]) -> dict[str, ErrorCode]:
        """The topics that do not exist or that the principal may not see, with the broker's error
        code. Raises the error of a topic that is temporarily unavailable.
        """
        found = {name: one.error for name, one in self._described(topics).items()}
        for name, code in found.items():
            if code not in TOPIC_UNAVAILABLE | {ErrorCode.NONE}:
                raise code.error(f"topic {name}")
        return {name: code for name, code in found.items() if code is not ErrorCode.NONE}

    def _described(self, topics: Sequence[str]) -> Mapping[str, TopicMetadata]:
        with self.new_admin() as admin:
            return topics_in_full(admin, topics, admin.config.max_block_ms)


def topics_in_full(
    admin: AdminClient, topics: Collection[str], timeout_ms: int
) -> Mapping[str, TopicMetadata]:
    """Requests the metadata of each topic: its partitions with their in-sync replicas, and the
    operations that the principal may use. A topic that does not exist is in the result with an
    error code, and is not created.
    """
    request = MetadataRequest(
        tuple(sorted(topics)),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    call = Call(request, AnyBroker(), "Metadata")
    answer = admin.loop.send_and_receive(call, admin.deadline(timeout_ms))
    return {topic.name: topic for topic in answer.topics}


def check_write(topic: str, operations: int | None) -> None:
    """Raises AuthorizationError if the principal may not write to ``topic``. ``operations`` is
    Kafka's bit field of authorized operations, or None if it is unknown.

    A bit field without DESCRIBE counts as unknown: it comes from a broker that does not support
    this field.
    """
    if operations is None:
        return
    may = [name for bit, name in _OPERATIONS.items() if operations >> bit & 1]
    if "DESCRIBE" in may and "WRITE" not in may:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        raise AuthorizationError(
            f"topic {topic}: {code.name} ({code.value}): not authorised to write to it (only to "
            f"{', '.join(may)})",
            hint=code.info.hint,
            code=code,
        )


def topic_settings(
    admin: AdminClient, topics: Collection[str], timeout_ms: int
) -> Mapping[str, Mapping[str, str | None]]:
    """The configs of each topic that affect a write, by topic and config name. The value of a
    config is None if the config is not set. A topic's configs are missing if the principal may not
    read them.
    """
    names = (LARGEST, COMPRESSION, LEAST_IN_SYNC, CLEANUP, TIMESTAMPS, AFTER, BEFORE)
    return admin.topic_configs(topics, names, admin.deadline(timeout_ms))


def warnings_of(
    config: ProducerConfig, topic: str, settings: Mapping[str, str | None]
) -> Iterator[TopicWarning]:
    """Yields the conflicts between the topic's configs and the producer's options. If a config has
    several conflicts, the worst comes first.
    """
    largest = settings.get(LARGEST) or ""
    if largest.isdecimal():
        yield from _size_warnings(config, topic, int(largest))
    # The option's value none is a topic's value uncompressed.
    wanted, sent = settings.get(COMPRESSION), config.compression_type
    topics_name = "uncompressed" if sent == "none" else sent
    if wanted not in (None, _AS_SENT, topics_name):
        yield _warning(
            COMPRESSION,
            f"topic {topic} has {COMPRESSION}={wanted}, and batches are sent with "
            f"kafka.{COMPRESSION}={sent}: brokers recompress each of them",
            f"set kafka.{COMPRESSION}={'none' if wanted == 'uncompressed' else wanted}, or the"
            f" topic's {COMPRESSION} to {topics_name} or {_AS_SENT}",
        )


def _size_warnings(config: ProducerConfig, topic: str, largest: int) -> Iterator[TopicWarning]:
    takes = f"topic {topic} takes batches of at most {largest} bytes ({LARGEST})"
    # A batch of one row has a header of 61 bytes, and the row some overhead; Kafka's two defaults
    # (1048576 and 1048588) are intended to match.
    if config.max_request_size > largest and config.compression_type == "none":
        yield _warning(
            LARGEST,
            f"{takes}, and kafka.max.request.size is {config.max_request_size}: a row between the "
            "two fails its task at the broker",
            f"raise {LARGEST}, or lower kafka.max.request.size, so that such a row is named "
            "before it is sent",
            refuses=True,
        )
    if config.batch_size > largest:
        yield _warning(
            LARGEST,
            f"{takes}, and kafka.batch.size is {config.batch_size}: each full batch is rejected, "
            "split and sent again",
            f"lower kafka.batch.size, or raise {LARGEST}",
        )


def report_warnings(
    report_topic: str, settings: Mapping[str, str | None]
) -> Iterator[TopicWarning]:
    """Yields a warning for a config of the report topic that is too small for a large report about
    a write. Brokers may reject such a report.
    """
    largest = settings.get(LARGEST) or ""
    if largest.isdecimal() and int(largest) < MAX_JSON_BYTES + _AROUND_A_REPORT:
        yield _warning(
            LARGEST,
            f"topic {report_topic} takes batches of at most {largest} bytes ({LARGEST}), and a "
            f"report has up to {MAX_JSON_BYTES} before compression: the report on a batch to "
            "thousands of partitions may be refused, and with exactly-once its commit fails then",
            f"raise {LARGEST} of the topic that reportTopic names",
        )


def clock_warning(
    topic: str | None, settings: Mapping[str, str | None], found: ClockDifference
) -> TopicWarning | None:
    """Compares this machine's clock with the active controller's clock. ``found`` is the difference
    between both clocks. Returns a warning in two cases, and None in all other cases:

    * The difference exceeds a limit of the topic for timestamps, so brokers would reject rows.
    * The difference is more than a minute.
    """
    # A row without a timestamp gets the time of this machine. The partition's leader compares it
    # with its own clock. Leaders don't report their time, so the controller's clock stands for
    # theirs.
    surely_ms = max(0, abs(found.ahead_ms) - found.error_ms)
    where = "ahead of" if found.ahead_ms > 0 else "behind"
    off = f"this machine's clock is {surely_ms} ms {where} broker {found.controller}'s"
    setting = AFTER if found.ahead_ms > 0 else BEFORE
    bound = settings.get(setting) or ""
    hint = "set the clock, here or there (NTP)"
    if (
        topic is not None
        and bound.isdecimal()
        and surely_ms > int(bound)
        and settings.get(TIMESTAMPS) != BROKERS_TIME
    ):
        refused = f"{off}, and topic {topic} has {setting}={bound}: rows are rejected"
        return _warning(setting, refused, hint, refuses=True)
    if surely_ms > _CLOCK_OFF_MS:
        return _warning(setting, f"{off}: rows, tokens and signatures have a wrong time", hint)
    return None


def _warning(setting: str, message: str, hint: str, *, refuses: bool = False) -> TopicWarning:
    error = ConfigError(message, hint=hint, kind=Kind.TOPIC_LIMIT)
    return TopicWarning(setting, error, refuses)
