"""The claims of a report: the rows and checksums that an audit compares with Kafka.

:func:`claims_of` parses them from a report's JSON. Reports that older versions of this package have
written are accepted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.base.described_fields import as_json
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.json_object import json_object
from spark_kafka_sink.datasource.report.write_report import (
    REPORT_VERSION,
    WriteOutcome,
    WriteReport,
)
from spark_kafka_sink.protocol.cluster import TopicPartition

#: With these outcomes a report claims no row: this write has added no row, or its rows may be
#: undone.
_NOTHING: Final = frozenset(
    {
        WriteOutcome.NO_ROWS,
        WriteOutcome.DONE_BEFORE,
        WriteOutcome.FAILED,
        WriteOutcome.ABORTED,
    }
)
#: With these outcomes, all rows may be in Kafka or none.
_UNDECIDED: Final = frozenset({WriteOutcome.UNKNOWN, WriteOutcome.PREPARED})


@dataclass(frozen=True, slots=True)
class PartitionClaim:
    """The rows of one partition according to a report, dead letters included: from the offset
    ``first`` to the offset ``last``, both included.

    - ``rows`` is the number of these rows.
    - ``checksum`` is the sum of the checksums of their record batches, modulo 2^64.

    ``rows`` and ``checksum`` are None if the report has no field ``audit``.
    """

    tp: TopicPartition
    first: int
    last: int
    rows: int | None
    checksum: int | None


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of one report.

    - ``rows`` is the number of all rows, dead letters included.
    - ``partitions`` are the rows by partition, for the partitions that the report lists.
      ``partitions_left_out`` is the number of all other partitions.
    - ``topic_rows`` are the rows by topic, for the topics that the report lists.
    - ``producers`` are pairs of producer id and epoch. None if they are unknown.
    - ``rows_without_offset`` is the number of rows with an unknown offset. These rows may be before
      or after the claimed offsets of their partition.
    """

    report_id: str
    outcome: WriteOutcome
    exactly_once: bool
    cluster_id: str | None
    rows: int
    partitions: tuple[PartitionClaim, ...]
    producers: frozenset[tuple[int, int]] | None
    rows_without_offset: int
    partitions_left_out: int
    topic_rows: Mapping[str, int]
    topic_ids: Mapping[str, str]
    dead_letter_topic: str | None

    @property
    def of_nothing(self) -> bool:
        """Whether the report claims no rows: the write had no rows, had been committed before,
        failed, or was aborted.
        """
        return self.outcome in _NOTHING

    @property
    def undecided(self) -> bool:
        """Whether the outcome of the write was not known yet when the report was created. All rows
        may be committed, or none of them.
        """
        return self.outcome in _UNDECIDED

    @property
    def unlisted(self) -> int:
        """The number of rows in partitions that the report does not list. 0 if this number is
        unknown.
        """
        if self.of_nothing:
            return 0
        listed = [one.rows for one in self.partitions if one.rows is not None]
        if listed or not self.partitions:
            return max(self.rows - sum(listed), 0)
        # The report has no number of rows of each partition. The rows of a topic count as listed if
        # one of its partitions is listed.
        topics = {one.tp.topic for one in self.partitions}
        if not topics <= self.topic_rows.keys():
            return 0
        return max(self.rows - sum(self.topic_rows[one] for one in topics), 0)


def claims_of(report: WriteReport | Mapping[str, object] | str) -> Claims:
    """Reads the claims of a report: the rows and checksums that an audit compares with Kafka.
    ``report`` is a :class:`WriteReport` or its JSON. Raises ConfigError for any other value.
    """
    fields: object = report
    if isinstance(report, WriteReport):
        fields = as_json(report)
    elif isinstance(report, str):
        fields = json_object(report)
    try:
        assert isinstance(fields, Mapping)
        version = fields["reportVersion"]
        if version == REPORT_VERSION:
            return _claims(fields)
        shown = json.dumps(version)
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(
            "this is not a report of a write, or a part of it is missing",
            hint="give a line of reportPath, a record of reportTopic, or a WriteReport",
        ) from None
    # (A ConfigError is a ValueError: not within the block above.)
    raise ConfigError(
        f"a report of version {shown} can't be audited here",
        hint="install the version of spark-kafka-sink that has written it",
    )


def _claims(fields: Mapping[str, object]) -> Claims:
    letters, audit = fields.get("deadLetters"), fields.get("audit")
    letters = letters if isinstance(letters, dict) else None
    audit = audit if isinstance(audit, dict) else None
    topics = _list(fields["topicCounts"])
    listed = _list(fields["partitions"])
    rows: Sequence[object] = [None] * len(listed)
    sums = rows
    if audit is not None:
        rows, sums = _list(audit["rows"]), _list(audit["checksums"])
    if len({(one["topic"], one["partition"]) for one in listed}) < len(listed):
        raise ValueError
    cluster_id = fields["clusterId"]
    return Claims(
        str(fields["reportId"]),
        WriteOutcome(str(fields["outcome"])),
        fields["deliveryGuarantee"] == "exactly-once",
        None if cluster_id is None else str(cluster_id),
        _int(fields["rows"]) + (0 if letters is None else _int(letters["total"])),
        tuple(
            _partition(one, count, checksum)
            for one, count, checksum in zip(listed, rows, sums, strict=True)
        ),
        None if audit is None else frozenset(map(_producer, _list(audit["producers"]))),
        # Without the figure any row of a write with retries may have none.
        _int(fields["rows"] if fields.get("retries") else 0)
        if audit is None
        else _int(audit["rowsWithoutOffset"]),
        _int(fields.get("partitionsLeftOut", 0)),
        {str(one["topic"]): _int(one["rows"]) for one in topics},
        {str(one["topic"]): str(one["topicId"]) for one in topics if one.get("topicId")},
        None if letters is None else str(letters["topic"]),
    )


def _partition(one: Mapping[str, object], rows: object, checksum: object) -> PartitionClaim:
    first, last = _int(one["firstOffset"]), _int(one["lastOffset"])
    if first > last:
        raise ValueError
    return PartitionClaim(
        TopicPartition(str(one["topic"]), _int(one["partition"])),
        first,
        last,
        None if rows is None else _int(rows),
        None if checksum is None else int(str(checksum), 16),
    )


def _list(value: object) -> list[dict[str, object]]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _int(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise TypeError
    return value


def _producer(text: object) -> tuple[int, int]:
    number, epoch = str(text).split("/")
    return int(number), int(epoch)
