"""Queues and sends the requests for the id and the transaction of a producer, and applies the
responses.

* :class:`TxnRequestQueue` has the queue, the request in flight and the coordinator's node. It
  applies the responses (Java's ``TxnRequestHandler`` and ``TransactionManager.nextRequest``).
* :class:`TxnRequestSender` chooses the broker for a request, and retries a request (Java's
  ``Sender.maybeSendAndPollTransactionalRequest``).

A producer without transactions has only one kind of request, InitProducerId, which it can send to
any broker.

Threads: the sender thread sends the requests and handles the responses. Application threads also
call :meth:`TxnRequestQueue.enqueue` and :meth:`TxnRequestQueue.fail_all`. The lock of
``ProducerIdentity`` guards the queue. Public methods take this lock, except for those below the
comment "under the lock, which the caller holds".
"""

from __future__ import annotations

import bisect
import random as _random
from collections.abc import Callable, Iterable

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ApiError, ErrorCode, KafkaError
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client.client_request import ClientResponse
from spark_kafka_sink.network.client.kafka_client import KafkaClient
from spark_kafka_sink.network.client.metadata import Metadata
from spark_kafka_sink.producer.accumulator.record_accumulator import IncompleteBatches
from spark_kafka_sink.producer.transaction.partition_sequences import TxnPartitionMap
from spark_kafka_sink.producer.transaction.transaction_states import (
    ONGOING,
    ProducerIdentity,
    State,
)
from spark_kafka_sink.producer.transaction.txn_requests import (
    Reaction,
    TransactionalResult,
    TxnBackoff,
    TxnRequest,
    TxnRequestKind,
    reaction_to,
)
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
)
from spark_kafka_sink.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from spark_kafka_sink.protocol.messages.end_txn import EndTxnResponse
from spark_kafka_sink.protocol.messages.find_coordinator import (
    FindCoordinatorResponse,
)
from spark_kafka_sink.protocol.messages.init_producer_id import (
    InitProducerIdResponse,
)
from spark_kafka_sink.protocol.node_api_versions import NodeApiVersions
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction, ProducerIdAndEpoch
from spark_kafka_sink.protocol.request import Request
from spark_kafka_sink.protocol.transaction_requests import (
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
)

_MAX_NAMED = 10

#: Minimum delay before looking again for an available broker, if retry.backoff.ms is shorter.
MIN_RETRY_MS = 50

#: The states in which there may be a transaction to abort after an error.
_CAN_ABORT = ONGOING | {State.INITIALIZING}


class TxnRequestQueue:
    """The queue of requests. The requests are sorted by kind (TxnRequestKind). Requests of the same
    kind stay in the order in which they were queued. At most one request is in flight.
    """

    def __init__(
        self,
        identity: ProducerIdentity,
        sequences: TxnPartitionMap,
        incomplete: IncompleteBatches,
        transaction_timeout_ms: int,
    ) -> None:
        self._identity = identity
        self._sequences = sequences
        self._incomplete = incomplete
        self._transaction_timeout_ms = transaction_timeout_ms
        self._pending: list[TxnRequest] = []
        self._in_flight: TxnRequest | None = None
        self._coordinator: Node | None = None
        #: True if a request got no response and was sent again, so that the coordinator may still
        #: receive the first copy. If the first copy of an InitProducerId arrives after the second,
        #: the coordinator fences the producer id and epoch of the second response, and aborts their
        #: transaction. If the first copy of an AddPartitionsToTxn (transaction version 1) arrives
        #: after the commit, the coordinator opens another transaction under the same epoch. When
        #: this transaction times out, the coordinator seems to have aborted the committed
        #: transaction.
        self.identity_in_doubt = False
        #: The state of the last transaction of the transactional id, from a response of the
        #: coordinator.
        self.last_state = ""

    @property
    def coordinator(self) -> Node | None:
        return self._coordinator

    @property
    def waiting(self) -> bool:
        """True if a request is in flight, or if a request must be sent."""
        identity = self._identity
        return (
            bool(self._pending)
            or self._in_flight is not None
            or bool(identity.transaction.new_partitions)
            # An idempotent producer needs an id immediately, a transactional producer when it calls
            # for one.
            or (identity.state is State.UNINITIALIZED and identity.transactional_id is None)
        )

    def needs_coordinator(self, request: TxnRequest) -> bool:
        """Returns True if ``request`` must be sent to the transaction coordinator, and False if it
        can be sent to any broker.
        """
        return (
            self._identity.transactional_id is not None
            and request.kind is not TxnRequestKind.FIND_COORDINATOR
        )

    @property
    def fencing(self) -> bool:
        """True while a transaction of version 1 is being aborted by InitProducerId in place of
        EndTxn (see :meth:`_prepare_end`).
        """
        with self._identity.lock:
            sent = self._in_flight
            return (sent is not None and sent.fences) or any(r.fences for r in self._pending)

    # -- the queue (under the lock, which the caller holds) ---------------------------------------

    def enqueue(self, request: TxnRequest) -> None:
        bisect.insort(self._pending, request, key=lambda r: r.kind)

    def fail_all(self, error: KafkaError) -> None:
        """Fails all queued requests, and the request in flight, with ``error``."""
        for request in self._pending:
            request.result.fail(error)
        self._pending.clear()
        if self._in_flight is not None:
            self._in_flight.result.fail(error)

    def fail_end(self, error: KafkaError) -> None:
        """Removes a queued EndTxn, and fails it with ``error``. Used before the EndTxn of an abort
        is queued.
        """
        for request in [r for r in self._pending if r.kind is TxnRequestKind.END_TXN]:
            self._pending.remove(request)
            request.result.fail(error)

    def _waits(self, kind: TxnRequestKind) -> bool:
        return any(request.kind is kind for request in self._pending)

    # -- requests ---------------------------------------------------------------------------------

    def next_request(self, now: int) -> tuple[TxnRequest | None, int]:
        """Returns ``(request, 0)`` if ``request`` must be sent now. The request then counts as in
        flight. EndTxn is returned only after every batch has its outcome.

        If no request can be sent now, returns ``(None, delay)``: this method must be called again
        after ``delay`` ms. ``delay`` is NEVER if only a response or a call of the application can
        change this.
        """
        identity, has_incomplete = self._identity, bool(self._incomplete)
        # 0 after an empty transaction was completed without a request: a close that waited for
        # that must not sleep in the poll that follows.
        wait = NEVER
        with identity.lock:
            if identity.transaction.new_partitions and not self._waits(
                TxnRequestKind.ADD_PARTITIONS_TO_TXN
            ):
                result = TransactionalResult("AddPartitionsToTxn")
                self.enqueue(TxnRequest(TxnRequestKind.ADD_PARTITIONS_TO_TXN, result))
            if identity.state is State.UNINITIALIZED and identity.transactional_id is None:
                identity.transition(State.INITIALIZING)
                result = TransactionalResult("InitProducerId")
                self.enqueue(TxnRequest(TxnRequestKind.INIT_PRODUCER_ID, result))
            while self._pending:
                request = self._pending[0]
                if request.kind is TxnRequestKind.END_TXN and has_incomplete:
                    break
                error = identity.last_error
                # The abort needs the coordinator, too.
                if error is not None and request.kind is not TxnRequestKind.FIND_COORDINATOR:
                    self._pending.pop(0).result.fail(error)
                    continue
                if request.retry_at_ms > now:
                    return None, request.retry_at_ms - now
                self._pending.pop(0)
                if request.kind is TxnRequestKind.ADD_PARTITIONS_TO_TXN and not self._adds_any(
                    request
                ):
                    continue
                if request.kind is TxnRequestKind.END_TXN and not self._prepare_end(request):
                    wait = 0
                    continue
                self._in_flight = request
                return request, 0
            return None, wait

    def _adds_any(self, add: TxnRequest) -> bool:
        """Returns True if the queued AddPartitionsToTxn ``add`` has partitions to add. If an abort
        has removed the partitions before the request was sent, marks the request as done and
        returns False.
        """
        transaction = self._identity.transaction
        if transaction.new_partitions or transaction.pending_partitions:
            return True
        add.result.done()
        return False

    def _prepare_end(self, end: TxnRequest) -> bool:
        """Chooses how to end the transaction of the queued EndTxn ``end``, after every batch of the
        transaction has its outcome. Returns True if ``end`` must be sent. Returns False in two
        cases, of which the first that applies counts:

        * ``end`` aborts a transaction of version 1, and it is unknown what has reached the brokers:
          a batch has failed but may be in the log, or AddPartitionsToTxn got no definite response.
          This method then queues InitProducerId in place of ``end``.
        * No broker knows the transaction. This method then completes the transaction without a
          request.
        """
        identity, transaction = self._identity, self._identity.transaction
        unclear = transaction.add_unclear or self._sequences.has_unresolved
        # After the abort, no broker may append a batch of the transaction. With version 2, EndTxn
        # raises the epoch, so brokers reject late batches. With version 1, EndTxn does not raise
        # it. InitProducerId without an epoch aborts the open transaction and raises the epoch.
        # Brokers then reject batches that are still in flight: the old epoch is *fenced*.
        if not end.committed and transaction.version < 2 and unclear:
            identity.transition(State.INITIALIZING)
            transaction.end_sent = True
            self.enqueue(TxnRequest(TxnRequestKind.INIT_PRODUCER_ID, end.result, fences=True))
            return False
        if transaction.started:
            transaction.end_sent = True
            return True
        # No broker knows of the transaction, and nothing was written under this identity.
        identity.complete_transaction(None)
        end.result.done()
        return False

    def note_api_versions(
        self, brokers: Iterable[NodeApiVersions], coordinator: NodeApiVersions | None
    ) -> None:
        """Stores two facts from the API versions of connected brokers. ``brokers`` show the
        transaction version of the cluster. ``coordinator`` shows whether the coordinator can raise
        the epoch of a producer. If ``coordinator`` is None, the second fact stays the same.
        """
        self._identity.note_api_versions(brokers, coordinator)

    def build(self, request: TxnRequest) -> Request[object]:
        """Creates the protocol request for ``request``, with the current producer id, epoch and
        partitions.
        """
        identity = self._identity
        name = identity.transactional_id
        with identity.lock:
            if request.kind is TxnRequestKind.INIT_PRODUCER_ID:
                # A used identity is sent, so that a producer whose id was taken over is fenced.
                # There is none when this request fences: our own epoch would be rejected as old.
                return init_producer_id(name, self._transaction_timeout_ms, identity.used_identity)
            assert name is not None
            if request.kind is TxnRequestKind.FIND_COORDINATOR:
                return find_coordinator([name])
            if request.kind is TxnRequestKind.DESCRIBE_TRANSACTIONS:
                return DescribeTransactionsRequest(transactional_ids=[name])
            if request.kind is TxnRequestKind.ADD_PARTITIONS_TO_TXN:
                partitions = identity.transaction.partitions_to_add()
                return add_partitions_to_txn(name, identity.producer, partitions)
            version = identity.transaction.version
            transaction = PreparedTransaction(name, *identity.producer, version)
            return end_txn(transaction, committed=request.committed)

    def lookup_coordinator(self) -> None:
        """Queues a FindCoordinator request. Called if the coordinator is not known, can't be
        reached, or has changed.
        """
        with self._identity.lock:
            self._lookup_coordinator()

    def _lookup_coordinator(self) -> None:
        self._coordinator = None
        if not self._waits(TxnRequestKind.FIND_COORDINATOR):
            self.enqueue(
                TxnRequest(TxnRequestKind.FIND_COORDINATOR, TransactionalResult("FindCoordinator"))
            )

    def lost(self, request: TxnRequest, at_ms: int) -> None:
        """Puts ``request``, which was sent and got no response, back into the queue. It is sent
        again at ``at_ms`` (monotonic ms).
        """
        asks_for_identity = request.kind is TxnRequestKind.INIT_PRODUCER_ID and not request.fences
        if asks_for_identity or request.kind is TxnRequestKind.ADD_PARTITIONS_TO_TXN:
            self.identity_in_doubt = True
        self.retry(request, at_ms)

    def retry(self, request: TxnRequest, at_ms: int) -> None:
        """Puts ``request`` back into the queue, because it could not be sent, or because its
        response requires a retry. It is sent again at ``at_ms`` (monotonic ms). If the producer has
        failed, ``request`` fails with the producer's error instead.
        """
        identity = self._identity
        with identity.lock:
            self._in_flight = None
            error = identity.last_error
            if identity.state is State.FATAL_ERROR and error is not None:
                request.result.fail(error)
                return
            request.retry_at_ms = at_ms
            self.enqueue(request)

    def request_failed(self, request: TxnRequest, error: KafkaError) -> None:
        """Marks the producer as failed with ``error``, because no attempt of ``request`` can
        succeed.
        """
        with self._identity.lock:
            self._in_flight = None
            request.result.fail(error)
            self._fatal(error)

    # -- responses --------------------------------------------------------------------------------

    def handle_response(self, request: TxnRequest, body: object, broker: str) -> Reaction:
        """Handles the response of ``broker`` to ``request``. Returns the reaction to the response's
        error code.

        If the reaction is RETRY, RETRY_SOON or FIND_COORDINATOR, the caller must put the request
        back into the queue by :meth:`retry`. For any other reaction, the caller has nothing to do.
        """
        with self._identity.lock:
            self._in_flight = None
            if self._identity.state is State.FATAL_ERROR:
                return Reaction.DONE  # its waiter already has the error
            name = self._identity.transactional_id
            what = request.kind.api_name if name is None else f"{request.kind.api_name} of {name}"
            code, message = self._apply_response(request, body)
            reaction = reaction_to(request.kind, code)
            if reaction is Reaction.FIND_COORDINATOR and not self.needs_coordinator(request):
                reaction = Reaction.RETRY
            if code is ErrorCode.CONCURRENT_TRANSACTIONS and self._identity.transaction.partitions:
                # Not the first partitions: so the cause is not the previous transaction, which is
                # completed within milliseconds.
                reaction = Reaction.RETRY
            if reaction is Reaction.DONE:
                request.result.done()
            elif reaction is Reaction.FIND_COORDINATOR:
                self._lookup_coordinator()
            elif reaction not in (Reaction.RETRY, Reaction.RETRY_SOON):
                self._refused(request, reaction, code, f"{what} on broker {broker}", message)
            return reaction

    def _apply_response(self, request: TxnRequest, body: object) -> tuple[ErrorCode, str | None]:
        """Stores the content of a successful response, such as a new producer id. Returns the
        response's error code, and its error message or None.

        If the response has an error for each of several partitions, returns the most severe error.
        """
        if isinstance(body, FindCoordinatorResponse):
            found = next(iter(body.coordinators), body)  # below version 4 there is no list
            if found.error_code is ErrorCode.NONE:
                self._coordinator = Node(found.node_id, found.host, found.port)
            return found.error_code, found.error_message
        if isinstance(body, DescribeTransactionsResponse):
            [one] = body.transaction_states
            if one.error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:  # expired
                self.last_state = "Dead"
                return ErrorCode.NONE, None
            self.last_state = one.transaction_state
            return one.error_code, None
        if isinstance(body, AddPartitionsToTxnResponse):
            return self._apply_partitions(body)
        if isinstance(body, InitProducerIdResponse):
            if body.error_code is ErrorCode.NONE:
                if self._identity.transactional_id is not None:
                    self._sequences.reset()
                self._identity.set_producer_id_and_epoch(
                    ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
                )
            return body.error_code, None
        assert isinstance(body, EndTxnResponse), f"{request.kind.api_name}: {body!r}"
        if body.error_code is ErrorCode.NONE:
            self._sequences.reset()
            successor = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
            self._identity.complete_transaction(successor)
        return body.error_code, None

    def _apply_partitions(self, body: AddPartitionsToTxnResponse) -> tuple[ErrorCode, str | None]:
        transaction, kind = self._identity.transaction, TxnRequestKind.ADD_PARTITIONS_TO_TXN
        errors = {
            TopicPartition(topic.name, one.partition_index): one.partition_error_code
            for topic in body.results_by_topic
            for one in topic.results_by_partition
        }
        failed = {tp: code for tp, code in errors.items() if code is not ErrorCode.NONE}
        if not failed:
            transaction.partitions_answered(errors, added=True)
            return ErrorCode.NONE, None
        # The most severe. OPERATION_NOT_ATTEMPTED is a consequence of another partition's error.
        code = max(
            failed.values(),
            key=lambda c: (
                reaction_to(kind, c).severity,
                c is not ErrorCode.OPERATION_NOT_ATTEMPTED,
            ),
        )
        if reaction_to(kind, code).severity > Reaction.FIND_COORDINATOR.severity:
            transaction.partitions_answered(errors, added=False)
        named = ", ".join(f"{tp} {c.name}" for tp, c in sorted(failed.items())[:_MAX_NAMED])
        return code, f"{code.info.meaning} ({named})"

    def _refused(
        self,
        request: TxnRequest,
        reaction: Reaction,
        code: ErrorCode,
        where: str,
        message: str | None,
    ) -> None:
        """Fails ``request`` with the error ``code``, and performs ``reaction``, which is more
        severe than a retry. The transaction or the producer is then in an error state. There is one
        exception: if InitProducerId was unauthorized, ``init_transactions`` can be called again.
        """
        identity = self._identity
        if reaction is Reaction.FENCED:
            code, message = ErrorCode.PRODUCER_FENCED, None
        error = code.error(where, message)
        request.result.fail(error)
        if identity.transactional_id is None:  # there is nothing to abort, or to call again
            self._fatal(error)
            return
        if reaction is Reaction.UNAUTHORIZED:
            if identity.state is State.INITIALIZING and not request.fences:
                identity.transition(State.UNINITIALIZED)
                return
            reaction = Reaction.ABORTABLE
        if reaction is Reaction.ABORTABLE_WITH_NEW_EPOCH and identity.can_raise_epoch:
            reaction = Reaction.ABORTABLE
        # A failed abort can't be aborted again.
        aborts = request.fences or (
            request.kind is TxnRequestKind.END_TXN and not request.committed
        )
        if reaction is Reaction.ABORTABLE and not aborts and identity.state in _CAN_ABORT:
            identity.transition_to_abortable_error(error)
        else:
            self._fatal(error)

    def _fatal(self, error: KafkaError) -> None:
        self._identity.transition_to_fatal_error(error)
        self.fail_all(error)


class TxnRequestSender:
    """Sends the requests of a :class:`TxnRequestQueue`, one at a time.

    This class never waits. While a request waits for a response, a backoff or a connection, batches
    are sent to other brokers. The transaction manager decides which batches can be sent. (Java's
    sender waits for the response, and sends no data meanwhile.)
    """

    def __init__(
        self,
        client: KafkaClient,
        metadata: Metadata,
        requests: TxnRequestQueue,
        config: ProducerConfig,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._requests = requests
        self._config = config
        self._backoff = TxnBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self._in_flight = False

    def maybe_request(self, now: int) -> int:
        """Sends the next request of the queue, if it can be sent now.

        Returns the time in ms after which this method must be called again. The caller uses it as
        the timeout of the next poll. The time is ``NEVER`` if only a response or a call of the
        application can make another request possible.
        """
        requests = self._requests
        if self._in_flight or not requests.waiting:
            return NEVER
        request, wait = requests.next_request(now)
        if request is None:
            return wait
        if requests.needs_coordinator(request):
            node = requests.coordinator
            if node is None:
                requests.lookup_coordinator()
                requests.retry(request, request.retry_at_ms)
                return self.maybe_request(now)  # FindCoordinator goes first
        else:
            node = self._client.least_loaded_node(now)
        if node is None:
            requests.retry(request, now + self._config.retry_backoff_ms)
            # All nodes are busy until a response arrives. With retry.backoff.ms=0 this would spin.
            return max(self._config.retry_backoff_ms, MIN_RETRY_MS)
        if not self._client.ready(node, now):
            return self._not_ready(request, node, now)
        self._send(request, node, now)
        return NEVER

    def _not_ready(self, request: TxnRequest, node: Node, now: int) -> int:
        """Puts ``request`` back into the queue, because the connection to ``node`` is not ready.
        Returns the time in ms until the next try.

        If the connection has failed, the coordinator is looked up again. If the authentication has
        failed, the producer fails.
        """
        requests = self._requests
        refused = self._client.authentication_error(node)
        if refused is not None:
            requests.request_failed(request, refused)
            return 0
        wait = self._client.poll_delay_ms(node, now)
        if self._client.connection_failed(node):
            wait = min(wait, max(self._config.retry_backoff_ms, MIN_RETRY_MS))
            self._look_elsewhere(request)
            requests.retry(request, now + self._backoff.plain(request))
            if requests.needs_coordinator(request):
                wait = min(wait, self.maybe_request(now))
            return wait
        requests.retry(request, request.retry_at_ms)
        return wait

    def _send(self, request: TxnRequest, node: Node, now: int) -> None:
        client = self._client
        brokers = (client.api_versions(node_id) for node_id in self._metadata.cluster.nodes)
        versions = client.api_versions(node.id)
        self._requests.note_api_versions(
            [known for known in (*brokers, versions) if known is not None],
            versions if self._requests.needs_coordinator(request) else None,
        )
        self._in_flight = True
        client.send(
            client.new_client_request(
                node.id,
                self._requests.build(request),
                now,
                request_timeout_ms=self._config.request_timeout_ms,
                callback=lambda response: self._handle_response(request, node, response),
            ),
            now,
        )

    def _handle_response(self, request: TxnRequest, node: Node, response: ClientResponse) -> None:
        self._in_flight = False
        requests, now = self._requests, response.received_ms
        if isinstance(response.error, ApiError):
            requests.request_failed(request, response.error)
            return
        if response.body is None:
            # A disconnect, a timeout or an invalid response: the outcome is unknown. All of these
            # requests may be sent twice.
            self._look_elsewhere(request)
            requests.lost(request, now + self._backoff.plain(request))
            return
        reaction = requests.handle_response(request, response.body, str(node))
        if reaction is Reaction.RETRY_SOON:
            requests.retry(request, now + self._backoff.soon(request))
        elif reaction in (Reaction.RETRY, Reaction.FIND_COORDINATOR):
            requests.retry(request, now + self._backoff.plain(request))

    def _look_elsewhere(self, request: TxnRequest) -> None:
        """Prepares to send ``request`` to another node, because the chosen node has failed. If
        the coordinator must handle ``request``, queues FindCoordinator. Otherwise updates the
        metadata.
        """
        if self._requests.needs_coordinator(request):
            self._requests.lookup_coordinator()
        else:
            self._metadata.request_update()
