"""How a key or value is written: what travels from the driver to the tasks.

Owns: :class:`BinaryPlan`, of Avro and Protobuf. Never: Arrow, until a task encodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_sink.records.formats.binary.nodes import Value

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_sink.records.payloads import Payloads


@dataclass(frozen=True, slots=True)
class BinaryPlan:
    """``prefix``, then ``value``."""

    prefix: bytes
    value: Value

    def encode(self, column: pa.Array, path: str) -> Payloads:
        """One payload for each row."""
        from spark_kafka_sink.records.formats.binary.encoder import payloads_of

        return payloads_of(self.prefix, self.value, column, path)
