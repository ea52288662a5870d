"""Writes records to the commit log, in one transaction for each change of a key's state.

A :class:`LogWriter` writes one key, with one transactional id. The steps of one write are:

1. AddPartitionsToTxn, only with transactions of version 1 (before KIP-890).
2. Produce, with one or more batches.
3. A check by the caller, which may raise an exception.
4. EndTxn(commit).

If step 1, 2 or 3 fails, nothing is committed. The writer aborts the transaction, or the broker
aborts it when it times out. If step 4 gets the error code NONE, the records are committed. If it
gets a definite error, nothing is committed. If it gets no definite response, it is unknown whether
the records are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from spark_kafka_sink.admin.call import Call, RetryDecision, by_size, retry_decision
from spark_kafka_sink.admin.transaction_client import Partitions, TransactionClient, end_call
from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.errors import (
    ErrorCode,
    IllegalStateError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages.end_txn import EndTxnResponse
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction, ProducerIdAndEpoch
from spark_kafka_sink.transactions.commit_log.log_parts import PIECE_BYTES
from spark_kafka_sink.transactions.commit_state import LogChangedError, LogOutcomeUnknownError
from spark_kafka_sink.transactions.driver_transactions import add_partition_call, produce_call

ResponseT = TypeVar("ResponseT")

#: The errors of a writer that another process may have fenced. With version 2, INVALID_TXN_STATE
#: means that another process's InitProducerId or the timeout has just aborted the transaction. If
#: the process opens the key again, the state shows which of the two it was.
_FENCED: Final = (ProducerFencedError, InvalidTxnStateError)
#: The only retriable error of EndTxn that means that the coordinator has written nothing. (After
#: NOT_COORDINATOR, the coordinator may have written the end: it may have been deposed during the
#: write, and its record may survive.)
_NOTHING_HAPPENED: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
#: How long after EndTxn the writer looks for the markers of the transaction, in ms.
_MARKERS_MS: Final = 50
#: How long a failed write may take to abort its transaction.
_ABORT_MS: Final = 1_000


@dataclass(slots=True, eq=False)
class LogWriter:
    """Writes to the partition ``tp`` of the commit log, one transaction after another. After a
    failed write, the writer can't be used any more.

    * ``id``: the transactional id of all transactions.
    * ``producer``: the producer id and epoch that InitProducerId has returned.
    * ``version``: the version of the transactions: 2 with KIP-890, otherwise 1.
    * ``timeout_ms``: the timeout of the transactions.
    * ``rights``: the rights that a principal needs, as a text for the hint of an
      AuthorizationError.
    """

    client: TransactionClient
    tp: TopicPartition
    id: str
    producer: ProducerIdAndEpoch
    version: int
    timeout_ms: int
    rights: str
    _failed: bool = False
    #: True if ``producer`` was used for a committed transaction. No pair of producer id and epoch
    #: is used for two transactions. With transactions of version 2, EndTxn returns the next epoch.
    #: With version 1, InitProducerId returns it. This request has the current producer id and
    #: epoch, so it fails if another producer has used the transactional id meanwhile (KIP-360).
    _used: bool = False
    #: The number of requests of the current write that got no response.
    _unanswered: int = 0
    _ended_ms: int = 0
    #: The time of the last response to Produce, which shows that the partition has a leader.
    _led_ms: int = 0
    _first_offset: int = -1
    #: The log has no record of a later write below this offset.
    _next_offset: int = 0

    @property
    def is_usable(self) -> bool:
        """True until a write fails."""
        return not self._failed

    def commit(
        self,
        records_of: Callable[[int], Mapping[bytes, bytes | None]],
        deadline_ms: int,
        check: Callable[[int], None],
    ) -> Mapping[bytes, bytes | None]:
        """Writes all records in one transaction, and commits it. Returns the records by record key.

        * ``records_of``: a function that returns the records, by record key. A value of None is a
          tombstone. The argument is a number that this transactional id has for no other write.
        * ``check``: is called after Produce and before EndTxn. Its argument is the offset of the
          first record, or -1 if the broker did not return the offset. If ``check`` raises an
          exception, nothing is committed.

        Raises LogOutcomeUnknownError if it is unknown whether the records are committed. After any
        other KafkaError, nothing is committed.
        """
        if self._failed:
            raise IllegalStateError(
                f"'{self.id}' of the commit log: a write failed; open the key again"
            )
        self._failed = True  # set to False again when the write has succeeded
        self._unanswered = 0  # (requests of earlier writes do no harm: their epoch is old)
        if self._used:
            try:
                self.producer = self.client.init_producer_id(
                    self.id, self.timeout_ms, deadline_ms, ours=self.producer
                )
            except ProducerFencedError as error:
                raise self._superseded(error) from error
        records = records_of(self.producer.producer_id << 16 | self.producer.epoch)
        try:
            if self.version < 2:
                self._add_partition(deadline_ms)
            else:
                self._await_markers(deadline_ms)
            sequence = 0
            # (Each batch is below the topic's max.message.bytes.)
            batches = by_size(records.items(), lambda r: len(r[0]) + len(r[1] or b""), PIECE_BYTES)
            for batch in batches:
                self._produce(batch, sequence, deadline_ms)
                sequence += len(batch)
        except LogChangedError:
            raise  # the id has another owner
        except KafkaError:
            if self._unanswered == 0:
                self._abort(deadline_ms)
            # (If a request got no response, nothing is aborted here: the abort might overtake a
            # Produce that is still in flight.)
            raise
        try:
            if 0 <= self._first_offset < self._next_offset:
                raise self._replaced()
            check(self._first_offset)
        except BaseException:
            self._abort(deadline_ms)
            raise
        self._end(deadline_ms)
        self._next_offset = self._first_offset + len(records) + 1  # the marker
        return records

    def _add_partition(self, deadline_ms: int) -> None:
        self._run(add_partition_call(self._transaction(), self.tp, self.rights), deadline_ms)

    def _await_markers(self, deadline_ms: int) -> None:
        """Waits until the coordinator has written the markers of this writer's previous
        transaction, because brokers let the next transaction wait for them in longer steps. The
        wait ends 50 ms after the end of the previous transaction.
        """
        # The coordinator usually needs a few milliseconds. A broker, too, lets the next transaction
        # wait for the markers, but in steps of 20 ms (add.partitions.to.txn.retry.backoff.ms).
        until = min(deadline_ms, self._ended_ms + _MARKERS_MS)
        attempts = 0
        while self.client.clock.now_ms() < until:
            found = self.client.describe([self.id], deadline_ms)
            if found[self.id].state is not TransactionState.PREPARE_COMMIT:
                return
            self.client.loop.pause(attempts, until)
            attempts += 1

    def _produce(
        self, records: list[tuple[bytes, bytes | None]], sequence: int, deadline_ms: int
    ) -> None:
        # If there is no definite response, the same bytes are sent again. The second request gets
        # DUPLICATE_SEQUENCE_NUMBER if the first request had arrived.
        call = produce_call(
            self.client, self.tp, records, self.rights, self._transaction(), sequence
        )
        response = self._run(call, deadline_ms)
        self._led_ms = call.answered_ms
        if sequence == 0:
            self._first_offset = response.partitions[0].base_offset

    def _end(self, deadline_ms: int) -> None:
        definite = 0

        def error_in(response: EndTxnResponse) -> ErrorCode:
            nonlocal definite
            code = response.error_code
            definite += code is _NOTHING_HAPPENED or retry_decision(code) is RetryDecision.FINAL
            return code

        call = end_call(self._transaction(), committed=True)
        call.error_in, call.success_only = error_in, True
        try:
            self.client.run_ending(
                {self.id: call}, deadline_ms, looked_ms=self._led_ms, partitions=self._partitions()
            )
            if call.response is None:
                raise self.client.loop.timeout([call])
        except KafkaError as error:
            if call.sent > definite:
                raise LogOutcomeUnknownError(
                    f"it is not known whether the commit log {self.tp} has the records that were "
                    f"written: {call.what} got no clear answer in time",
                    hint="'kprod txn describe' shows the records that it has",
                    transactional_ids=(self.id,),
                ) from error
            if isinstance(error, _FENCED):
                raise self._superseded(error) from error
            raise
        successor = ProducerIdAndEpoch(call.response.producer_id, call.response.producer_epoch)
        self._ended_ms = self.client.clock.now_ms()
        self._failed, self._used = False, not successor.is_valid
        if successor.is_valid:
            self.producer = successor

    def _abort(self, deadline_ms: int) -> None:
        """Aborts the current transaction, so that readers need not wait until it times out. Errors
        are ignored.
        """
        soon = min(deadline_ms, self.client.clock.now_ms() + _ABORT_MS)
        with suppress(KafkaError):
            self.client.end(
                [self._transaction()],
                committed=False,
                deadline_ms=soon,
                partitions=self._partitions(),
            )

    def _run(self, call: Call[ResponseT], deadline_ms: int) -> ResponseT:
        call.what += f", the commit log of '{self.id}'"
        try:
            return self.client.loop.send_and_receive(call, deadline_ms, is_watched=True)
        except _FENCED as error:
            raise self._superseded(error) from error
        finally:
            self._unanswered += call.sent - call.answered

    def _partitions(self) -> Mapping[str, Partitions]:
        return {self.id: [(self.tp.topic, [self.tp.partition])]}

    def _transaction(self) -> PreparedTransaction:
        return PreparedTransaction(self.id, *self.producer, self.version)

    def _replaced(self) -> LogChangedError:
        return LogChangedError(
            f"the commit log {self.tp} ends before what '{self.id}' has written to it: its topic "
            "was deleted and created again, or an unclean election has cut it off",
            hint="the key is opened again",
        )

    def _superseded(self, error: KafkaError) -> LogChangedError:
        return LogChangedError(
            f"another driver now writes the commit log as '{self.id}': {error.message}",
            hint="this one must stop; if no other was started, two queries share a "
            "transactionalIdPrefix, or too many threads write in one block",
        )
