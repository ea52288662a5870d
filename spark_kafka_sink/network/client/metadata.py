"""The cluster metadata of a producer, and the times at which they are requested again (Java's
``ProducerMetadata``).

:class:`Metadata` has the current :class:`Cluster` and the topics in use. It decides when a Metadata
request must be sent, and wakes the threads that wait for metadata. ``metadata_updater.py`` sends
the requests, and ``metadata_merge.py`` merges a response.

There are two kinds of updates:

* A *full* update requests all topics in use. It is sent when the metadata are too old, or after an
  error. After a failed update, and after a response without changes, the next full update waits for
  an exponential backoff.
* A *partial* update requests only topics that were just added. It does not wait for the backoff of
  earlier updates.

Each request has a number, the request version. If an update is requested while a request is in
flight, the version is raised. The response to the older request then does not count as the
requested update.

The driver can send a :class:`Cluster` to the tasks. A task that creates its :class:`Metadata` with
this cluster needs no Metadata request at its start. Between two tasks of a Python worker, the
producer is parked (:meth:`Metadata.set_parked`): no Metadata request is sent.
"""

from __future__ import annotations

import logging
import random as _random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.clock import NEVER, Clock, Waiters
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    FATAL_TOPIC_ERRORS,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    safe_text,
    warn,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client.metadata_merge import last_leaders, merge
from spark_kafka_sink.protocol.cluster import (
    Cluster,
    ClusterResourceListener,
    Node,
    Nodes,
    PartitionInfo,
    TopicPartition,
)
from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataResponse
from spark_kafka_sink.protocol.wire_writer import topic_name

_log = logging.getLogger(__name__)

#: Characters of a topic's name in a message: the longest legal name.
_TOPIC_SHOWN = 249

#: Possible causes when a host does not respond, with or without a connection.
_NO_RESPONSE = "behind a firewall, a TLS or SASL listener, or not Kafka?"
#: The hint when no broker responded.
_UNREACHABLE = (
    "check the addresses, firewalls, and that the brokers' advertised.listeners can be reached from"
    " this host"
)
#: Addresses of one message: of hundreds of brokers the first few show the cause.
_MAX_ADDRESSES = 12


def _notify(listener: ClusterResourceListener, cluster_id: str) -> None:
    try:
        listener.on_update(cluster_id)
    except Exception as error:  # noqa: BLE001 - the network thread must not die of a user's code
        warn(
            _log,
            Kind.USER_CODE,
            "%s failed on the cluster's id: %s",
            type(listener).__name__,
            type(error).__name__,
        )


def _nothing() -> None:
    """Does nothing. It is the wakeup function before :meth:`Metadata.attach`."""


class Metadata:
    """The cluster metadata of a producer. Thread-safe. Implements ``MetadataStore``.

    One lock (``_lock``) guards all fields except ``cluster``. ``cluster`` is immutable and replaced
    atomically, so reading it needs no lock. Wakeups are called without the lock.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        cluster: Cluster | None = None,
        *,
        wakeup: Callable[[], None] = _nothing,
        connection_failures: Callable[[], Mapping[str, str]] = dict,
        on_wait: Callable[[int, int], None] | None = None,
        random: Callable[[], float] = _random.random,
    ) -> None:
        """Creates the metadata. ``cluster`` is metadata that is already known.

        ``wakeup`` ends the poll of the network client. ``connection_failures`` returns the
        addresses to which connections have failed, with the reasons, for error messages.
        ``on_wait(duration_ms, now)`` is called when a wait for topics has ended.
        """
        self._clock = clock
        self._max_age_ms = config.metadata_max_age_ms
        self._max_idle_ms = config.metadata_max_idle_ms
        self._max_block_ms = config.max_block_ms
        self.rebootstrap_enabled = config.metadata_recovery_strategy == "rebootstrap"
        self._backoff = ExponentialBackoff(
            config.retry_backoff_ms, config.retry_backoff_max_ms, random=random
        )
        self._bootstrap = Cluster.bootstrap(config.bootstrap_servers)
        self._lock = threading.Lock()
        self._updated = Waiters()
        self._wakeup = wakeup
        self._connection_failures = connection_failures
        now = clock.now_ms()
        self.cluster = cluster if cluster is not None and cluster.nodes else self._bootstrap
        self._fetched = self.cluster is not self._bootstrap
        self._topics = dict.fromkeys(self.cluster.topics, now + self._max_idle_ms)
        self._new_topics: set[str] = set()
        self._errors: dict[str, ErrorCode] = {}
        #: The last known leaders of partitions whose leader is missing now. Used in messages.
        self._last_leaders: Mapping[TopicPartition, Node] = {}
        # The last known leader epoch of each partition. -1 means unknown.
        self._epochs = {t: p.leader_epochs() for t, p in self.cluster.topics.items()}
        self._need_full = False
        self._need_partial = False
        self._requested_partial = False
        self._request_version = 0
        self._update_version = 0
        self._answered_version = 0
        self._last_success_ms = now
        self._allowed_ms = now
        self._failed_attempts = 0
        self._equivalents = 0
        self._waiting = 0
        self._failure: KafkaError | None = None
        self._failures = 0
        self._closed: KafkaError | None = None
        #: True while the producer is parked (:meth:`set_parked`).
        self.parked = False
        self._on_wait = on_wait
        self._listeners: list[ClusterResourceListener] = []
        # The last known cluster id: a response may omit the id.
        self._cluster_id = self.cluster.cluster_id

    def add_cluster_listener(self, listener: ClusterResourceListener) -> None:
        """Adds a listener that is notified of each new cluster id. If the id is already known, the
        listener is notified now.
        """
        self._listeners.append(listener)
        if self._cluster_id is not None:
            _notify(listener, self._cluster_id)

    def attach(
        self,
        wakeup: Callable[[], None],
        connection_failures: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Sets two functions of the network client:

        * ``wakeup`` ends a poll that is waiting.
        * ``connection_failures`` returns the addresses to which connections have failed, each with
          the reason. Error messages contain these addresses.
        """
        self._wakeup = wakeup
        self._connection_failures = connection_failures

    # -- for the writer and the sender ------------------------------------------------------------

    def add_topics(self, topics: Iterable[str], now: int) -> None:
        """Marks ``topics`` as in use for the next metadata.max.idle.ms. If the metadata of a topic
        are unknown, they are requested soon.
        """
        with self._lock:
            self._touch(topics, now)

    def await_topics(self, topics: Collection[str], deadline: int) -> Cluster:
        """Waits until the partitions of all ``topics`` are known. Returns the cluster. Raises these
        errors:

        * KafkaTimeoutError at ``deadline`` (monotonic ms), with the text of Spark's Kafka sink
          ("Topic ... not present in metadata after ... ms."). If no broker has responded, the text
          also has the addresses that could not be reached. If a broker has returned an error for
          the topic, the exception's ``hint`` names this error.
        * InvalidTopicError or AuthorizationError, if a broker returns such an error for a topic.
        * InvalidTopicError, if no request can encode the name of a topic.
        * A fatal error of the request, such as a failed authentication.
        * The error of :meth:`close`, if the metadata are closed.
        """
        cluster = self.cluster
        for topic in topics:
            if topic not in cluster.topics:
                # A request can't encode it, so no request would be sent any more, for any topic.
                topic_name(topic)
        with self._lock:
            self.parked = False
            self._touch(topics, self._clock.now_ms())
            if self._closed is None and all(t in cluster.topics for t in topics):
                return cluster
            if not all(t in cluster.topics or t in self._new_topics for t in topics):
                self._request()
            self._waiting += 1
            seen = self._update_version
            failures = self._failures
        start = self._clock.now_ms()
        try:
            while True:
                self._wakeup()
                found = self._await_change(topics, deadline, seen, failures)
                if found is not None:
                    return found
        finally:
            with self._lock:
                self._waiting -= 1
            if self._on_wait is not None:
                now = self._clock.now_ms()
                self._on_wait(now - start, now)

    def refresh(self, deadline: int) -> bool:
        """Requests new metadata of all topics in use, and waits for the response. Returns True
        after the response, and False if no response arrives before ``deadline`` (monotonic ms).

        Raises a fatal error of the request, such as a failed authentication. If the metadata are
        closed, raises the error of :meth:`close`.
        """
        with self._lock:
            self.parked = False
            self._need_full = True
            self._request_version += 1
            wanted, failures = self._request_version, self._failures
            self._waiting += 1
        try:
            self._wakeup()
            while True:
                with self._lock:
                    if self._answered_version >= wanted:
                        return True
                    if self._closed is not None:
                        raise self._closed
                    if self._failure is not None and self._failures > failures:
                        raise self._failure
                    latch = self._updated.enlist()
                if not self._clock.wait(latch, deadline):
                    return False
        finally:
            with self._lock:
                self._waiting -= 1

    def _await_change(
        self, topics: Collection[str], deadline: int, seen: int, failures: int
    ) -> Cluster | None:
        """Returns the cluster as soon as it has all ``topics``. Returns None if a topic is still
        missing after the next Metadata response. Raises the errors of :meth:`await_topics`.

        ``seen`` and ``failures`` are the values of the counters ``_update_version`` and
        ``_failures`` when the caller began to wait. Errors of earlier requests are not raised,
        because their causes may be fixed. Exception: InvalidTopicError.
        """
        version = self._update_version
        while True:
            with self._lock:
                cluster = self.cluster
                missing = [t for t in topics if t not in cluster.topics]
                if self._closed is not None:
                    raise self._closed
                if not missing:
                    return cluster
                self._raise_fatal(missing, fresh=self._update_version > seen)
                if self._failure is not None and self._failures > failures:
                    raise self._failure
                if self._update_version > version:
                    self._touch(topics, self._clock.now_ms())
                    self._request()
                    return None
                latch = self._updated.enlist()
            if not self._clock.wait(latch, deadline):
                break
        self._raise_not_present(missing[0], answered=version > seen)
        return None

    def _raise_fatal(self, missing: Sequence[str], *, fresh: bool) -> None:
        for topic in missing:
            code = self._errors.get(topic)
            # An administrator may have fixed an error that is older than this wait.
            if code in FATAL_TOPIC_ERRORS and (fresh or code is ErrorCode.INVALID_TOPIC_EXCEPTION):
                raise code.error(f"topic {safe_text(topic, _TOPIC_SHOWN)}")

    def _raise_not_present(self, topic: str, *, answered: bool) -> None:
        code = self._errors.get(topic)
        what = (
            f"Topic {safe_text(topic, _TOPIC_SHOWN)} not present in metadata after "
            f"{self._max_block_ms} ms."
        )
        if code is None and not answered:
            raise self.no_broker_answered(self._max_block_ms, what)
        hint: str | None = None
        if code is not None:
            hint = f"the brokers answered {code.name}: {code.info.hint}"
        error = KafkaTimeoutError(what, hint=hint, kind=Kind.TOPIC_NOT_PRESENT)
        raise error from (None if code is None else code.error(f"topic {topic}"))

    def no_broker_answered(self, within_ms: int, what: str) -> KafkaTimeoutError:
        """Creates the error for the case that no broker has responded within ``within_ms``. The
        error's text has the addresses with their failures, and ``what``: a text about the thing
        that the caller has waited for.
        """
        return KafkaTimeoutError(
            f"no broker answered within {within_ms} ms; {self.addresses_tried()} ({what})",
            hint=_UNREACHABLE,
            kind=Kind.NO_BROKER,
        )

    def leader_known(self, tp: TopicPartition) -> str:
        """A text for error messages: the leader of ``tp``, or the reason why no leader is known."""
        cluster = self.cluster
        info = cluster.partition(tp)
        if info is None:
            return "nothing is known of the partition now"
        leader = cluster.nodes.get(info.leader)
        if leader is not None:
            return f"its leader is {leader}"
        last = self._last_leaders.get(tp)
        if info.leader < 0:
            return "the partition has no leader in the last metadata response" + (
                f"; its replicas are on {_brokers(info)}" if last is None else f"; it was {last}"
            )
        was = f"broker {info.leader}" if last is None else str(last)
        if any(node_id >= 0 for node_id in cluster.nodes):
            return f"its leader was {was}, which is no longer in the metadata"
        return (
            f"its leader was {was}; since then no known broker responded, and the"
            " client rebootstraps"
        )

    def addresses_tried(self) -> str:
        """A text for error messages: addresses of brokers, with the failures of their connections.

        * Before the first metadata have arrived, the text has all addresses. For an address without
          a failure, the text says that the address has not responded.
        * After that, the text has the addresses with failures. If there are no failures, the text
          has all addresses.
        """
        failures = self._connection_failures()
        tried = [f"{address}: {why}" for address, why in failures.items()]
        addresses = {address.partition(" ")[0] for address in failures}  # "host:port (ip)"
        for node in self.nodes():
            address = f"{node.host}:{node.port}"
            if address not in addresses and not self._fetched:
                tried.append(f"{address}: no answer ({_NO_RESPONSE})")
            elif not failures:
                tried.append(address)
        if len(tried) > _MAX_ADDRESSES:
            tried[_MAX_ADDRESSES:] = [f"and {len(tried) - _MAX_ADDRESSES} more"]
        return "tried " + "; ".join(tried)

    @property
    def last_success_ms(self) -> int:
        """The time (monotonic ms) of the last successful full update. If there was no full update,
        it is the time at which this object was created.
        """
        return self._last_success_ms

    @property
    def has_waiters(self) -> bool:
        """True if a thread waits in :meth:`await_topics` or :meth:`refresh`."""
        return self._waiting > 0

    def set_parked(self, *, parked: bool) -> None:
        """Stops all Metadata requests (``parked=True``), or allows the requests again. While a
        thread waits for metadata, the requests are not stopped.
        """
        with self._lock:
            # A producer between two tasks is parked, so that no timer wakes its thread.
            self.parked = parked and self._waiting == 0

    def update_leader(
        self, tp: TopicPartition, leader: int, epoch: int, nodes: Iterable[Node] = ()
    ) -> bool:
        """Stores a partition's new leader, which a Produce response has named (KIP-951). Returns
        True if the metadata have changed. The leader is stored only if these conditions hold:

        * Its epoch is higher than the known epoch.
        * The partition is known.
        * The leader is a known broker, or one of ``nodes``.
        """
        with self._lock:
            cluster = self.cluster
            partitions = cluster.topics.get(tp.topic)
            if partitions is None or not 0 <= tp.partition < len(partitions):
                return False
            news = [node for node in nodes if cluster.nodes.get(node.id) != node]
            known = cluster.nodes
            if news:
                known = Nodes.of(chain(known.values(), news))
            epochs = self._epochs[tp.topic]
            if leader not in known or epoch <= epochs[tp.partition]:
                return False
            partitions = partitions.with_leader(tp.partition, leader, epoch)
            epochs[tp.partition] = epoch
            self.cluster = replace(
                cluster, nodes=known, topics={**cluster.topics, tp.topic: partitions}
            )
            return True

    def close(self, error: KafkaError) -> None:
        """Ends all updates. Threads that wait now or later get ``error``."""
        with self._lock:
            if self._closed is None:
                self._closed = error
            self._updated.wake_all()

    # -- MetadataStore, for the network client ----------------------------------------------------

    def nodes(self) -> Sequence[Node]:
        return self.cluster.node_list()

    def request_update(self, *, reset_equivalent_backoff: bool = False) -> None:
        with self._lock:
            self._need_full = True
            if reset_equivalent_backoff:
                self._equivalents = 0
            self._request()

    def time_to_next_update(self, now: int) -> int:
        with self._lock:
            if self.parked or self._closed is not None:
                return NEVER
            if self._need_full or self._need_partial:
                due = now
            elif self._topics:
                due = self._last_success_ms + self._max_age_ms
            else:
                return NEVER
            return max(due, self._allowed_ms, now) - now

    def new_request(self, now: int) -> tuple[MetadataRequest, int]:
        with self._lock:
            aged = self._last_success_ms + self._max_age_ms <= now
            if aged:
                self._equivalents = 0
            self._requested_partial = (
                self._fetched and not aged and not self._need_full and bool(self._new_topics)
            )
            if not self._requested_partial:
                self._drop_idle(now)
            topics = self._new_topics if self._requested_partial else self._topics
            return MetadataRequest(tuple(sorted(topics))), self._request_version

    def update(self, token: int, response: MetadataResponse, now: int) -> None:
        if not response.brokers or response.error is not ErrorCode.NONE:
            # A broker that returns no brokers has not joined its cluster yet.
            self.failed_update(now, None)
            return
        with self._lock:
            partial = self._requested_partial
            outdated = token < self._request_version
            self._need_partial = outdated and bool(self._new_topics)
            if not partial:
                self._need_full = outdated and self._need_full
                self._last_success_ms = now
            changed = self._merge(response, partial=partial)
            self._fetched = True
            self._failure = None
            self._failed_attempts = 0
            self._equivalents = 0 if changed else self._equivalents + 1
            wait = self._backoff.backoff(max(0, self._equivalents - 1))
            self._allowed_ms = now + wait
            if self._new_topics and self._need_partial:
                self._allowed_ms = now
            self._update_version += 1
            if not partial:
                self._answered_version = token
            self._updated.wake_all()
        self._note_cluster()

    def _note_cluster(self) -> None:
        """Notifies the listeners if the cluster id has changed.

        The listeners are called without a lock. No other thread calls this method, because only the
        network thread handles responses.
        """
        before, now = self._cluster_id, self.cluster.cluster_id
        if now is None or now == before:
            return
        self._cluster_id = now
        if before is None:
            _log.debug("cluster id: %s", safe_text(now))
        else:
            warn(
                _log,
                Kind.OTHER_CLUSTER,
                "the cluster's id was %s and is %s: the addresses lead to another cluster",
                safe_text(before),
                safe_text(now),
            )
        for listener in self._listeners:
            _notify(listener, now)

    def failed_update(self, now: int, error: KafkaError | None) -> None:
        with self._lock:
            self._allowed_ms = now + self._backoff.backoff(self._failed_attempts)
            self._failed_attempts += 1
            self._equivalents = 0
            if error is not None:
                self._failure = error
                self._failures += 1
                self._updated.wake_all()

    def rebootstrap(self, now: int) -> None:
        """Removes the known brokers, so that the client connects to the bootstrap servers. Keeps
        the partitions of the topics, so that rows can still be written into batches meanwhile.
        """
        with self._lock:
            old = self.cluster
            self.cluster = replace(old, nodes=self._bootstrap.nodes, controller=-1)
            self._last_leaders = last_leaders(self.cluster, old, self._last_leaders)
            self._need_full = True
            self._request_version += 1
            self._allowed_ms = now

    # -- under the lock ---------------------------------------------------------------------------

    def _request(self) -> None:
        """Requests an update. If a Metadata request is in flight, its response does not count as
        this update.
        """
        self._request_version += 1
        if not self._need_full and not self._need_partial:
            self._need_full = True

    def _touch(self, topics: Iterable[str], now: int) -> None:
        expiry = now + self._max_idle_ms
        for topic in topics:
            if topic not in self._topics:
                self._new_topics.add(topic)
                self._need_partial = True
                self._request_version += 1
                self._equivalents = 0
                self._allowed_ms = now
            self._topics[topic] = expiry

    def _drop_idle(self, now: int) -> None:
        idle = [t for t, end in self._topics.items() if end <= now and t not in self._new_topics]
        if not idle:
            return
        for topic in idle:
            del self._topics[topic]
            self._errors.pop(topic, None)
            self._epochs.pop(topic, None)
        self.cluster = replace(
            self.cluster,
            topics={t: p for t, p in self.cluster.topics.items() if t in self._topics},
        )

    def _merge(self, response: MetadataResponse, *, partial: bool) -> bool:
        """Stores the brokers and topics of a response. Returns True if the metadata changed."""
        old = self.cluster
        found = merge(
            response, old, self._errors, self._epochs, in_use=self._topics, partial=partial
        )
        self._new_topics.difference_update(found.answered)
        self._need_full = self._need_full or found.update_again
        changed = (found.cluster, found.errors) != (old, self._errors)
        if changed:
            self._last_leaders = last_leaders(found.cluster, old, self._last_leaders)
        self.cluster = found.cluster
        self._errors = found.errors
        return changed


def _brokers(info: PartitionInfo) -> str:
    """A text with the brokers that have a replica of the partition ``info``."""
    replicas, offline = (", ".join(map(str, ids)) for ids in (info.replicas, info.offline))
    return f"brokers {replicas}" + (f" (offline: {offline})" if offline else "")
