"""Requests to transaction coordinators: EndTxn, DescribeTransactions, ListTransactions,
InitProducerId.

:class:`TransactionClient` creates the requests, and chooses the brokers. ``request_loop.py`` sends
the requests. The package ``transactions`` decides what a response means for the rows of a write.

Most methods repeat a request until the deadline if there is no response, or a response with a
retriable error (``call.py``). If a repeated request can do harm, the docstring of the method says
so.

Most methods raise an exception if a right is missing, or if a broker does not support a request.
If a method returns a result for each transactional id, any other final error of an id raises no
exception: its code is in the result of the id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os.path import commonprefix
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.call import AnyBroker, Call, CoordinatorKey, Resend, Target, retry_code
from spark_kafka_sink.admin.request_loop import NewClient
from spark_kafka_sink.admin.transaction_description import TransactionDescription, TransactionState
from spark_kafka_sink.base.clock import NEVER, Clock
from spark_kafka_sink.base.errors import (
    ConfigError,
    ErrorCode,
    UnsupportedVersionError,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.messages.api_versions import ApiVersionsRequest
from spark_kafka_sink.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from spark_kafka_sink.protocol.messages.end_txn import EndTxnResponse
from spark_kafka_sink.protocol.messages.init_producer_id import InitProducerIdResponse
from spark_kafka_sink.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from spark_kafka_sink.protocol.messages.list_transactions import (
    TransactionState as ListedTransaction,
)
from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataResponse
from spark_kafka_sink.protocol.node_api_versions import NodeApiVersions
from spark_kafka_sink.protocol.producer_ids import (
    NO_PRODUCER_ID,
    PreparedTransaction,
    ProducerIdAndEpoch,
)
from spark_kafka_sink.protocol.request import Request
from spark_kafka_sink.protocol.transaction_requests import (
    end_txn,
    init_producer_id,
    list_transactions,
)

_EndedT = TypeVar("_EndedT", EndTxnResponse, InitProducerIdResponse)
#: The error code of the response for each transactional id. None if no definite response arrived in
#: time.
EndAnswers = Mapping[str, ErrorCode | None]
#: Each topic of a transaction with its partition numbers.
Partitions = Sequence[tuple[str, Sequence[int]]]

#: The maximum number of ids in one DescribeTransactions.
_MOST_DESCRIBED: Final = 500
#: The transaction timeout in ms for an id that is only fenced. No transaction of the id follows, so
#: a time below every broker's limit is used.
_FENCE_TIMEOUT_MS: Final = 60_000
#: ListTransactions is sent to all brokers in rounds. ``_ROUNDS_MS`` has the time for which each
#: round waits for brokers that do not respond. The last round is for slow brokers, and opens their
#: connections again. If the caller is not ``patient``, there is only one round, of ``_ROUND_MS``. A
#: broker that has not responded gets no further request of such callers for ``_LEFT_OUT_MS``.
#: ``_CLUSTER_AGE_MS`` is the maximum age of the metadata.
_ROUNDS_MS: Final = (1_000, 1_000, 6_000)
_ROUND_MS: Final = 2_000
#: If this number of complete lists of transactions by age do not contain an id, the transaction of
#: the id counts as old. With the pauses between them, the lists take about 1 s: for a moment, no
#: broker has a transaction that moves to another coordinator.
_MISSED: Final = 10
_CLUSTER_AGE_MS: Final = 100
#: The maximum age of a response whose leaders are still believed, in ms. If a check waits longer
#: for another response, a partition may lose its leader meanwhile, and Kafka then drops its marker.
FRESH_MS: Final = 100
_LEFT_OUT_MS: Final = 60_000
#: The wait for the responses to EndTxn, in ms. After it, this client looks at the leaders again for
#: the transactions without a response, and sends EndTxn again. Then the wait is doubled, at most
#: ``_DOUBLINGS`` times.
_ANSWER_MS: Final = 4_000
_DOUBLINGS: Final = 4
#: The time in ms for which the result of a look at the leaders is believed.
_LED_MS: Final = 1_000
#: The wait for a look at the leaders, in ms. It is doubled like ``_ANSWER_MS``.
_LOOK_MS: Final = 2_000
#: The maximum number of remembered topics of the last check.
_MOST_WRITTEN: Final = 100
_API_VERSIONS: Final = ApiVersionsRequest(
    client_software_name="spark-kafka-sink", client_software_version="0"
)


class Listed(NamedTuple):
    """The open transactions that the brokers have listed. ``silent`` has the names of the brokers
    that did not respond, whose transactions are missing.
    """

    transactions: tuple[ListedTransaction, ...]
    silent: tuple[str, ...] = ()


class AgeCalls(NamedTuple):
    """Three ListTransactions calls to one broker, in the order in which they are sent.

    * ``before``: lists all open transactions.
    * ``aged``: lists the open transactions that are older than an age limit.
    * ``after``: lists all open transactions again.
    """

    before: Call[ListTransactionsResponse]
    aged: Call[ListTransactionsResponse]
    after: Call[ListTransactionsResponse]

    @property
    def is_complete(self) -> bool:
        """True if the broker has responded to all three calls, and no call was sent twice. Only
        then is it certain that the broker handled the calls in their order.
        """
        return all(call.done and call.sent == 1 for call in self)

    def young(self) -> set[str]:
        """Returns the ids that the broker listed twice: in the response to ``before`` and in the
        response to ``after``. If the response to ``aged`` does not list such an id, its transaction
        is younger than the age limit. The caller checks ``aged``.
        """
        return listed([self.before]).keys() & listed([self.after]).keys()


@dataclass(slots=True, eq=False)
class Beside:
    """ListTransactions and Metadata requests that are sent together with DescribeTransactions. This
    saves two round trips.

    The requests are created before the descriptions are known. If the descriptions show that other
    topics or another age limit are needed, the responses are not used.
    """

    #: The transactional ids whose coordinators get ListTransactions.
    ids: Collection[str]
    #: The age limit of ListTransactions in ms.
    age_ms: int
    #: The topics of the Metadata request.
    topics: Collection[str]
    #: A transactional id. Its coordinator gets the Metadata request.
    coordinator_of: str
    #: The ListTransactions calls for each coordinator.
    ages: Mapping[Node, AgeCalls] = field(default_factory=dict)
    metadata: Call[MetadataResponse] | None = None

    def calls(self) -> list[Call[Any]]:
        """All calls of this object: ListTransactions and Metadata."""
        of_ages: list[Call[Any]] = [call for calls in self.ages.values() for call in calls]
        return of_ages if self.metadata is None else [*of_ages, self.metadata]


class LastLook(NamedTuple):
    """The last *look*: a check whether the partitions of several transactions have leaders
    (:meth:`TransactionClient.leaderless`).

    ``ms`` is the time at which the first response arrived. ``partitions`` has the checked
    partitions by transactional id.
    """

    ms: int
    partitions: Mapping[str, Partitions]


@dataclass(slots=True, eq=False)
class _Look:
    """A check whether the partitions of several transactions have leaders (a *look*). If all
    partitions of a transaction have leaders, the call that ends the transaction is sent.

    Each coordinator gets requests only for its own transactions. So a coordinator that does not
    respond delays only its own transactions.
    """

    #: The calls that end the transactions, by transactional id.
    calls: Mapping[str, Call[Any]]
    #: The partitions that the caller knows, by transactional id. For any other transaction,
    #: DescribeTransactions is sent first.
    partitions: Mapping[str, Partitions]
    #: The checked transactional ids, with their coordinators.
    coordinators: Mapping[str, Node]
    #: After the run, the ids whose partitions all have leaders.
    ready: set[str] = field(default_factory=set)

    def first(self) -> list[Call[Any]]:
        """Returns the first calls of the check. After their responses, ``Call.then`` returns the
        calls that follow.
        """
        known: dict[Node, dict[str, Partitions]] = defaultdict(dict)
        unknown: dict[str, Node] = {}
        for i, node in self.coordinators.items():
            if i in self.partitions:
                known[node][i] = self.partitions[i]
            else:
                unknown[i] = node
        begun = [c for node, by_id in known.items() for c in self._leaders(node, by_id, NEVER)]
        for call in _describe_calls(unknown):
            call.then = partial(self._described, call)
            begun.append(call)
        return begun

    def _described(self, call: Call[DescribeTransactionsResponse]) -> list[Call[Any]]:
        assert isinstance(call.to, Node)
        by_id = {i: one.partitions for i, one in _described_by(call).items()}
        return self._leaders(call.to, by_id, _send_by(call))

    def _leaders(
        self, node: Node, by_id: Mapping[str, Partitions], send_by_ms: int
    ) -> list[Call[Any]]:
        # ``node`` is the coordinator of the transactions. It writes the markers to the leaders that
        # it knows, so it is asked for the leaders. Another broker may be cut off from the
        # controller, and show old leaders.
        topics = _topics(by_id)
        if not topics:
            return self._ends(by_id, send_by_ms)
        call = _metadata_call(topics, node, resend=Resend.NEVER)
        call.then = partial(self._shown, call, by_id)
        return [call]

    def _shown(
        self, call: Call[MetadataResponse], by_id: Mapping[str, Partitions]
    ) -> list[Call[Any]]:
        assert call.response is not None
        away = _without_leader(by_id, call.response)
        for i, partitions in away.items():
            self.calls[i].last_status = f"partition {partitions[0]} has no leader"
            self.calls[i].last_code = ErrorCode.LEADER_NOT_AVAILABLE
        return self._ends([i for i in by_id if i not in away], _send_by(call))

    def _ends(self, ids: Collection[str], send_by_ms: int) -> list[Call[Any]]:
        self.ready |= {*ids}
        ends = [self.calls[i] for i in ids]
        for end in ends:
            end.send_by_ms = send_by_ms
        return ends


class TransactionClient(AdminClient):
    """Sends requests to the transaction coordinators of a cluster. Each method sends its requests
    in parallel. The time limits are those of :class:`AdminClient`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        clock: Clock | None = None,
        new_client: NewClient | None = None,
    ) -> None:
        super().__init__(config, clock=clock, new_client=new_client)
        self._version: int | None = None
        #: The times (ms) until which brokers that did not respond get no request, by node id.
        self._silent: dict[int, int] = {}
        #: ``_list_ages`` is True if the brokers can list transactions by age. ``_written`` has the
        #: topics of the transactions that were checked last, because the transactions of a later
        #: batch usually write to the same topics.
        self._list_ages = False
        self._written: frozenset[str] = frozenset()
        #: The last look of :meth:`leaderless`.
        self.last_look: LastLook | None = None

    def end(
        self,
        transactions: Sequence[PreparedTransaction],
        *,
        committed: bool,
        deadline_ms: int,
        looked_ms: int | None = None,
        partitions: Mapping[str, Partitions] = MappingProxyType({}),
        unchecked: Collection[str] = (),
    ) -> EndAnswers:
        """Commits or aborts each of ``transactions`` by EndTxn. Returns the error code of the
        response for each transactional id, or None if no definite response arrived in time.

        The error code NONE means that the coordinator has stored the decision. The coordinator then
        writes the markers to the partitions. :meth:`run_ending` explains ``looked_ms``,
        ``partitions`` and ``unchecked``.
        """
        calls = {t.transactional_id: end_call(t, committed=committed) for t in transactions}
        self.run_ending(
            calls,
            deadline_ms,
            looked_ms=looked_ms,
            partitions=partitions,
            unchecked=unchecked,
        )
        return _answers(calls)

    def abort_exactly(
        self,
        found: Mapping[str, TransactionDescription],
        deadline_ms: int,
        *,
        prepared: Collection[str] = (),
    ) -> EndAnswers:
        """Aborts the open transactions in ``found``, the result of :meth:`describe`. Returns the
        error codes like :meth:`end`. If a partition of a transaction has no leader
        (:meth:`leaderless`), the transaction is not aborted, and its error code is
        LEADER_NOT_AVAILABLE.

        With transactions of version 2, ``found`` may also have ids in the state Empty. Such an id
        has no transaction yet. Its producer is fenced, so that a Produce that is still on its way
        opens no transaction.

        ``prepared`` has the ids whose transactions were ready for a commit. The ids and the
        cluster's transaction version determine the request. Since the description, a transaction
        may have ended, and its id may have a *later* open transaction. The request also determines
        whether the later transaction is aborted:

        * Version 2: EndTxn(abort), with the producer id and the epoch from ``found``. The producer
          is fenced. A later transaction has a newer epoch, so the coordinator rejects the request,
          and aborts nothing.
        * Version 1, for an id in ``prepared``: EndTxn(abort), with the producer id and the epoch
          from ``found``. The producer is not fenced. A later transaction is aborted if it has the
          same producer id and epoch.
        * Version 1, for any other id: InitProducerId, without producer id and epoch. The producer
          is fenced. Any later transaction is aborted. So no producer may use the id again.
        """
        version = self.transaction_version(deadline_ms)
        kept = self.leaderless(found, deadline_ms)
        look = self.last_look
        found = {i: d for i, d in found.items() if i not in kept}
        # With version 1, EndTxn would not raise the epoch. InitProducerId is sent without the known
        # producer id and epoch (KIP-360), because a coordinator that has just aborted the
        # transaction after its timeout would reject them. For a prepared transaction, it would make
        # it impossible to find out later whether the transaction was committed.
        ended = {
            i: PreparedTransaction(i, d.producer_id, d.producer_epoch, version)
            for i, d in found.items()
            # (With version 2, EndTxn fences the producer even if no transaction is open.)
            if version >= 2 or i in prepared
        }
        return {
            **dict.fromkeys(kept, ErrorCode.LEADER_NOT_AVAILABLE),
            **self.end(
                tuple(ended.values()),
                committed=False,
                deadline_ms=deadline_ms,
                looked_ms=look.ms if look is not None and ended.keys() <= {*prepared} else None,
                partitions={i: d.partitions for i, d in found.items() if i in prepared},
            ),
            **self.fence([i for i in found if i not in ended], deadline_ms),
        }

    def fence(self, transactional_ids: Iterable[str], deadline_ms: int) -> EndAnswers:
        """Sends InitProducerId for each transactional id. The coordinator aborts the open
        transaction of the id, and raises the epoch, which fences the producer. The request for an
        id is sent only if all partitions of its open transaction have leaders (:meth:`run_ending`).
        Returns the error codes like :meth:`end`.
        """
        wanted = {i: init_producer_id(i, _FENCE_TIMEOUT_MS) for i in transactional_ids}
        calls = {i: _ending(r, "InitProducerId", i) for i, r in wanted.items()}
        self.run_ending(calls, deadline_ms)
        return _answers(calls)

    def run_ending(
        self,
        calls: Mapping[str, Call[Any]],
        deadline_ms: int,
        *,
        looked_ms: int | None = None,
        partitions: Mapping[str, Partitions] = MappingProxyType({}),
        unchecked: Collection[str] = (),
    ) -> None:
        """Sends ``calls``, which end transactions (:func:`end_call`), until each has a final
        response or until ``deadline_ms``. The keys of ``calls`` are the transactional ids.

        Before each sending of a call, this method checks whether each partition of the transaction
        has a leader (a *look*). If a partition has no leader, the call is not sent yet: Kafka 4
        would lose the marker of this partition.

        * ``looked_ms``: the time, on this client's clock, of a look by the caller, or None. If the
          caller's look is at most a second old, it replaces the first look.
        * ``partitions``: the known partitions of prepared transactions, by transactional id. For
          any other transaction, each look requests the partitions.
        * ``unchecked``: the ids whose calls are sent without a look.
        """
        # An example of a marker that would be lost without the look:
        # 1. The broker that coordinates the transaction, and leads one of its partitions, stops.
        # 2. EndTxn gets no response. The next coordinator still loads its transactions, so it
        #    refuses EndTxn.
        # 3. The next coordinator has loaded. The partition has no leader until the broker is back.
        # 4. If EndTxn is sent now, it is accepted, and the marker for the partition is lost.
        waiting, rounds = dict(calls), 0
        while waiting and (now := self.clock.now_ms()) < deadline_ms:
            patience = 1 << min(rounds, _DOUBLINGS)
            if looked_ms is not None and now - looked_ms > _LED_MS:
                looked_ms = None
            looked_at = {i: None for i in waiting if looked_ms is None and i not in unchecked}
            sent = [call for i, call in waiting.items() if i not in looked_at]
            for call in sent:
                call.send_by_ms = NEVER if looked_ms is None else looked_ms + _LED_MS
            nodes = self._coordinators_now(looked_at, min(deadline_ms, now + patience * _LOOK_MS))
            # The partitions of a transaction that is not prepared are requested again by each look,
            # because its producer may still write to further partitions.
            look = _Look(waiting, partitions, nodes)
            limit_ms = self.clock.now_ms() + patience * (_ANSWER_MS + _LOOK_MS * bool(looked_at))
            self.loop.run([*sent, *look.first()], min(deadline_ms, limit_ms), is_watched=True)
            # (A broker that shows no leader may be cut off, and not coordinate the id any more.)
            self.loop.forget_coordinators(looked_at.keys() - look.ready)
            waiting = {i: call for i, call in waiting.items() if not call.done}
            if waiting:
                self.loop.pause(rounds, deadline_ms)
            looked_ms = None
            rounds += 1

    def _coordinators_now(self, ids: Collection[str], until_ms: int) -> Mapping[str, Node]:
        """Looks up the coordinators of ``ids``. Returns the coordinators that are found by
        ``until_ms``, by transactional id.
        """
        finds: dict[str, Call[Any]] = {
            i: Call(None, CoordinatorKey(i), "FindCoordinator", resend=Resend.NEVER) for i in ids
        }
        self.loop.run(finds.values(), until_ms)
        return {i: self.loop.found[CoordinatorKey(i)] for i, find in finds.items() if find.done}

    def describe_now(
        self, transactional_ids: Collection[str], deadline_ms: int, *, patience: int = 1
    ) -> Mapping[str, TransactionDescription]:
        """Sends DescribeTransactions once to the coordinators of transactional ids. Returns the
        descriptions that arrive in time, by id. An id is missing if its coordinator does not
        respond.

        The coordinators are looked up first. The look-up and the descriptions each take at most
        ``patience`` times two seconds.
        """
        wait_ms = patience * _LOOK_MS
        until_ms = min(deadline_ms, self.clock.now_ms() + wait_ms)
        calls = _describe_calls(self._coordinators_now(transactional_ids, until_ms))
        self.loop.run(calls, min(deadline_ms, self.clock.now_ms() + wait_ms))
        found = {i: one for call in calls for i, one in _described_by(call).items()}
        self.loop.forget_coordinators(i for i in transactional_ids if i not in found)
        return found

    def beside(self, ids: Collection[str], age_ms: int, *, coordinator_of: str) -> Beside | None:
        """Creates two kinds of requests that :meth:`describe` sends together with
        DescribeTransactions. Two later calls can use the responses, which saves their round trips:

        * ListTransactions, for the call of :meth:`older_than` with ``ids`` and ``age_ms``.
        * Metadata, for the call of :meth:`leaderless`. The request is sent to the coordinator of
          the transactional id ``coordinator_of``. It has the topics that :meth:`leaderless` last
          checked.

        Returns None in each of these cases:

        * :meth:`older_than` has not succeeded yet, or brokers do not support ListTransactions by
          age.
        * :meth:`leaderless` has not checked a topic yet, or its last check had more than 100
          topics.
        """
        if not self._list_ages or not self._written:
            return None
        return Beside(ids, age_ms, self._written, coordinator_of)

    def _fill(self, beside: Beside, deadline_ms: int) -> None:
        nodes = dict.fromkeys(self.loop.coordinators(beside.ids, deadline_ms).values())
        beside.ages = self._age_calls(beside.ids, beside.age_ms, nodes)
        beside.metadata = _metadata_call(beside.topics, CoordinatorKey(beside.coordinator_of))

    def describe(
        self,
        transactional_ids: Iterable[str],
        deadline_ms: int,
        *,
        beside: Beside | None = None,
    ) -> Mapping[str, TransactionDescription]:
        """Sends DescribeTransactions for transactional ids. Returns the descriptions by id. The
        requests of ``beside`` are sent together with the first DescribeTransactions requests.

        If a coordinator does not know an id, the ``error`` in its description is
        TRANSACTIONAL_ID_NOT_FOUND. Raises KafkaTimeoutError if a coordinator does not respond in
        time.
        """
        described: dict[str, TransactionDescription] = {}
        waiting = dict.fromkeys(transactional_ids)
        attempts, refused = 0, list[Call[DescribeTransactionsResponse]]()
        while True:
            calls = _describe_calls(self.loop.coordinators(waiting, deadline_ms))
            try:
                self._run_with(calls, beside, deadline_ms)
            except UnsupportedVersionError:
                if beside is None:
                    raise
                self._list_ages = False  # a broker that is older than the others
                beside.ages, beside = {}, None
                continue
            sent_beside, beside = beside, None  # only with the first descriptions
            for call in calls:
                described |= _described_by(call)
            waiting = {i: None for i in waiting if i not in described}
            if not waiting:
                return described
            if sent_beside is not None:
                sent_beside.metadata = None  # a leader may be lost until the others are described
            # (The calls of the last round may have no time left for a response.)
            refused = [call for call in calls if call.last_code is not None] or refused
            self.loop.forget_coordinators(waiting)
            self.loop.pause(attempts, deadline_ms)
            if self.clock.now_ms() >= deadline_ms:
                raise self.loop.timeout(refused or calls)
            attempts += 1

    def _run_with(
        self, calls: Sequence[Call[Any]], beside: Beside | None, deadline_ms: int
    ) -> None:
        # Brokers handle the requests of a connection in order. So each coordinator first describes
        # its transactions, and then lists the old ones.
        if beside is not None:
            self._fill(beside, deadline_ms)
            calls = [*calls, *beside.calls()]
        self.loop.run(calls, deadline_ms, is_watched=beside is not None)

    def open_transactions(
        self, prefix: str, deadline_ms: int, *, idle: bool = False, patient: bool = True
    ) -> Listed:
        """Sends ListTransactions to all brokers. Returns the transactions in the state Ongoing
        whose transactional id begins with ``prefix``. Ids that the principal may not describe are
        missing.

        * ``idle``: if True, also returns ids in the state Empty. Such an id has a producer, and no
          open transaction.
        * ``patient``: the behaviour if a broker does not respond. If True, the requests are
          repeated for some seconds. Meanwhile other brokers may take over the ids of this broker.
          If False, the requests are sent once. For the next minute, calls with ``patient=False``
          send no request to a broker that did not respond in time.
        """
        states = (TransactionState.ONGOING.value, TransactionState.EMPTY.value)
        request = list_transactions(states if idle else states[:1], prefix=prefix)
        for attempts, round_ms in enumerate(_ROUNDS_MS if patient else (_ROUND_MS,)):
            nodes = self.brokers(deadline_ms, max_age_ms=0 if patient else _CLUSTER_AGE_MS)
            begun = self.clock.now_ms()
            left_out = [] if patient else [n for n in nodes if self._silent.get(n.id, 0) > begun]
            calls = {
                n: listing(request, n, resend=Resend.AFTER_CODE) for n in nodes if n not in left_out
            }
            self.loop.run(calls.values(), min(deadline_ms, begun + round_ms))
            silent = [n for n, call in calls.items() if not call.done]
            for answered in calls.keys() - silent:
                self._silent.pop(answered.id, None)
            now = self.clock.now_ms()
            if now >= begun + round_ms:  # (a refused connection costs no time)
                self._silent |= {n.id: now + _LEFT_OUT_MS for n in silent}
            if not silent or now >= deadline_ms:
                break
            self.loop.pause(attempts, deadline_ms)
        found = tuple(listed(calls.values(), prefix).values())
        return Listed(found, tuple(str(node) for node in (*left_out, *silent)))

    def older_than(
        self,
        transactional_ids: Sequence[str],
        age_ms: int,
        deadline_ms: int,
        *,
        only_listed: bool = False,
        beside: Beside | None = None,
    ) -> frozenset[str] | None:
        """Returns the ids whose transaction has been open for longer than ``age_ms``, by the clock
        of its coordinator. Returns None if brokers do not support ListTransactions by age (before
        3.8). Raises KafkaTimeoutError if a coordinator does not respond in time.

        Each coordinator lists all open transactions, then the transactions older than ``age_ms``,
        and then all open transactions again (:class:`AgeCalls`). The three lists show the age of an
        id's transaction:

        * The id is in the second list: the transaction is older, and the id is returned.
        * The id is in the first and in the third list, but not in the second: the transaction is
          younger, and the id is left out.
        * In all other cases, the age is not known yet. As a rule, the id is moving to another
          coordinator, and no broker lists it meanwhile. So its coordinator is looked up again, and
          the requests are repeated for about a second. If the age is still unknown then, the id is
          left out if ``only_listed`` is True, and returned if ``only_listed`` is False.

        ``beside`` has requests that :meth:`describe` has already sent. Their responses are used if
        they are for the same ids and the same age.
        """
        waiting = dict.fromkeys(transactional_ids)
        old: set[str] = set()
        attempts = missed = 0
        while waiting and missed < _MISSED:
            if attempts:
                self.loop.pause(attempts - 1, deadline_ms)
            nodes = dict.fromkeys(self.loop.coordinators(waiting, deadline_ms).values())
            by_node = self._age_calls(list(waiting), age_ms, nodes)
            if beside is not None and beside.age_ms == age_ms and waiting.keys() <= {*beside.ids}:
                by_node = {n: beside.ages.get(n, calls) for n, calls in by_node.items()}
            beside = None  # its responses are used only in the first round
            requested = list(by_node.values())
            calls = [call for age_calls in requested for call in age_calls]
            try:
                self.loop.run([call for call in calls if not call.sent], deadline_ms)
            except UnsupportedVersionError:
                return None
            self._list_ages = True
            answered = [age_calls for age_calls in requested if age_calls.is_complete]
            complete = len(answered) == len(requested)
            if not complete and self.clock.now_ms() >= deadline_ms:
                raise self.loop.timeout(calls)
            old |= waiting.keys() & listed(age_calls.aged for age_calls in requested).keys()
            young = {i for age_calls in answered for i in age_calls.young()}
            waiting = {i: None for i in waiting if i not in young and i not in old}
            self.loop.forget_coordinators(waiting)
            attempts += 1
            missed += complete
        return frozenset(old if only_listed else old | waiting.keys())

    def _age_calls(
        self, ids: Collection[str], age_ms: int, nodes: Iterable[Node]
    ) -> dict[Node, AgeCalls]:
        """Creates the calls to ``nodes`` that show which open transactions are older than
        ``age_ms``.
        """
        prefix = commonprefix(list(ids))  # noqa: RUF071 - of names, not of paths
        open_ = (TransactionState.ONGOING.value,)
        ongoing = list_transactions(open_, prefix=prefix)
        aged = list_transactions(open_, prefix=prefix, min_duration_ms=age_ms)
        return {
            node: AgeCalls(
                *(listing(r, node, resend=Resend.AFTER_CODE) for r in (ongoing, aged, ongoing))
            )
            for node in nodes
        }

    def leaderless(
        self,
        found: Mapping[str, TransactionDescription],
        deadline_ms: int,
        *,
        coordinator_of: str = "",
        beside: Beside | None = None,
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Checks whether the partitions of the transactions in ``found`` have leaders. Returns the
        partitions without a leader, by transactional id. An id whose partitions all have leaders is
        not in the result.

        Do not end a transaction that is in the result: Kafka 4 would lose the marker of the
        partition without a leader. A partition that the brokers do not know, for example because
        its topic was deleted, is not in the result.

        * ``coordinator_of``: a transactional id, or empty. If it is empty, each coordinator gets a
          Metadata request for its own transactions. If it is an id, only the coordinator of this id
          gets a Metadata request, for all transactions. The caller must know that this coordinator
          has accepted a write a moment ago: it is then not cut off from the cluster.
        * ``beside``: requests that :meth:`describe` has already sent, or None. The response to its
          Metadata request is used if it has all topics of the transactions, and is at most FRESH_MS
          old. Then nothing is sent.
        """
        by_id = {i: one.partitions for i, one in found.items()}
        topics = _topics(by_id)
        self.last_look = None
        if not topics:
            return {}
        self._written = frozenset(topics if len(topics) <= _MOST_WRITTEN else ())
        call = None if beside is None else beside.metadata
        if (
            beside is not None
            and call is not None
            and call.response is not None
            and topics.keys() <= {*beside.topics}
            and self.clock.now_ms() - call.answered_ms <= FRESH_MS
        ):
            self.last_look = LastLook(call.answered_ms, by_id)
            return _without_leader(by_id, call.response)
        return self._shown(by_id, coordinator_of, deadline_ms)

    def _shown(
        self, by_id: Mapping[str, Partitions], coordinator_of: str, deadline_ms: int
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Sends the Metadata requests of :meth:`leaderless`, and waits for all responses."""
        groups: defaultdict[object, dict[str, Partitions]] = defaultdict(dict)
        nodes = {} if coordinator_of else self.loop.coordinators(by_id, deadline_ms)
        for i, written_to in by_id.items():
            groups[nodes.get(i)][i] = written_to
        calls = [
            _metadata_call(_topics(group), CoordinatorKey(coordinator_of or next(iter(group))))
            for group in groups.values()
        ]
        shown = self.loop.receive_all(calls, deadline_ms, is_watched=True)
        self.last_look = LastLook(min(call.answered_ms for call in calls), by_id)
        away: dict[str, Sequence[TopicPartition]] = {}
        for group, response in zip(groups.values(), shown, strict=True):
            away |= _without_leader(group, response)
        return away

    def transaction_version(self, deadline_ms: int) -> int:
        """Returns the version of the cluster's transactions: 2 if the brokers offer
        transaction.version 2 (KIP-890), otherwise 1. Only the first call sends a request.
        """
        if self._version is None:
            call = Call(_API_VERSIONS, AnyBroker(), "ApiVersions")
            versions = NodeApiVersions.of(self.loop.send_and_receive(call, deadline_ms))
            self._version = 2 if versions.transaction_version >= 2 else 1
        return self._version

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        deadline_ms: int,
        *,
        ours: ProducerIdAndEpoch = NO_PRODUCER_ID,
        resend: Resend = Resend.ALWAYS,
    ) -> ProducerIdAndEpoch:
        """Sends InitProducerId for a transactional id. Returns the new producer id and epoch.
        Earlier producers with the id are fenced, and their open transaction is aborted.

        * ``timeout_ms``: the timeout of the id's next transactions.
        * ``ours``: the producer id and epoch that the caller has (KIP-360, brokers of version 2.5
          or newer). If another producer has used the transactional id in the meantime, the other
          producer is not fenced, and ProducerFencedError is raised.
        * ``resend``: with Resend.ALWAYS, the request is repeated after a lost connection or a
          retriable error code. With Resend.AFTER_CODE, it is repeated only after such a code. If
          the request is sent twice, the first request can arrive last, and abort a transaction that
          was begun after the second request.

        Raises one of these errors:

        * ConfigError: ``timeout_ms`` is above the broker's transaction.max.timeout.ms.
        * KafkaTimeoutError: no definite response has arrived in time.
        """

        def error_in(response: InitProducerIdResponse) -> ErrorCode:
            if response.error_code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise ConfigError(
                    f"kafka.transaction.timeout.ms is {timeout_ms}: above the broker's "
                    "transaction.max.timeout.ms",
                    hint="lower the option, or raise the broker's setting (900000 by default)",
                )
            return response.error_code

        request = init_producer_id(transactional_id, timeout_ms, ours)
        what = f"InitProducerId of transactional id '{transactional_id}'"
        call = Call(request, CoordinatorKey(transactional_id), what, error_in, resend=resend)
        response = self.loop.send_and_receive(call, deadline_ms)
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)


def end_call(transaction: PreparedTransaction, *, committed: bool) -> Call[EndTxnResponse]:
    """Creates the EndTxn call for ``transaction``. The call has the transaction version of
    ``transaction``.
    """
    request = end_txn(transaction, committed=committed)
    return _ending(request, "EndTxn", transaction.transactional_id)


def _ending(request: Request[_EndedT], what: str, transactional_id: str) -> Call[_EndedT]:
    return Call(
        request,
        CoordinatorKey(transactional_id),
        f"{what} of transactional id '{transactional_id}'",
        lambda response: response.error_code,
        success_only=False,
        resend=Resend.NEVER,
    )


def _describe_calls(coordinators: Mapping[str, Node]) -> list[Call[DescribeTransactionsResponse]]:
    """Creates the DescribeTransactions calls for transactional ids, to their coordinators."""
    by_node: dict[Node, list[str]] = defaultdict(list)
    for i, node in coordinators.items():
        by_node[node].append(i)
    return [
        Call(
            DescribeTransactionsRequest(transactional_ids=ids_of_node[n : n + _MOST_DESCRIBED]),
            node,
            "DescribeTransactions",
            right="DESCRIBE on the transactional id",
            resend=Resend.AFTER_CODE,
        )
        for node, ids_of_node in by_node.items()
        for n in range(0, len(ids_of_node), _MOST_DESCRIBED)
    ]


def _metadata_call(
    topics: Collection[str], to: Target, *, resend: Resend = Resend.ALWAYS
) -> Call[MetadataResponse]:
    request = MetadataRequest(tuple(topics), allow_auto_topic_creation=False)
    return Call(request, to, "Metadata of the partitions", resend=resend)


def _send_by(look: Call[MetadataResponse] | Call[DescribeTransactionsResponse]) -> int:
    """Returns the last time at which the transactions of ``look`` may be ended
    (``Call.send_by_ms``). ``look`` is a Metadata or DescribeTransactions request for these
    transactions. After this time, the response to ``look`` is too old.
    """
    assert look.response is not None
    # (A throttled connection sends nothing until then, whatever is looked at.)
    return look.answered_ms + look.response.throttle_time_ms + _LED_MS


def _topics(by_id: Mapping[str, Partitions]) -> dict[str, None]:
    return {topic: None for written_to in by_id.values() for topic, _ in written_to}


def _without_leader(
    by_id: Mapping[str, Partitions], response: MetadataResponse
) -> Mapping[str, Sequence[TopicPartition]]:
    """Returns the partitions without a leader in ``response``, by transactional id. ``by_id`` has
    all partitions of each transaction. If all partitions of a transaction have leaders, its id is
    missing in the result.
    """
    lost = {one.tp for topic in response.topics for one in topic.partitions if one.leader < 0}
    if not lost:
        return {}
    without = {
        i: [tp for t, ps in written_to for p in ps if (tp := TopicPartition(t, p)) in lost]
        for i, written_to in by_id.items()
    }
    return {i: partitions for i, partitions in without.items() if partitions}


def _answers(calls: Mapping[str, Call[Any]]) -> EndAnswers:
    return {i: None if c.response is None else c.response.error_code for i, c in calls.items()}


def _described_by(
    call: Call[DescribeTransactionsResponse],
) -> dict[str, TransactionDescription]:
    """Returns the descriptions in the response of ``call``, by transactional id. The result is
    empty if there is no response. Raises an exception if a right is missing.

    An id with a retriable error is left out, and the error becomes the call's ``last_code``. Any
    other error, such as TRANSACTIONAL_ID_NOT_FOUND, is in the description of the id.
    """
    described: dict[str, TransactionDescription] = {}
    for state in call.response.transaction_states if call.response else ():
        where = f"{call.what} of transactional id '{state.transactional_id}'"
        again = retry_code(state.error_code, where, call.right, success_only=False)
        if again is None:
            described[state.transactional_id] = TransactionDescription.of(state)
        else:
            call.last_code = again
            call.last_status = f"the last response, from broker {call.to}, was {again.name}"
    return described


def listing(
    request: ListTransactionsRequest, node: Node, *, resend: Resend = Resend.ALWAYS
) -> Call[ListTransactionsResponse]:
    """Creates the ListTransactions call to the broker ``node``."""
    return Call(
        request,
        node,
        f"ListTransactions of broker {node}",
        lambda response: response.error_code,
        "DESCRIBE on the transactional ids",
        resend=resend,
    )


def listed(
    calls: Iterable[Call[ListTransactionsResponse]], prefix: str = ""
) -> dict[str, ListedTransaction]:
    """Returns the transactions in the responses of ``calls``, by transactional id. Ids that do not
    begin with ``prefix`` are left out, because brokers before 4.1 do not filter by a prefix. Calls
    without a response are ignored.
    """
    answers = (call.response for call in calls if call.response is not None)
    return {
        one.transactional_id: one
        for answer in answers
        for one in answer.transaction_states
        if one.transactional_id.startswith(prefix)
    }
