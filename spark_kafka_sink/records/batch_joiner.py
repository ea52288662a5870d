"""Joins small Arrow record batches into larger ones. The producer determines how many rows a joined
batch should have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import pyarrow as pa

from spark_kafka_sink.records.record_columns import ChunkSize

#: The most milliseconds for which rows wait for other rows. Only a wait for the next batch can take
#: longer, because this wait can't be interrupted.
HOLD_MS = 100


class BatchJoiner:
    """Returns the Arrow batches of an iterable in order. Joins small batches, and leaves out empty
    batches.

    A joined batch has at most the rows and bytes of one chunk (the rows that the producer encodes
    together). Only joined batches are copied. Batches with dictionary or run-end encoded columns
    are not joined.

    * ``now_ms()`` returns the time of a monotonic clock in ms.
    * ``waiting(delay_ms)`` returns a context manager, such as the producer's
      ``waiting_for_input``. This object waits for Arrow batches only inside of this context
      manager. The producer keeps open record batches for ``delay_ms`` longer than linger.ms:
      100 ms (:data:`HOLD_MS`) if this object holds rows during the wait, and 0 if it holds no rows.
    """

    __slots__ = ("_batches", "_error", "_expands", "_next", "_now_ms", "_schema", "_waiting")

    def __init__(
        self,
        batches: Iterable[pa.RecordBatch],
        now_ms: Callable[[], int],
        waiting: Callable[[int], AbstractContextManager[None]],
    ) -> None:
        self._batches = iter(batches)
        self._now_ms = now_ms
        self._waiting = waiting
        #: A batch that was taken from the iterator, but was too large to be joined, or has another
        #: schema. The next call returns this batch.
        self._next: pa.RecordBatch | None = None
        #: The error of the iterator, raised after the batches that were not returned yet.
        self._error: Exception | None = None
        #: The schema of the last small batch. ``_expands`` is the result of ``_may_expand`` for it.
        self._schema: pa.Schema | None = None
        self._expands = False

    def next(self, size: ChunkSize) -> pa.RecordBatch | None:
        """Returns the next batch, or None at the end of the iterable.

        If the batch is small, the following batches are joined to it. The joining ends when one of
        these conditions is true:

        * The joined batch has ``size.wanted_rows`` rows.
        * The next batch would make the joined batch larger than ``size.max_rows`` rows or
          ``size.max_bytes`` bytes.
        * The next batch has a different schema.
        * The iterable ends, or raises an exception.
        * 100 ms (:data:`HOLD_MS`) have passed since the call. A wait for the iterable can't be
          interrupted, so such a wait can last longer.

        If the iterable raises an exception, the calls first return all batches from before the
        exception. The next call raises the exception.
        """
        if self._error is not None:
            raise self._error
        until = self._now_ms() + HOLD_MS
        first, self._next = self._next, None
        if first is None:
            with self._waiting(0):
                first = self._take()
        if first is None or first.num_rows >= size.wanted_rows or self._may_expand(first.schema):
            return first
        # Without this delay, the producer would often send an open record batch just before the
        # held rows could fill it.
        with self._waiting(HOLD_MS):
            return self._joined(first, size, until)

    def _joined(self, first: pa.RecordBatch, size: ChunkSize, until: int) -> pa.RecordBatch:
        joined, rows, taken = [first], first.num_rows, first.nbytes
        # Input that is slower than that is passed on as it comes.
        while rows < size.wanted_rows and self._now_ms() < until:
            last = joined[-1]  # the next is mostly like it
            if rows + last.num_rows > size.max_rows or taken + last.nbytes > size.max_bytes:
                break
            try:
                batch = self._take()
            except Exception as error:  # noqa: BLE001 - raised behind the rows that came before it
                self._error = error
                break
            if batch is None:
                break
            rows += batch.num_rows
            taken += batch.nbytes
            if rows > size.max_rows or taken > size.max_bytes or batch.schema != first.schema:
                self._next = batch
                break
            joined.append(batch)
        return first if len(joined) == 1 else _concatenated(joined)

    def _may_expand(self, schema: pa.Schema) -> bool:
        """True if decoding a column of this schema can need more memory than the column has in
        Arrow. Such columns have dictionaries or run-end encoded values.
        """
        # The result is cached, because a schema can have hundreds of columns, and most batches have
        # the same schema.
        if self._schema is None or schema != self._schema:
            self._schema = schema
            self._expands = any(_type_may_expand(field.type) for field in schema)
        return self._expands

    def _take(self) -> pa.RecordBatch | None:
        return next((batch for batch in self._batches if batch.num_rows), None)


def _type_may_expand(type_: pa.DataType) -> bool:
    """True if this type has dictionaries or run-end encoded values. Decoded values of such a type
    can have more bytes than ``nbytes`` shows.
    """
    if isinstance(type_, pa.BaseExtensionType):
        return _type_may_expand(type_.storage_type)
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return True
    return any(_type_may_expand(type_.field(index).type) for index in range(type_.num_fields))


def _concatenated(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    # pa.concat_batches came with pyarrow 19.
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch
