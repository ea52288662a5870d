"""What is asked of transaction coordinators: EndTxn, DescribeTransactions, ListTransactions, ...

Owns: :class:`TransactionClient`: which request, to whom, and which answers are worth asking again.
Never: what an outcome means for a batch (``transactions/``), how calls travel
(``request_loop.py``).

Asked again, until the deadline: CONCURRENT_TRANSACTIONS and COORDINATOR_LOAD_IN_PROGRESS, every
other retriable code, UNKNOWN_SERVER_ERROR, lost connections and time-outs; all of these requests
may be asked twice. COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR: FindCoordinator first. Missing
rights and missing versions are raised. Everything else is an answer, and the caller's to judge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import commonprefix
from typing import Final, NamedTuple

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.call import (
    AnyBroker,
    Call,
    Coordinator,
    RetryDecision,
    judged,
    retry_decision,
)
from spark_kafka_sink.admin.request_loop import NewClient
from spark_kafka_sink.clock import Clock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.errors import ConfigError, ErrorCode, KafkaError, UnsupportedVersionError
from spark_kafka_sink.producer.transaction.transaction_states import (
    NO_PRODUCER_ID,
    PreparedTransaction,
    ProducerIdAndEpoch,
)
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.control_messages import (
    ApiVersionsRequest,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spark_kafka_sink.protocol.transaction_admin_messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)

#: Of transactions, by transactional id. None: no clear answer came in time.
EndAnswers = Mapping[str, ErrorCode | None]

#: Ids in one DescribeTransactions.
_MOST_DESCRIBED: Final = 500
#: Of an id that is only fenced: nothing is ever written under it again. Below every broker's limit.
_FENCE_TIMEOUT_MS: Final = 60_000
_WRITE: Final = "WRITE on the transactional id"
_DESCRIBE: Final = "DESCRIBE on the transactional id"
#: The answer to EndTxn that is asked again, and tells that nothing was done. (NOT_COORDINATOR
#: doesn't: a coordinator that is deposed while it writes answers so of a record that may survive.)
_NOTHING_HAPPENED: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
#: A list of all brokers is made in rounds: how many, how long one waits for brokers that are
#: silent, how old what we know of the cluster may be, and how long a silent one is left out by who
#: has no patience.
_ROUNDS: Final = 3
_ROUND_MS: Final = 2_000
_CLUSTER_AGE_MS: Final = 100
_LEFT_OUT_MS: Final = 60_000
_SOFTWARE: Final = ("spark-kafka-sink", "0")


class Listed(NamedTuple):
    """``silent`` are brokers that could not be asked, by name."""

    transactions: tuple[TransactionListing, ...]
    silent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ending:
    """How one EndTxn went: it has a clear answer (``response``), or none, and then an ``error``.

    ``unclear``: an attempt without a clear answer may have ended the transaction.
    """

    response: EndTxnResponse | None
    error: KafkaError | None
    unclear: bool


class TransactionClient(AdminClient):
    """All coordinators of one cluster. Each call asks them in parallel and goes on (new
    coordinators, CONCURRENT_TRANSACTIONS, lost connections, time-outs) until every answer is clear
    or ``deadline_ms`` is there. AuthorizationError comes at once, too.
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
        #: Until when a broker that did not answer is left out, by its id.
        self._silent: dict[int, int] = {}

    # -- ending -----------------------------------------------------------------------------------

    def end(
        self, transactions: Sequence[PreparedTransaction], *, committed: bool, deadline_ms: int
    ) -> EndAnswers:
        """EndTxn for each, with the request's version following the transaction's. NONE: it is
        decided durably; markers follow.
        """
        calls = {t.transactional_id: _ending(t, committed=committed) for t in transactions}
        self.loop.run(calls.values(), deadline_ms)
        return {i: None if c.response is None else c.response.error for i, c in calls.items()}

    def end_one(
        self, transaction: PreparedTransaction, *, committed: bool, deadline_ms: int
    ) -> Ending:
        """As :meth:`end`, with all that is known of how it went."""
        call = _ending(transaction, committed=committed)
        judge = call.take
        definite = 0

        def take(response: EndTxnResponse) -> ErrorCode | None:
            nonlocal definite
            code = response.error
            definite += code is _NOTHING_HAPPENED or retry_decision(code) is RetryDecision.FINAL
            return judge(response)

        call.take = take
        error: KafkaError | None = None
        try:
            self.loop.ask(call, deadline_ms, f"EndTxn of {_named(transaction.transactional_id)}")
        except KafkaError as refused:
            error = refused
        return Ending(call.response, error, unclear=call.sent > definite)

    def abort_exactly(
        self, found: Mapping[str, TransactionDescription], deadline_ms: int
    ) -> EndAnswers:
        """Abort what :meth:`describe` has found open, under the very identity that it has there,
        and keep its writer from going on under it. What came after is not hurt, however late a
        request arrives.

        Version 2: EndTxn(abort), which raises the epoch, also of an id that is Empty. Version 1:
        InitProducerId, because EndTxn leaves the epoch as it is; should that arrive late, it aborts
        what the id has open then, so the id must not be used again. (With the identity, KIP-360, it
        would be refused by a coordinator that has just aborted the transaction for it.)
        """
        if self.transaction_version(deadline_ms) >= 2:
            open_ = [
                PreparedTransaction(i, d.producer_id, d.producer_epoch, 2) for i, d in found.items()
            ]
            return self.end(open_, committed=False, deadline_ms=deadline_ms)
        return self.fence(found, deadline_ms)

    def fence(self, transactional_ids: Iterable[str], deadline_ms: int) -> EndAnswers:
        """InitProducerId for each: what it has open is aborted, its writer is fenced."""
        calls = {
            i: Call(InitProducerIdRequest(i, _FENCE_TIMEOUT_MS), Coordinator(i), _fenced(i))
            for i in transactional_ids
        }
        self.loop.run(calls.values(), deadline_ms)
        return {i: None if c.response is None else c.response.error for i, c in calls.items()}

    # -- looking ----------------------------------------------------------------------------------

    def describe(
        self, transactional_ids: Iterable[str], deadline_ms: int
    ) -> Mapping[str, TransactionDescription]:
        """DescribeTransactions, many ids of one coordinator at a time; TRANSACTIONAL_ID_NOT_FOUND
        is an ``error`` of an answer. KafkaTimeoutError when a coordinator does not answer in time.
        """
        found: dict[str, TransactionDescription] = {}
        waiting = dict.fromkeys(transactional_ids)
        attempts = 0
        while True:
            by_node: dict[Node, list[str]] = defaultdict(list)
            for i, node in self.loop.coordinators(waiting, deadline_ms).items():
                by_node[node].append(i)
            calls = [
                self._describing(tuple(ids[first : first + _MOST_DESCRIBED]), node, found)
                for node, ids in by_node.items()
                for first in range(0, len(ids), _MOST_DESCRIBED)
            ]
            self.loop.run(calls, deadline_ms)
            waiting = {i: None for i in waiting if i not in found}
            if not waiting:
                return found
            if self.clock.now_ms() >= deadline_ms:
                raise self.loop.timeout("DescribeTransactions", calls)
            self.loop.forget_coordinators(waiting)
            self.loop.pause(attempts, deadline_ms)
            attempts += 1

    @staticmethod
    def _describing(
        ids: tuple[str, ...], node: Node, found: dict[str, TransactionDescription]
    ) -> Call[DescribeTransactionsResponse]:
        def take(response: DescribeTransactionsResponse) -> None:
            for i, one in response.transactions.items():
                where = f"DescribeTransactions of {_named(i)}"
                if judged(one.error, where, _DESCRIBE, success_only=False) is None:
                    found[i] = one

        return Call(DescribeTransactionsRequest(ids), node, take, once=True)

    def open_transactions(
        self, prefix: str, deadline_ms: int, *, idle: bool = False, patient: bool = True
    ) -> Listed:
        """ListTransactions of all brokers that the cluster has now: ids that begin with ``prefix``
        and are Ongoing; with ``idle`` also the Empty ones, whose writer has an identity and was not
        heard of since. What the principal may not describe is not in it: brokers leave that out
        silently.

        In rounds: when a broker is lost, others coordinate its ids. ``patient``: one that can't be
        reached is asked again for some seconds, and every time; without, it is left out for a
        while.
        """
        states = (TransactionState.ONGOING, TransactionState.EMPTY)
        request = ListTransactionsRequest(states if idle else states[:1], prefix=prefix)
        for attempts in range(_ROUNDS if patient else 1):
            nodes = self.brokers(deadline_ms, max_age_ms=0 if patient else _CLUSTER_AGE_MS)
            begun = self.clock.now_ms()
            left_out = [] if patient else [n for n in nodes if self._silent.get(n.id, 0) > begun]
            calls = {n: listing(request, n, once=True) for n in nodes if n not in left_out}
            self.loop.run(calls.values(), min(deadline_ms, begun + _ROUND_MS))
            silent = [n for n, call in calls.items() if not call.done]
            for answered in calls.keys() - silent:
                self._silent.pop(answered.id, None)
            now = self.clock.now_ms()
            if now >= begun + _ROUND_MS:  # (who refuses costs no time)
                self._silent |= {n.id: now + _LEFT_OUT_MS for n in silent}
            if not silent or now >= deadline_ms:
                break
            self.loop.pause(attempts, deadline_ms)
        found = tuple(listed(calls.values()).values())
        return Listed(found, tuple(str(node) for node in (*left_out, *silent)))

    def older_than(
        self, transactional_ids: Sequence[str], age_ms: int, deadline_ms: int
    ) -> frozenset[str] | None:
        """Those of them that are open for longer, by the clock of their coordinator, or that it
        does not list as open at all; None: brokers before 3.8 can't tell. Nobody else is asked.

        An id that moves while we ask is in nobody's list for a moment, so those that are in none
        are looked up, and asked for, again. Who is not among the old ones of a broker is young only
        when that listed it as open right before and right after, over one connection.
        """
        waiting = dict.fromkeys(transactional_ids)
        prefix = commonprefix(list(waiting))  # noqa: RUF071 - of names, not of paths
        ongoing = ListTransactionsRequest((TransactionState.ONGOING,), prefix=prefix)
        aged = replace(ongoing, min_duration_ms=age_ms)
        old: set[str] = set()
        attempts = missed = 0
        while waiting and missed < _ROUNDS:
            if attempts:
                self.loop.pause(attempts - 1, deadline_ms)
            nodes = dict.fromkeys(self.loop.coordinators(waiting, deadline_ms).values())
            asked = [
                tuple(listing(request, node, once=True) for request in (ongoing, aged, ongoing))
                for node in nodes
            ]
            calls = [call for three in asked for call in three]
            try:
                self.loop.run(calls, deadline_ms)
            except UnsupportedVersionError:
                return None
            told = [three for three in asked if all(c.done and c.sent == 1 for c in three)]
            all_told = len(told) == len(asked)
            if not all_told and self.clock.now_ms() >= deadline_ms:
                raise self.loop.timeout("ListTransactions", calls)
            old |= waiting.keys() & listed(aged_call for _, aged_call, _ in asked).keys()
            young = {
                i for before, _, after in told for i in listed([before]).keys() & listed([after])
            }
            waiting = {i: None for i in waiting if i not in young and i not in old}
            self.loop.forget_coordinators(waiting)
            attempts += 1
            missed += all_told
        return frozenset(old | waiting.keys())

    def transaction_version(self, deadline_ms: int) -> int:
        """2 when the cluster writes transactions of version 2 (KIP-890), else 1; asked once."""
        if self._version is None:
            call = Call(ApiVersionsRequest(*_SOFTWARE), AnyBroker())
            features = self.loop.ask(call, deadline_ms).finalized_features
            self._version = 2 if features.get("transaction.version", 0) >= 2 else 1
        return self._version

    # -- beginning --------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        deadline_ms: int,
        *,
        ours: ProducerIdAndEpoch = NO_PRODUCER_ID,
        once: bool = False,
        two_phase_commit: bool = False,
    ) -> ProducerIdAndEpoch:
        """InitProducerId: every earlier writer of that id is fenced, what it left open is aborted.

        With ``ours`` (KIP-360, brokers since 2.5) only while that is still the identity of the id:
        ProducerFencedError when somebody else took the id meanwhile, whom this does not fence.

        With ``once`` it is not asked again when it got lost: that may arrive late, and would hurt
        what was begun since. ``timeout_ms`` is the next transaction's; ConfigError when it is above
        the broker's transaction.max.timeout.ms. KafkaTimeoutError without a clear answer in time.
        """
        where = f"InitProducerId of {_named(transactional_id)}"

        def take(response: InitProducerIdResponse) -> ErrorCode | None:
            if response.error is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise ConfigError(
                    f"kafka.transaction.timeout.ms is {timeout_ms}: above the broker's "
                    "transaction.max.timeout.ms",
                    hint="lower the option, or raise the broker's setting (900000 by default)",
                )
            return judged(response.error, where, _WRITE)

        request = InitProducerIdRequest(
            transactional_id, timeout_ms, *ours, enable_2pc=two_phase_commit
        )
        call = Call(request, Coordinator(transactional_id), take, once=once)
        response = self.loop.ask(call, deadline_ms, where)
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)


def _ending(transaction: PreparedTransaction, *, committed: bool) -> Call[EndTxnResponse]:
    where = f"EndTxn of {_named(transaction.transactional_id)}"
    request = EndTxnRequest(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        committed,
        transaction.transaction_version,
    )
    return Call(
        request,
        Coordinator(transaction.transactional_id),
        lambda response: judged(response.error, where, _WRITE, success_only=False),
    )


def _fenced(transactional_id: str) -> Callable[[InitProducerIdResponse], ErrorCode | None]:
    where = f"InitProducerId of {_named(transactional_id)}"
    return lambda response: judged(response.error, where, _WRITE, success_only=False)


def listing(
    request: ListTransactionsRequest, node: Node, *, once: bool = False
) -> Call[ListTransactionsResponse]:
    """The question to one broker."""
    where = f"ListTransactions of broker {node}"
    return Call(
        request,
        node,
        lambda response: judged(response.error, where, "DESCRIBE on the transactional ids"),
        once=once,
    )


def listed(calls: Iterable[Call[ListTransactionsResponse]]) -> dict[str, TransactionListing]:
    """By transactional id, what was answered."""
    answers = (call.response for call in calls if call.response is not None)
    return {one.transactional_id: one for answer in answers for one in answer.transactions}


def _named(transactional_id: str) -> str:
    return f"transactional id '{transactional_id}'"
