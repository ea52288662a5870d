"""Codecs as Java reads and writes them; the ratio estimator."""

import random
import struct
import tracemalloc
import zlib

import lz4.frame
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.codec import gzip_decode, lz4_decode, zstd_decode

from spark_kafka_sink.base.errors import CorruptRecordError
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.records.compression import (
    Codec,
    CompressionRatioEstimator,
    CompressionType,
)

CODECS = [Codec.parse(t.name) for t in CompressionType]
PACKING = CODECS[1:]
TEXT = b"".join(b'{"id": %d, "name": "somebody"}' % i for i in range(20_000))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=8), st.sampled_from(CODECS))
def test_buffers_come_back_as_one(buffers, codec):
    packed = codec.compress([memoryview(b) for b in buffers])
    assert codec.decompress(packed, 10_000) == b"".join(buffers)


@pytest.mark.parametrize("codec", PACKING, ids=lambda c: c.name)
def test_a_large_section_shrinks_and_comes_back(codec):
    packed = codec.compress([TEXT[:100_000], TEXT[100_000:]])
    assert len(packed) < len(TEXT) / 3
    assert codec.decompress(packed) == TEXT


# Not snappy: kafka-python needs a library for it that we don't; its framing is read below.
@pytest.mark.parametrize(
    ("name", "decode"), [("gzip", gzip_decode), ("lz4", lz4_decode), ("zstd", zstd_decode)]
)
def test_kafka_python_reads_what_we_compress(name, decode):
    assert bytes(decode(Codec.parse(name).compress([TEXT]))) == TEXT


def test_snappy_is_xerials_framing_in_blocks_of_32_kib():
    packed = Codec.parse("snappy").compress([TEXT])
    assert packed[:16] == bytes.fromhex("82534e415050590000000001" + "00000001")
    at, read = 16, b""
    while at < len(packed):
        (size,) = struct.unpack_from(">i", packed, at)
        block = packed[at + 4 : at + 4 + size]
        want = min(32 * 1024, len(TEXT) - len(read))
        read += pa.decompress(block, want, "snappy", asbytes=True)
        at += 4 + size
    assert read == TEXT


def test_a_raw_snappy_block_is_read_too():
    assert Codec.parse("snappy").decompress(pa.compress(b"abc", "snappy", asbytes=True)) == b"abc"


@pytest.mark.parametrize("level", [1, 9, 17])
def test_lz4_is_a_frame_of_independent_64_kib_blocks_as_javas(level):
    packed = Codec.parse("lz4", lz4_level=level).compress([TEXT])
    # Magic; version 01, independent blocks, no checksums, no content size; blocks of 64 KiB.
    assert packed[:6] == bytes.fromhex("04224d186040")
    assert lz4.frame.decompress(packed) == TEXT


def test_lz4_level_9_is_the_fast_one_and_all_others_are_high():
    fast, high = (Codec.parse("lz4", lz4_level=n).compress([TEXT]) for n in (9, 1))
    assert fast == lz4.frame.compress(
        TEXT,
        compression_level=0,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    assert len(high) < len(fast)


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_levels_reach_the_codec(name):
    low, high = (
        Codec.parse(name, gzip_level=level, zstd_level=level).compress([TEXT]) for level in (1, 9)
    )
    assert len(high) < len(low)


@pytest.mark.parametrize("level", [-131072, -1, 0, 1, 22])
def test_zstd_takes_all_of_kafkas_levels(level):
    codec = Codec.parse("zstd", zstd_level=level)
    assert codec.decompress(codec.compress([TEXT[:5000]])) == TEXT[:5000]


def test_zstd_without_a_content_size_is_read_as_a_stream():
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(TEXT)
    packed = sink.getvalue().to_pybytes()
    codec = Codec.parse("zstd")
    assert codec.decompress(packed) == TEXT
    with pytest.raises(CorruptRecordError, match="over"):
        codec.decompress(packed, 1000)


def test_gzip_is_one_member():
    stream = zlib.decompressobj(31)
    assert stream.decompress(Codec.parse("gzip").compress([TEXT, b"end"])) == TEXT + b"end"
    assert stream.eof
    assert stream.unused_data == b""


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_streams_one_after_another_are_read_to_the_end(name):
    """As Java's GZIPInputStream and zstd-jni do."""
    codec = Codec.parse(name)
    parts = [TEXT[:3000], b"", TEXT[3000:9000], b"end"]
    packed = b"".join(codec.compress([part]) for part in parts)
    assert codec.decompress(packed) == b"".join(parts) == b"".join(codec.stream(packed))
    with pytest.raises(CorruptRecordError, match="holds over 8999 bytes"):
        codec.decompress(packed, 8999)
    for wrong in (packed[:-1], packed + packed[:12]):
        with pytest.raises(CorruptRecordError, match="can't be read"):
            codec.decompress(wrong)


def test_the_options_choose_codec_and_level():
    config = parse_producer_config(
        {
            "bootstrap.servers": "127.0.0.1:9092",
            "compression.type": "zstd",
            "compression.zstd.level": "7",
        }
    )
    assert Codec.of(config) == Codec(CompressionType.ZSTD, 7)
    assert not Codec.of(config).is_none


# ---- damaged and hostile streams ---------------------------------------------------------------


@pytest.mark.parametrize("codec", PACKING, ids=lambda c: c.name)
def test_a_cut_or_damaged_stream_is_refused(codec):
    packed = codec.compress([random.Random(1).randbytes(5000)])
    for bad in (packed[: len(packed) // 2], b"", b"?" * 50):
        with pytest.raises(CorruptRecordError):
            codec.decompress(bad, 10_000)


@pytest.mark.parametrize("codec", PACKING, ids=lambda c: c.name)
def test_a_stream_that_grows_beyond_its_limit_takes_no_memory(codec):
    bomb = codec.compress([bytes(50_000_000)])
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError, match="over"):
            codec.decompress(bomb, 100_000)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_a_snappy_block_that_claims_too_much_is_refused_unread():
    with pytest.raises(CorruptRecordError):
        Codec.parse("snappy").decompress(b"\xff\xff\xff\xff\x07abc", 1000)


# ---- CompressionRatioEstimator ----------------------------------------------------------------

LZ4 = Codec.parse("lz4")


def test_the_ratio_rises_at_once_and_falls_slowly():
    """CompressionRatioEstimatorTest#testUpdateEstimation."""
    ratios = CompressionRatioEstimator()
    assert ratios.estimation("t", LZ4) == 1.0
    assert ratios.update("t", LZ4, 0.5) == pytest.approx(0.995)
    assert ratios.update("t", LZ4, 0.9945) == pytest.approx(0.9945)
    assert ratios.update("t", LZ4, 1.0) == pytest.approx(1.0445)
    assert ratios.update("t", LZ4, 3.0) == 3.0
    assert ratios.estimation("other", LZ4) == 1.0
    assert ratios.estimation("t", Codec.parse("gzip")) == 1.0


def test_the_ratio_never_falls_below_what_was_seen():
    """CompressionRatioEstimatorTest#testUpdateEstimation."""
    ratios = CompressionRatioEstimator()
    for _ in range(1000):
        ratios.update("t", LZ4, 0.3)
    assert ratios.estimation("t", LZ4) == pytest.approx(0.3)
