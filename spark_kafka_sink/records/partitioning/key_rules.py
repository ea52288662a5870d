"""The rules by which partitioners treat a key, an empty key and a null key.

:data:`KEY_RULES` maps the name of a partitioner to its rule. The option ``partitioner.class`` sets
the name. The same rules are used for columns (``partitioners``) and for single records
(``producer/send/record_partitioner``).

A partitioner with a name from librdkafka treats keys as in librdkafka (``rdkafka_msg.c``):

* A null key: ``consistent``, ``murmur2`` and ``fnv1a`` hash it like an empty key. All others
  distribute null keys by load.
* An empty key: ``consistent_random`` distributes empty keys by load, and ``random`` at random. All
  others hash an empty key.
* Any other key: ``random`` distributes such keys at random. All others hash the key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.base.errors import DataError
from spark_kafka_sink.records.gather import lengths_of, valid_of
from spark_kafka_sink.records.partitioning.crc32 import crc32, crc32_of
from spark_kafka_sink.records.partitioning.fnv1a import fnv1a, fnv1a_of
from spark_kafka_sink.records.partitioning.murmur2 import murmur2, murmur2_of
from spark_kafka_sink.records.partitioning.murmur3 import (
    INTEGER_WIDTHS,
    murmur3,
    murmur3_of,
    murmur3_of_integer,
    murmur3_of_integers,
)
from spark_kafka_sink.records.record_columns import RecordColumns

UInt32s = npt.NDArray[np.uint32]
Int32s = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
_POSITIVE = 0x7FFFFFFF
_POSITIVES = np.uint32(_POSITIVE)


class Choice(Enum):
    """A way to choose the partition of a record: by the hash of its key, by load, or at random."""

    #: The hash of the key modulo the number of all partitions, with or without a leader.
    HASH = "hash"
    #: By load: the same partition with a leader until it has received the bytes of a batch, then
    #: another partition (KIP-794).
    STICKY = "sticky"
    #: A random partition for every record, among the partitions with a leader.
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class KeyRule:
    """The rule by which a partitioner chooses the partition of a record.

    * ``null``, ``empty``, ``other``: the :class:`Choice` for null keys, empty keys and all other
      keys.
    * ``numbers``: computes the hash of each key in a column. Hashes are below 2^32.
    * ``number``: computes the same hash for a single key.
    * ``widths``: the allowed lengths of a key in bytes. None if all lengths are allowed.
    """

    null: Choice
    empty: Choice
    other: Choice
    numbers: Callable[[pa.Array], UInt32s]
    number: Callable[[bytes], int]
    widths: tuple[int, ...] | None = None
    #: The description of the hash, for the documentation.
    doc: str = ""

    def choice(self, key: bytes | None) -> Choice:
        """The way to choose the partition of a record with the key ``key``. Raises DataError if the
        key's length is not allowed.
        """
        if key is None:
            return self.null
        if self.widths is not None and len(key) not in self.widths:
            raise DataError(_wrong_width(len(key)), hint=_WIDTH_HINT)
        return self.other if key else self.empty

    def sticky(self, keys: pa.Array) -> Bools | None:
        """The mask of the rows that are distributed by load (:attr:`Choice.STICKY`) because their
        key is null or empty. None if there can be no such row.

        The field ``other`` must not be STICKY when this method is called. With a STICKY ``other``,
        all rows are distributed by load.
        """
        if self.null is not Choice.STICKY:
            return None
        if self.empty is Choice.STICKY:
            none: Bools = lengths_of(keys) == 0
            return none
        valid = valid_of(keys)
        return None if valid is None else ~valid

    def check(self, columns: RecordColumns, given: Int32s | None) -> None:
        """Raises DataError for the first row with a key of a length that is not allowed. If
        ``given`` has a partition (0 or above) for a row, the row is not checked.
        """
        if self.widths is None or columns.key is None:
            return
        lengths, valid = lengths_of(columns.key), valid_of(columns.key)
        wrong = np.isin(lengths, self.widths, invert=True)
        if valid is not None:
            wrong &= valid
        if given is not None:
            wrong &= given < 0
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(
                f"column 'key', row {columns.first_row + row} of the Arrow batch: "
                + _wrong_width(int(lengths[row])),
                hint=_WIDTH_HINT,
            )


def _wrong_width(length: int) -> str:
    return (
        "the partitioner iceberg_bucket_long takes keys that are integers of"
        f" {' or '.join(map(str, INTEGER_WIDTHS))} bytes, and this one has {length}"
    )


_WIDTH_HINT = (
    "in Spark, unhex(lpad(hex(column), 16, '0')) makes one; iceberg_bucket takes text and bytes"
)


def key_rule(name: str | None, *, ignore_keys: bool = False) -> KeyRule | None:
    """The key rule for ``name``, a value of ``partitioner.class``. None if that partitioner does
    not use keys, or is a user's class.

    If ``name`` is None, the result is the rule of the built-in partitioner. Only this case uses
    ``ignore_keys`` (``partitioner.ignore.keys``): if it is true, all rows are treated like rows
    without a key.
    """
    if name is None:
        return IGNORED if ignore_keys else JAVA_RULE
    return KEY_RULES.get(name)


def _positive(
    numbers: Callable[[pa.Array], UInt32s], number: Callable[[bytes], int]
) -> tuple[Callable[[pa.Array], UInt32s], Callable[[bytes], int]]:
    """Changes the two hash functions so that the highest bit of their results is 0, as Java's
    ``Utils.toPositive`` does.
    """
    return lambda keys: numbers(keys) & _POSITIVES, lambda key: number(key) & _POSITIVE


_H, _S, _R = Choice.HASH, Choice.STICKY, Choice.RANDOM
_JAVA = _positive(murmur2, murmur2_of)
_MURMUR3 = _positive(murmur3, murmur3_of)
_INTEGERS = _positive(murmur3_of_integers, murmur3_of_integer)
_MURMUR2_DOC, _CRC32_DOC, _FNV_DOC = "murmur2", "CRC-32", "FNV-1a (32 bits)"
_MURMUR3_DOC = "MurmurHash3 (x86, 32 bits, seed 0)"

#: Java's built-in partitioner.
JAVA_RULE = KeyRule(_S, _H, _H, *_JAVA, doc=_MURMUR2_DOC)
#: Java's built-in partitioner with ``partitioner.ignore.keys=true``.
IGNORED = KeyRule(_S, _S, _S, *_JAVA)

KEY_RULES: dict[str, KeyRule] = {
    "consistent": KeyRule(_H, _H, _H, crc32, crc32_of, doc=_CRC32_DOC),
    "consistent_random": KeyRule(_S, _S, _H, crc32, crc32_of, doc=_CRC32_DOC),
    "murmur2": KeyRule(_H, _H, _H, *_JAVA, doc=_MURMUR2_DOC),
    "murmur2_random": JAVA_RULE,
    "fnv1a": KeyRule(_H, _H, _H, fnv1a, fnv1a_of, doc=_FNV_DOC),
    "fnv1a_random": KeyRule(_S, _H, _H, fnv1a, fnv1a_of, doc=_FNV_DOC),
    "random": KeyRule(_S, _R, _R, *_JAVA),
    "murmur3": KeyRule(_S, _H, _H, *_MURMUR3, doc=_MURMUR3_DOC),
    "iceberg_bucket": KeyRule(_S, _H, _H, *_MURMUR3, doc=_MURMUR3_DOC),
    "iceberg_bucket_long": KeyRule(
        _S, _H, _H, *_INTEGERS, INTEGER_WIDTHS, doc=f"{_MURMUR3_DOC} of a number"
    ),
}
