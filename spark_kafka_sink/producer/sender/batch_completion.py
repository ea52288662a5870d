"""Listeners of completed batches: the attempt's counts, and interceptors for columns.

Owns: which failed batch fails the attempt. It runs after the futures of the batch's records
(``producer_batch.py``). Never: the outcome itself, any cost per row.
"""

from __future__ import annotations

from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.interceptors import Interceptors
from spark_kafka_sink.producer.metrics.produce_recorder import ProduceRecorder
from spark_kafka_sink.producer.metrics.producer_metrics import ProducerMetrics
from spark_kafka_sink.producer.producer_record import RecordMetadata
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager


class BatchCompletionListener:
    """The accumulator's BatchListener."""

    __slots__ = ("_interceptors", "_manager", "_metrics", "_recorder")

    def __init__(
        self,
        recorder: ProduceRecorder,
        transaction_manager: TransactionManager | None,
        interceptors: Interceptors | None,
        metrics: ProducerMetrics,
    ) -> None:
        self._recorder = recorder
        self._manager = transaction_manager
        self._interceptors = interceptors
        self._metrics = metrics

    def batch_done(self, batch: ProducerBatch) -> None:
        """Called once for each batch, on the thread that completed it; no lock held."""
        with_future = 0 if batch.futures is None else len(batch.futures)
        if batch.error is None:
            self._recorder.batch_done(batch)
        else:
            if self._fails_alone(batch):
                self._recorder.batch_failed_alone(batch)
            else:
                self._recorder.batch_done(batch)
            self._metrics.records_failed(batch.tp.topic, batch.record_count)
        if self._interceptors is not None and with_future < batch.record_count:
            self._interceptors.on_acknowledgement(
                RecordMetadata(
                    batch.tp.topic,
                    batch.tp.partition,
                    batch.base_offset,
                    batch.base_timestamp
                    if batch.log_append_time_ms < 0
                    else batch.log_append_time_ms,
                    record_count=batch.record_count - with_future,
                ),
                batch.error,
            )

    def _fails_alone(self, batch: ProducerBatch) -> bool:
        """True when the failure affects only this batch, or its transaction, which the transaction
        manager handles. Its records have futures, or the commit fails.
        """
        transactional = self._manager is not None and self._manager.is_transactional
        return transactional or batch.has_futures_only
