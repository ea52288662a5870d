"""Finds the open transactions that block the read_committed consumers of a topic.

The transactions may belong to any client. This module ends none of them, but each :class:`Blocker`
has a text that shows the operator how to end the transaction. The module sends the requests of
KIP-664: DescribeProducers to the leaders of partitions, and ListTransactions to the coordinators.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_kafka_sink.admin.call import Call, Leader
from spark_kafka_sink.admin.existing_topic import existing_to_read
from spark_kafka_sink.admin.transaction_client import TransactionClient, listed, listing
from spark_kafka_sink.admin.transaction_description import TransactionDescription, TransactionState
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import describe_producers, described
from spark_kafka_sink.protocol.messages.describe_producers import ProducerState
from spark_kafka_sink.protocol.messages.list_transactions import (
    TransactionState as ListedTransaction,
)
from spark_kafka_sink.protocol.transaction_requests import list_transactions
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState, Standing
from spark_kafka_sink.transactions.ending import described_when_ended
from spark_kafka_sink.transactions.operations.held_partitions import HeldPartition, held_partitions
from spark_kafka_sink.transactions.operations.inspection import (
    OPEN,
    DecidedBy,
    decided_ids,
    standing_of,
)
from spark_kafka_sink.transactions.transactional_ids import is_for_no_batch, is_once, parse


class Whose(StrEnum):
    """The kind of client that an open transaction belongs to. ``kprod txn blockers`` lists
    transactions in the order of these members.
    """

    #: A run that can't commit any more: another run has replaced it, or it was aborted.
    ORPHAN = "orphan"
    #: A run that is not in the log: it is dead, or has not committed anything yet.
    UNKNOWN = "not in the log"
    #: A decision to commit names the transaction.
    DECIDED = "decided"
    #: No coordinator lists the transaction.
    HANGING = "hanging"
    OTHER = "another client"
    #: A driver writes a decision.
    COMMIT_LOG = "commit log"
    #: The run that owns its key: a query that may be running.
    OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Blocker:
    """A transaction that is open in partitions of ``topic``, and blocks the read_committed
    consumers of this topic. ``producer_id`` and ``producer_epoch`` identify the transaction.

    * ``starts``: the offset of the transaction's first record, by partition.
    * ``held``: the partitions in which this transaction is the oldest open one, so that consumers
      can't read past its first record.
    * ``transactional_id``: None if no coordinator lists the transaction as open.
    * ``found``: the coordinator's description of the transaction, or None.
    * ``standing``: whether the run of the transaction may still commit. (A run is one start of a
      query or a job.) None if the transaction belongs to no run: ``transactional_id`` is None, or
      is an id of another client or of the commit log's writer.
    * ``decided``: the decision in the commit log to commit the transaction, or None.
    * ``age_ms``: the age in milliseconds by this machine's clock. None if it is unknown.
    * ``committed_id``: as a rule None. Exception: the coordinator has committed the transaction,
      but one of its partitions had no leader at that time, and never received the commit marker. So
      the partition still shows the transaction as open. Then ``committed_id`` is its transactional
      id, and ``transactional_id`` is None.
    """

    topic: str
    producer_id: int
    producer_epoch: int
    starts: Mapping[int, int]
    held: tuple[HeldPartition, ...]
    transactional_id: str | None
    found: TransactionDescription | None
    standing: Standing | None
    decided: DecidedBy | None
    age_ms: int | None
    committed_id: str | None = None

    @property
    def whose(self) -> Whose:
        if self.transactional_id is None:
            return Whose.HANGING
        if self.decided is not None:
            return Whose.DECIDED
        if self.standing is None:
            return Whose.COMMIT_LOG if is_for_no_batch(self.transactional_id) else Whose.OTHER
        return _BY_STANDING[self.standing]

    @property
    def owner(self) -> str:
        """A text for the operator that describes the client to which the transaction belongs."""
        if self.whose is Whose.DECIDED and self.decided is not None:
            return f"batch {self.decided.number} of {self.decided.key}, which is decided"
        if self.committed_id is not None:
            return f"{self.committed_id}, committed without its marker"
        return _OWNERS[self.whose]

    @property
    def advice(self) -> str:
        """A text for the operator that says how to end the transaction, usually with a command."""
        name = self.transactional_id
        if name is None:
            partition, offset = min(self.starts.items())
            tool = (
                "Kafka's own tool ends it, for each partition: kafka-transactions.sh "
                f"--bootstrap-server ... abort --topic {self.topic} --partition {partition} "
                f"--start-offset {offset}"
            )
            if self.committed_id is not None:
                return f"an abort loses its rows: copy them first (read_uncommitted). Then {tool}"
            return (
                "the principal may not DESCRIBE its id, or its coordinator is moving, as when a "
                "broker restarts. If neither is so, and it is still here in a minute, it hangs. "
                f"{tool}"
            )
        if self.found is not None and self.found.state is not TransactionState.ONGOING:
            return "its coordinator is ending it: check again in a moment"
        if self.decided is not None:
            commit = f"kprod txn commit {self.decided.key}"
            parsed = parse(name)
            if parsed is None or not is_once(self.decided.key, parsed.run):
                return f"start its query, or: {commit}"
            return (
                "if its job was run again, a commit doubles its rows: kprod txn abort "
                f"{name} --force; otherwise: {commit}"
            )
        return _ADVICE[self.whose].format(name=name)

    def is_older_than(self, age_ms: int) -> bool:
        """Whether the transaction is older than ``age_ms``. True if its age is unknown."""
        return self.age_ms is None or self.age_ms > age_ms


_BY_STANDING: Final = {
    Standing.OWNER: Whose.OWNER,
    Standing.SUPERSEDED: Whose.ORPHAN,
    Standing.UNKNOWN: Whose.UNKNOWN,
}
_OWNERS: Final = {
    Whose.ORPHAN: "an orphan: its run was replaced",
    Whose.UNKNOWN: "a run that is not in the log",
    Whose.HANGING: "no coordinator lists it",
    Whose.OTHER: "another client",
    Whose.COMMIT_LOG: "a driver that writes the commit log",
    Whose.OWNER: "a run that is owner",
}
_ADVICE: Final = {
    Whose.ORPHAN: "kprod txn abort {name}",
    Whose.UNKNOWN: "check that its job is not running (this may be its first batch). Then run: "
    "kprod txn abort {name}",
    Whose.OTHER: "let this client end the transaction. Or stop the client, and run: "
    "kprod txn fence {name}",
    Whose.COMMIT_LOG: "wait: the transaction ends in a moment, or times out",
    Whose.OWNER: "if its query is running, wait: the query ends the transaction. If not, start the "
    "query. Only if you never start it again, run: kprod txn abort {name} --force",
}


def blockers(
    client: TransactionClient, log: CommitLog, topic: str, deadline_ms: int
) -> tuple[Blocker, ...]:
    """Finds every open transaction in ``topic``. The result is sorted by these criteria, the most
    important first:

    1. The kind of client (:class:`Whose`), in the order of the members.
    2. Whether the transaction is the oldest open one of a partition (``held``). Such transactions
       come first.
    3. The age, oldest first.

    Raises AuthorizationError if the principal may not READ the topic. Raises KafkaTimeoutError if a
    broker does not respond in time, or if the topic does not exist.
    """
    cluster = existing_to_read(client, topic, max(0, deadline_ms - client.clock.now_ms()))
    open_, ids = _producers_with_ids(client, [p.tp for p in cluster.topics[topic]], deadline_ms)
    if not open_:
        return ()
    stable = {tp: min(p.current_txn_start_offset for p in open_[tp]) for tp in open_}
    held = {one.partition: one for one in held_partitions(client, stable, deadline_ms)}
    by_producer: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    first: dict[tuple[int, int], list[int]] = defaultdict(list)
    for tp, producers in open_.items():
        for one in producers:
            identity = (one.producer_id, one.producer_epoch)
            by_producer[identity][tp.partition] = one.current_txn_start_offset
            if one.current_txn_start_offset == stable[tp]:
                first[identity].append(tp.partition)
    seen = _seen(client, log, tuple(ids.values()), deadline_ms)
    unlisted = {identity for identity in by_producer if identity[0] not in ids}
    committed = _committed(client, unlisted, deadline_ms)
    found = [
        _blocker(
            client,
            topic,
            identity,
            starts,
            [held[partition] for partition in sorted(first[identity])],
            seen.get(ids.get(identity[0])),
            committed.get(identity),
        )
        for identity, starts in by_producer.items()
        if identity[0] not in ids or seen[ids[identity[0]]].found.state in OPEN
    ]
    order = list(Whose)
    return tuple(sorted(found, key=lambda b: (order.index(b.whose), not b.held, -(b.age_ms or 0))))


def _producers_with_ids(
    client: TransactionClient, partitions: Sequence[TopicPartition], deadline_ms: int
) -> tuple[Mapping[TopicPartition, Sequence[ProducerState]], Mapping[int, str]]:
    """Finds the producers that have an open transaction in ``partitions``. Returns two values: the
    producers by partition, and their transactional ids by producer id.

    The transactional ids come from the coordinators. If a producer has none, its transaction is
    hanging: the partition's leader shows the transaction as open, but no coordinator lists it.
    """
    found = open_producers(client, partitions, deadline_ms)
    producer_ids = {one.producer_id for producers in found.values() for one in producers}
    if not producer_ids:
        return {}, {}
    listed_ = every_listed(client, OPEN, deadline_ms, producer_ids=producer_ids)
    ids = {one.producer_id: one.transactional_id for one in listed_}
    # A transaction may also end between the request to the leader and the requests to the
    # coordinators:
    # 1. The leader shows that a transaction of producer 7 is open.
    # 2. The coordinator of the transaction receives EndTxn, and writes the markers.
    # 3. The coordinators list no open transaction of producer 7.
    # So the leader is asked again. If it does not return producer 7 now, producer 7 is left out.
    doubtful = [tp for tp, ps in found.items() if any(p.producer_id not in ids for p in ps)]
    again = open_producers(client, doubtful, deadline_ms) if doubtful else {}
    left = {
        tp: [p for p in producers if p.producer_id in ids or _is_there(p, again.get(tp, ()))]
        for tp, producers in found.items()
    }
    return {tp: producers for tp, producers in left.items() if producers}, ids


def _is_there(one: ProducerState, again: Sequence[ProducerState]) -> bool:
    same = (one.producer_id, one.producer_epoch, one.current_txn_start_offset)
    return any(same == (p.producer_id, p.producer_epoch, p.current_txn_start_offset) for p in again)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the coordinator and the commit log show about a transaction. The fields are those of
    :class:`Blocker`.
    """

    found: TransactionDescription
    standing: Standing | None
    decided: DecidedBy | None


def _seen(
    client: TransactionClient, log: CommitLog, ids: Sequence[str], deadline_ms: int
) -> Mapping[str | None, _Seen]:
    described = described_when_ended(client, ids, deadline_ms) if ids else {}
    states: dict[str, CommitState] = {}
    for prefix in {one.prefix for one in map(parse, ids) if one is not None}:
        states.update(log.states(prefix, deadline_ms) or {})
    decided = decided_ids(states)
    result: dict[str | None, _Seen] = {}
    for name, found in described.items():
        ours = parse(name)
        standing = None if ours is None else standing_of(ours, states)
        result[name] = _Seen(found, standing, decided.get(name))
    return result


def _blocker(
    client: TransactionClient,
    topic: str,
    identity: tuple[int, int],
    starts: Mapping[int, int],
    held: Sequence[HeldPartition],
    seen: _Seen | None,
    committed_id: str | None,
) -> Blocker:
    return Blocker(
        topic,
        *identity,
        dict(sorted(starts.items())),
        tuple(held),
        None if seen is None else seen.found.transactional_id,
        None if seen is None else seen.found,
        None if seen is None else seen.standing,
        None if seen is None else seen.decided,
        None if seen is None else seen.found.age_ms(client.clock.wall_ms()),
        committed_id,
    )


def _committed(
    client: TransactionClient, identities: Collection[tuple[int, int]], deadline_ms: int
) -> Mapping[tuple[int, int], str]:
    """Finds the committed transactions among ``identities``, and returns their transactional ids.

    An identity is a pair of producer id and epoch, and identifies one transaction. A transaction
    counts as committed if its coordinator shows this state.
    """
    if not identities:
        return {}
    done = TransactionState.COMPLETE_COMMIT
    producer_ids = {producer_id for producer_id, _ in identities}
    listed_ = every_listed(client, (done,), deadline_ms, producer_ids=producer_ids)
    found = client.describe([one.transactional_id for one in listed_], deadline_ms)
    # With transactions of version 2, a commit raises the producer's epoch by 1. So a coordinator
    # that shows epoch 5 may have committed a transaction of epoch 5 (version 1) or 4 (version 2).
    return {
        (one.producer_id, epoch): name
        for name, one in found.items()
        if one.state is done
        for epoch in (one.producer_epoch, one.producer_epoch - 1)
        if (one.producer_id, epoch) in identities
    }


def every_listed(
    client: TransactionClient,
    states: Collection[TransactionState],
    deadline_ms: int,
    *,
    producer_ids: Collection[int] = (),
) -> tuple[ListedTransaction, ...]:
    """Sends ListTransactions to every broker. Returns the transactions of all clients whose state
    is one of ``states``. If ``producer_ids`` is not empty, returns only the transactions of these
    producers. Transactions that the principal may not DESCRIBE are left out.

    Raises KafkaTimeoutError if a broker does not respond.
    """
    request = list_transactions([state.value for state in states], sorted(producer_ids))
    calls = [listing(request, node) for node in client.brokers(deadline_ms)]
    client.loop.receive_all(calls, deadline_ms)
    return tuple(listed(calls).values())


def open_producers(
    client: TransactionClient, partitions: Sequence[TopicPartition], deadline_ms: int
) -> Mapping[TopicPartition, Sequence[ProducerState]]:
    """Sends DescribeProducers to the leaders of ``partitions``. Returns the producers that have an
    open transaction, by partition. Partitions without an open transaction are left out.
    """
    calls = [
        Call(
            describe_producers(tp),
            Leader(tp),
            f"DescribeProducers of {tp}",
            lambda response: described(response).error_code,
            f"READ on {tp.topic}",
        )
        for tp in partitions
    ]
    answers = client.loop.receive_all(calls, deadline_ms)
    found = {
        tp: [p for p in described(answer).active_producers if p.current_txn_start_offset >= 0]
        for tp, answer in zip(partitions, answers, strict=True)
    }
    return {tp: producers for tp, producers in found.items() if producers}
