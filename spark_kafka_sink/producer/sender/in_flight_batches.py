"""Batches that have left and are without their end (Java's ``Sender.inFlightBatches``).

Owns: which batches are on the wire and to whom, which wait for a later acknowledgement to prove
them, what each was answered last, and when the first of them expires. Never: a decision
(``sender.py``), sequences, memory. Belongs to the sender's thread.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch


class InFlightBatches:
    """A batch is on the wire until its answer comes, whether it has ended before that or not."""

    __slots__ = ("_delivery_timeout_ms", "_doubted", "_last_answers", "_on_wire", "next_expiry_ms")

    def __init__(self, delivery_timeout_ms: int) -> None:
        self._delivery_timeout_ms = delivery_timeout_ms
        self._on_wire: dict[ProducerBatch, int] = {}
        self._doubted: dict[ProducerBatch, None] = {}
        self._last_answers: dict[ProducerBatch, tuple[str, ErrorCode]] = {}
        #: None of them expires before this time; NEVER when there is none.
        self.next_expiry_ms = NEVER

    def __contains__(self, batch: ProducerBatch) -> bool:
        """True while its bytes may be in the socket's hands."""
        return batch in self._on_wire

    @property
    def is_empty(self) -> bool:
        """No batch is on the wire, nor waits for proof."""
        return not self._on_wire and not self._doubted

    @property
    def has_doubted(self) -> bool:
        """Some batch was answered OUT_OF_ORDER and waits for proof."""
        return bool(self._doubted)

    def sent(self, batches: Iterable[ProducerBatch], node_id: int) -> None:
        """They leave for ``node_id``."""
        for batch in batches:
            self._on_wire[batch] = node_id
            expiry = batch.created_ms + self._delivery_timeout_ms
            if expiry < self.next_expiry_ms:
                self.next_expiry_ms = expiry

    def completed(self, batches: Iterable[ProducerBatch]) -> None:
        """Their answer has come, or will not come."""
        for batch in batches:
            self._on_wire.pop(batch, None)
        if not self._on_wire and not self._doubted:
            self.next_expiry_ms = NEVER

    def await_proof(self, batch: ProducerBatch) -> None:
        """``batch`` waits for a later acknowledgement."""
        self._doubted[batch] = None
        self.next_expiry_ms = min(self.next_expiry_ms, batch.created_ms + self._delivery_timeout_ms)

    def answered(self, batch: ProducerBatch, broker: str, code: ErrorCode) -> None:
        """What ``broker`` answered, for the words of a time-out: by then its address may be in no
        metadata any more.
        """
        self._last_answers[batch] = (broker, code)

    def last_answer(self, batch: ProducerBatch) -> tuple[str, ErrorCode] | None:
        """Broker (host, port and id) and code."""
        return self._last_answers.get(batch)

    def node_of(self, batch: ProducerBatch) -> int | None:
        """Who has ``batch`` and has not answered."""
        return self._on_wire.get(batch)

    def by_node(self, now: int) -> dict[int, tuple[int, int]]:
        """How many batches each node has not answered, and the age of the oldest in ms. Any thread:
        a copy of a dict is made in one piece.
        """
        found: dict[int, tuple[int, int]] = {}
        for batch, node in list(self._on_wire.items()):
            count, age = found.get(node, (0, 0))
            found[node] = (count + 1, max(age, now - batch.created_ms))
        return found

    def forget(self, batches: Iterable[ProducerBatch]) -> None:
        """They have ended, or are split."""
        if self._doubted or self._last_answers:
            for batch in batches:
                self._doubted.pop(batch, None)
                self._last_answers.pop(batch, None)
            if not self._on_wire and not self._doubted:
                self.next_expiry_ms = NEVER

    def expired(self, now: int) -> list[ProducerBatch]:
        """Those past delivery.timeout.ms that have not ended."""
        if now < self.next_expiry_ms:
            return []
        expired = []
        self.next_expiry_ms = NEVER
        for batch in (*self._on_wire, *self._doubted):
            if batch.is_done:
                continue
            if batch.has_reached_delivery_timeout(self._delivery_timeout_ms, now):
                expired.append(batch)
            else:
                expiry = batch.created_ms + self._delivery_timeout_ms
                self.next_expiry_ms = min(self.next_expiry_ms, expiry)
        return expired
