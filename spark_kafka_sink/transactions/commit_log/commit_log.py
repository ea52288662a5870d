"""Reads and replaces the states in the commit log, a compacted topic in the cluster that the sink
writes to. The log has a state for each key, which is the name of a query or a job.

* :class:`CommitLog`: creates the topic, checks its configs, and reads the state of a key.
* :class:`LogSession`: replaces the state of one key.

``log_reader.py`` and ``log_writer.py`` create the requests. ``log_parts.py`` creates the records.
``transactions/committer.py`` decides when a state is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    ApiError,
    AuthorizationError,
    CommitLogError,
    ConfigError,
    ErrorCode,
    KafkaTimeoutError,
    warn,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.topic_requests import NewTopic
from spark_kafka_sink.records.partitioning.murmur2 import murmur2_of
from spark_kafka_sink.transactions.commit_log.log_parts import (
    PIECE_BYTES,
    changes,
    cut,
    documents,
    join,
    key_of,
    parts_in,
)
from spark_kafka_sink.transactions.commit_log.log_reader import (
    KeyFilter,
    LogReader,
    LogSnapshot,
    apply,
)
from spark_kafka_sink.transactions.commit_log.log_writer import LogWriter
from spark_kafka_sink.transactions.commit_state import CommitState, LogChangedError, NewerStateError
from spark_kafka_sink.transactions.lease import lease_ms
from spark_kafka_sink.transactions.transactional_ids import log_id

#: The number of partitions of a topic that is created here. If a topic has more partitions, only
#: the first PARTITIONS are used. If it has fewer, only partition 0 is used. So new partitions of a
#: topic move no key, unless a topic with fewer partitions grows to PARTITIONS or more.
PARTITIONS: Final = 16
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": str(60 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
#: The maximum number of snapshots that are kept.
_MOST_SNAPSHOTS: Final = 1000
#: The maximum age of a snapshot that is used again. Compaction removes a tombstone after
#: delete.retention.ms (a day by default), so a read from an old snapshot could miss the tombstone.
#: If the snapshot is older, the partition is read from its beginning.
_SNAPSHOT_MS: Final = 60 * 60 * 1000
#: The time for which a session is stored for the next commit of this process, and the maximum
#: number of such sessions.
_KEPT_MS: Final = 60_000
_MOST_KEPT: Final = 100
#: How long a read waits for the markers of a write that has just ended.
_MARKERS_MS: Final = 500

_log = logging.getLogger(__name__)


class LogRead(NamedTuple):
    """The result of :meth:`CommitLog.read`. ``state`` is None if the log does not have the key.

    ``settled`` is False if a transaction that writes the key was still open. Then ``state`` is the
    state before that transaction.
    """

    state: CommitState | None
    settled: bool


class CommitLog:
    """The commit log: the compacted topic ``topic``, with one state for each key. A key is the name
    of a query or a job (``transactional_ids.log_key``).

    The first method that needs the topic creates it if it is missing. Exception: :meth:`damage` and
    :meth:`states` do not create it. A state is stored in documents (``log_parts.py``). A document
    of more than ``piece_bytes`` bytes is split into several records.

    Each method that sends requests may raise these errors, in addition to the errors in its
    docstring:

    * ConfigError: the topic is not compacted.
    * AuthorizationError: rights are missing. The error names the topic and the rights.
    * KafkaTimeoutError: the deadline is over.
    * CommitLogError: a record can't be decoded.
    """

    def __init__(
        self, client: TransactionClient, topic: str, *, piece_bytes: int = PIECE_BYTES
    ) -> None:
        self._client = client
        self._topic = topic
        #: Each snapshot with the time of its read, by the topic's id and the key. The most recently
        #: used snapshot is the last.
        self._snapshots: dict[tuple[bytes, bytes], tuple[LogSnapshot, int]] = {}
        #: Ids of topics whose configs were checked.
        self._checked: set[bytes] = set()
        self._piece_bytes = piece_bytes
        #: The sessions of commits that have succeeded, by key. Each has the topic's id, and the
        #: time until which the session may be used again.
        self._kept: dict[str, tuple[LogSession, bytes | None, int]] = {}
        self._rights = (
            f"DESCRIBE, READ and WRITE on the topic '{topic}' (commitLogTopic), and CREATE while "
            "it is missing"
        )
        self._reader = LogReader(client, self._rights)

    def read(self, key: str, deadline_ms: int) -> LogRead:
        """Reads the newest committed state of ``key``, without fencing its writers.

        If a transaction that writes the key is open, the method waits up to half a second for its
        end. If it is still open then, the result has the state before it (:class:`LogRead`).
        """
        tp, topic_id = self._partition(key, deadline_ms)
        read = partial(self._read, key, tp, topic_id, deadline_ms)
        snapshot = self._settled(read, tp, key, deadline_ms, _MARKERS_MS)
        return LogRead(_decoded(key, snapshot), snapshot.next_offset >= snapshot.end)

    def damage(self, key: str, deadline_ms: int) -> CommitLogError | None:
        """Tests whether the state of ``key`` can be decoded. Returns None if it can be decoded, if
        the key has no records, or if the topic is missing. Otherwise returns the error.

        Exception: these errors are raised, and not returned:

        * NewerStateError: a newer version of this package has written the state, which is not
          damaged.
        * CommitLogError: a record batch in the key's partition can't be read, so it is unknown
          whether the state is damaged.
        """
        known = self._topic in self._client.loop.cluster.topics
        if not known and not self._find_or_create(deadline_ms, create=False):
            return None
        tp, topic_id = self._partition(key, deadline_ms)
        read = partial(self._read, key, tp, topic_id, deadline_ms)
        snapshot = self._settled(read, tp, key, deadline_ms, _MARKERS_MS)
        try:
            _decoded(key, snapshot)
        except NewerStateError:
            raise
        except CommitLogError as error:
            return error
        return None

    def remove(self, key: str, deadline_ms: int) -> None:
        """Fences the writers of ``key``, and removes all records of the key without decoding them.

        Raises the same errors as :meth:`LogSession.write`.
        """
        snapshot, writer, is_newest = self._fenced(key, deadline_ms)

        def before_its_end(first_offset: int) -> None:
            if not is_newest(first_offset, deadline_ms):
                raise _deposed(key)

        # A tombstone of the key itself is written even if no record of the key was found. The
        # records may have been read from a deposed leader: a broker that no longer leads the
        # partition, and does not know that. A deposed leader does not accept the tombstone, so the
        # write shows whether all records were read.
        gone = dict.fromkeys((key.encode(), *snapshot.records))
        writer.commit(lambda _: gone, deadline_ms, before_its_end)

    def open(self, key: str, deadline_ms: int) -> LogSession:
        """Opens a session for ``key``, which has read the state of the key. The session is the only
        writer of the key, until another process opens a session for the key.

        InitProducerId fences the earlier writers of the key, and aborts a transaction that one of
        them has left open. The state is read after that, so no earlier writer can change it any
        more.
        """
        return LogSession(key, *self._fenced(key, deadline_ms), self._piece_bytes)

    def keep(self, session: LogSession) -> None:
        """Stores a session for a minute, so that the next commit of this process can use it again
        (:meth:`kept`). Call this method only if the last write of the session has succeeded.
        """
        topic_id = self._client.loop.cluster.topic_ids.get(self._topic)
        until_ms = self._client.clock.now_ms() + _KEPT_MS
        self._kept.pop(session.key, None)
        self._kept[session.key] = session, topic_id, until_ms
        if len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]

    def kept(self, key: str) -> LogSession | None:
        """Takes the session that :meth:`keep` has stored for ``key``, so that it is not stored any
        more. Returns None in each of these cases:

        * No session of the key is stored.
        * The session was stored more than a minute ago.
        * The topic was deleted and created again.

        Even a returned session may have been fenced by another process. Then its next write fails.
        """
        session, topic_id, until_ms = self._kept.pop(key, (None, None, 0))
        is_same = topic_id == self._client.loop.cluster.topic_ids.get(self._topic)
        return session if is_same and self._client.clock.now_ms() < until_ms else None

    def _fenced(
        self, key: str, deadline_ms: int
    ) -> tuple[LogSnapshot, LogWriter, Callable[[int, int], bool]]:
        client = self._client
        self._kept.pop(key, None)  # InitProducerId fences this session
        tp, topic_id = self._partition(key, deadline_ms)
        timeout_ms = lease_ms(client.config.transaction_timeout_ms)
        producer = client.init_producer_id(log_id(key), timeout_ms, deadline_ms)
        read = partial(self._read, key, tp, topic_id, deadline_ms)
        snapshot = self._settled(read, tp, key, deadline_ms)
        version = client.transaction_version(deadline_ms)
        writer = LogWriter(
            client, tp, log_id(key), producer, version, timeout_ms=timeout_ms, rights=self._rights
        )

        def is_newest(first_offset: int, deadline_ms: int) -> bool:
            """Whether the session that is opened here has read the newest state of ``key``. The
            session calls this function after it has produced its first record. ``first_offset`` is
            the offset of this record, or -1 if the offset is unknown. The result is False in these
            cases:

            * The log has a record of ``key`` before ``first_offset`` that the session has not read.
            * The log can't be read up to ``first_offset``.
            * ``first_offset`` is -1.
            * ``first_offset`` is less than the offset up to which the session has read. So the
              session has read from a broker that had other records than the present leader.
            """
            name, end = key.encode(), snapshot.next_offset
            if first_offset >= end and not self._reader.has_records(
                tp, name, end, first_offset, deadline_ms
            ):
                return True
            self._snapshots.clear()  # a deposed leader may have returned them
            return False

        return snapshot, writer, is_newest

    def states(self, prefix: str, deadline_ms: int) -> dict[str, CommitState] | None:
        """Reads the whole log. Returns the state of each key that is ``prefix``, or that begins
        with ``prefix`` and ``~``. Returns None if the topic is missing.

        If a transaction that writes these keys is open, waits for its end until the deadline.
        Fences no writer.
        """
        known = self._topic in self._client.loop.cluster.topics
        if not known and not self._find_or_create(deadline_ms, create=False):
            return None
        found: dict[str, CommitState] = {}
        wanted = KeyFilter(prefix.encode(), prefix=True)
        for partition in range(self._partitions()):
            tp = TopicPartition(self._topic, partition)
            read = partial(self._reader.read_keys, tp, wanted, LogSnapshot(), deadline_ms)
            snapshot = self._settled(read, tp, prefix, deadline_ms)
            for key in {key_of(k).decode(errors="replace") for k in snapshot.records}:
                state = _decoded(key, snapshot)
                if state is not None:
                    found[key] = state
        return found

    def _settled(
        self,
        read: Callable[[], LogSnapshot],
        tp: TopicPartition,
        name: str,
        deadline_ms: int,
        wait_ms: int | None = None,
    ) -> LogSnapshot:
        """Calls ``read`` repeatedly, until each transaction that was open at the first call has
        ended. Returns the last result.

        If a transaction is still open at the deadline, raises KafkaTimeoutError. Exception: if
        ``wait_ms`` is a number, the method waits only for this time, and then returns the last
        result. ``name`` is a key or a prefix, for the text of the error.
        """
        clock = self._client.clock
        until = deadline_ms if wait_ms is None else min(deadline_ms, clock.now_ms() + wait_ms)
        snapshot = read()
        attempts, end = 0, snapshot.end
        # (An open transaction usually ends within milliseconds. It takes longer if a broker is
        # lost. The log may be truncated meanwhile.)
        while snapshot.next_offset < (end := min(end, snapshot.end)) and clock.now_ms() < until:
            self._client.loop.pause(attempts, until)
            if clock.now_ms() < deadline_ms:
                snapshot = read()
            attempts += 1
        if snapshot.next_offset < end and wait_ms is None:
            raise KafkaTimeoutError(
                f"{tp}, the commit log, has a write of '{name}' that is not ended yet",
                hint="try again; if it stays, the partition's leader is cut off from the other "
                f"brokers, or has lost a marker: see 'kprod txn blockers {tp.topic}', and whether "
                "the last batch's rows are visible before you abort it: then it would come twice",
            )
        return snapshot

    def _read(
        self, key: str, tp: TopicPartition, topic_id: bytes | None, deadline_ms: int
    ) -> LogSnapshot:
        name = key.encode()
        if topic_id is None:  # brokers before 2.8
            return self._reader.read_keys(tp, KeyFilter(name), LogSnapshot(), deadline_ms)
        now = self._client.clock.wall_ms()  # (other clocks may stand still while a machine sleeps)
        before, read_ms = self._snapshots.pop((topic_id, name), (LogSnapshot(), now))
        if not 0 <= now - read_ms < _SNAPSHOT_MS:
            before = LogSnapshot()
        snapshot = self._reader.read_keys(tp, KeyFilter(name), before, deadline_ms)
        self._snapshots[topic_id, name] = snapshot, now
        if len(self._snapshots) > _MOST_SNAPSHOTS:
            del self._snapshots[next(iter(self._snapshots))]
        return snapshot

    def _partition(self, key: str, deadline_ms: int) -> tuple[TopicPartition, bytes | None]:
        """Finds the topic, or creates it if it is missing, and checks its configs. Returns the
        partition of ``key``, and the topic's id (None for brokers before 2.8).
        """
        loop = self._client.loop
        if self._topic not in loop.cluster.topics:
            self._find_or_create(deadline_ms)
        partition = (murmur2_of(key.encode()) & 0x7FFFFFFF) % self._partitions()
        return TopicPartition(self._topic, partition), loop.cluster.topic_ids.get(self._topic)

    def _partitions(self) -> int:
        """The number of partitions that this package uses in the topic. The records of a key are
        all in one of them. The number is PARTITIONS, or 1 if the topic has fewer than PARTITIONS
        partitions.
        """
        count = len(self._client.loop.cluster.topics[self._topic])
        return PARTITIONS if count >= PARTITIONS else 1

    def _find_or_create(self, deadline_ms: int, *, create: bool = True) -> bool:
        """Finds the topic, or creates it if it is missing and ``create`` is True. Then checks its
        configs, and returns True. Returns False if the topic is missing and ``create`` is False.
        """
        client, topic = self._client, self._topic
        try:
            try:
                client.describe_topics(
                    (topic,),
                    timeout_ms=self._left_ms(deadline_ms),
                    missing_topic_timeout_ms=0,
                    allow_auto_topic_creation=False,
                )
            except KafkaTimeoutError:
                if self._left_ms(deadline_ms) == 0:
                    raise
                if not create:
                    return False
                self._create(deadline_ms)
        except AuthorizationError as error:
            raise self._unauthorized(error) from error
        topic_id = client.loop.cluster.topic_ids.get(topic)
        if topic_id is None or topic_id not in self._checked:
            self._check(deadline_ms)
            if topic_id is not None:
                self._checked.add(topic_id)
        return True

    def check_creation(self, deadline_ms: int) -> None:
        """Checks that the principal of the client may create the topic, without creating it
        (``validate_only``). Raises the errors that the creation would raise.
        """
        try:
            self._create(deadline_ms, validate_only=True)
        except AuthorizationError as error:
            raise self._unauthorized(error) from error

    def _unauthorized(self, error: AuthorizationError) -> AuthorizationError:
        return AuthorizationError(
            f"the commit log {error.message}",
            hint=f"the principal needs {self._rights}",
            code=error.code,
        )

    def _left_ms(self, deadline_ms: int) -> int:
        return max(0, deadline_ms - self._client.clock.now_ms())

    def _create(self, deadline_ms: int, *, validate_only: bool = False) -> None:
        """Creates the topic with the configs ``_CONFIGS``: compaction, and small segments, so that
        compaction starts early. If a managed cluster refuses these configs, creates the topic with
        cleanup.policy=compact only.
        """
        new = NewTopic(self._topic, PARTITIONS, -1, _CONFIGS)
        create = partial(self._client.create_topic, validate_only=validate_only)
        try:
            create(new, timeout_ms=self._left_ms(deadline_ms))
        except ApiError as error:
            if error.code not in (ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION):
                raise
            plain = replace(new, configs={"cleanup.policy": "compact"})
            create(plain, timeout_ms=self._left_ms(deadline_ms))

    def _check(self, deadline_ms: int) -> None:
        """Checks the configs of the topic, because brokers can lose records of the log if the
        configs are wrong.

        Raises ConfigError if cleanup.policy is not ``compact``. Logs a warning in each of these
        cases:

        * Unclean leader election is enabled.
        * The cluster has several brokers, and the topic has only one replica.
        * The cluster has several brokers, and the topic has min.insync.replicas=1.

        Exception: if the principal has no right to read the configs, only the number of replicas is
        checked.
        """
        names = ("cleanup.policy", "min.insync.replicas", "unclean.leader.election.enable")
        found = self._client.topic_configs((self._topic,), names, deadline_ms)[self._topic]
        replicas = min(len(p.replicas) for p in self._client.loop.cluster.topics[self._topic])
        at_risk = []
        if found.get("unclean.leader.election.enable") == "true":
            at_risk.append(
                "unclean.leader.election.enable=true: an unclean election loses decisions, and "
                "batches may come twice or be lost; set it to false"
            )
        in_sync = found.get("min.insync.replicas")
        if len(self._client.loop.cluster.nodes) > 1 and (replicas == 1 or in_sync == "1"):
            at_risk.append(
                f"replication.factor {replicas} and min.insync.replicas={in_sync}: a decision may "
                "be lost with one broker; have 3 replicas, and set it to 2"
            )
        for risk in at_risk:
            warn(_log, Kind.COMMIT_LOG_AT_RISK, "commitLogTopic '%s' has %s", self._topic, risk)
        policy = found.get("cleanup.policy")
        if policy is not None and policy != "compact":
            raise ConfigError(
                f"commitLogTopic '{self._topic}' has cleanup.policy={policy}; it must be compact",
                hint="set another topic, or a missing one: it is created with the right configs",
            )


class _ConfirmedError(Exception):
    """:meth:`LogSession.confirm` raises this exception within its own write, so that the write is
    aborted. The exception means that the state is confirmed.
    """


class LogSession:
    """The only writer of the key ``key``, until another process opens a session for the key and so
    fences this session. After an error of :meth:`write`, this session can't be used any more.

    * ``state``: the newest state that this session has read or written. If the key has no state,
      this is an empty :class:`CommitState`.
    * ``lease_ms``: the timeout of the transactions with which the session writes (``lease.py``).
    * ``is_newest``: a function that returns False if the log has a record of the key that the
      session has not read. The first write of the session calls it with two arguments, the offset
      of its own first record and the deadline. If the result is False, the write fails.
    """

    def __init__(
        self,
        key: str,
        snapshot: LogSnapshot,
        writer: LogWriter,
        is_newest: Callable[[int, int], bool],
        piece_bytes: int,
    ) -> None:
        #: If a write is not ended within this time, a broker aborts it.
        self.lease_ms = writer.timeout_ms
        self.key = key
        #: None after the first write. The state may have been read from a deposed leader: a broker
        #: that no longer leads the partition, and does not know that. The new leader puts the first
        #: write behind the records that were not read. So the write gets a higher offset than the
        #: end that was read. Without this check, batch 1 would be written twice:
        #:
        #: 1. Run 0 writes DECIDED 1 and DONE 1 to the new leader. It crashes before Spark records
        #:    that batch 1 is committed.
        #: 2. Run 1 opens the log. The old leader returns DONE 0, so run 1 writes batch 1 again.
        #: 3. The old leader refuses the Produce of run 1, and the new leader appends it behind
        #:    DONE 1.
        self._is_newest: Callable[[int, int], bool] | None = is_newest
        self.state = _decoded(key, snapshot) or CommitState()
        self._records = dict(snapshot.records)
        self._writer = writer
        self._piece_bytes = piece_bytes

    @property
    def is_written(self) -> bool:
        """Whether this session has written, and its last write has succeeded. If True,
        :attr:`state` is the state that the last write put into the log.

        Even if True, another process may have fenced this session since the last write. Then the
        next write of this session fails.
        """
        return self._is_newest is None and self._writer.is_usable

    def write(
        self,
        state: CommitState | None,
        deadline_ms: int,
        *,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Replaces the state of the key durably, in one transaction of the log. If ``state`` is
        None, removes the key. ``check`` is called after the records were produced, and before the
        transaction is committed. If ``check`` raises an exception, the transaction is aborted.

        Raises one of these errors:

        * LogChangedError: another process has fenced this session, or :attr:`state` was not the
          newest state, or the log has lost earlier writes of this session. The state in the log is
          not replaced.
        * LogOutcomeUnknownError: it is unknown whether the state in the log is replaced.
        * Any other KafkaError: the state in the log is not replaced.
        """
        is_newest, self._is_newest = self._is_newest, None

        def before_its_end(first_offset: int) -> None:
            if is_newest is not None and not is_newest(first_offset, deadline_ms):
                raise _deposed(self.key)
            if check is not None:
                check()

        name, value = self.key.encode(), None if state is None else state.encode()
        wanted = documents(name, value, () if state is None else state.encode_parts())

        def records_of(revision: int) -> dict[bytes, bytes | None]:
            found = changes(self._records, wanted, revision, self._piece_bytes)
            # (At least one record is written, even if the state does not change: only a write shows
            # that the state is the newest.)
            if not found and value is not None:
                return {**cut(name, value, revision, self._piece_bytes)}
            return found or {name: None}

        apply(self._records, self._writer.commit(records_of, deadline_ms, before_its_end))
        self.state = state or CommitState()

    def confirm(self, deadline_ms: int) -> None:
        """Checks that :attr:`state` is the newest state of the key. Raises LogChangedError if it is
        not, and the other errors of :meth:`write`.

        If this session has already written, nothing is sent, because its first write has made this
        check. If it has never written, this method begins a write and aborts it, which does not
        change the state in the log. A session with an aborted write can't be used any more, so the
        caller must then open a new session.
        """
        if self._is_newest is None:
            return  # this session's own write has shown that the state is the newest

        # A former leader does not accept a write. So the unchanged state is produced in a
        # transaction. ``stop`` is called after the current leader has accepted the record, which
        # shows that no other process has fenced this session. The offsets before the record were
        # checked by then, too, so ``state`` misses no record of the key.
        def stop() -> None:
            raise _ConfirmedError

        with suppress(_ConfirmedError):
            self.write(self.state, deadline_ms, check=stop)


def _deposed(key: str) -> LogChangedError:
    return LogChangedError(
        f"the commit log of '{key}' was read from a broker that is no leader of it any more, and "
        "has been written since",
        hint="open it again",
    )


def _decoded(key: str, snapshot: LogSnapshot) -> CommitState | None:
    name, records = key.encode(), snapshot.records
    value = join(name, records)
    return None if value is None else CommitState.decode(key, value, parts_in(name, records))
