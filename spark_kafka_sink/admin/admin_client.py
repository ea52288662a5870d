"""Requests about topics and their configs: for the checks before a write, for the commit log, and
for operators.

:class:`AdminClient` creates the requests, and reads the responses. ``request_loop.py`` sends the
requests. Before a write, the driver sends these requests once, and passes the results to the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Self

from spark_kafka_sink.admin.call import AnyBroker, Call, Resend
from spark_kafka_sink.admin.request_loop import NewClient, RequestLoop
from spark_kafka_sink.base.clock import NEVER, Clock
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    FATAL_TOPIC_ERRORS,
    AuthorizationError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from spark_kafka_sink.base.suggestions import nearest_name
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.protocol.cluster import Cluster, Node
from spark_kafka_sink.protocol.messages.describe_configs import DescribeConfigsResponse
from spark_kafka_sink.protocol.messages.metadata import MetadataRequest
from spark_kafka_sink.protocol.topic_requests import (
    ConfigResourceType,
    NewTopic,
    config_values,
    create_topics,
    describe_configs,
)

#: The time limit in ms of the request for the names of all topics, which a hint needs.
_NAMES_MS: Final = 2_000
#: The least similarity (difflib's ratio) of a topic that a hint proposes to the missing topic.
_ALIKE: Final = 0.8

#: A topic counts as missing if every response within this time was UNKNOWN_TOPIC_OR_PARTITION. With
#: max.block.ms alone (by default a minute), the user would wait a minute for the error of a
#: misspelt topic. A topic that exists is reported as unknown for a shorter time: all brokers know a
#: new topic after one or two metadata updates (tens of milliseconds, a second or two under load),
#: and a broker that creates the topic automatically (auto.create.topics.enable) returns this error
#: for about a second. The whole max.block.ms applies if there is no response, or a response with
#: another error, because a restart of a broker may take longer. In tasks, the whole max.block.ms
#: always applies, because no user waits for a task interactively.
MISSING_TOPIC_TIMEOUT_MS: Final = 10_000


class AdminClient:
    """Sends requests about topics, their configs and brokers, and waits for the responses. Only one
    thread at a time may use a client. The client is a context manager, which closes the connections
    at its end.

    Each method that waits for a response has a time limit: ``deadline_ms`` (a time of ``clock`` in
    ms) or ``timeout_ms`` (a duration). If ``timeout_ms`` is None, the limit is max.block.ms. The
    methods raise these errors:

    * KafkaTimeoutError: no broker has responded before the time limit. The error lists the
      addresses that were tried, and the reasons of the failures.
    * AuthenticationError and UnsupportedVersionError: raised without waiting for the time limit.

    The constructor raises ConfigError if no bootstrap server can be resolved.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        clock: Clock | None = None,
        new_client: NewClient | None = None,
    ) -> None:
        self.config = config
        #: The request loop, by which a caller can send other requests over the same connections.
        self.loop = RequestLoop(config, clock, new_client)
        self.clock = self.loop.clock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections."""
        self.loop.close()

    def deadline(self, timeout_ms: int | None = None) -> int:
        """Returns the time (ms of the clock) that is ``timeout_ms`` after now. If ``timeout_ms`` is
        None, returns the time that is max.block.ms after now.
        """
        return self.clock.now_ms() + (
            self.config.max_block_ms if timeout_ms is None else timeout_ms
        )

    def describe_topics(
        self,
        topics: Collection[str],
        *,
        timeout_ms: int | None = None,
        missing_topic_timeout_ms: int | None = None,
        allow_auto_topic_creation: bool = True,
    ) -> Cluster:
        """Requests the brokers of the cluster and the partitions of ``topics``. If a topic is
        missing, the metadata are requested again until the timeout, as in Java's client.

        * ``missing_topic_timeout_ms``: a shorter time limit for a missing topic. It applies if all
          responses within this time have UNKNOWN_TOPIC_OR_PARTITION for the topic.
        * ``allow_auto_topic_creation``: if True, a broker with auto.create.topics.enable creates
          the missing topics.

        Raises one of these errors:

        * KafkaTimeoutError: a topic is missing. The error names the missing topics, and its hint
          has the brokers' error for each of them.
        * InvalidTopicError and AuthorizationError: raised without waiting.
        """
        self.loop.metadata.allow_auto_topic_creation = allow_auto_topic_creation
        return self._await_topics(topics, timeout_ms, lambda _: True, missing_topic_timeout_ms)

    def brokers(self, deadline_ms: int, *, max_age_ms: int = NEVER) -> tuple[Node, ...]:
        """Returns all brokers of the cluster. New metadata are requested first in two cases: the
        known metadata are older than ``max_age_ms``, or they have only the bootstrap servers. The
        request may have to wait for retry.backoff.ms.
        """
        metadata = self.loop.metadata
        now = self.clock.now_ms()
        known = min(metadata.cluster.nodes) >= 0  # else they are the bootstrap servers
        if not known or now - metadata.last_success_ms > max_age_ms:
            self.describe_topics(
                (), timeout_ms=max(0, deadline_ms - now), allow_auto_topic_creation=False
            )
        return tuple(metadata.cluster.nodes.values())

    def refresh_brokers(self) -> None:
        """Requests new metadata without waiting for the response. A later call of any method
        receives the response. Then :meth:`brokers` need not wait, if the metadata are not older
        than its ``max_age_ms``.
        """
        self.loop.metadata.request_update(reset_equivalent_backoff=True)

    def topic_configs(
        self, topics: Collection[str], names: Collection[str], deadline_ms: int
    ) -> Mapping[str, Mapping[str, str | None]]:
        """Requests the values of the configs in ``names`` for each topic in ``topics``. Returns for
        example ``{"orders": {"cleanup.policy": "compact"}}``.

        The value of a config is None if the config is not set. The dict of a topic is empty, as in
        ``{"orders": {}}``, in each of these cases:

        * The principal does not have the right to describe the configs.
        * The brokers do not support the request.
        """

        def error_in(response: DescribeConfigsResponse) -> ErrorCode:
            codes = (found.error_code for found in response.results)
            errors = (c for c in codes if c.info.error_type is not AuthorizationError)
            return next(filter(None, errors), ErrorCode.NONE)

        request = describe_configs(ConfigResourceType.TOPIC, topics, names)
        what = f"DescribeConfigs of topic {', '.join(topics)}"
        call = Call(request, AnyBroker(), what, error_in)
        try:
            response = self.loop.send_and_receive(call, deadline_ms)
        except UnsupportedVersionError:
            return {topic: {} for topic in topics}
        return {found.resource_name: config_values(found) for found in response.results}

    def topic_names(self, deadline_ms: int) -> tuple[str, ...]:
        """Requests the names of all topics that the principal may DESCRIBE.

        The response grows with the number of topics in the cluster. So a write sends this request
        only to complete an error message, and only from the driver.
        """
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        call = Call(request, AnyBroker(), "Metadata of all topics")
        response = self.loop.send_and_receive(call, deadline_ms)
        return tuple(topic.name for topic in response.topics if topic.name is not None)

    def create_topic(
        self, topic: NewTopic, *, timeout_ms: int | None = None, validate_only: bool = False
    ) -> Cluster:
        """Creates ``topic`` if it does not exist, and waits until each of its partitions has a
        leader. Returns the metadata with the topic.

        If ``validate_only`` is True, the broker checks the request and creates nothing. The
        returned metadata then need not have the topic. Raises the broker's error if the broker
        rejects the topic.
        """
        deadline_ms = self.deadline(timeout_ms)
        self.loop.metadata.allow_auto_topic_creation = False
        self._await_topics((), timeout_ms, lambda _: True)  # who is the controller?
        attempts = 0
        while not self._is_created(topic, deadline_ms, validate_only=validate_only):
            self.loop.metadata.request_update()
            self.loop.pause(attempts, deadline_ms)
            attempts += 1
        if validate_only:
            return self.loop.cluster

        def has_leaders(cluster: Cluster) -> bool:
            return all(p.leader in cluster.nodes for p in cluster.topics[topic.name])

        left_ms = max(0, deadline_ms - self.clock.now_ms())
        return self._await_topics([topic.name], left_ms, has_leaders)

    def _is_created(self, topic: NewTopic, deadline_ms: int, *, validate_only: bool) -> bool:
        """Sends one CreateTopics request. Returns True if the topic exists now, and False if the
        request must be sent again. If ``validate_only`` is True, the result True means that the
        broker accepts the request.
        """
        # Brokers before KRaft create topics on the controller only; later ones forward.
        cluster = self.loop.cluster
        to = cluster.nodes.get(cluster.controller) or AnyBroker()
        left_ms = max(1, deadline_ms - self.clock.now_ms())
        request = create_topics([topic], left_ms, validate_only=validate_only)
        call = Call(request, to, f"CreateTopics of {topic.name}", resend=Resend.AFTER_CODE)
        try:
            self.loop.run([call], deadline_ms)
        except UnsupportedVersionError as error:
            if -1 not in (topic.partitions, topic.replication_factor):
                raise
            raise UnsupportedVersionError(
                f"{error.message}: brokers before 2.4 have no defaults for a topic",
                hint="give its partitions and its replication factor",
            ) from error
        if call.response is None:
            if self.clock.now_ms() >= deadline_ms:
                raise self.loop.timeout([call])
            return False
        (created,) = call.response.topics
        code = created.error_code
        # (An earlier request may have created the topic, and its response may have been lost.)
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return True
        if not code.retriable:
            raise code.error(f"topic {topic.name}", created.error_message)
        return False

    def _await_topics(
        self,
        topics: Collection[str],
        timeout_ms: int | None,
        ready: Callable[[Cluster], bool],
        missing_topic_timeout_ms: int | None = None,
    ) -> Cluster:
        """Requests metadata until they contain all ``topics`` and ``ready(cluster)`` is True.
        Returns these metadata. The timeouts and the errors are those of :meth:`describe_topics`.
        """
        metadata = self.loop.metadata
        now = self.clock.now_ms()
        timeout_ms = self.config.max_block_ms if timeout_ms is None else timeout_ms
        answers = before = metadata.answers
        unknown_since: dict[str, int] = {}
        metadata.add_topics(topics, now)
        metadata.request_update(reset_equivalent_backoff=True)

        def check(now: int) -> int | None:
            nonlocal answers, unknown_since
            if metadata.answers == answers:
                return NEVER
            cluster = metadata.cluster
            errors = {t: metadata.topic_errors.get(t, ErrorCode.NONE) for t in topics}
            for topic, code in errors.items():
                if code in FATAL_TOPIC_ERRORS:
                    raise code.error(f"topic {topic}")
            missing = [t for t in topics if t not in cluster.topics]
            if not missing and ready(cluster):
                return None
            unknown_since = {
                topic: unknown_since.get(topic, now)
                for topic in missing
                if errors[topic] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            }
            if missing_topic_timeout_ms is not None and any(
                now - since >= missing_topic_timeout_ms for since in unknown_since.values()
            ):
                raise self._wait_error(topics, missing_topic_timeout_ms, answered=True)
            answers = metadata.answers
            metadata.request_update(reset_equivalent_backoff=True)
            return NEVER

        if not self.loop.poll_until(check, now + timeout_ms):
            answered = metadata.answers > before
            raise self._wait_error(topics, timeout_ms, answered=answered)
        return metadata.cluster

    def _wait_error(
        self, topics: Collection[str], timeout_ms: int, *, answered: bool
    ) -> KafkaTimeoutError:
        """Creates the error for a wait for ``topics`` that was too long. The error names the topics
        that the metadata lack. If they lack none, it names ``topics`` as topics without leaders.

        ``answered`` is False if no broker has responded during this wait. Then the metadata are
        older, and do not show that a topic is missing now. So if they lack a topic, the error says
        that no broker has responded. If ``topics`` is empty, the error always says that.
        """
        metadata = self.loop.metadata
        if not topics:
            return metadata.no_broker_answered(timeout_ms, "nothing is known of the cluster")
        known = metadata.cluster.topics
        missing = [topic for topic in topics if topic not in known]
        if not missing:
            return KafkaTimeoutError(
                f"partitions of {', '.join(topics)} have no leader after {timeout_ms} ms.",
                hint="brokers may be down, or the topic was created a moment ago",
                kind=Kind.NO_LEADER,
            )
        noun = "Topic" if len(missing) == 1 else "Topics"
        message = (
            f"{noun} {', '.join(missing)} not found: not present in metadata after {timeout_ms} ms."
        )
        if not answered:
            return metadata.no_broker_answered(timeout_ms, message)
        return KafkaTimeoutError(
            message,
            # (Without a wait the caller only asked whether it is there.)
            hint=(self._near(missing) if timeout_ms else "")
            + _errors_of(missing, metadata.topic_errors),
            kind=Kind.TOPIC_NOT_PRESENT,
        )

    def _near(self, missing: Collection[str]) -> str:
        """Returns a text for a hint, such as "is it orders? ", with existing topics whose names are
        similar to the missing topics. The text is empty if there is no such topic, or if the names
        of the topics can't be requested.
        """
        try:
            known = self.topic_names(self.clock.now_ms() + _NAMES_MS)
        except KafkaError:
            return ""  # the error that this is for has all that is known
        names = [name for name in known if not name.startswith("__")]
        found = (nearest_name(one.lower(), names, _ALIKE) for one in missing)
        near = dict.fromkeys(filter(None, found))
        return f"is it {' or '.join(near)}? " if near else ""


def _errors_of(topics: Collection[str], errors: Mapping[str, ErrorCode]) -> str:
    """Returns a text for a hint: the error codes that brokers returned for ``topics``, each with
    the topics that have this error.
    """
    by_code: dict[ErrorCode, list[str]] = {}
    for topic in topics:
        code = errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        by_code.setdefault(code, []).append(topic)
    said = (
        f"{code.name} of {', '.join(names)}: {code.info.hint}" for code, names in by_code.items()
    )
    return f"the brokers answered {'; '.join(said)}"
