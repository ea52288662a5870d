"""The decision log as a compacted topic of the cluster that the data goes to.

Owns: :class:`KafkaDecisionLog`, the topic's creation and its settings, which partition a key has.
Never: a decision (``committer.py``), bytes of records (``log_parts.py``), the requests
(``log_reader.py``, ``log_writer.py``).

Same cluster: same failures, same credentials, and InitProducerId is a fence that costs nothing.
"""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.errors import AuthorizationError, ConfigError, KafkaTimeoutError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages import NewTopic
from spark_kafka_sink.records.murmur2 import murmur2_of
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.log_parts import PART_BYTES, cut, key_of
from spark_kafka_sink.transactions.log_reader import LogPlaces, LogPosition, LogReader, Place
from spark_kafka_sink.transactions.log_writer import LogWriter
from spark_kafka_sink.transactions.transaction_client import TransactionClient
from spark_kafka_sink.transactions.transactional_ids import SEPARATOR, log_id

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
#: A write takes milliseconds. What a dead writer leaves open holds up the readers of other keys in
#: its partition for so long, and ten seconds more.
_TIMEOUT_MS: Final = 30_000


class KafkaDecisionLog:
    """Implements ``DecisionLog`` on ``topic``, over ``client``'s connections.

    ``places`` may be shared by all logs of a process; without it each log has its own. What every
    call may raise besides: ConfigError for a topic that is not compacted, AuthorizationError that
    names the topic and what is needed.
    """

    def __init__(
        self,
        client: TransactionClient,
        topic: str,
        *,
        places: LogPlaces | None = None,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self._client = client
        self._topic = topic
        self._places = LogPlaces() if places is None else places
        self._part_bytes = part_bytes
        self._rights = (
            f"DESCRIBE, READ and WRITE on the topic '{topic}' (commitLogTopic), and CREATE while "
            "it is missing"
        )
        self._reader = LogReader(client, self._rights)
        self._version: int | None = None

    def read(self, key: str, deadline_ms: int) -> CommitState | None:
        """See ``DecisionLog``; raises KafkaTimeoutError when a writer keeps it waiting."""
        tp, topic_id = self._partition(key, deadline_ms)
        return _decoded(key, self._read(key, tp, topic_id, deadline_ms))

    def open(self, key: str, deadline_ms: int) -> KafkaLogSession:
        """See ``DecisionLog``. A transaction that a dead writer of ``key`` left open is aborted."""
        client = self._client
        tp, topic_id = self._partition(key, deadline_ms)
        timeout_ms = min(_TIMEOUT_MS, client.config.transaction_timeout_ms)
        producer = client.init_producer_id(log_id(key), timeout_ms, deadline_ms)
        if self._version is None:
            self._version = client.transaction_version(deadline_ms)
        place = self._read(key, tp, topic_id, deadline_ms)
        writer = LogWriter(
            client,
            tp,
            log_id(key),
            producer,
            self._version,
            timeout_ms=timeout_ms,
            rights=self._rights,
        )
        return KafkaLogSession(key, place, writer, self._part_bytes)

    def states(self, prefix: str, deadline_ms: int) -> dict[str, CommitState] | None:
        """All keys of exactly this prefix with what is kept under them, fencing nobody; None when
        the topic is missing: it is not created. Reads the whole log.
        """
        known = self._topic in self._client.calls.cluster.topics
        if not known and not self._find_or_create(deadline_ms, create=False):
            return None
        name = prefix.encode()
        beginning = name + SEPARATOR.encode()

        def wanted(record_key: bytes) -> bool:
            return key_of(record_key) == name or record_key.startswith(beginning)

        found: dict[str, CommitState] = {}
        for partition in range(self._partitions()):
            tp = TopicPartition(self._topic, partition)
            place = self._reader.read_keys(tp, wanted, Place(), deadline_ms)
            for key in {key_of(k).decode(errors="replace") for k in place.records}:
                state = _decoded(key, place)
                if state is not None:
                    found[key] = state
        return found

    def position(self, key: str) -> LogPosition | None:
        """From where the state that was read last can be read again; None when there is none, or
        on brokers before 2.8. For ``begin_at`` in another process.
        """
        topic_id = self._client.calls.cluster.topic_ids.get(self._topic)
        name = key.encode()
        place = self._places.get(topic_id, name)
        if topic_id is None or place.next_offset == 0:
            return None
        return LogPosition(topic_id, place.first_offset(name))

    def begin_at(self, key: str, position: LogPosition) -> None:
        """What lies before ``position`` need not be read for ``key``."""
        self._places.begin_at(key.encode(), position)

    def _read(
        self, key: str, tp: TopicPartition, topic_id: bytes | None, deadline_ms: int
    ) -> Place:
        name = key.encode()
        place = self._reader.read(tp, name, self._places.get(topic_id, name), deadline_ms)
        self._places.put(topic_id, name, place)
        return place

    # -- the topic --------------------------------------------------------------------------------

    def _partition(self, key: str, deadline_ms: int) -> tuple[TopicPartition, bytes | None]:
        """Where ``key`` is, in a topic that is there and compacted; and the topic's id."""
        calls = self._client.calls
        if self._topic not in calls.cluster.topics:
            self._find_or_create(deadline_ms)
        partition = (murmur2_of(key.encode()) & 0x7FFFFFFF) % self._partitions()
        return TopicPartition(self._topic, partition), calls.cluster.topic_ids.get(self._topic)

    def _partitions(self) -> int:
        """Those that keys are in."""
        there = len(self._client.calls.cluster.topics[self._topic])
        return PARTITIONS if there >= PARTITIONS else 1

    def _find_or_create(self, deadline_ms: int, *, create: bool = True) -> bool:
        """False: it is missing, and was not to be created."""
        calls, clock, topic = self._client.calls, self._client.clock, self._topic

        def left() -> int:
            return max(0, deadline_ms - clock.now_ms())

        try:
            try:
                calls.describe_topics(
                    (topic,),
                    timeout_ms=left(),
                    believe_missing_ms=0,
                    allow_auto_topic_creation=False,
                )
            except KafkaTimeoutError:
                if left() == 0:
                    raise
                if not create:
                    return False
                new = NewTopic(topic, PARTITIONS, -1, _CONFIGS)
                calls.create_topics((new,), timeout_ms=left(), exist_ok=True)
        except AuthorizationError as error:
            raise AuthorizationError(
                f"the commit log {error.message}",
                hint=f"the principal needs {self._rights}",
                code=error.code,
            ) from error
        topic_id = calls.cluster.topic_ids.get(topic)
        if topic_id is None or topic_id not in self._places.checked:
            self._check(deadline_ms)
            if topic_id is not None:
                self._places.checked.add(topic_id)
        return True

    def _check(self, deadline_ms: int) -> None:
        """A topic that deletes loses decisions. Who may not see its settings is trusted."""
        found = self._client.topic_configs(self._topic, ("cleanup.policy",), deadline_ms)
        policy = found.get("cleanup.policy")
        if policy is not None and policy != "compact":
            raise ConfigError(
                f"commitLogTopic '{self._topic}' has cleanup.policy={policy}; it must be compact",
                hint="another topic, or none: it is created with the right settings when it is "
                "missing",
            )


class KafkaLogSession:
    """Implements ``LogSession``. After an error of :meth:`write` the key must be opened again."""

    def __init__(self, key: str, place: Place, writer: LogWriter, part_bytes: int) -> None:
        self._key = key
        self._state = _decoded(key, place)
        self._there = set(place.records)
        self._writer = writer
        self._part_bytes = part_bytes

    @property
    def state(self) -> CommitState | None:
        return self._state

    def write(self, state: CommitState | None, deadline_ms: int) -> None:
        """See ``LogSession``."""
        if state is None and not self._there:
            return
        revision = self._writer.begin(deadline_ms)
        value = None if state is None else state.encode()
        records = cut(self._key.encode(), value, revision, self._there, self._part_bytes)
        self._writer.commit(records, deadline_ms)
        self._there = {key for key, part in records.items() if part is not None}
        self._state = state


def _decoded(key: str, place: Place) -> CommitState | None:
    value, _ = place.state(key.encode())
    return None if value is None else CommitState.decode(value)
