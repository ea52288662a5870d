"""CRC-32C, the checksum of record batches, of any buffer without a copy.

Owns: the library's call. It releases the interpreter lock. Never: what is summed.
"""

from __future__ import annotations

import pyarrow as pa
from google_crc32c import extend

from spark_kafka_sink.protocol.request import Buffer


def crc32c(*buffers: Buffer) -> int:
    """The checksum of ``buffers``, one behind another."""
    checksum = 0
    for data in buffers:
        # extend refuses a memoryview, because its bytes might change; it takes Arrow's buffers.
        checksum = extend(checksum, data if type(data) is bytes else pa.py_buffer(data))
    return checksum
