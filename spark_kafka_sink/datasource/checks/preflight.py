"""Checks the brokers and the topics on the driver, before the first task of a write.

The option ``preflight`` (required, warn or off) determines whether a failed check fails the write.
A result is cached for 60 seconds. A missing dead-letter topic is created.

The result contains the :class:`Cluster`. Each task gets it, so that hundreds of tasks don't request
the same metadata at the same time.

There is no preflight at a commit or abort, nor for the write that ends a ``transaction`` block. At
that time, all rows are already acknowledged, and a broker that is down must not fail the batch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.base.security.secret_references import UnresolvedReferenceError
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_config import Preflight, SinkConfig
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.records.bad_rows.topic_limits import TopicLimits

_log = logging.getLogger(__name__)

#: How long a planning process caches the result, in ms.
KEPT_MS = 60_000

#: With preflight=warn the longest wait for a result that is only advice, in ms.
WARN_WAIT_MS = 5_000

#: The producer's options, the topics, and whether rows can become dead letters.
_Key: TypeAlias = tuple[ProducerConfig, tuple[str, ...], bool]

#: Clusters cached by one planning process; a planner serves few.
KEPT_ANSWERS = 16


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """The result of the preflight: the cluster with the topics, and each topic's limits for record
    sizes and timestamps. A topic has no limits here if the principal may not read its configs.
    """

    cluster: Cluster
    limits: Mapping[str, TopicLimits] = field(default_factory=dict)

    @property
    def compacted(self) -> frozenset[str]:
        """The names of compacted topics, which reject records without a key."""
        return frozenset(topic for topic, limits in self.limits.items() if limits.compacted)


#: Requests the topics from the brokers of a config within some milliseconds; raises KafkaError.
Describe = Callable[[SinkConfig, tuple[str, ...], int], TopicsSeen]


@dataclass(frozen=True, slots=True)
class _Answer:
    seen: TopicsSeen | None
    until_ms: int


class PreflightCheck:
    """Checks brokers and topics before a write (the preflight), and caches the result for 60 s.
    Thread-safe.
    """

    def __init__(self, describe: Describe, clock: Clock) -> None:
        self._describe = describe
        self._clock = clock
        # Guards ``_answers``; not held during requests.
        self._lock = threading.Lock()
        self._answers: dict[_Key, _Answer] = {}

    def check(self, config: SinkConfig, *, streaming: bool) -> TopicsSeen | None:
        """Checks the brokers and the topics of a write. Returns the cluster and its topics. The
        topics are those of the options ``topic``, ``reportTopic`` and
        ``errors.deadletterqueue.topic.name``, if set.

        The result depends on the option ``preflight``:

        * ``required``: a failed check raises its error, such as AuthorizationError.
          KafkaTimeoutError means that no broker responded within max.block.ms, or that a topic was
          missing for ``MISSING_TOPIC_TIMEOUT_MS``.
        * ``warn``: a failed check logs its error, at most once in 60 s, and the result is None.
        * ``off``: nothing is checked, and the result is None.
        """
        mode = config.preflight_for(streaming=streaming)
        if mode is Preflight.OFF:
            return None
        queue = None if config.dead_letters is None else config.dead_letters.topic
        named = (config.topic, config.report_topic, queue)
        topics = tuple(topic for topic in named if topic is not None)
        log = (config.commit_log_topic,) if config.is_exactly_once else ()
        # With dead letters, the wait for the topics' limits is longer.
        key = (config.producer, topics + log, config.dead_letters is not None)
        kept = self._kept(key, required=mode is Preflight.REQUIRED)
        if kept is not None:
            return kept.seen
        limit_ms = config.producer.max_block_ms
        if mode is Preflight.WARN:
            limit_ms = min(limit_ms, WARN_WAIT_MS)
        try:
            seen = self._describe(config, topics, limit_ms)
        except KafkaError as error:
            if mode is Preflight.REQUIRED:
                raise
            _log.warning("preflight=warn, continuing despite: %s", error.one_line())
            self._keep(key, None)
            return None
        self._keep(key, seen)
        return seen

    def _kept(self, key: _Key, *, required: bool) -> _Answer | None:
        """The cached result for ``key``, or None if there is none. With ``required``, also returns
        None if the cached result is a failure, so that the check runs again.
        """
        with self._lock:
            answer = self._answers.get(key)
        if answer is None or answer.until_ms <= self._clock.now_ms():
            return None
        return None if answer.seen is None and required else answer

    def _keep(self, key: _Key, seen: TopicsSeen | None) -> None:
        with self._lock:
            self._answers.pop(key, None)
            self._answers[key] = _Answer(seen, self._clock.now_ms() + KEPT_MS)
            while len(self._answers) > KEPT_ANSWERS:
                del self._answers[next(iter(self._answers))]


_process_preflight: PreflightCheck | None = None


def process_preflight() -> PreflightCheck:
    """The preflight check of this process, with its cache. Created at the first call."""
    global _process_preflight
    if _process_preflight is None:
        _process_preflight = PreflightCheck(_describe, SystemClock())
    return _process_preflight


def _describe(config: SinkConfig, topics: tuple[str, ...], timeout_ms: int) -> TopicsSeen:
    # Imported here: commit and abort plan, too, without the network.
    from spark_kafka_sink.admin.admin_client import MISSING_TOPIC_TIMEOUT_MS, AdminClient
    from spark_kafka_sink.datasource.checks.dead_letter_checks import create_if_missing
    from spark_kafka_sink.datasource.checks.topic_checks import check_topics

    try:
        with AdminClient(config.producer) as admin:
            if config.dead_letters is not None:
                create_if_missing(admin, config.dead_letters, timeout_ms)
            cluster = admin.describe_topics(
                topics, timeout_ms=timeout_ms, missing_topic_timeout_ms=MISSING_TOPIC_TIMEOUT_MS
            )
            return TopicsSeen(cluster, check_topics(admin, config, topics, timeout_ms))
    except UnresolvedReferenceError as error:
        raise error.seen_by("the driver") from None
