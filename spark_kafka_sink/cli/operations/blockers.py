"""What blocks read_committed consumers of a topic: the transactions that are open in it.

Owns: finding them, of any client, and what ends each. Never: the ending. KIP-664: leaders report
their producers (DescribeProducers), coordinators their transactional ids (ListTransactions).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.admin.call import Call, Leader, retry_code
from spark_kafka_sink.admin.transaction_client import TransactionClient, listed, listing
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.cli.operations.inspection import DecidedBy, decided_ids, standing_of
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.transaction_admin_messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListTransactionsRequest,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState, Standing
from spark_kafka_sink.transactions.transactional_ids import parse

#: The states in which a consumer waits.
_OPEN: Final = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
)


@dataclass(frozen=True, slots=True)
class Blocker:
    """An open transaction in a topic, by its producer.

    ``starts`` are partitions and the offsets of its first record; in those of ``first`` it is the
    oldest, and so the one that holds the last stable offset. ``transactional_id`` is None when no
    coordinator lists it. ``standing`` is its run's, None for another client's; ``age_ms`` is by
    this machine's clock, None when it is not known.
    """

    topic: str
    producer_id: int
    producer_epoch: int
    starts: Mapping[int, int]
    first: tuple[int, ...]
    transactional_id: str | None
    found: TransactionDescription | None
    standing: Standing | None
    decided: DecidedBy | None
    age_ms: int | None

    @property
    def owner(self) -> str:
        """A description of its owner."""
        if self.transactional_id is None:
            return "no coordinator lists it"
        if self.standing is None:
            return "another client"
        if self.decided is not None:
            return f"batch {self.decided.number} of {self.decided.key}, which is decided"
        return f"a run that is {self.standing.value}"

    @property
    def advice(self) -> str:
        """What ends it."""
        name = self.transactional_id
        if name is None:
            partition, offset = min(self.starts.items())
            return (
                "it hangs. Kafka's own tool ends it, for each partition: kafka-transactions.sh "
                f"--bootstrap-server ... abort --topic {self.topic} --partition {partition} "
                f"--start-offset {offset}"
            )
        if self.found is not None and self.found.state is not TransactionState.ONGOING:
            return "its coordinator is ending it: check again in a moment"
        if self.decided is not None:
            return f"start its query, or: kprod txn commit {self.decided.key}"
        if self.standing is Standing.OWNER:
            return f"its query may be running. If not, start it, or: kprod txn abort {name}"
        if self.standing is not None:
            return f"kprod txn abort {name}"
        return f"let that client end it, or stop it and: kprod txn fence {name}"


def blockers(
    client: TransactionClient, log: CommitLog, topic: str, deadline_ms: int
) -> tuple[Blocker, ...]:
    """Every open transaction in ``topic``, first those that hold a last stable offset.

    Raises AuthorizationError without READ on the topic, KafkaTimeoutError, and what a missing topic
    raises.
    """
    timeout_ms = max(0, deadline_ms - client.clock.now_ms())
    cluster = client.describe_topics(
        (topic,),
        timeout_ms=timeout_ms,
        missing_topic_timeout_ms=1_000,
        allow_auto_topic_creation=False,
    )
    open_ = _producers(client, [p.tp for p in cluster.topics[topic]], deadline_ms)
    by_producer: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    first: dict[tuple[int, int], list[int]] = defaultdict(list)
    for tp, producers in open_.items():
        oldest = min(producers, key=lambda p: p.transaction_start_offset)
        first[(oldest.producer_id, oldest.producer_epoch)].append(tp.partition)
        for one in producers:
            starts = by_producer[(one.producer_id, one.producer_epoch)]
            starts[tp.partition] = one.transaction_start_offset
    if not by_producer:
        return ()
    theirs = every_open(client, deadline_ms, producer_ids={i for i, _ in by_producer})
    ids = {one.producer_id: one.transactional_id for one in theirs}
    seen = _seen(client, log, tuple(ids.values()), deadline_ms)
    found = [
        _blocker(client, topic, identity, starts, first[identity], seen.get(ids.get(identity[0])))
        for identity, starts in by_producer.items()
    ]
    return tuple(sorted(found, key=lambda b: (not b.first, -(b.age_ms or 0), b.producer_id)))


@dataclass(frozen=True, slots=True)
class _Seen:
    """A transaction as its coordinator and the commit log have it."""

    found: TransactionDescription
    standing: Standing | None
    decided: DecidedBy | None


def _seen(
    client: TransactionClient, log: CommitLog, ids: Sequence[str], deadline_ms: int
) -> Mapping[str | None, _Seen]:
    described = client.describe(ids, deadline_ms) if ids else {}
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
    first: Sequence[int],
    seen: _Seen | None,
) -> Blocker:
    return Blocker(
        topic,
        *identity,
        dict(sorted(starts.items())),
        tuple(sorted(first)),
        None if seen is None else seen.found.transactional_id,
        None if seen is None else seen.found,
        None if seen is None else seen.standing,
        None if seen is None else seen.decided,
        None if seen is None else seen.found.age_ms(client.clock.wall_ms()),
    )


def every_open(
    client: TransactionClient, deadline_ms: int, *, producer_ids: Collection[int] = ()
) -> tuple[TransactionListing, ...]:
    """Open transactions of every client that the principal may DESCRIBE, from every broker; with
    ``producer_ids`` only theirs. KafkaTimeoutError when a broker does not respond, because its open
    transactions are not known.
    """
    request = ListTransactionsRequest(_OPEN, tuple(sorted(producer_ids)))
    calls = [listing(request, node) for node in client.brokers(deadline_ms)]
    if not client.loop.run(calls, deadline_ms):
        raise client.loop.timeout("ListTransactions", calls)
    return tuple(listed(calls).values())


def _producers(
    client: TransactionClient, partitions: Sequence[TopicPartition], deadline_ms: int
) -> Mapping[TopicPartition, Sequence[ProducerState]]:
    """The producers with an open transaction, of each partition that has one."""
    found: dict[TopicPartition, Sequence[ProducerState]] = {}

    def describing(tp: TopicPartition) -> Call[DescribeProducersResponse]:
        def handle_response(response: DescribeProducersResponse) -> ErrorCode | None:
            answer = response.partitions[tp]
            again = retry_code(answer.error, f"DescribeProducers of {tp}", f"READ on {tp.topic}")
            open_ = [p for p in answer.producers if p.transaction_start_offset >= 0]
            if open_:
                found[tp] = open_
            return again

        return Call(DescribeProducersRequest((tp,)), Leader(tp), handle_response)

    calls = [describing(tp) for tp in partitions]
    if not client.loop.run(calls, deadline_ms):
        raise client.loop.timeout("DescribeProducers", calls)
    return found
