"""How large a batch may grow before it is full.

Owns: the limit of each topic's batches, in compressed bytes and the equivalent raw bytes. Never:
a batch's bytes, a lock (a lost update loses the measurement of one batch).

batch.size, max.request.size and MESSAGE_TOO_LARGE responses bound the *compressed* batch; the
topic's estimated compression ratio converts that to raw record bytes, which the planner can count.
"""

from __future__ import annotations

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.records.compression import Codec, CompressionRatioEstimator
from spark_kafka_sink.records.record_batch import HEADER_SIZE

#: Raw bytes of one batch are at most this many times batch.size, however well they compress,
#: because a batch holds raw bytes in memory until it is closed.
MAX_RAW_BATCHES = 8

#: Java's COMPRESSION_RATE_ESTIMATION_FACTOR: a batch may compress a little worse than expected.
COMPRESSION_SAFETY = 1.05

#: The ratio is learned only from batches of at least 1 / this of a full one: a few bytes grow when
#: compressed, and a raised estimate recovers only after hundreds of batches (0.005 for each).
_MIN_SAMPLE_FRACTION = 4


class BatchLimits:
    """Limits by topic; read by the writer, updated by the thread that closes or splits a batch."""

    __slots__ = ("_codec", "_estimator", "_limit", "_raw_cap", "_topic_limits")

    def __init__(self, config: ProducerConfig, codec: Codec) -> None:
        self._codec = codec
        self._estimator = CompressionRatioEstimator()
        self._limit = max(1, min(config.batch_size, config.max_request_size))
        self._raw_cap = max(1, MAX_RAW_BATCHES * config.batch_size)
        self._topic_limits: dict[str, int] = {}

    def raw_limit(self, topic: str) -> int:
        """Raw record bytes after which a batch of ``topic`` counts as full."""
        limit = min(self._limit, self._topic_limits.get(topic, self._limit))
        room = max(1, limit - HEADER_SIZE)
        if self._codec.is_none:
            return room
        ratio = self._estimator.estimation(topic, self._codec) * COMPRESSION_SAFETY
        return max(1, min(int(room / ratio), self._raw_cap))

    def closed(self, batch: ProducerBatch) -> None:
        """Learn how well the records of a batch that was just closed compressed."""
        if batch.raw_size * _MIN_SAMPLE_FRACTION < self.raw_limit(batch.tp.topic):
            return
        ratio = (batch.size_in_bytes - HEADER_SIZE) / max(1, batch.raw_size)
        self._estimator.update(batch.tp.topic, self._codec, ratio)

    def refused(self, batch: ProducerBatch) -> None:
        """A broker rejected ``batch`` with MESSAGE_TOO_LARGE: half of its size is the topic's limit
        from now on, for this producer (rule R7).
        """
        topic, limit = batch.tp.topic, max(1, batch.size_in_bytes // 2)
        self._topic_limits[topic] = min(limit, self._topic_limits.get(topic, limit))
