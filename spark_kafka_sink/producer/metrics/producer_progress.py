"""What a producer is at while it runs: for whoever looks on from another thread.

Owns: the value :class:`ProducerProgress`. Never: the counting (``produce_recorder.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_sink.producer.metrics.produce_report import ProduceReport


@dataclass(frozen=True, slots=True)
class ProducerProgress:
    """``report`` is the attempt's so far. ``on_wire`` are record batches that were sent and are not
    answered, by node: how many, and the age of the oldest in ms, from its first row.
    """

    report: ProduceReport
    on_wire: Mapping[int, tuple[int, int]]
    waits_for_memory: bool
