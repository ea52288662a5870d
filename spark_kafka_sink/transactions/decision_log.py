"""Where decisions are kept: a compacted topic of the cluster that the data goes to.

Owns: :class:`DecisionLog` and its sessions, the topic's creation and its settings, which partition
a key has. Never: a decision (``committer.py``), bytes of records (``log_parts.py``), the requests
(``log_reader.py``, ``log_writer.py``).

Same cluster: same failures, same credentials, and InitProducerId is a fence that costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.error_kinds import Kind
from spark_kafka_sink.errors import (
    ApiError,
    AuthorizationError,
    ConfigError,
    ErrorCode,
    KafkaTimeoutError,
    SupersededError,
    warn,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.control_messages import NewTopic
from spark_kafka_sink.records.partitioning.murmur2 import murmur2_of
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.lease import lease_ms
from spark_kafka_sink.transactions.log_parts import PART_BYTES, cut, join, key_of
from spark_kafka_sink.transactions.log_reader import LogCache, LogReader, LogSnapshot, Wanted
from spark_kafka_sink.transactions.log_writer import LogWriter
from spark_kafka_sink.transactions.transactional_ids import log_id

#: Of a topic that is created here. A key's partition is one of the first so many, and the first one
#: in a topic that has fewer, so that adding partitions does no harm: what is known of a key would
#: stay where nobody looks for it. (Only who adds them to a small one, up to this number, moves it.)
PARTITIONS: Final = 16
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": str(60 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
#: How long who reads waits for the markers of a write that was ended a moment ago.
_MARKERS_MS: Final = 500

_log = logging.getLogger(__name__)


class LogRead(NamedTuple):
    """``settled`` is False while somebody is in the middle of a write: ``state`` is what was before
    it.
    """

    state: CommitState | None
    settled: bool


class DecisionLog:
    """States by key (``transactional_ids.log_key``) on ``topic``, over ``client``'s connections.

    What every call may raise besides: ConfigError for a topic that is not compacted,
    AuthorizationError that names the topic and what is needed.
    """

    def __init__(
        self,
        client: TransactionClient,
        topic: str,
        *,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self._client = client
        self._topic = topic
        self._places = LogCache()
        self._part_bytes = part_bytes
        self._rights = (
            f"DESCRIBE, READ and WRITE on the topic '{topic}' (commitLogTopic), and CREATE while "
            "it is missing"
        )
        self._reader = LogReader(client, self._rights)

    def read(self, key: str, deadline_ms: int) -> LogRead:
        """The newest state, fencing nobody and waiting for nobody."""
        tp, topic_id = self._partition(key, deadline_ms)
        place = self._settled(
            lambda: self._read(key, tp, topic_id, deadline_ms), deadline_ms, _MARKERS_MS
        )
        return LogRead(_decoded(key, place), place.settled)

    def open(self, key: str, deadline_ms: int) -> LogSession:
        """Fence every earlier writer of ``key`` (InitProducerId, which aborts what a dead one left
        open), then read to the end.
        """
        client = self._client
        tp, topic_id = self._partition(key, deadline_ms)
        timeout_ms = lease_ms(client.config.transaction_timeout_ms)
        producer = client.init_producer_id(log_id(key), timeout_ms, deadline_ms)
        # (A leader that doesn't know that it was deposed may never get the markers.)
        place = self._settled(lambda: self._read(key, tp, topic_id, deadline_ms), deadline_ms)
        if not place.settled:
            raise KafkaTimeoutError(
                f"{tp} of the commit log still has a transaction of '{key}' open, which was ended",
                hint="its leader was cut off from the other brokers, or its replicas don't follow",
                code=ErrorCode.REQUEST_TIMED_OUT,
            )
        writer = LogWriter(
            client,
            tp,
            log_id(key),
            producer,
            client.transaction_version(deadline_ms),
            timeout_ms=timeout_ms,
            rights=self._rights,
        )

        def is_newest(first_offset: int, deadline_ms: int) -> bool:
            """Nobody has written ``key`` between the end that was read and ``first_offset``."""
            name, end = key.encode(), place.next_offset
            if first_offset >= end and not (
                first_offset > end
                and self._reader.has_records(tp, name, end, first_offset, deadline_ms)
            ):
                return True
            self._places.forget(topic_id, name)
            return False

        return LogSession(key, place, writer, is_newest, self._part_bytes)

    def states(self, prefix: str, deadline_ms: int) -> dict[str, CommitState] | None:
        """All keys of exactly this prefix with what is kept under them, fencing nobody; None when
        the topic is missing: it is not created. Reads the whole log.
        """
        known = self._topic in self._client.loop.cluster.topics
        if not known and not self._find_or_create(deadline_ms, create=False):
            return None
        found: dict[str, CommitState] = {}
        for partition in range(self._partitions()):
            read = partial(
                self._reader.read_keys,
                TopicPartition(self._topic, partition),
                Wanted(prefix.encode(), prefix=True),
                LogSnapshot(),
                deadline_ms,
            )
            # What was written a moment ago counts for whoever looks by hand, too.
            place = self._settled(read, deadline_ms, _MARKERS_MS)
            for key in {key_of(k).decode(errors="replace") for k in place.records}:
                state = _decoded(key, place)
                if state is not None:
                    found[key] = state
        return found

    def _settled(
        self, read: Callable[[], LogSnapshot], deadline_ms: int, wait_ms: int | None = None
    ) -> LogSnapshot:
        """``read`` until no write is under way, or so long (None: until the deadline). Markers
        follow an EndTxn in milliseconds.
        """
        clock = self._client.clock
        until = deadline_ms if wait_ms is None else min(deadline_ms, clock.now_ms() + wait_ms)
        place = read()
        attempts = 0
        while not place.settled and clock.now_ms() < until:
            self._client.loop.pause(attempts, until)
            if clock.now_ms() < deadline_ms:
                place = read()
            attempts += 1
        return place

    def _read(
        self, key: str, tp: TopicPartition, topic_id: bytes | None, deadline_ms: int
    ) -> LogSnapshot:
        name = key.encode()
        before = self._places.get(topic_id, name)
        place = self._reader.read_keys(tp, Wanted(name), before, deadline_ms)
        self._places.put(topic_id, name, place)
        return place

    # -- the topic --------------------------------------------------------------------------------

    def _partition(self, key: str, deadline_ms: int) -> tuple[TopicPartition, bytes | None]:
        """Where ``key`` is, in a topic that is there and compacted; and the topic's id."""
        loop = self._client.loop
        if self._topic not in loop.cluster.topics:
            self._find_or_create(deadline_ms)
        partition = (murmur2_of(key.encode()) & 0x7FFFFFFF) % self._partitions()
        return TopicPartition(self._topic, partition), loop.cluster.topic_ids.get(self._topic)

    def _partitions(self) -> int:
        """Those that keys are in."""
        there = len(self._client.loop.cluster.topics[self._topic])
        return PARTITIONS if there >= PARTITIONS else 1

    def _find_or_create(self, deadline_ms: int, *, create: bool = True) -> bool:
        """False: it is missing, and was not to be created."""
        client, topic = self._client, self._topic

        def left() -> int:
            return max(0, deadline_ms - client.clock.now_ms())

        try:
            try:
                client.describe_topics(
                    (topic,),
                    timeout_ms=left(),
                    missing_topic_timeout_ms=0,
                    allow_auto_topic_creation=False,
                )
            except KafkaTimeoutError:
                if left() == 0:
                    raise
                if not create:
                    return False
                self._create(left)
        except AuthorizationError as error:
            raise AuthorizationError(
                f"the commit log {error.message}",
                hint=f"the principal needs {self._rights}",
                code=error.code,
            ) from error
        topic_id = client.loop.cluster.topic_ids.get(topic)
        if topic_id is None or topic_id not in self._places.checked:
            self._check(deadline_ms)
            if topic_id is not None:
                self._places.checked.add(topic_id)
        return True

    def _create(self, left: Callable[[], int]) -> None:
        """With all settings; without those that managed clusters refuse (small segments)."""
        new = NewTopic(self._topic, PARTITIONS, -1, _CONFIGS)
        try:
            self._client.create_topics((new,), timeout_ms=left(), exist_ok=True)
        except ApiError as error:
            if error.code not in (ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION):
                raise
            plain = replace(new, configs={"cleanup.policy": "compact"})
            self._client.create_topics((plain,), timeout_ms=left(), exist_ok=True)

    def _check(self, deadline_ms: int) -> None:
        """A topic that deletes loses decisions, and so does one whose leader may be a replica that
        was behind. Who may not see its settings is trusted.
        """
        names = ("cleanup.policy", "min.insync.replicas", "unclean.leader.election.enable")
        found = self._client.topic_configs((self._topic,), names, deadline_ms)[self._topic]
        replicas = min(len(p.replicas) for p in self._client.loop.cluster.topics[self._topic])
        if found.get("unclean.leader.election.enable") == "true":
            warn(
                _log,
                Kind.COMMIT_LOG_AT_RISK,
                "commitLogTopic '%s' has unclean.leader.election.enable=true: an unclean election "
                "forgets decisions, and batches may come twice or be lost; set it to false",
                self._topic,
            )
        if replicas > 1 and found.get("min.insync.replicas") == "1":
            warn(
                _log,
                Kind.COMMIT_LOG_AT_RISK,
                "commitLogTopic '%s' has %d replicas and min.insync.replicas=1: a decision may be "
                "lost with one broker; set it to 2",
                self._topic,
                replicas,
            )
        policy = found.get("cleanup.policy")
        if policy is not None and policy != "compact":
            raise ConfigError(
                f"commitLogTopic '{self._topic}' has cleanup.policy={policy}; it must be compact",
                hint="another topic, or none: it is created with the right settings when it is "
                "missing",
            )


class LogSession:
    """The one writer of a key, until somebody else opens it; ``state`` is what the log said after
    everybody before us was fenced. After an error of :meth:`write` the key must be opened again.

    ``is_newest`` is asked for the first write, with its offset and deadline, before it counts; then
    nobody but us writes the key. Without it a batch may be committed twice, where a leader was cut
    off from its peers and from the controller, but not from us::

        run 0: DECIDED 1, DONE 1 at the new leader; dies before Spark notes batch 1
        run 1: plans, and later opens the log: the old leader tells of DONE 0; batch 1 is written
        run 1: its Produce is refused there, and taken by the new leader, behind DONE 1
    """

    def __init__(
        self,
        key: str,
        place: LogSnapshot,
        writer: LogWriter,
        is_newest: Callable[[int, int], bool],
        part_bytes: int,
    ) -> None:
        self._key = key
        self._is_newest: Callable[[int, int], bool] | None = is_newest
        self._state = _decoded(key, place)
        self._there = set(place.records)
        self._writer = writer
        self._part_bytes = part_bytes

    @property
    def state(self) -> CommitState | None:
        return self._state

    def write(
        self,
        state: CommitState | None,
        deadline_ms: int,
        *,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Replace the state, durably (None removes the key).

        ``check`` is called when the record lies in the log and doesn't count yet. From then on the
        write is a lease: a broker voids it when it isn't ended within seconds, whatever has become
        of us. What ``check`` raises is raised, and nothing is written.

        Raises SupersededError when another session was opened meanwhile, or when :attr:`state` was
        not the newest (it was read at a leader that was deposed and didn't know it): nothing was
        written. LogOutcomeUnknownError when it may or may not be written. Any other KafkaError: it
        is not written.
        """
        if state is None and not self._there:
            return

        def before_its_end(first_offset: int) -> None:
            if self._is_newest is not None and not self._is_newest(first_offset, deadline_ms):
                raise SupersededError(
                    f"the commit log of '{self._key}' was read at a broker that does not lead it "
                    "any more, and has been written since",
                    hint="open it again",
                )
            if check is not None:
                check()

        revision = self._writer.begin(deadline_ms)
        value = None if state is None else state.encode()
        records = cut(self._key.encode(), value, revision, self._there, self._part_bytes)
        self._writer.commit(records, deadline_ms, before_its_end)
        self._is_newest = None
        self._there = {key for key, part in records.items() if part is not None}
        self._state = state


def _decoded(key: str, place: LogSnapshot) -> CommitState | None:
    value = join(key.encode(), place.records)
    return None if value is None else CommitState.decode(key, value)
