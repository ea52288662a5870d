"""CRC-32C of bytes that lie in several buffers. Owns: the call into ``google_crc32c``, nothing
else.
"""

from __future__ import annotations

from collections.abc import Iterable

from google_crc32c import extend

from spark_kafka_sink.protocol.request import Buffer


def crc32c(buffers: Iterable[Buffer], value: int = 0) -> int:
    """The checksum (0..2^32-1) of ``buffers`` one behind the other, going on from ``value``.

    ``google_crc32c`` (Apache-2.0) takes ``bytes`` only: another buffer is copied for it, 27 us for
    256 KiB where the checksum itself takes 13. (The package ``crc32c`` takes all, and is LGPL.)
    """
    for buffer in buffers:
        value = extend(value, buffer if type(buffer) is bytes else bytes(buffer))
    return value
