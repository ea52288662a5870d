"""The progress of a running producer, for other threads.

Owns: the value :class:`ProducerProgress`. Never: the counting (``produce_recorder.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_sink.producer.metrics.produce_report import ProduceReport


@dataclass(frozen=True, slots=True)
class ProducerProgress:
    """``report`` is the attempt's so far. ``on_wire`` has the in-flight record batches by node:
    their count, and the age of the oldest in ms, from its first row.
    """

    report: ProduceReport
    on_wire: Mapping[int, tuple[int, int]]
    waits_for_memory: bool
