"""murmur2 by columns against the vectors of Kafka and librdkafka (any keys:
``test_records_key_hashes.py``).
"""

import numpy as np
import pyarrow as pa

from spark_kafka_sink.records.partitioning.murmur2 import murmur2

JAVA = {  # UtilsTest.testMurmur2, signed
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
LIBRDKAFKA = {  # rdmurmur2.c, unsigned
    b"": 0x106E08D9,
    b"kafka": 0xD067CF64,
    b"giberish123456789": 0x8F552B0C,
    b"1234": 0x9FC97B14,
    b"234": 0xE7C009CA,
    b"34": 0x873930DA,
    b"4": 0x5A4B5CA1,
    b"PreAmbleWillBeRemoved,ThePrePartThatIs": 0x78424F1C,
}


def test_the_vectors_of_the_java_client_hold():
    """UtilsTest#testMurmur2."""
    assert murmur2(pa.array(list(JAVA))).view(np.int32).tolist() == list(JAVA.values())


def test_the_vectors_of_librdkafka_hold():
    """librdkafka's own vectors (rdmurmur2.c)."""
    assert murmur2(pa.array(list(LIBRDKAFKA))).tolist() == list(LIBRDKAFKA.values())


def java_random_bytes(first, words):
    """Longs ``first`` and so on of a SplittableRandom(0), as the bytes that nextBytes takes."""
    z = np.arange(first + 1, first + words + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return (z ^ z >> np.uint64(31)).view(np.uint8)


def test_the_sum_over_javas_random_arrays_holds():
    # UtilsTest.testMurmur2Checksum: 100 arrays of each length, filled by one generator.
    """UtilsTest#testMurmur2."""
    used, parts = 0, []
    for length in range(1001):
        words = (length + 7) // 8
        filled = java_random_bytes(used, 100 * words).reshape(100, 8 * words)
        parts.append(filled[:, :length].reshape(-1))
        used += 100 * words
    offsets = np.concatenate(([0], np.cumsum(np.repeat(np.arange(1001), 100)))).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.concatenate(parts))]
    keys = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    assert int(murmur2(keys).astype(np.int64).sum()) == 0xC3B8CF7C99FC


def test_the_partition_is_the_positive_hash_modulo_the_count():
    positive = murmur2(pa.array([b"21", b"abc"])) & np.uint32(0x7FFFFFFF)
    assert positive.tolist() == [1173551340, 479470107]


def test_no_keys_give_no_hashes():
    assert murmur2(pa.array([], pa.binary())).tolist() == []
