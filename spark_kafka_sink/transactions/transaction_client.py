"""The driver's questions to transaction coordinators, over real connections or simulated ones.

Owns: :class:`TransactionClient`, which implements ``Coordinators``: which request, to whom, and
which answers are worth asking again. Never: what an outcome means for a batch (``outcomes.py``),
how calls travel (``broker_calls.py``).

Asked again, until the deadline: CONCURRENT_TRANSACTIONS and COORDINATOR_LOAD_IN_PROGRESS, every
other retriable code, UNKNOWN_SERVER_ERROR, lost connections and time-outs; all of these requests
may be asked twice. COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR: FindCoordinator first. Missing
rights and missing versions are raised. Everything else is an answer, and the caller's to judge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeVar

from spark_kafka_sink.admin import NewClient
from spark_kafka_sink.clock import Clock, SystemClock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.errors import (
    AuthorizationError,
    ConfigError,
    ErrorCode,
    KafkaError,
    UnsupportedVersionError,
)
from spark_kafka_sink.network.client.client_factory import new_network_client
from spark_kafka_sink.producer.transaction.transaction_states import (
    NO_PRODUCER_ID,
    PreparedTransaction,
    ProducerIdAndEpoch,
)
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.config_messages import (
    ConfigResource,
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from spark_kafka_sink.protocol.control_messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
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
from spark_kafka_sink.protocol.transaction_offset_messages import OffsetAndMetadata
from spark_kafka_sink.transactions.broker_calls import BrokerCalls
from spark_kafka_sink.transactions.calls import (
    AnyBroker,
    Call,
    Coordinator,
    Next,
    following,
    refusal,
)
from spark_kafka_sink.transactions.coordinators import EndAnswers, GroupOffsets, Listed
from spark_kafka_sink.transactions.transactional_ids import SEPARATOR, parse

EndedT = TypeVar("EndedT", EndTxnResponse, InitProducerIdResponse)

#: Ids in one DescribeTransactions.
_MOST_DESCRIBED: Final = 500
#: Of an id that is only fenced: nothing is ever written under it again. Below every broker's limit.
_FENCE_TIMEOUT_MS: Final = 60_000
_WRITE: Final = "WRITE on the transactional id"
_DESCRIBE: Final = "DESCRIBE on the transactional id"
_RAISED: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
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


@dataclass(frozen=True, slots=True)
class Ending:
    """How one EndTxn went: it has a clear answer (``response``), or none, and then an ``error``.

    ``unclear``: an attempt without a clear answer may have ended the transaction.
    """

    response: EndTxnResponse | None
    error: KafkaError | None
    unclear: bool


class TransactionClient:
    """Implements ``Coordinators``; a context manager. On the caller's thread, one call at a time.

    Every call is bounded by its ``deadline_ms`` (of the clock). AuthenticationError,
    AuthorizationError and UnsupportedVersionError come at once; ConfigError when no bootstrap
    server can be resolved.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        clock: Clock | None = None,
        new_client: NewClient | None = None,
    ) -> None:
        self.config = config
        self.clock = SystemClock() if clock is None else clock
        #: For whoever asks brokers something else over the same connections.
        self.calls = BrokerCalls(
            config, clock=self.clock, new_client=new_client or new_network_client
        )
        self._version: int | None = None
        #: Until when a broker that did not answer is left out, by its id.
        self._silent: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self.calls.close()

    # -- Coordinators -----------------------------------------------------------------------------

    def end(
        self, transactions: Sequence[PreparedTransaction], *, committed: bool, deadline_ms: int
    ) -> EndAnswers:
        """EndTxn for each; None for what has no clear answer at the deadline."""
        answers: dict[str, EndTxnResponse | None] = {}
        calls = []
        for t in transactions:
            answers[t.transactional_id] = None
            take = _taking(t.transactional_id, "EndTxn", answers)
            calls.append(_ending(t, take, committed=committed))
        self.calls.run(calls, deadline_ms)
        return {i: None if a is None else a.error for i, a in answers.items()}

    def end_one(
        self, transaction: PreparedTransaction, *, committed: bool, deadline_ms: int
    ) -> Ending:
        """As :meth:`end`, with all that is known of how it went."""
        where = f"EndTxn of {_named(transaction.transactional_id)}"
        answers: list[EndTxnResponse] = []
        definite = 0

        def take(response: EndTxnResponse) -> ErrorCode | None:
            nonlocal definite
            code = response.error
            definite += code is _NOTHING_HAPPENED or following(code) is Next.CLEAR
            again = _again(code, where, _WRITE)
            if again is None:
                answers.append(response)
            return again

        call = _ending(transaction, take, committed=committed)
        error: KafkaError | None = None
        try:
            if not self.calls.run([call], deadline_ms):
                error = self.calls.timeout(where, [call])
        except KafkaError as refused:
            error = refused
        return Ending(answers[0] if answers else None, error, unclear=call.sent > definite)

    def abort_exactly(
        self, found: Mapping[str, TransactionDescription], deadline_ms: int
    ) -> EndAnswers:
        """See ``Coordinators``."""
        if self.transaction_version(deadline_ms) >= 2:
            open_ = [
                PreparedTransaction(i, d.producer_id, d.producer_epoch, 2) for i, d in found.items()
            ]
            return self.end(open_, committed=False, deadline_ms=deadline_ms)
        answers: dict[str, InitProducerIdResponse | None] = dict.fromkeys(found)
        calls = [
            Call(
                InitProducerIdRequest(i, _FENCE_TIMEOUT_MS),
                Coordinator(i),
                _taking(i, "InitProducerId", answers),
            )
            for i in found
        ]
        self.calls.run(calls, deadline_ms)
        return {i: None if a is None else a.error for i, a in answers.items()}

    def describe(
        self, transactional_ids: Sequence[str], deadline_ms: int
    ) -> Mapping[str, TransactionDescription]:
        """DescribeTransactions, many ids of one coordinator at a time."""
        found: dict[str, TransactionDescription] = {}
        waiting = dict.fromkeys(transactional_ids)
        attempts = 0
        while True:
            by_node: dict[Node, list[str]] = defaultdict(list)
            for i, node in self.calls.coordinators(waiting, deadline_ms).items():
                by_node[node].append(i)
            calls = [
                self._describing(tuple(ids[first : first + _MOST_DESCRIBED]), node, found)
                for node, ids in by_node.items()
                for first in range(0, len(ids), _MOST_DESCRIBED)
            ]
            self.calls.run(calls, deadline_ms)
            waiting = {i: None for i in waiting if i not in found}
            if not waiting:
                return found
            if self.clock.now_ms() >= deadline_ms:
                raise self.calls.timeout("DescribeTransactions", calls)
            self.calls.forget_coordinators(waiting)
            self.calls.pause(attempts, deadline_ms)
            attempts += 1

    @staticmethod
    def _describing(
        ids: tuple[str, ...], node: Node, found: dict[str, TransactionDescription]
    ) -> Call[DescribeTransactionsResponse]:
        def take(response: DescribeTransactionsResponse) -> None:
            for i, description in response.transactions.items():
                code = description.error
                if code in _RAISED:
                    raise refusal(code, f"DescribeTransactions of {_named(i)}", _DESCRIBE)
                if following(code) is Next.CLEAR:
                    found[i] = description

        return Call(DescribeTransactionsRequest(ids), node, take, once=True)

    def open_transactions(
        self, prefix: str, deadline_ms: int, *, idle: bool = False, patient: bool = True
    ) -> Listed:
        """See ``Coordinators``; what the principal may not describe is not in it: the broker leaves
        that out silently. In rounds: when a broker is lost, others coordinate its ids.
        """
        states = (TransactionState.ONGOING, TransactionState.EMPTY)
        request = ListTransactionsRequest(states if idle else states[:1], prefix=prefix + SEPARATOR)
        for attempts in range(_ROUNDS if patient else 1):
            max_age_ms = 0 if patient else _CLUSTER_AGE_MS
            nodes = self.calls.brokers(deadline_ms, max_age_ms=max_age_ms)
            begun = self.clock.now_ms()
            left_out = [] if patient else [n for n in nodes if self._silent.get(n.id, 0) > begun]
            found: dict[str, TransactionListing] = {}
            calls = {n: self._listing(request, n, found) for n in nodes if n not in left_out}
            self.calls.run(calls.values(), min(deadline_ms, begun + _ROUND_MS))
            silent = [n for n, call in calls.items() if not call.done]
            if self.clock.now_ms() >= begun + _ROUND_MS:  # (who refuses costs no time)
                self._silent |= {n.id: self.clock.now_ms() + _LEFT_OUT_MS for n in silent}
            if not silent or self.clock.now_ms() >= deadline_ms:
                break
            self.calls.pause(attempts, deadline_ms)
        listed = tuple(one for i, one in found.items() if parse(i) is not None)
        return Listed(listed, tuple(str(node) for node in (*left_out, *silent)))

    def older_than(
        self, transactional_ids: Sequence[str], age_ms: int, deadline_ms: int
    ) -> frozenset[str] | None:
        """See ``Coordinators``. An id that moves while we ask is in nobody's list for a moment, so
        those that are in none are looked up, and asked for, again.
        """
        waiting = dict.fromkeys(transactional_ids)
        old: set[str] = set()
        attempts = missed = 0
        while waiting and missed < _ROUNDS:
            if attempts:
                self.calls.pause(attempts - 1, deadline_ms)
            nodes = dict.fromkeys(self.calls.coordinators(waiting, deadline_ms).values())
            prefixes = dict.fromkeys(i.split(SEPARATOR, 1)[0] + SEPARATOR for i in waiting)
            ongoing: dict[str, TransactionListing] = {}
            aged: dict[str, TransactionListing] = {}
            calls = [
                self._listing(
                    ListTransactionsRequest(
                        (TransactionState.ONGOING,), min_duration_ms=duration, prefix=prefix
                    ),
                    node,
                    into,
                )
                for node in nodes
                for prefix in prefixes
                for duration, into in ((None, ongoing), (age_ms, aged))
            ]
            try:
                all_answered = self.calls.run(calls, deadline_ms)
            except UnsupportedVersionError:
                return None
            if not all_answered and self.clock.now_ms() >= deadline_ms:
                raise self.calls.timeout("ListTransactions", calls)
            old |= waiting.keys() & aged.keys()
            waiting = {i: None for i in waiting if i not in ongoing and i not in old}
            self.calls.forget_coordinators(waiting)
            attempts += 1
            missed += all_answered
        return frozenset(old | waiting.keys())

    @staticmethod
    def _listing(
        request: ListTransactionsRequest, node: Node, found: dict[str, TransactionListing]
    ) -> Call[ListTransactionsResponse]:
        def take(response: ListTransactionsResponse) -> ErrorCode | None:
            again = _again(
                response.error,
                f"ListTransactions of broker {node}",
                "DESCRIBE on the transactional ids",
                success_only=True,
            )
            found.update({one.transactional_id: one for one in response.transactions})
            return again

        return Call(request, node, take, once=True)

    def prepare_offsets(
        self, transactional_id: str, given: GroupOffsets, deadline_ms: int
    ) -> PreparedTransaction:
        """See ``Coordinators``."""
        from spark_kafka_sink.transactions.offset_commits import prepare_offsets

        return prepare_offsets(
            self,
            transactional_id,
            given.group_id,
            {tp: OffsetAndMetadata(offset) for tp, offset in given.offsets.items()},
            transaction_version=self.transaction_version(deadline_ms),
            timeout_ms=self.config.transaction_timeout_ms,
            deadline_ms=deadline_ms,
        )

    # -- what the log and the preflight ask -------------------------------------------------------

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
        found: list[ProducerIdAndEpoch] = []
        where = f"InitProducerId of {_named(transactional_id)}"

        def take(response: InitProducerIdResponse) -> ErrorCode | None:
            if response.error is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise ConfigError(
                    f"kafka.transaction.timeout.ms is {timeout_ms}: above the broker's "
                    "transaction.max.timeout.ms",
                    hint="lower the option, or raise the broker's setting (900000 by default)",
                )
            again = _again(response.error, where, _WRITE, success_only=True)
            found.append(ProducerIdAndEpoch(response.producer_id, response.producer_epoch))
            return again

        request = InitProducerIdRequest(
            transactional_id, timeout_ms, *ours, enable_2pc=two_phase_commit
        )
        call = Call(request, Coordinator(transactional_id), take, once=once)
        if not self.calls.run([call], deadline_ms):
            raise self.calls.timeout(where, [call])
        return found[-1]

    def transaction_version(self, deadline_ms: int) -> int:
        """2 when the cluster writes transactions of version 2 (KIP-890), else 1; asked once."""
        if self._version is not None:
            return self._version
        found: list[int] = []

        def take(response: ApiVersionsResponse) -> None:
            found.append(response.finalized_features.get("transaction.version", 0))

        call = Call(ApiVersionsRequest(*_SOFTWARE), AnyBroker(), take)
        if not self.calls.run([call], deadline_ms):
            raise self.calls.timeout("ApiVersions", [call])
        self._version = 2 if found[0] >= 2 else 1
        return self._version

    def broker_config(self, name: str, deadline_ms: int) -> str | None:
        """What a broker is set to; None when it is not set, or the principal may not see it."""
        node = self.calls.brokers(deadline_ms)[0]
        resource = ConfigResource(ConfigResourceType.BROKER, str(node.id))
        return self._configs(resource, (name,), node, deadline_ms).get(name)

    def topic_configs(
        self, topic: str, names: Collection[str], deadline_ms: int
    ) -> Mapping[str, str | None]:
        """Settings of a topic; empty when the principal may not see them."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        return self._configs(resource, tuple(names), AnyBroker(), deadline_ms)

    def _configs(
        self,
        resource: ConfigResource,
        names: tuple[str, ...],
        to: Node | AnyBroker,
        deadline_ms: int,
    ) -> Mapping[str, str | None]:
        found: dict[str, str | None] = {}
        where = f"DescribeConfigs of {resource.type.name.lower()} {resource.name}"

        def take(response: DescribeConfigsResponse) -> ErrorCode | None:
            configs = response.resources[resource]
            again = _again(configs.error, where, "DESCRIBE_CONFIGS", success_only=True)
            found.update(configs.values)
            return again

        call = Call(DescribeConfigsRequest((resource,), names), to, take)
        try:
            if not self.calls.run([call], deadline_ms):
                raise self.calls.timeout(where, [call])
        except (AuthorizationError, UnsupportedVersionError):
            return {}
        return found


def _ending(
    transaction: PreparedTransaction,
    take: Callable[[EndTxnResponse], ErrorCode | None],
    *,
    committed: bool,
) -> Call[EndTxnResponse]:
    request = EndTxnRequest(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        committed,
        transaction.transaction_version,
    )
    return Call(request, Coordinator(transaction.transactional_id), take)


def _taking(
    transactional_id: str, what: str, answers: dict[str, EndedT | None]
) -> Callable[[EndedT], ErrorCode | None]:
    """Puts a clear answer into ``answers``."""

    def take(response: EndedT) -> ErrorCode | None:
        code = response.error
        if code is not ErrorCode.NONE:
            again = _again(code, f"{what} of {_named(transactional_id)}", _WRITE)
            if again is not None:
                return again
        answers[transactional_id] = response
        return None

    return take


def _again(
    code: ErrorCode, where: str, right: str, *, success_only: bool = False
) -> ErrorCode | None:
    """``code`` when it is to be asked for again; None when it is clear. Raises what no asking
    mends, and with ``success_only`` every clear code but NONE.
    """
    if code in _RAISED:
        raise refusal(code, where, right)
    if following(code) is not Next.CLEAR:
        return code
    if success_only and code is not ErrorCode.NONE:
        raise code.error(where)
    return None


def _named(transactional_id: str) -> str:
    return f"transactional id '{transactional_id}'"
