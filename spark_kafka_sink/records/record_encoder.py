"""Columns to record bytes: grouping, cutting, encoding. The hot path.

Owns: the order in which rows are written (stable groups of one topic partition), where batches are
cut, and the bytes of format v2 records. Never: a lock, a batch (``producer/record_accumulator``),
a header of a batch (``record_batch``), rows one by one.

    groups = group_rows(columns, partitions)
    slices = encode_groups(columns, groups, accumulator.positions(groups.tps), limits, now_ms)

A slice that the accumulator refuses, because the open batch that it was encoded for was closed
meanwhile, is encoded again: :func:`encode_slice_again`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.records.encoded_slice import EncodedSlice, OpenPosition
from spark_kafka_sink.records.record_columns import RecordColumns


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows of a chunk by topic partition, in their order within each.

    Group g holds rows ``order[bounds[g]:bounds[g + 1]]`` of the columns and goes to ``tps[g]``.
    ``order`` is None when it is the identity (one group).
    """

    tps: tuple[TopicPartition, ...]
    bounds: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64] | None


def group_rows(columns: RecordColumns, partitions: npt.NDArray[np.int32]) -> Groups:
    """Group the rows of ``columns`` by topic and ``partitions`` (one number for each row)."""
    raise NotImplementedError


def encode_groups(
    columns: RecordColumns,
    groups: Groups,
    positions: Sequence[OpenPosition],
    raw_limits: Sequence[int] | int,
    now_ms: int,
    *,
    max_request_size: int,
) -> list[EncodedSlice]:
    """Cut every group into batches and encode the whole chunk into one buffer.

    ``positions[g]`` is where the open batch of ``groups.tps[g]`` stands. ``raw_limits`` is, for
    each group or for all, how many raw record bytes a new batch takes (batch.size without the
    header, over the estimated compression ratio); the first record of a new batch always fits.
    ``now_ms`` is the timestamp of rows without one. The slices come group by group, in order:
    the first of a group continues the open batch when its first record still fits there
    (``generation`` of the position), the others open new ones (``generation`` 0).

    Raises RecordTooLargeError, before anything is encoded, for a record that can't be sent.
    """
    raise NotImplementedError


def encode_slice_again(
    columns: RecordColumns,
    groups: Groups,
    refused: EncodedSlice,
    position: OpenPosition,
    raw_limit: int,
    now_ms: int,
) -> list[EncodedSlice]:
    """Encode the rows of ``refused`` again for where its partition stands now.

    More than one slice comes back when they no longer fit into one batch.
    """
    raise NotImplementedError
