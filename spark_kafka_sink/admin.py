"""The few admin calls that the preflight, the tests and the command line need.

Owns: :class:`AdminClient`, which asks and waits on the caller's thread, and the two functions that
open one for a single question. Never: a thread, a cache, a decision about what a missing topic
means.

It stands before the way of a record: the driver asks here once, and ships the answer to the tasks.
It waits on the same Metadata as the producer does, so that the driver's error is the task's error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, Self, TypeVar, cast

from spark_kafka_sink.clock import Clock, SystemClock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.error_kinds import Kind
from spark_kafka_sink.errors import ErrorCode, KafkaError, KafkaTimeoutError
from spark_kafka_sink.network.backoff import ExponentialBackoff
from spark_kafka_sink.network.client.client_factory import (
    new_network_client,
    with_bootstrap_addresses,
)
from spark_kafka_sink.network.client.client_request import ClientResponse
from spark_kafka_sink.network.client.kafka_client import KafkaClient
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.protocol.cluster import Cluster, Node
from spark_kafka_sink.protocol.control_messages import (
    CreateTopicsRequest,
    MetadataRequest,
    NewTopic,
)
from spark_kafka_sink.protocol.metadata_response import MetadataResponse
from spark_kafka_sink.protocol.request import Request
from spark_kafka_sink.protocol.responses import CreateTopicsResponse

ResponseT = TypeVar("ResponseT")
#: Makes the client that the questions go through: over real sockets, or a simulated network's.
NewClient = Callable[[ProducerConfig, Metadata, Clock], KafkaClient]

#: Topic errors that no waiting mends.
_HOPELESS: Final = frozenset(
    {ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
#: After these CreateTopics may or may not have been done: a topic that is there then is ours.
_UNCLEAR: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT})
#: How long one poll lasts at most while we wait for a node that may become ready by itself.
_POLL_MS: Final = 100


def describe_topics(
    config: ProducerConfig,
    topics: Collection[str],
    *,
    timeout_ms: int | None = None,
    believe_missing_ms: int | None = None,
    allow_auto_topic_creation: bool = True,
    clock: Clock | None = None,
) -> Cluster:
    """As :meth:`AdminClient.describe_topics`, over connections of its own."""
    with AdminClient(config, clock=clock) as admin:
        return admin.describe_topics(
            topics,
            timeout_ms=timeout_ms,
            believe_missing_ms=believe_missing_ms,
            allow_auto_topic_creation=allow_auto_topic_creation,
        )


def create_topics(
    config: ProducerConfig,
    topics: Sequence[NewTopic],
    *,
    timeout_ms: int | None = None,
    exist_ok: bool = False,
    clock: Clock | None = None,
) -> Cluster:
    """As :meth:`AdminClient.create_topics`, over connections of its own."""
    with AdminClient(config, clock=clock) as admin:
        return admin.create_topics(topics, timeout_ms=timeout_ms, exist_ok=exist_ok)


class AdminMetadata(Metadata):
    """The producer's metadata, which also keeps what nobody waits for in ``await_topics``.

    No lock: there is one thread.
    """

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        super().__init__(config, clock)
        self.allow_auto_topic_creation = True
        self.answers = 0
        self.topic_errors: dict[str, ErrorCode] = {}
        self.failure: KafkaError | None = None

    def new_request(self, now: int) -> tuple[MetadataRequest, int]:
        request, token = super().new_request(now)
        return (
            replace(request, allow_auto_topic_creation=self.allow_auto_topic_creation),
            token,
        )

    def update(self, token: int, response: MetadataResponse, now: int) -> None:
        super().update(token, response, now)
        self.answers += 1
        self.failure = None
        for topic in response.topics:
            self.topic_errors[topic.name] = topic.error

    def failed_update(self, now: int, error: KafkaError | None) -> None:
        super().failed_update(now, error)
        if error is not None:
            self.failure = error


class AdminClient:
    """Asks brokers, one question at a time, on the caller's thread. A context manager.

    Every call is bounded by its ``timeout_ms``, or by max.block.ms when that is None, and raises
    KafkaTimeoutError with each address tried and why it failed when no broker answers in time;
    AuthenticationError and UnsupportedVersionError come at once, as does ConfigError when no
    bootstrap server can be resolved.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        clock: Clock | None = None,
        new_client: NewClient = new_network_client,
    ) -> None:
        if new_client is new_network_client:
            config = with_bootstrap_addresses(config)
        self._clock = SystemClock() if clock is None else clock
        self._default_timeout_ms = config.max_block_ms
        self._request_timeout_ms = config.request_timeout_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._metadata = AdminMetadata(config, self._clock)
        self._client = new_client(config, self._metadata, self._clock)
        self._metadata.attach(self._client.wakeup, self._client.connection_failures)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def describe_topics(
        self,
        topics: Collection[str],
        *,
        timeout_ms: int | None = None,
        believe_missing_ms: int | None = None,
        allow_auto_topic_creation: bool = True,
    ) -> Cluster:
        """The brokers, and the partitions of all ``topics`` (none: the brokers alone).

        As in Java, a topic that is not there is asked for again until the time is up, because it
        may have been created a moment ago, and because the broker may create it for us. Then
        KafkaTimeoutError says which is missing, and in its hint what the brokers said of each.
        InvalidTopicError and AuthorizationError come at once.

        The wait for a missing topic ends earlier when every answer of the last
        ``believe_missing_ms`` called it UNKNOWN_TOPIC_OR_PARTITION. Silence, or any other error,
        is no such word: it is waited out, and the count begins anew.
        """
        timeout_ms = self._default_timeout_ms if timeout_ms is None else timeout_ms
        self._metadata.allow_auto_topic_creation = allow_auto_topic_creation
        return self._await_topics(topics, timeout_ms, lambda _: True, believe_missing_ms)

    def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int | None = None, exist_ok: bool = False
    ) -> Cluster:
        """Create ``topics`` and wait until each of their partitions has a leader.

        With ``exist_ok`` a topic that is there is left as it is. Raises the broker's refusal of
        the first topic that it refuses; others may have been created then.
        """
        timeout_ms = self._default_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._clock.now_ms() + timeout_ms
        self._metadata.allow_auto_topic_creation = False
        self._await_topics((), timeout_ms, lambda _: True)  # who is the controller?
        self._create(list(topics), deadline, timeout_ms, exist_ok=exist_ok)

        def have_leaders(cluster: Cluster) -> bool:
            return all(
                partition.leader in cluster.nodes
                for topic in topics
                for partition in cluster.topics[topic.name]
            )

        remaining = max(0, deadline - self._clock.now_ms())
        return self._await_topics([topic.name for topic in topics], remaining, have_leaders)

    def call(
        self,
        request: Request[ResponseT],
        *,
        timeout_ms: int | None = None,
        choose: Callable[[Cluster], Node | None] = lambda _: None,
    ) -> ResponseT:
        """What a broker answers to ``request``; asked again of a broker whose connection ended.

        ``choose`` picks the broker; the least loaded one is asked when it gives None.
        """
        timeout_ms = self._default_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._clock.now_ms() + timeout_ms
        while True:
            response = self._call_once(request, deadline, choose)
            if response is None:
                raise self._no_answer(request.api_key.name, timeout_ms)
            if response.error is not None:
                raise response.error
            if not response.disconnected:
                return cast("ResponseT", response.body)

    # -- waiting ----------------------------------------------------------------------------------

    def _await_topics(
        self,
        topics: Collection[str],
        timeout_ms: int,
        ready: Callable[[Cluster], bool],
        believe_missing_ms: int | None = None,
    ) -> Cluster:
        """Poll until a fresh answer knows ``topics`` and the cluster is ``ready``."""
        metadata = self._metadata
        now = self._clock.now_ms()
        deadline = now + timeout_ms
        answers = metadata.answers
        metadata.add_topics(topics, now)
        metadata.request_update()
        unknown_since: dict[str, int] = {}
        while True:
            if metadata.failure is not None:
                raise metadata.failure
            if metadata.answers > answers:
                cluster = metadata.fetch()
                errors = {t: metadata.topic_errors.get(t, ErrorCode.NONE) for t in topics}
                for topic, code in errors.items():
                    if code in _HOPELESS:
                        raise code.error(f"topic {topic}")
                missing = [t for t in topics if t not in cluster.topics]
                if not missing and ready(cluster):
                    return cluster
                now = self._clock.now_ms()
                unknown_since = {
                    topic: unknown_since.get(topic, now)
                    for topic in missing
                    if errors[topic] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                }
                if believe_missing_ms is not None and any(
                    now - since >= believe_missing_ms for since in unknown_since.values()
                ):
                    raise self._not_present(topics, believe_missing_ms)
                answers = metadata.answers
                metadata.request_update()
            now = self._clock.now_ms()
            if now >= deadline:
                raise self._not_present(topics, timeout_ms)
            self._client.poll(deadline - now, now)

    def _not_present(self, topics: Collection[str], timeout_ms: int) -> KafkaTimeoutError:
        if not topics:
            return self._metadata.no_broker_answered(timeout_ms, "nothing is known of the cluster")
        known = self._metadata.fetch().topics
        missing = [topic for topic in topics if topic not in known]
        if not missing:
            return KafkaTimeoutError(
                f"partitions of {', '.join(topics)} have no leader after {timeout_ms} ms.",
                hint="brokers may be down, or the topic was created a moment ago",
                code=ErrorCode.REQUEST_TIMED_OUT,
                kind=Kind.NO_LEADER,
            )
        noun = "Topic" if len(missing) == 1 else "Topics"
        message = f"{noun} {', '.join(missing)} not present in metadata after {timeout_ms} ms."
        if self._metadata.answers == 0:
            return self._metadata.no_broker_answered(timeout_ms, message)
        return KafkaTimeoutError(
            message,
            hint=_said(missing, self._metadata.topic_errors),
            code=ErrorCode.REQUEST_TIMED_OUT,
            kind=Kind.TOPIC_NOT_PRESENT,
        )

    def _no_answer(self, request: str, timeout_ms: int) -> KafkaTimeoutError:
        if self._metadata.answers == 0:
            return self._metadata.no_broker_answered(timeout_ms, f"{request} got no answer")
        return KafkaTimeoutError(
            f"{request} got no answer within {timeout_ms} ms; {self._metadata.addresses_tried()}",
            code=ErrorCode.REQUEST_TIMED_OUT,
        )

    def _call_once(
        self,
        request: Request[ResponseT],
        deadline: int,
        choose: Callable[[Cluster], Node | None],
    ) -> ClientResponse | None:
        """What came of one attempt; None when the deadline came first."""
        client = self._client
        sent: list[ClientResponse] | None = None
        while True:
            now = self._clock.now_ms()
            if sent:
                return sent[0]
            if self._metadata.failure is not None:
                raise self._metadata.failure
            if now >= deadline:
                return None
            wait = deadline - now
            if sent is None:
                node = choose(self._metadata.fetch()) or client.least_loaded_node(now)
                if node is not None and client.ready(node, now):
                    sent = []
                    client.send(
                        client.new_client_request(
                            node.id,
                            cast("Request[object]", request),
                            now,
                            request_timeout_ms=min(self._request_timeout_ms, wait),
                            callback=sent.append,
                        ),
                        now,
                    )
                else:
                    wait = min(wait, _POLL_MS)
            client.poll(wait, now)

    def _pause(self, milliseconds: int) -> None:
        until = self._clock.now_ms() + milliseconds
        while (now := self._clock.now_ms()) < until:
            self._client.poll(until - now, now)

    # -- creating ---------------------------------------------------------------------------------

    def _create(
        self, topics: list[NewTopic], deadline: int, timeout_ms: int, *, exist_ok: bool
    ) -> None:
        """Until every topic is created or one is refused. Only what failed is asked again."""
        unclear: set[str] = set()
        attempts = 0
        while topics:
            remaining = deadline - self._clock.now_ms()
            request = CreateTopicsRequest(tuple(topics), max(1, remaining))
            response = self._call_once(request, deadline, _controller)
            if response is None:
                raise self._no_answer("CREATE_TOPICS", timeout_ms)
            if response.error is not None:
                raise response.error
            if response.disconnected:
                # It may have been done: if so the next answer says that the topics are there.
                unclear.update(topic.name for topic in topics)
            else:
                errors = cast("CreateTopicsResponse", response.body).errors
                topics = [t for t in topics if _again(t, errors, unclear, exist_ok=exist_ok)]
            if topics:
                self._metadata.request_update()
                self._pause(min(self._backoff.backoff(attempts), max(0, remaining)))
                attempts += 1


def _again(
    topic: NewTopic,
    errors: Mapping[str, tuple[ErrorCode, str | None]],
    unclear: set[str],
    *,
    exist_ok: bool,
) -> bool:
    """Must this topic be asked for again? Raises when it is refused."""
    code, message = errors[topic.name]
    if code is ErrorCode.NONE:
        return False
    if code is ErrorCode.TOPIC_ALREADY_EXISTS and (exist_ok or topic.name in unclear):
        return False
    if code in _UNCLEAR:
        unclear.add(topic.name)
    if not code.retriable:
        raise code.error(f"topic {topic.name}", message)
    return True


def _controller(cluster: Cluster) -> Node | None:
    """Brokers before KRaft create topics on the controller only; later ones forward."""
    return cluster.nodes.get(cluster.controller)


def _said(topics: Collection[str], errors: Mapping[str, ErrorCode]) -> str:
    """What the brokers said of each topic; topics of which they said the same stand together."""
    by_code: dict[ErrorCode, list[str]] = {}
    for topic in topics:
        code = errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        by_code.setdefault(code, []).append(topic)
    said = (
        f"{code.name} of {', '.join(names)}: {code.info.hint or code.info.meaning}"
        for code, names in by_code.items()
    )
    return f"the brokers answered {'; '.join(said)}"
