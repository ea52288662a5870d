"""Compresses and decompresses the records of a batch, compatible with Kafka's Java client.

The records of a batch are one compressed stream. Every codec releases Python's interpreter lock
while it works. ``record_batch`` reads and writes the header of a batch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

import lz4.frame
import pyarrow as pa

from spark_kafka_sink.base.errors import CorruptRecordError
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.protocol.request import Buffer

#: xerial's snappy-java stream: magic, version, lowest compatible version; then blocks, each with
#: its length. Java's reader requires this form, and writes blocks of 32 KiB.
_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_INT32 = struct.Struct(">i")
#: The most bytes of the decompressed records of a batch. The batches of this package are smaller.
MAX_DECOMPRESSED = 2**31 - 1
#: Approximate size of the chunks of :meth:`Codec.stream`; a block of snappy is one chunk.
_CHUNK = 1024 * 1024
_MOST_OF_A_SNAPPY_BLOCK = 64 * _CHUNK
#: A block of snappy has at most this many decompressed bytes for each of its bytes: three bytes can
#: mean a copy of 64 bytes.
_SNAPPY_RATIO = 22
#: zlib's window bits with a gzip header.
_GZIP = 16 + zlib.MAX_WBITS
#: The level of compression.lz4.level that means Java's fast compressor.
_LZ4_FAST_IN_JAVA = 9
_LZ4_FIRST_HIGH, _LZ4_LAST_HIGH = 3, 16


class CompressionType(IntEnum):
    """The compression types of a batch. The value of a member is bits 0-2 of the batch's
    attributes. The name of a member is the value of ``compression.type`` in upper case.
    """

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def min_produce_version(self) -> int:
        """The first version of the Produce request in which brokers accept this type. 0 if brokers
        accept this type in every version.
        """
        return _MIN_PRODUCE_VERSION.get(self, 0)


#: KIP-110.
_MIN_PRODUCE_VERSION = {CompressionType.ZSTD: 7}


@dataclass(frozen=True, slots=True)
class Codec:
    """A compression type and its level. If the level is None, the type's default level is used.

    The levels mean the same as in the options of Kafka's Java client:

    * gzip: -1, or 1 to 9
    * zstd: -131072 to 22
    * lz4: 1 to 17
    """

    type: CompressionType = CompressionType.NONE
    level: int | None = None

    @classmethod
    def parse(
        cls, name: str, *, gzip_level: int = -1, lz4_level: int = 9, zstd_level: int = 3
    ) -> Codec:
        """Creates the codec ``name`` with its compression level. ``name`` is a value of
        ``compression.type``, in upper or lower case.
        """
        kind = CompressionType[name.upper()]
        levels = {
            CompressionType.GZIP: gzip_level,
            CompressionType.LZ4: lz4_level,
            CompressionType.ZSTD: zstd_level,
        }
        return cls(kind, levels.get(kind))

    @classmethod
    def of(cls, config: ProducerConfig) -> Codec:
        """Creates the codec that a producer's options select."""
        return cls.parse(
            config.compression_type,
            gzip_level=config.compression_gzip_level,
            lz4_level=config.compression_lz4_level,
            zstd_level=config.compression_zstd_level,
        )

    @property
    def name(self) -> str:
        return self.type.name.lower()

    @property
    def is_none(self) -> bool:
        return self.type is CompressionType.NONE

    def compress(self, buffers: Sequence[Buffer]) -> bytes:
        """Compresses ``buffers``, one after another, as one stream. With the type NONE, the buffers
        are only joined.
        """
        if self.type is CompressionType.GZIP:
            stream = zlib.compressobj(-1 if self.level is None else self.level, wbits=_GZIP)
            return b"".join([*(stream.compress(b) for b in buffers), stream.flush()])
        data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        if self.type is CompressionType.SNAPPY:
            return _xerial(memoryview(data))
        if self.type is CompressionType.LZ4:
            # Java refuses linked blocks; size and checksums are optional and left out, as in Java.
            packed: bytes = lz4.frame.compress(
                data,
                compression_level=_lz4_level(self.level),
                block_size=lz4.frame.BLOCKSIZE_MAX64KB,
                block_linked=False,
                store_size=False,
            )
            return packed
        if self.type is CompressionType.ZSTD:
            codec = pa.Codec("zstd", compression_level=3 if self.level is None else self.level)
            zipped: bytes = codec.compress(data, asbytes=True)
            return zipped
        return bytes(data)

    def decompress(self, data: Buffer, max_size: int = MAX_DECOMPRESSED) -> bytes:
        """Decompresses ``data`` that :meth:`compress` or Kafka's Java client has written.

        gzip and zstd data can consist of several streams. All streams are read, as in Java's
        client. The call allocates little more memory than ``max_size``.

        Raises CorruptRecordError if the data are damaged or incomplete, or if the result would have
        more than ``max_size`` bytes.
        """
        try:
            out = _DECOMPRESS[self.type](data, max_size)
        except (zlib.error, RuntimeError, EOFError, OSError, pa.ArrowException, ValueError) as e:
            raise _corrupt(f"a {self.name} stream of {len(data)} bytes can't be read") from e
        if len(out) > max_size:
            raise _corrupt(f"a {self.name} stream of {len(data)} bytes holds over {max_size} bytes")
        return out

    def stream(self, data: Buffer) -> Iterator[Buffer]:
        """Decompresses ``data``, and yields the result in chunks.

        A chunk has at most 64 MiB (snappy), and the window of the codec has at most 128 MiB (zstd).
        No more memory is needed, even if the whole result is huge. gzip and zstd data can consist
        of several streams. All streams are read, as in Java's client.

        Raises CorruptRecordError if the data are damaged or incomplete.
        """
        try:
            yield from _STREAM[self.type](data)
        except (zlib.error, RuntimeError, EOFError, OSError, pa.ArrowException, ValueError) as e:
            raise _corrupt(f"a {self.name} stream of {len(data)} bytes can't be read") from e


def _lz4_level(level: int | None) -> int:
    # Java uses its fast compressor for level 9 (the default), and its high compressor for all other
    # levels. In this lz4 library, 0 is the fast compressor, and 3 to 16 are the levels of the high
    # one.
    if level is None or level == _LZ4_FAST_IN_JAVA:
        return 0
    return min(max(level, _LZ4_FIRST_HIGH), _LZ4_LAST_HIGH)


def _corrupt(message: str) -> CorruptRecordError:
    return CorruptRecordError(message)


def _xerial(data: memoryview) -> bytes:
    snappy = pa.Codec("snappy")
    parts = [_XERIAL_HEADER]
    for first in range(0, len(data), _XERIAL_BLOCK):
        block = snappy.compress(data[first : first + _XERIAL_BLOCK], asbytes=True)
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _stored(data: Buffer, max_size: int) -> bytes:
    return bytes(data[: max_size + 1])


def _gunzip(data: Buffer, max_size: int) -> bytes:
    out = bytearray()
    for chunk in _gunzip_stream(data):
        out += chunk
        if len(out) > max_size:
            break
    return bytes(out)


def _gunzip_stream(data: Buffer) -> Iterator[Buffer]:
    rest = bytes(data)
    while True:
        stream = zlib.decompressobj(_GZIP)
        while not stream.eof:
            chunk = stream.decompress(rest, _CHUNK)
            rest = stream.unconsumed_tail
            if not chunk and not stream.eof:
                raise EOFError
            yield chunk  # maybe empty: a caller counts them
        rest = stream.unused_data
        if rest[:2] != b"\x1f\x8b":
            return


def _unxerial(data: Buffer, max_size: int) -> bytes:
    """Decompresses snappy data in one of two forms: with the framing of xerial's snappy-java, or as
    one raw block. Java's client and librdkafka accept both forms.
    """
    out = bytearray()
    for block in _snappy_blocks(memoryview(data)):
        out += _unsnappy(block, max_size - len(out))
    return bytes(out)


def _unsnappy_stream(data: Buffer) -> Iterator[Buffer]:
    return (_unsnappy(b, _MOST_OF_A_SNAPPY_BLOCK) for b in _snappy_blocks(memoryview(data)))


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    if bytes(view[:8]) != _XERIAL_HEADER[:8]:
        yield view
        return
    at = len(_XERIAL_HEADER)
    while at < len(view):
        if at + 4 > len(view):
            raise EOFError
        size = _INT32.unpack_from(view, at)[0]
        at += 4
        if not 0 < size <= len(view) - at:
            raise EOFError
        yield view[at : at + size]
        at += size


def _unsnappy(block: memoryview, max_size: int) -> bytes:
    size, shift, at = 0, 0, 0
    while True:
        if at >= len(block) or shift > 28:
            raise EOFError
        size |= (block[at] & 0x7F) << shift
        at += 1
        shift += 7
        if block[at - 1] < 0x80:
            break
    most = min(max_size, _SNAPPY_RATIO * len(block))
    if size > most:
        raise _corrupt(f"a snappy block claims {size} bytes, over {most}")
    out: bytes = pa.Codec("snappy").decompress(block, decompressed_size=size, asbytes=True)
    return out


def _unlz4(data: Buffer, max_size: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    out: bytes = stream.decompress(data, max_length=max_size + 1)
    if not stream.eof and len(out) <= max_size:
        raise EOFError
    return out


def _unlz4_stream(data: Buffer) -> Iterator[Buffer]:
    stream = lz4.frame.LZ4FrameDecompressor()
    chunk = stream.decompress(data, max_length=_CHUNK)
    while True:
        if chunk:
            yield chunk
        if stream.eof:
            return
        if not chunk and stream.needs_input:
            raise EOFError
        chunk = stream.decompress(b"", max_length=_CHUNK)


def _unzstd(data: Buffer, max_size: int) -> bytes:
    size = _zstd_content_size(memoryview(data))
    out: bytes
    if size is not None:
        if size > max_size:
            raise _corrupt(f"a zstd frame claims {size} bytes, over {max_size}")
        # In one go: this, unlike the stream of older pyarrows, notices a frame that ends early.
        with suppress(OSError):
            out = pa.Codec("zstd").decompress(data, decompressed_size=size, asbytes=True)
            if len(out) != size:
                raise EOFError
            return out
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), "zstd") as stream:
        out = stream.read(max_size + 1)
    if size is not None and len(out) <= size:  # else other frames follow the first
        raise EOFError
    return out


def _unzstd_stream(data: Buffer) -> Iterator[Buffer]:
    if len(data) == 0:
        raise EOFError
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), "zstd") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def _zstd_content_size(frame: memoryview) -> int | None:
    """Reads the size of the content from the header of a zstd frame (RFC 8878, 3.1.1.1). None if
    the header does not have this size.
    """
    if len(frame) < 5 or bytes(frame[:4]) != b"\x28\xb5\x2f\xfd":
        raise EOFError
    descriptor = frame[4]
    single_segment = descriptor >> 5 & 1
    at = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    width = (single_segment, 2, 4, 8)[descriptor >> 6]
    if width == 0:
        return None
    if at + width > len(frame):
        raise EOFError
    # Two bytes count from 256 on, because one byte could say less.
    return int.from_bytes(frame[at : at + width], "little") + (256 if width == 2 else 0)


_DECOMPRESS = {
    CompressionType.NONE: _stored,
    CompressionType.GZIP: _gunzip,
    CompressionType.SNAPPY: _unxerial,
    CompressionType.LZ4: _unlz4,
    CompressionType.ZSTD: _unzstd,
}
_STREAM: dict[CompressionType, Callable[[Buffer], Iterator[Buffer]]] = {
    CompressionType.NONE: lambda data: iter((data,)),
    CompressionType.GZIP: _gunzip_stream,
    CompressionType.SNAPPY: _unsnappy_stream,
    CompressionType.LZ4: _unlz4_stream,
    CompressionType.ZSTD: _unzstd_stream,
}

_RISE, _FALL = 0.05, 0.005


class CompressionRatioEstimator:
    """Estimates the compression ratio of a topic's next batch, as Java's class with the same name.
    The ratio is the compressed size divided by the raw size.

    The estimate comes from the ratios of the topic's earlier batches with the same compression
    type. The first estimate is 1 (no compression). Several threads can use the object without a
    lock. If two threads update an estimate at the same time, one of the two updates can be lost.
    """

    __slots__ = ("_ratios",)

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, CompressionType], float] = {}

    def estimation(self, topic: str, codec: Codec) -> float:
        """The estimated ratio of compressed size to raw size. 1 for the type NONE."""
        return self._ratios.get((topic, codec.type), 1.0)

    def update(self, topic: str, codec: Codec, observed: float) -> float:
        """Updates the topic's estimate after a batch with the ratio ``observed``, and returns the
        new estimate. Without compression, the estimate is always 1.

        * If ``observed`` is higher than the old estimate, the new estimate is the maximum of
          ``observed`` and the old estimate plus 0.05.
        * In all other cases, the new estimate is the maximum of ``observed`` and the old estimate
          minus 0.005.
        """
        if codec.is_none:
            return 1.0
        current = self.estimation(topic, codec)
        step = current + _RISE if observed > current else current - _FALL
        ratio = self._ratios[topic, codec.type] = max(step, observed)
        return ratio
