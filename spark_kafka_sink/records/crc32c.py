"""CRC-32C of bytes that lie in several buffers. Owns: the call into ``crc32c``, nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import crc32c as _crc32c

from spark_kafka_sink.protocol.request import Buffer

#: Below this, giving up the interpreter lock costs more than the checksum (30 GB/s).
_RELEASE_FROM = 32 * 1024


def crc32c(buffers: Iterable[Buffer], value: int = 0) -> int:
    """The checksum (0..2^32-1) of ``buffers`` one behind the other, going on from ``value``.

    The interpreter lock is released for buffers of 32 KiB and more.
    """
    for buffer in buffers:
        mode = 1 if len(buffer) >= _RELEASE_FROM else 0
        value = _crc32c.crc32c(buffer, value, mode)
    return value
