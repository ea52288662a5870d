"""Counts rows, requests, retries and failures of a task attempt, for the attempt's report.

A task attempt begins when the producer is created, and again at each
``KafkaProducer.start_attempt`` or ``begin_transaction``. The sender calls the recorder for each
request, response and retry. The thread that completes a batch, usually the network thread, reports
the batch to the recorder. After a failed batch, the recorder decides whether the attempt has also
failed. The counts become a ``produce_report.ProduceReport``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import (
    ApiError,
    DeliveryError,
    ErrorCode,
    KafkaError,
    safe_text,
)
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.interceptors import Interceptors
from spark_kafka_sink.producer.lifecycle import first_line
from spark_kafka_sink.producer.metrics.produce_report import NodeReport, ProduceReport
from spark_kafka_sink.producer.metrics.producer_metrics import Measurement, ProducerMetrics
from spark_kafka_sink.producer.metrics.retry_lines import RetryLines
from spark_kafka_sink.producer.producer_record import RecordMetadata
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.records.record_batch import HEADER_SIZE

_NO_ANSWER = NodeReport()


class ProduceRecorder:
    """Counts the events of the current task attempt. One lock (``_lock``) guards the counts.

    The recorder is the ``BatchListener`` of the batches: it is called after the futures of a batch
    are completed. It also notifies the interceptors of the outcome of batches with rows of
    ``send_columns``.
    """

    def __init__(
        self,
        clock: Clock,
        metrics: ProducerMetrics,
        accumulator: RecordAccumulator,
        interceptors: Interceptors | None = None,
        *,
        transactional: bool = False,
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._accumulator = accumulator
        self._interceptors = interceptors
        self._transactional = transactional
        self._lock = threading.Lock()
        self._report = ProduceReport()
        self._before = self._waits()
        #: The number of connections in the reports of earlier attempts. It is 0 in the first
        #: attempt, so the report of this attempt includes the connection for InitProducerId, which
        #: is made before the first row.
        self._connections_reported = 0
        #: A text about the last response that caused a retry. Messages about waits contain this
        #: text.
        self.last_answer: str | None = None
        self._failed_alone = 0
        self._failed_alone_of: KafkaError | None = None
        self._retry_lines = RetryLines()

    def start_attempt(self) -> None:
        """Sets all counts to 0 for a new task attempt."""
        before = self._waits()
        with self._lock:
            self._report = ProduceReport()
            self._before = before
            self.last_answer = None
            self._failed_alone = 0
            self._failed_alone_of = None

    def batches_done(self, batches: Sequence[ProducerBatch]) -> None:
        """Counts the acknowledged and the failed batches of ``batches``. Each batch is reported in
        only one call. No lock is held during the call.

        If the producer can't continue after the failure of a batch, this method also marks the
        producer as failed.
        """
        acknowledged = [batch for batch in batches if batch.error is None]
        if acknowledged:
            with self._lock:
                _count(self._report, acknowledged)
        for batch in batches:
            if batch.error is not None:
                self._batch_failed(batch, batch.error)
            if self._interceptors is not None and not batch.has_futures_only:
                self._notify(self._interceptors, batch)

    def _batch_failed(self, batch: ProducerBatch, error: KafkaError) -> None:
        self._metrics.records_failed(batch.tp.topic, batch.record_count)
        if self._fails_alone(batch):
            with self._lock:
                self._failed_alone += batch.record_count
                if self._failed_alone_of is None:
                    self._failed_alone_of = error
        elif self._accumulator.lifecycle.error is None:
            # The unsent batches, which fail with the producer, also come here.
            self._accumulator.fail(self._attempt_error(batch, error), error)

    def _fails_alone(self, batch: ProducerBatch) -> bool:
        """Returns True if the producer can continue after ``batch`` has failed. There are two such
        cases:

        * The batch is in a transaction. The transaction manager then marks the transaction as
          failed, and the commit raises the error.
        * All records of the batch come from ``send``. Their futures then have the error.
        """
        return self._transactional or batch.has_futures_only

    def _attempt_error(self, batch: ProducerBatch, cause: KafkaError) -> DeliveryError:
        age = self._clock.now_ms() - batch.created_ms
        error = DeliveryError(
            f"{batch.tp}: {batch.record_count} rows were not acknowledged (attempts: "
            f"{batch.attempts + (batch.drained_ms > 0)}, age: {age} ms): {first_line(cause)}",
            hint=cause.hint,
            kind=cause.kind,
        )
        error.__cause__ = cause
        return error

    @staticmethod
    def _notify(interceptors: Interceptors, batch: ProducerBatch) -> None:
        appended = batch.log_append_time_ms
        interceptors.on_acknowledgement(
            RecordMetadata(
                batch.tp.topic,
                batch.tp.partition,
                batch.base_offset,
                batch.base_timestamp if appended < 0 else appended,
                record_count=batch.record_count - len(batch.records or ()),
            ),
            batch.error,
        )

    def request_sent(self, batches: Sequence[ProducerBatch], now: int) -> None:
        """Counts one Produce request, which contains ``batches``."""
        with self._lock:
            self._report.requests += 1
        self._metrics.request_sent(batches, now)

    def request_answered(self, node_id: int, latency_ms: int, throttle_ms: int, now: int) -> None:
        """Counts a Produce response of the node ``node_id``, with its latency and throttle time in
        ms.
        """
        self._metrics.request_answered(node_id, latency_ms, throttle_ms, now)
        with self._lock:
            counts = self._report
            counts.throttle_ms += throttle_ms
            node = counts.nodes.get(node_id, _NO_ANSWER)
            counts.nodes[node_id] = node.after_request(latency_ms)

    def batch_retried(
        self, batch: ProducerBatch, error: KafkaError | None = None, node_id: int = -1
    ) -> None:
        """Counts a retry of ``batch``, after the node ``node_id`` returned ``error`` for it, or did
        not respond. CONCURRENT_TRANSACTIONS is not counted, because it is a normal response of a
        busy coordinator.
        """
        # With transactions of version 2 (KIP-890), the leader of each partition adds its partition
        # to the transaction. But the coordinator makes only one change at a time to a transactional
        # id. It may be busy with the request of another leader, or with the end of the previous
        # transaction. The leader repeats its request to the coordinator for 100 ms
        # (add.partitions.to.txn.retry.backoff.max.ms). If the coordinator is still busy then, the
        # leader returns CONCURRENT_TRANSACTIONS to the producer.
        if isinstance(error, ApiError) and error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            self.last_answer = f"{batch.tp}: {error.message}"
            return
        with self._lock:
            self._report.retries += 1
            self._report.retried_rows += batch.record_count
        if error is not None:
            self.last_answer = f"{batch.tp}: {error.message}"
            self.failed_at(node_id, self.last_answer)
            self._retry_lines.log(error, self.last_answer, self._clock.now_ms())
        self._metrics.records_retried(batch.tp.topic, batch.record_count)

    def failed_at(self, node_id: int, answer: str) -> None:
        """Stores ``answer`` as the last failure of the node ``node_id``. ``answer`` is a text about
        a response with an error, or about a failed connection.
        """
        with self._lock:
            node = self._report.nodes.get(node_id, _NO_ANSWER)
            self._report.nodes[node_id] = replace(node, last_answer=safe_text(answer))

    def batch_split(self, batch: ProducerBatch) -> None:  # noqa: ARG002 - counted, not by topic
        with self._lock:
            self._report.splits += 1
        self._metrics.batch_split()

    def batch_duplicate(self, batch: ProducerBatch) -> None:  # noqa: ARG002 - counted, not by topic
        with self._lock:
            self._report.duplicates += 1

    @property
    def failed_alone(self) -> tuple[int, KafkaError | None]:
        """The number of records in the failed batches after which the producer can continue
        (:meth:`_fails_alone`), and the error of the first such batch. The error is None if the
        number is 0.
        """
        with self._lock:
            return self._failed_alone, self._failed_alone_of

    def report(self, cluster_id: str | None = None) -> ProduceReport:
        """A copy of the counts of this task attempt so far. ``cluster_id`` is the id of the Kafka
        cluster.
        """
        buffer, metadata = (
            now - before for now, before in zip(self._waits(), self._before, strict=True)
        )
        connections = self._connections()
        with self._lock:
            counts = self._report
            return replace(
                counts,
                nodes=dict(counts.nodes),
                by_partition=dict(counts.by_partition),
                producer_ids=set(counts.producer_ids),
                offsets=dict(counts.offsets),
                buffer_wait_ms=buffer,
                metadata_wait_ms=metadata,
                connections=connections - self._connections_reported,
                cluster_id=cluster_id,
            )

    def end_attempt(self, cluster: Cluster) -> ProduceReport:
        """The final counts of this task attempt, with the ids of the cluster and of the topics."""
        report = self.report(cluster.cluster_id)
        topics = {tp.topic for tp in report.by_partition}
        ids = {topic: cluster.topic_id(topic) for topic in topics}
        report.topic_ids = {topic: known for topic, known in ids.items() if known is not None}
        with self._lock:
            self._connections_reported += report.connections
        return report

    def _waits(self) -> tuple[int, int]:
        """Two times in ms since the producer was created: the total wait for memory, and the total
        wait for metadata of topics.
        """
        total = self._metrics.total
        return int(total(Measurement.POOL_WAIT)), int(total(Measurement.METADATA_WAIT))

    def _connections(self) -> int:
        """The number of connections that the producer has made so far."""
        return self._metrics.count(Measurement.CONNECTED)


def _count(counts: ProduceReport, batches: Iterable[ProducerBatch]) -> None:
    """Adds the rows and bytes of the acknowledged ``batches`` to ``counts``."""
    by_partition, offsets = counts.by_partition, counts.offsets
    producer = None
    for batch in batches:
        tp, size, count = batch.tp, batch.size_in_bytes, batch.record_count
        queued = batch.drained_ms - batch.created_ms
        counts.rows += count
        counts.batches += 1
        counts.bytes += size
        counts.batch_bytes += batch.raw_size + HEADER_SIZE
        counts.queue_ms += queued
        if queued > counts.max_queue_ms:
            counts.max_queue_ms = queued
        before = by_partition.get(tp, (0, 0, 0))
        by_partition[tp] = (before[0] + count, before[1] + size, before[2] + batch.checksum)
        if producer != (identity := (batch.producer_id, batch.producer_epoch)):
            producer = identity
            counts.producer_ids.add(identity)
        # Unknown with acks=0, for a duplicate, and for a batch that a later response proved.
        first = batch.base_offset
        if first >= 0:
            last = first + count - 1
            if tp in offsets:
                seen_first, seen_last = offsets[tp]
                if seen_first < first:
                    first = seen_first
                if seen_last > last:
                    last = seen_last
            offsets[tp] = (first, last)
        else:
            counts.rows_without_offset += count
