"""The cluster metadata of a producer, and the time of their next update (Java's
``ProducerMetadata``).

Owns: the current :class:`Cluster`, the topics in use, whether and when an update is due, and the
threads that wait for an update. Never: sending requests (``metadata_updater.py`` sends the requests
of :meth:`Metadata.new_request`), merging a response (``metadata_merge.py``), the errors after which
the sender requests an update.

This is the first step of a record's way: it finds the topic's partitions and their leaders.

Updates are *full* (all topics in use: by age, or after an error) or *partial* (only topics that
were just added, so that a new topic does not wait for backoff). Each request has a token, the
request version. If an update is requested while a request is in flight, the version is raised, so
that the response to the older request does not count for the new update. After failed updates, and
after responses without changes, the next update waits for an exponential backoff. A new topic does
not wait for this backoff.

A :class:`Cluster` that is given at the creation (the driver's preflight sends a cluster to the
tasks) counts as a response, so that the tasks need no request at their start. While :attr:`parked`,
no update is ever due.
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
    """Does nothing. It is the wakeup while no client is attached."""


class Metadata:
    """A thread-safe store of cluster metadata. Implements the network's ``MetadataStore``.

    One lock (``_lock``) guards all fields except ``cluster``, which is immutable and replaced
    atomically, so that :meth:`fetch` takes no lock. Wakeups are called without the lock.
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
        """Creates the store. ``wakeup`` is the client's wakeup. ``connection_failures``
        returns the client's failed addresses with their reasons, for errors.

        ``on_wait`` is called when a wait for topics is over, with its duration in milliseconds and
        the time.
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
        #: Of partitions without a leader that can be reached, for messages.
        self._last_leaders: Mapping[TopicPartition, Node] = {}
        # The last epoch known of each partition's leader, -1 where none is.
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
        #: The producer sleeps; see :meth:`set_parked`.
        self.parked = False
        self._on_wait = on_wait
        self._listeners: list[ClusterResourceListener] = []
        # The last one known: a response may omit it.
        self._cluster_id = self.cluster.cluster_id

    def add_cluster_listener(self, listener: ClusterResourceListener) -> None:
        """Notifies ``listener`` of every change of the cluster's id. If the id is already known,
        calls the listener immediately.
        """
        self._listeners.append(listener)
        if self._cluster_id is not None:
            _notify(listener, self._cluster_id)

    def attach(
        self,
        wakeup: Callable[[], None],
        connection_failures: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Sets the client's wakeup, and the function that returns the client's failed addresses
        with their reasons, for errors.
        """
        self._wakeup = wakeup
        self._connection_failures = connection_failures

    # -- for the writer and the sender ------------------------------------------------------------

    def add_topics(self, topics: Iterable[str], now: int) -> None:
        """Marks ``topics`` as used, for metadata.max.idle.ms from now on. Metadata of unknown
        topics will be requested soon.
        """
        with self._lock:
            self._touch(topics, now)

    def await_topics(self, topics: Collection[str], deadline: int) -> Cluster:
        """Blocks until the partitions of all ``topics`` are known, and returns the cluster.

        If ``deadline`` passes, raises KafkaTimeoutError with the text of Spark's sink. Its hint has
        the brokers' error for the topic, or the unreachable addresses. Raises InvalidTopicError and
        AuthorizationError as soon as a broker returns them. Raises the error that has closed this
        metadata.
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
        """Waits for the response to a request that is sent from now on. Returns False if no
        response came before ``deadline``.

        Raises the error that closed this metadata, or a fatal error of the request.
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
        """Waits for one update. Returns the cluster if it has all topics, or None if a topic is
        still missing.
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
        """Creates the error if no broker responded. Its text has each address with its failure,
        then ``what``, the awaited event (often in Java's words).
        """
        return KafkaTimeoutError(
            f"no broker answered within {within_ms} ms; {self.addresses_tried()} ({what})",
            hint=_UNREACHABLE,
            kind=Kind.NO_BROKER,
        )

    def leader_known(self, tp: TopicPartition) -> str:
        """Describes the known leader of ``tp``, or the reason why no leader is known, for
        messages.
        """
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
        """Describes the failed addresses with their reasons, for messages. If no failure is known,
        describes all addresses.

        Before the first response, addresses without a failure are also listed, because they have
        not responded.
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
        """The time of the last full response, in milliseconds. Before the first response, it is the
        time of creation.
        """
        return self._last_success_ms

    @property
    def has_waiters(self) -> bool:
        """Whether a thread blocks in :meth:`await_topics` or :meth:`refresh`."""
        return self._waiting > 0

    def set_parked(self, *, parked: bool) -> None:
        """Parks or unparks the metadata. While parked, no update is due, by age or by request, so
        that an idle producer has no timer.
        """
        with self._lock:
            self.parked = parked and self._waiting == 0

    def update_leader(
        self, tp: TopicPartition, leader: int, epoch: int, nodes: Iterable[Node] = ()
    ) -> bool:
        """Applies the leader in a Produce response (KIP-951). Returns True if it changed the
        metadata.

        The leader is ignored unless its epoch is newer than the known epoch, the partition is
        known, and the leader is known or among ``nodes``.
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
        """Stops all updates. Current and later waiters get ``error``."""
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
        """Notifies the listeners of a new cluster id.

        No lock is needed, because only the network thread handles responses. Listeners are called
        without a lock.
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
        """Forgets the brokers but not the partitions, so that the writer can continue during the
        rebootstrap.
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
        """Requests an update. The response to a request that is already in flight does not count
        for this update.
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
        """Applies a response's brokers and topics. Returns False if nothing changed."""
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
    """A text with the brokers that have a replica of the partition."""
    replicas, offline = (", ".join(map(str, ids)) for ids in (info.replicas, info.offline))
    return f"brokers {replicas}" + (f" (offline: {offline})" if offline else "")
