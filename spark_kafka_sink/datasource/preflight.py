"""The look at the cluster before the first task: broker there? topic there, and open to us?

Owns: when that look is taken, what its failure means (``preflight=required|warn|off``), and the 60
seconds for which its answer is kept. Never: the asking itself (``admin``, ``topic_checks``);
anything before
``commit`` or ``abort``: there a broker's blip would fail a batch that is acknowledged already.

The answer's :class:`Cluster` travels to the tasks inside the writer: 200 tasks don't ask the
same brokers the same question at the same moment.

**How planning is told from commit** (seen on pyspark 4.2). Spark calls ``streamWriter`` in three
places. For planning, in every micro-batch, it makes a new data source of class and options in the
planner process. For commit and abort it unpickles a data source that was made once per run, in
another process, and calls ``streamWriter`` on that. So a data source that travelled by pickle
asks for a commit or an abort (``KprodDataSource.__reduce__``). If a later Spark plans with an
unpickled one, the preflight is left out, and the tasks find what it would have found. A writer's
``__getstate__`` runs at planning only too, but what it raises reaches the user wrapped as
"PicklingError: Could not serialize object".
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from spark_kafka_sink.clock import Clock, SystemClock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.secret_references import UnresolvedReferenceError
from spark_kafka_sink.config.sink_config import Preflight, SinkConfig
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.protocol.cluster import Cluster

_log = logging.getLogger(__name__)

#: For so long one planning process believes what a broker said.
KEPT_MS = 60_000

#: With preflight=warn nobody may wait longer than this for an answer that is only advice.
WARN_WAIT_MS = 5_000

#: A topic that every answer of this time called UNKNOWN_TOPIC_OR_PARTITION is not there. With
#: max.block.ms alone, its default of a minute is what everybody waits who misspelled a topic.
#: What makes that answer wrong passes sooner: a topic created a moment ago reaches every broker
#: within a metadata round or two (tens of milliseconds, a second or two under load), and a broker
#: that creates it for us (auto.create.topics.enable) gives the same answer until it is there, a
#: second or so. Silence and other errors are not believed: a broker that restarts comes back, so
#: for them the whole max.block.ms counts. Tasks wait that long too: they have no user in front.
BELIEVE_MISSING_MS = 10_000

#: Clusters kept by one planning process; a planner serves few.
KEPT_ANSWERS = 16


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """What brokers told: the cluster with the topics, and which of these are compacted (none where
    the principal may not see settings).
    """

    cluster: Cluster
    compacted: frozenset[str] = frozenset()


#: Asks the brokers of a config for its topics within some milliseconds; raises KafkaError.
Describe = Callable[[SinkConfig, tuple[str, ...], int], TopicsSeen]


@dataclass(frozen=True, slots=True)
class _Answer:
    seen: TopicsSeen | None
    until_ms: int


class PreflightCheck:
    """Asks, and remembers. ``_lock`` guards ``_answers``; nobody asks under it."""

    def __init__(self, describe: Describe, clock: Clock) -> None:
        self._describe = describe
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[tuple[ProducerConfig, tuple[str, ...]], _Answer] = {}

    def check(self, config: SinkConfig, *, streaming: bool) -> TopicsSeen | None:
        """The cluster and its topics as brokers describe them, or None when that is not known.

        With ``required``, raises what went wrong: KafkaTimeoutError for brokers that can't be
        reached within max.block.ms, or for a topic that is not there (after
        :data:`BELIEVE_MISSING_MS` at most), AuthorizationError, InvalidTopicError and so on. With
        ``warn`` the same is one warning line, then silence for 60 s. Without a ``topic`` option
        only the brokers are looked for.
        """
        mode = config.preflight_for(streaming=streaming)
        if mode is Preflight.OFF:
            return None
        topics = tuple(topic for topic in (config.topic, config.report_topic) if topic is not None)
        key = (config.producer, topics)
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
            _log.warning("preflight=warn, going on all the same: %s", error.one_line())
            self._keep(key, None)
            return None
        self._keep(key, seen)
        return seen

    def _kept(
        self, key: tuple[ProducerConfig, tuple[str, ...]], *, required: bool
    ) -> _Answer | None:
        """The remembered answer; a remembered failure does not count when one is required."""
        with self._lock:
            answer = self._answers.get(key)
        if answer is None or answer.until_ms <= self._clock.now_ms():
            return None
        return None if answer.seen is None and required else answer

    def _keep(self, key: tuple[ProducerConfig, tuple[str, ...]], seen: TopicsSeen | None) -> None:
        with self._lock:
            self._answers.pop(key, None)
            self._answers[key] = _Answer(seen, self._clock.now_ms() + KEPT_MS)
            while len(self._answers) > KEPT_ANSWERS:
                del self._answers[next(iter(self._answers))]


_process_preflight: PreflightCheck | None = None


def process_preflight() -> PreflightCheck:
    """The preflight of this planning process, made at first use."""
    global _process_preflight
    if _process_preflight is None:
        _process_preflight = PreflightCheck(_describe, SystemClock())
    return _process_preflight


def _describe(config: SinkConfig, topics: tuple[str, ...], timeout_ms: int) -> TopicsSeen:
    # The network is loaded only when it is asked: commit and abort plan too, without it.
    from spark_kafka_sink.admin.admin_client import AdminClient
    from spark_kafka_sink.datasource.topic_checks import check_topics

    try:
        with AdminClient(config.producer) as admin:
            cluster = admin.describe_topics(
                topics, timeout_ms=timeout_ms, missing_topic_timeout_ms=BELIEVE_MISSING_MS
            )
            compacted = check_topics(
                admin, config.producer, config.topic, config.report_topic, timeout_ms=timeout_ms
            )
            return TopicsSeen(cluster, compacted)
    except UnresolvedReferenceError as error:
        raise error.seen_by("the driver") from None
