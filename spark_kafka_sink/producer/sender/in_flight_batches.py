"""The batches that were sent and whose outcome is not known yet (Java's
``Sender.inFlightBatches``).

:class:`InFlightBatches` has these batches, and the last response to each of them. It also finds the
batches that expire. ``sender.py`` decides to retry or fail a batch. Only the network thread may use
the class, except for :meth:`InFlightBatches.by_node`.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch


class InFlightBatches:
    """Two sets of sent batches:

    * The batches in flight. A batch leaves this set when its response arrives or the connection is
      lost, but not when the batch expires.
    * The unproven batches. After a response such as OUT_OF_ORDER_SEQUENCE_NUMBER, it is not proven
      that the batch is in the log. The batch waits outside of its queue until the acknowledgement
      of a later batch proves it, or until the partition changes to the next producer epoch.
    """

    __slots__ = ("_delivery_timeout_ms", "_last_answers", "_on_wire", "_unproven", "next_expiry_ms")

    def __init__(self, delivery_timeout_ms: int) -> None:
        self._delivery_timeout_ms = delivery_timeout_ms
        self._on_wire: dict[ProducerBatch, int] = {}
        self._unproven: dict[ProducerBatch, None] = {}
        self._last_answers: dict[ProducerBatch, tuple[str, ErrorCode]] = {}
        #: The time (monotonic ms) before which no batch of the two sets expires. NEVER if the sets
        #: are empty.
        self.next_expiry_ms = NEVER

    def __contains__(self, batch: ProducerBatch) -> bool:
        """True while ``batch`` is in flight. During this time the socket may still read the batch's
        bytes.
        """
        return batch in self._on_wire

    @property
    def has_unproven(self) -> bool:
        """True if there is an unproven batch, which waits outside of its queue."""
        return bool(self._unproven)

    def sent(self, batches: Iterable[ProducerBatch], node_id: int) -> None:
        """Adds ``batches``, which were sent to the node ``node_id`` in one request."""
        for batch in batches:
            self._on_wire[batch] = node_id
            expiry = batch.created_ms + self._delivery_timeout_ms
            if expiry < self.next_expiry_ms:
                self.next_expiry_ms = expiry

    def completed(self, batches: Iterable[ProducerBatch]) -> None:
        """Removes ``batches`` from the batches in flight, because the response to their request has
        arrived, or because the connection was lost.
        """
        for batch in batches:
            self._on_wire.pop(batch, None)
        if not self._on_wire and not self._unproven:
            self.next_expiry_ms = NEVER

    def await_proof(self, batch: ProducerBatch) -> None:
        """Adds ``batch`` to the unproven batches. ``batch`` is not sent again before the next
        producer epoch. Until then, the acknowledgement of a later batch may prove that ``batch`` is
        in the log.
        """
        self._unproven[batch] = None
        self.next_expiry_ms = min(self.next_expiry_ms, batch.created_ms + self._delivery_timeout_ms)

    def answered(self, batch: ProducerBatch, broker: str, code: ErrorCode) -> None:
        """Stores the last response to ``batch``, for a later error message: the error code, and the
        broker as a text.

        The text is stored because the broker may be missing in the metadata when the message is
        written.
        """
        self._last_answers[batch] = (broker, code)

    def last_answer(self, batch: ProducerBatch) -> tuple[str, ErrorCode] | None:
        """The last response to ``batch``: the broker as a text (host, port and id) and the error
        code. None if there was no response.
        """
        return self._last_answers.get(batch)

    def node_of(self, batch: ProducerBatch) -> int | None:
        """The id of the node to which ``batch`` was sent. None if the batch is not in flight."""
        return self._on_wire.get(batch)

    def by_node(self, now: int) -> dict[int, tuple[int, int]]:
        """The number of batches in flight to each node, and the age of the oldest of them in ms.
        Example: ``{1: (3, 120)}``. Thread-safe.
        """
        found: dict[int, tuple[int, int]] = {}
        for batch, node in list(self._on_wire.items()):
            count, age = found.get(node, (0, 0))
            found[node] = (count + 1, max(age, now - batch.created_ms))
        return found

    def forget(self, batches: Iterable[ProducerBatch]) -> None:
        """Removes the last response to each of ``batches``, and removes the batches from the set of
        unproven batches. A batch is unproven after a response that does not show whether the log
        has the batch. Call this method when ``batches`` are completed, failed, split or put back
        into their queues.
        """
        if self._unproven or self._last_answers:
            for batch in batches:
                self._unproven.pop(batch, None)
                self._last_answers.pop(batch, None)
            if not self._on_wire and not self._unproven:
                self.next_expiry_ms = NEVER

    def expired(self, now: int) -> list[ProducerBatch]:
        """The batches in flight and the unproven batches that are older than delivery.timeout.ms
        and have no outcome. These batches stay in the sets.
        """
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
