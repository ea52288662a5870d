"""The loop of the network thread: sends batches to brokers and handles the responses (Java's
``Sender``).

:meth:`Sender.run` has the phases of the thread, and :meth:`Sender.run_once` is one iteration of the
loop. After each response, the sender completes, splits, retries or fails the batches of the
request. ``partition_sequences.py`` assigns the sequence numbers.

The thread is a daemon. It runs all methods, except :meth:`Sender.initiate_close`,
:meth:`Sender.force_close` and :meth:`Sender.on_wire`, which other threads call. After an unexpected
exception in the thread, the producer has failed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from spark_kafka_sink.base.clock import NEVER, Clock
from spark_kafka_sink.base.errors import (
    ApiError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    TransactionAbortedError,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client.client_request import ClientResponse
from spark_kafka_sink.network.client.kafka_client import KafkaClient
from spark_kafka_sink.network.client.metadata import Metadata
from spark_kafka_sink.producer.accumulator.batch_drainer import BatchDrainer
from spark_kafka_sink.producer.accumulator.batch_returns import BatchReturns
from spark_kafka_sink.producer.accumulator.partition_load import PartitionLoad
from spark_kafka_sink.producer.accumulator.producer_batch import BatchState, ProducerBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.lifecycle import NetworkLink
from spark_kafka_sink.producer.metrics.produce_recorder import ProduceRecorder
from spark_kafka_sink.producer.sender.in_flight_batches import InFlightBatches
from spark_kafka_sink.producer.sender.produce_errors import (
    code_of_lost_request,
    delivery_timeout_error,
    doubt_error,
    refusal_error,
    unexpected_error,
)
from spark_kafka_sink.producer.sender.request_sizes import RequestSizes
from spark_kafka_sink.producer.transaction.partition_sequences import (
    UNCLEAR_ANSWERS,
    Action,
    Answer,
    Verdict,
)
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager, is_fatal
from spark_kafka_sink.producer.transaction.txn_request_queue import TxnRequestSender
from spark_kafka_sink.protocol.cluster import Cluster, TopicPartition
from spark_kafka_sink.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    new_produce_data,
)
from spark_kafka_sink.records.compression import Codec

_log = logging.getLogger(__name__)

_MIN_VERSION = 3
_MAX_VERSION = 12
_MAX_POLL_MS = 1


#: The error codes for invalid content of a batch. If another copy of the batch is still on its way
#: to the broker, that copy gets the same error code.
_OF_CONTENT = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)


def answer_of(code: ErrorCode, *, lost: bool = False) -> Answer:
    """Converts the error code of a batch's response to a kind of response for
    ``partition_sequences.py``.

    ``lost`` is True if no response arrived. ``code`` then describes the reason, such as a
    disconnect.
    """
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Answer.ACKNOWLEDGED
    if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return Answer.OUT_OF_ORDER
    if code is ErrorCode.UNKNOWN_PRODUCER_ID:
        return Answer.UNKNOWN_PRODUCER
    if code is ErrorCode.INVALID_PRODUCER_EPOCH:
        return Answer.OLD_EPOCH
    if code.retriable:
        return Answer.LOST if lost else Answer.UNCLEAR
    return Answer.INVALID if code in _OF_CONTENT else Answer.REFUSED


#: The action for each kind of response when batches have no sequence.
_WITHOUT_SEQUENCE = {
    Answer.ACKNOWLEDGED: Action.COMPLETE,
    Answer.UNCLEAR: Action.RESEND,
    Answer.LOST: Action.RESEND,
    Answer.OUT_OF_ORDER: Action.FAIL,
    Answer.UNKNOWN_PRODUCER: Action.FAIL,
    Answer.INVALID: Action.FAIL,
    Answer.OLD_EPOCH: Action.FAIL,
    Answer.REFUSED: Action.FAIL,
}


def _kind(code: ErrorCode, response: ClientResponse) -> Answer:
    # NETWORK_EXCEPTION with a body: the response omits the partition.
    lost = response.body is None or code is ErrorCode.NETWORK_EXCEPTION
    return answer_of(code, lost=lost)


_SIZE_OF = attrgetter("size_in_bytes")


def _size(batches: Mapping[TopicPartition, ProducerBatch]) -> int:
    """The total size of the batches of a request, in bytes."""
    return sum(map(_SIZE_OF, batches.values()))


class Sender:
    """Sends the batches of the accumulator until the producer is closed.

    ``transaction_manager`` is None for a producer without idempotence. If a batch of such a
    producer fails, the effect depends on the batch:

    * It has only records of ``send``: later batches are still sent.
    * It has rows of ``send_columns``: the batches that were never sent also fail. Sent batches are
      still retried.

    A producer without idempotence keeps the order of records only with
    max.in.flight.requests.per.connection=1.
    """

    def __init__(
        self,
        client: KafkaClient,
        link: NetworkLink,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        drainer: BatchDrainer,
        returns: BatchReturns,
        load: PartitionLoad,
        transaction_manager: TransactionManager | None,
        config: ProducerConfig,
        clock: Clock,
        recorder: ProduceRecorder,
    ) -> None:
        """Creates the sender. Other threads call ``link`` to wake up ``client``. When the sender
        ends, it removes the client from the link.
        """
        self._client = client
        self._link = link
        self._metadata = metadata
        self._accumulator = accumulator
        self._lifecycle = accumulator.lifecycle
        self._drainer = drainer
        self._returns = returns
        self._load = load
        self._transaction_manager = transaction_manager
        self._config = config
        self._clock = clock
        self._recorder = recorder
        self._guarantee_message_order = config.max_in_flight_requests_per_connection == 1
        self._min_version = max(_MIN_VERSION, Codec.of(config).type.min_produce_version)
        self._transactional = False
        self._requester: TxnRequestSender | None = None
        if transaction_manager is not None:
            self._transactional = transaction_manager.is_transactional
            requests = transaction_manager.requests
            self._requester = TxnRequestSender(client, metadata, requests, config)
        self._in_flight = InFlightBatches(config.delivery_timeout_ms)
        self._sizes = RequestSizes(config)
        #: With maxLeadersPerTask, the producer id is requested from the leader of the first batch:
        #: any other broker would need a connection that no batch uses.
        self._waits_for_leader = config.max_leaders_per_task is not None and not self._transactional

    # -- phases -----------------------------------------------------------------------------------

    def run(self) -> None:
        """The function of the network thread. Sends batches until the producer is closed. Then
        sends the queued batches, aborts an open transaction, and closes the client. After a fatal
        error or a forced close, only fails the batches and closes the client.
        """
        life = self._lifecycle
        try:
            while not life.closed and life.fatal is None:
                self.run_once()
            while not life.forced and life.fatal is None and self._has_pending():
                self.run_once()
            while not life.forced and life.fatal is None and self._must_still_abort():
                self.run_once()
        except BaseException as exception:  # noqa: BLE001 - every waiter must get the error
            self._fail_producer(unexpected_error(exception))
        finally:
            self._end()

    def _has_pending(self) -> bool:
        return self._accumulator.has_undrained or self._client.in_flight_request_count() > 0

    def _must_still_abort(self) -> bool:
        """Returns True while the closing producer must wait for the end of its transaction. Called
        when no batch is queued and no request is in flight.

        If a transaction is open and is neither being committed nor aborted, this method begins its
        abort. A prepared transaction is not aborted.
        """
        manager = self._transaction_manager
        if manager is None:
            return False
        if not manager.has_ongoing_transaction:
            # InitProducerId may still have to abort the transaction in place of EndTxn.
            return manager.is_transactional and manager.requests.fencing
        if not manager.is_completing:
            _log.info("aborting the open transaction of %s", manager.transactional_id)
            manager.abort_on_close()
        # If the coordinator does not respond in time, ``force_close`` ends the wait. The brokers
        # then abort the transaction after transaction.timeout.ms.
        return True

    def _end(self) -> None:
        """Ends the sender: fails all waiting calls, and closes the connections. After a failure or
        a forced close, also fails all batches.
        """
        error = self._lifecycle.fatal
        closed = KafkaError("the producer was closed")
        try:
            if error is not None:
                self._accumulator.abort_incomplete_batches(error)
            elif self._lifecycle.forced:
                closed = KafkaError(
                    "the producer was closed before all its records were acknowledged",
                    hint="close() waits for them until its timeout expires",
                )
                self._accumulator.abort_incomplete_batches(closed)
            if self._transaction_manager is not None:
                self._transaction_manager.close(error or closed)
            self._metadata.close(error or closed)
        finally:
            self._link.connect(None)
            # After a failure, no Produce request of the failed attempt stays in flight.
            self._client.close()

    def run_once(self) -> None:
        """Runs one iteration of the loop: sends a request for the producer id or the transaction,
        then sends batches, then polls the network.
        """
        now = self._clock.now_ms()
        timeout = NEVER
        manager = self._transaction_manager
        if self._transactional and manager is not None and manager.must_abort:
            timeout = self._abort_undrained_batches(manager)
        if self._waits_for_leader:
            self._connect_to_first_leader(now)
        if self._requester is not None and not self._waits_for_leader:
            # The accumulator drains nothing without a producer id, but connections open meanwhile.
            timeout = min(
                timeout, self._requester.maybe_request(now), self._send_producer_data(now)
            )
        else:
            timeout = self._send_producer_data(now)
        parked = timeout >= NEVER and self._is_idle()
        if parked is not self._metadata.parked:
            self._metadata.set_parked(parked=parked)
        if self._lifecycle.fatal is None:
            self._client.poll(timeout, now)
            for node_id, reason in self._client.take_failures().items():
                if node_id >= 0:  # a bootstrap server has no id of its own yet
                    self._recorder.failed_at(node_id, reason)

    def _connect_to_first_leader(self, now: int) -> None:
        """Begins a connection to a node that leads a partition with a queued batch. The request for
        the producer id then goes to this node, because a connecting node is preferred to a
        disconnected node. If the connection fails, the request goes to another node.
        """
        cluster = self._metadata.cluster
        leader = self._drainer.first_leader(cluster)
        if leader is not None:
            self._waits_for_leader = False
            self._client.ready(cluster.nodes[leader], now)

    def _is_idle(self) -> bool:
        """True if the loop has nothing to do until another thread wakes it: every batch has its
        outcome, and no caller waits for metadata or for a transaction.
        """
        manager = self._transaction_manager
        return not (
            self._accumulator.has_undrained
            or self._client.in_flight_request_count()
            or self._in_flight.has_unproven
            or self._metadata.has_waiters
            or (manager is not None and manager.requests.waiting)
        )

    def _abort_undrained_batches(self, manager: TransactionManager) -> int:
        """Fails all batches that were never sent. The caller has checked that their transaction has
        failed or is being aborted.

        Returns the poll timeout in ms:

        * 0 if this call has emptied all queues, and no request is in flight. EndTxn can then be
          sent immediately.
        * NEVER in all other cases.
        """
        if self._accumulator.has_undrained:
            error = manager.last_error or TransactionAbortedError(
                "Failing batch since transaction was aborted",
            )
            self._accumulator.abort_undrained_batches(error)
            return NEVER if self._has_pending() else 0
        return NEVER

    def on_wire(self, now: int) -> dict[int, tuple[int, int]]:
        """The number of batches in flight to each node, and the age of the oldest of these batches
        (see ``InFlightBatches.by_node``). Thread-safe.
        """
        return self._in_flight.by_node(now)

    def initiate_close(self) -> None:
        """Begins the close: new records are rejected. The network thread sends the queued records,
        then ends. Thread-safe.
        """
        self._accumulator.close()
        self._link.wakeup()

    def force_close(self) -> None:
        """Ends the network thread without sending the queued records. All unacknowledged batches
        fail. Thread-safe.
        """
        self._accumulator.close(forced=True)
        self._link.wakeup()

    def _fail_producer(self, error: KafkaError) -> None:
        if self._transaction_manager is None:
            self._lifecycle.stop(error)
        else:
            self._transaction_manager.transition_to_fatal_error(error)

    # -- sending ----------------------------------------------------------------------------------

    def _send_producer_data(self, now: int) -> int:
        """Fails expired batches, then sends the batches that can be sent now. Returns the poll
        timeout in ms.
        """
        in_flight, accumulator = self._in_flight, self._accumulator
        expiry = min(in_flight.next_expiry_ms, accumulator.next_expiry_time_ms())
        if now >= expiry:
            self._expire_batches(now)
            if self._lifecycle.fatal is not None:
                return 0
            expiry = min(in_flight.next_expiry_ms, accumulator.next_expiry_time_ms())
        cluster = self._metadata.cluster
        result = self._drainer.ready(cluster, now)
        if result.unknown_leader_topics:
            self._metadata.add_topics(result.unknown_leader_topics, now)
            self._metadata.request_update()
        timeout = result.next_ready_check_delay_ms
        if expiry < NEVER:
            timeout = min(timeout, max(0, expiry - now))
        if not result.ready_nodes:
            return timeout
        sendable, not_ready_timeout = self._sendable(cluster, result.ready_nodes, now)
        if sendable and self._send_to(cluster, sendable, now) < len(sendable):
            # A node was ready, but no batch was drained for it. The reason to send an open batch
            # early (a thread that waited for memory) has just gone.
            timeout = min(timeout, _MAX_POLL_MS)
        # A node can take the next request once this one is written, which wakes the poll.
        return min(timeout, not_ready_timeout)

    def _send_to(self, cluster: Cluster, nodes: Sequence[int], now: int) -> int:
        """Sends a Produce request to each node of ``nodes`` that has batches to send. Returns the
        number of requests.
        """
        if self._transaction_manager is not None:
            self._transaction_manager.expire_acks(now)
        drained = self._drainer.drain(cluster, {n: self._sizes.of(n) for n in nodes}, now)
        for node_id, batches in drained.items():
            self._in_flight.sent(batches, node_id)
            if self._guarantee_message_order:
                for batch in batches:
                    self._drainer.mute_partition(batch.tp)
            self._send_produce_request(node_id, batches, now)
        return len(drained)

    def _sendable(self, cluster: Cluster, ready: Iterable[int], now: int) -> tuple[list[int], int]:
        """Selects the nodes of ``ready`` whose connection accepts a request now. Returns their ids,
        and the time in ms until the connection of another node must be checked again. If an
        authentication at a node has failed, marks the producer as failed.
        """
        sendable = []
        timeout = NEVER
        for node_id in ready:
            node = cluster.nodes[node_id]
            can_drain = self._client.ready(node, now)
            if self._config.partitioner_availability_timeout_ms > 0:
                self._load.update_node_latency_stats(node_id, now, can_drain=can_drain)
            if can_drain:
                sendable.append(node_id)
                continue
            delay = self._client.poll_delay_ms(node, now)
            if delay < NEVER:  # not connected
                timeout = min(timeout, delay)
                error = self._client.authentication_error(node)
                if error is not None:
                    self._fail_producer(error)
        return sendable, timeout

    def _send_produce_request(
        self, node_id: int, batches: Sequence[ProducerBatch], now: int
    ) -> None:
        """Sends one Produce request with ``batches`` to a node. It contains at most one batch of
        each partition.
        """
        config, manager = self._config, self._transaction_manager
        by_partition = {batch.tp: batch for batch in batches}
        data = [new_produce_data((b.tp, b.buffers, b.size_in_bytes)) for b in batches]
        lowest, highest = (0, _MAX_VERSION) if manager is None else manager.produce_versions
        request = ProduceRequest(
            config.acks,
            config.request_timeout_ms,
            tuple(data),
            None if manager is None else manager.transactional_id,
            max_version=highest,
            min_version=max(self._min_version, lowest),
        )
        client_request = self._client.new_client_request(
            node_id,
            request,
            now,
            expect_response=config.acks != 0,
            request_timeout_ms=config.request_timeout_ms,
            callback=lambda response: self._handle_produce_response(response, by_partition),
        )
        self._recorder.request_sent(batches, now)
        self._client.send(client_request, now)

    # -- delivery.timeout.ms ----------------------------------------------------------------------

    def _expire_batches(self, now: int) -> None:
        """Fails the batches that are older than delivery.timeout.ms: queued batches, batches in
        flight, and sent batches that wait outside of their queues.
        """
        causes: dict[TopicPartition, tuple[str, str | None]] = {}
        for batch in (*self._returns.expired(now), *self._in_flight.expired(now)):
            error = self._timeout_error(batch, now, causes)
            self._fail_batch(batch, error, unclear=batch.has_sequence)
        self._move_on(now)

    def _move_on(self, now: int) -> None:
        """Finds the partitions that change to the next producer epoch now. Puts the batches of
        these partitions back into their queues, to send the batches again with new sequence
        numbers.
        """
        manager = self._transaction_manager
        if manager is None or not manager.moving:
            return
        batches = manager.take_moved()
        if batches:
            self._in_flight.forget(batches)
            self._returns.begin_again(batches, now)

    def _timeout_error(
        self,
        batch: ProducerBatch,
        now: int,
        causes: dict[TopicPartition, tuple[str, str | None]] | None = None,
    ) -> KafkaTimeoutError:
        """Creates the error for ``batch``, which has no outcome after delivery.timeout.ms. The
        message has the first of these causes that is known:

        1. the last response to ``batch``, or the broker that has not responded to ``batch``
        2. the last response to an earlier batch of the partition, or the broker that has not
           responded to that batch
        3. the leader of the partition, and the addresses that were tried

        ``causes`` is one dict for all batches that expire together. This method stores the first
        cause 1 of each partition there, and uses it as cause 2 for the later batches.
        """
        causes = {} if causes is None else causes
        status, hint = self._status(batch)
        if status:
            causes.setdefault(batch.tp, (status, hint))
            return delivery_timeout_error(batch, now, status, hint)
        manager = self._transaction_manager
        before = [] if manager is None else manager.unresolved(batch.tp)
        # Batches of a partition are sent in order: the first batch has the cause.
        cause, hint = causes.get(batch.tp) or (self._status(before[0]) if before else ("", None))
        if cause:
            cause = f"an earlier batch of its partition has no outcome: {cause}"
        else:
            known = self._metadata.leader_known(batch.tp)
            cause = f"{known}; {self._metadata.addresses_tried()}"
        done = "sent, and waits to be sent again" if batch.attempts else "never sent"
        return delivery_timeout_error(batch, now, f"it was {done}: {cause}", hint)

    def _status(self, batch: ProducerBatch) -> tuple[str, str | None]:
        """Two texts for an error message: the last response to ``batch``, and the hint for its
        error code.

        Without a response, the first text depends on the state of the batch. For a batch in flight,
        it names the broker that has not responded. For any other batch, it is empty.
        """
        last, node = self._in_flight.last_answer(batch), self._in_flight.node_of(batch)
        if last is not None:
            broker, code = last
            meaning = code.info.meaning
            status = f"the last response, from broker {broker}, was {code.name} ({meaning})"
            return status, code.info.hint
        if node is not None:
            self._recorder.failed_at(node, f"{batch.tp}: it has not responded")
            return f"broker {self._name(node)} has not responded", None
        return "", None

    # -- responses --------------------------------------------------------------------------------

    def _handle_produce_response(
        self, response: ClientResponse, batches: Mapping[TopicPartition, ProducerBatch]
    ) -> None:
        """Handles the outcome of each batch of a Produce request, also if the request got no
        response.
        """
        node_id = response.request.destination
        self._in_flight.completed(batches.values())
        answers: list[PartitionProduceResponse] = []
        body = response.body
        if isinstance(body, ProduceResponse):
            latency, now = response.latency_ms, response.received_ms
            self._recorder.request_answered(node_id, latency, body.throttle_time_ms, now)
            self._sizes.answered(node_id, _size(batches), latency)
            self._update_leaders(body)
            answers = [answer for answer in body.partitions if answer.tp in batches]
            code, message = ErrorCode.NETWORK_EXCEPTION, "the response omits this partition"
        elif response.error is None and not response.disconnected:
            code, message = ErrorCode.NONE, ""  # acks=0: the broker does not respond
        else:
            code, message = code_of_lost_request(response)
            self._sizes.lost(node_id, _size(batches))
        if len(answers) < len(batches):
            answered = {answer.tp for answer in answers}
            answers += [
                PartitionProduceResponse(tp, code, -1, error_message=message or None)
                for tp in batches
                if tp not in answered
            ]
        done: list[ProducerBatch] = []
        try:
            for answer in answers:
                self._complete_batch(batches[answer.tp], answer, response, done)
        finally:
            self._report(done)
        self._move_on(response.received_ms)

    def _report(self, done: list[ProducerBatch]) -> None:
        """Reports the acknowledged batches in ``done`` to the recorder, and frees their memory."""
        if done:
            self._recorder.batches_done(done)
            self._release(*done)
            done.clear()

    def _update_leaders(self, body: ProduceResponse) -> None:
        """Updates the metadata with the new leaders that a Produce response contains (KIP-951). The
        retry then goes to the new leader without a Metadata request.
        """
        for answer in body.partitions:
            if answer.leader is not None and answer.error.refreshes_metadata:
                leader, epoch = answer.leader
                self._metadata.update_leader(answer.tp, leader, epoch, body.node_endpoints)

    def _complete_batch(
        self,
        batch: ProducerBatch,
        answer: PartitionProduceResponse,
        response: ClientResponse,
        done: list[ProducerBatch],
    ) -> None:
        """Handles the response ``answer`` to ``batch``: completes, splits, retries or fails the
        batch (Java's Sender.completeBatch).

        An acknowledged batch is added to ``done``. The caller reports all batches in ``done``
        together, after the last batch of the request.
        """
        now, code, manager = response.received_ms, answer.error, self._transaction_manager
        node_id = response.request.destination
        if self._guarantee_message_order:
            self._drainer.unmute_partition(batch.tp)
        if batch.state is BatchState.DONE:
            self._handle_late_response(batch, _kind(code, response))
            return
        if code is not ErrorCode.NONE:
            self._in_flight.answered(batch, self._name(node_id), code)
            if code.refreshes_metadata:
                self._metadata.request_update()
            if self._split(batch, code, now):
                return
        kind = Answer.ACKNOWLEDGED if code is ErrorCode.NONE else _kind(code, response)
        verdict: Verdict[ProducerBatch] = (
            Verdict(_WITHOUT_SEQUENCE[kind])
            if manager is None
            else manager.handle_produce_response(batch, kind, answer.base_offset, now)
        )
        if verdict.action is Action.COMPLETE:
            if verdict.proven or code is not ErrorCode.NONE:
                self._note_duplicates(batch, code, verdict.proven)
            batch.complete(answer.base_offset, answer.log_append_time_ms)
            done.append(batch)
            return
        self._report(done)  # the attempt may fail now: they count, and are not failed with it
        if verdict.action is Action.FAIL:
            # An earlier attempt may still reach a broker, unless this was the first.
            unclear = kind in UNCLEAR_ANSWERS or batch.in_retry
            error = self._error(batch, answer, response, verdict.reason)
            self._recorder.failed_at(node_id, f"{batch.tp}: {error.message}")
            self._fail_batch(batch, error, answer, unclear=unclear)
        elif batch.has_reached_delivery_timeout(self._config.delivery_timeout_ms, now):
            self._fail_batch(batch, self._timeout_error(batch, now), unclear=True)
        elif verdict.action is Action.AWAIT_PROOF:
            self._in_flight.await_proof(batch)
        elif kind in UNCLEAR_ANSWERS and batch.attempts >= self._config.retries:
            error = self._error(batch, answer, response, "no retries are left")
            self._recorder.failed_at(node_id, f"{batch.tp}: {error.message}")
            self._fail_batch(batch, error, unclear=True)
        else:
            _log.debug("retrying %s after %s", batch.tp, code.name)
            error = self._error(batch, answer, response, None)
            self._recorder.batch_retried(batch, error, node_id)
            self._retry(batch, verdict.action, code, now)

    def _retry(self, batch: ProducerBatch, action: Action, code: ErrorCode, now: int) -> None:
        """Prepares to send ``batch`` again, as ``action`` says:

        * RESEND: the batch is put back into its queue, and is sent again after a backoff.
        * MOVE: the batch waits outside of its queue. :meth:`_move_on` puts it back when its
          partition changes to the next producer epoch.
        """
        if action is Action.MOVE:
            self._in_flight.await_proof(batch)
        else:
            soon = code is ErrorCode.CONCURRENT_TRANSACTIONS
            self._returns.reenqueue(batch, now, soon=soon)

    def _split(self, batch: ProducerBatch, code: ErrorCode, now: int) -> bool:
        """Splits ``batch`` if ``code`` is MESSAGE_TOO_LARGE and the batch has more than one record.
        Returns True if the batch was split.
        """
        if (
            code is not ErrorCode.MESSAGE_TOO_LARGE
            or batch.record_count < 2
            or batch.has_reached_delivery_timeout(self._config.delivery_timeout_ms, now)
        ):
            return False
        self._recorder.batch_split(batch)
        self._returns.split_and_reenqueue(batch)
        self._in_flight.forget((batch,))
        return True

    def _handle_late_response(self, batch: ProducerBatch, answer: Answer) -> None:
        """Handles the response to a batch that already has an outcome: the batch has expired, or
        the acknowledgement of a later batch has proved that ``batch`` is in the log.

        Frees the memory of the batch, which the socket does not read any more. If the abort of the
        transaction waits for this response, the abort can now continue.
        """
        if self._transaction_manager is not None:
            self._transaction_manager.handle_late_response(batch, answer)
        self._release(batch)

    def _note_duplicates(
        self,
        batch: ProducerBatch,
        code: ErrorCode,
        proven: Iterable[ProducerBatch],
    ) -> None:
        """Completes the batches in ``proven``, and counts duplicates.

        ``proven`` are earlier batches that must be in the log, because the broker has acknowledged
        ``batch``. They are completed with an unknown offset, and count as duplicates. If ``code``
        is DUPLICATE_SEQUENCE_NUMBER, ``batch`` itself also counts as a duplicate.
        """
        if code is not ErrorCode.NONE:
            self._recorder.batch_duplicate(batch)
        for earlier in proven:
            self._recorder.batch_duplicate(earlier)
            self._returns.discard(earlier)
            earlier.complete(-1, -1)
            self._recorder.batches_done((earlier,))
            if earlier not in self._in_flight:
                self._release(earlier)

    def _fail_batch(
        self,
        batch: ProducerBatch,
        error: ApiError,
        answer: PartitionProduceResponse | None = None,
        *,
        unclear: bool,
    ) -> None:
        """Fails ``batch`` permanently with ``error``. The futures of its records get the error.
        ``unclear`` is True if records of the batch may be in the log.

        The failure can also have one of these effects:

        * In a transaction, the transaction can then only be aborted. In some cases the whole
          producer fails (``TransactionManager.handle_failed_batch``).
        * Outside of transactions, a failed batch with rows of ``send_columns`` makes the producer
          fail (DESIGN.md, rule R2).
        * Outside of transactions, if the batch has only records of ``send`` and the producer is
          idempotent, the partition changes to the next producer epoch. If the producer can't
          continue, it fails (:meth:`_fails_alone`).
        """
        manager = self._transaction_manager
        failed, fails_alone = [batch], True
        # The transaction is marked as failed before the batch is reported. Otherwise a flush that
        # waits for the batch could return first, and the writer would prepare the transaction, as
        # if it had not failed.
        if manager is not None and manager.is_transactional:
            failed += manager.handle_failed_batch(batch, error, unclear=unclear)
        elif manager is not None:
            fails_alone = self._fails_alone(batch, error, manager)
            if fails_alone:
                failed += manager.handle_lost_sequence(batch)
        record_errors = () if answer is None else answer.record_errors
        for one in failed:
            if one is batch:
                one.complete_exceptionally(error, record_errors)
            else:  # in a transaction, the error is that of all its records
                one.complete_exceptionally(
                    error if self._transactional else doubt_error(one, error)
                )
            if one not in self._in_flight:
                self._release(one)
        if not fails_alone:
            self._fail_producer(error)

    @staticmethod
    def _fails_alone(batch: ProducerBatch, error: ApiError, manager: TransactionManager) -> bool:
        """Returns True if an idempotent producer can continue after ``batch`` has failed with
        ``error``. It can't continue in these cases:

        * ``error`` concerns the whole producer (see ``is_fatal``).
        * ``batch`` has rows of ``send_columns``.
        * Another batch of the partition has such rows and no known outcome. These rows never get a
          new sequence number (DESIGN.md, rule R2).
        """
        beside = manager.unresolved(batch.tp) if batch.has_sequence else []
        return not is_fatal(error) and all(one.has_futures_only for one in (batch, *beside))

    def _release(self, *batches: ProducerBatch) -> None:
        """Frees the memory of ``batches``, which have an outcome and are not in flight."""
        self._in_flight.forget(batches)
        self._accumulator.deallocate(*batches)

    def _error(
        self,
        batch: ProducerBatch,
        answer: PartitionProduceResponse,
        response: ClientResponse,
        reason: str | None,
    ) -> ApiError:
        broker = self._name(response.request.destination)
        return refusal_error(batch, answer, response, broker, reason)

    def _name(self, node_id: int) -> str:
        node = self._metadata.cluster.nodes.get(node_id)
        return f"(id {node_id})" if node is None else str(node)
