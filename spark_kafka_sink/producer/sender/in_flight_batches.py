"""The batches that were sent and are not completed (Java's ``Sender.inFlightBatches``).

Owns: the in-flight batches and their nodes; the batches whose outcome is unclear, until a later
acknowledgement proves that they are in the log; the last response for each batch; and the earliest
expiry. Never: a decision (``sender.py``), sequences, memory. Only the sender thread may use it.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch


class InFlightBatches:
    """The batches in flight, and the batches that wait for proof that they were written.

    A batch is in flight until its response arrives, even if it was completed earlier.
    """

    __slots__ = ("_delivery_timeout_ms", "_last_answers", "_on_wire", "_unproven", "next_expiry_ms")

    def __init__(self, delivery_timeout_ms: int) -> None:
        self._delivery_timeout_ms = delivery_timeout_ms
        self._on_wire: dict[ProducerBatch, int] = {}
        self._unproven: dict[ProducerBatch, None] = {}
        self._last_answers: dict[ProducerBatch, tuple[str, ErrorCode]] = {}
        #: None of them expires before this time; NEVER when there is none.
        self.next_expiry_ms = NEVER

    def __contains__(self, batch: ProducerBatch) -> bool:
        """True while ``batch`` is in flight, so that the socket may still use the batch's bytes."""
        return batch in self._on_wire

    @property
    def has_unproven(self) -> bool:
        """True if a batch got OUT_OF_ORDER_SEQUENCE_NUMBER, and now waits for the proof that it was
        written, or for the partition's next epoch.
        """
        return bool(self._unproven)

    def sent(self, batches: Iterable[ProducerBatch], node_id: int) -> None:
        """Notes that ``batches`` were sent to the broker ``node_id`` in one request."""
        for batch in batches:
            self._on_wire[batch] = node_id
            expiry = batch.created_ms + self._delivery_timeout_ms
            if expiry < self.next_expiry_ms:
                self.next_expiry_ms = expiry

    def completed(self, batches: Iterable[ProducerBatch]) -> None:
        """Removes the batches of a request whose response has arrived, or will not arrive."""
        for batch in batches:
            self._on_wire.pop(batch, None)
        if not self._on_wire and not self._unproven:
            self.next_expiry_ms = NEVER

    def await_proof(self, batch: ProducerBatch) -> None:
        """Adds a batch whose outcome is unclear. It waits for a later acknowledgement, or for the
        next epoch of its partition.
        """
        self._unproven[batch] = None
        self.next_expiry_ms = min(self.next_expiry_ms, batch.created_ms + self._delivery_timeout_ms)

    def answered(self, batch: ProducerBatch, broker: str, code: ErrorCode) -> None:
        """Stores the last response to ``batch``, for the message of a timeout. ``broker`` is a
        text, because at that time the broker may have left the metadata.
        """
        self._last_answers[batch] = (broker, code)

    def last_answer(self, batch: ProducerBatch) -> tuple[str, ErrorCode] | None:
        """The last response to ``batch``: the broker (host, port and id) and the error code. None
        if there was no response.
        """
        return self._last_answers.get(batch)

    def node_of(self, batch: ProducerBatch) -> int | None:
        """The node to which ``batch`` was sent. None if the batch is not in flight."""
        return self._on_wire.get(batch)

    def by_node(self, now: int) -> dict[int, tuple[int, int]]:
        """For each node, the number of in-flight batches and the age of the oldest batch in ms.
        Thread-safe, because a dict is copied atomically.
        """
        found: dict[int, tuple[int, int]] = {}
        for batch, node in list(self._on_wire.items()):
            count, age = found.get(node, (0, 0))
            found[node] = (count + 1, max(age, now - batch.created_ms))
        return found

    def forget(self, batches: Iterable[ProducerBatch]) -> None:
        """Removes batches that were completed, failed or split."""
        if self._unproven or self._last_answers:
            for batch in batches:
                self._unproven.pop(batch, None)
                self._last_answers.pop(batch, None)
            if not self._on_wire and not self._unproven:
                self.next_expiry_ms = NEVER

    def expired(self, now: int) -> list[ProducerBatch]:
        """The batches past delivery.timeout.ms that are not done."""
        if now < self.next_expiry_ms:
            return []
        expired = []
        self.next_expiry_ms = NEVER
        for batch in (*self._on_wire, *self._unproven):
            if batch.is_done:
                continue
            if batch.has_reached_delivery_timeout(self._delivery_timeout_ms, now):
                expired.append(batch)
            else:
                expiry = batch.created_ms + self._delivery_timeout_ms
                self.next_expiry_ms = min(self.next_expiry_ms, expiry)
        return expired
