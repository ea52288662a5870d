"""Rows that can't be sent: why, and which rows of a batch they are.

Owns: :class:`Reason`, the one table of reasons (code, exception class and stage of Kafka Connect),
and :class:`BadRows`, which collects masks in place of raising. Never: a check (``record_columns``,
``letters/row_limits``), what becomes of the rows (``letters/letter_writer``).

A check has one form: it calls :func:`refuse` with a mask. Without :class:`BadRows` the first row of
the mask is an error, as ever; with it the rows are noted, and the first reason of a row counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ErrorCode, KafkaError

Mask = npt.NDArray[np.bool_]

_KAFKA = "org.apache.kafka.common.errors."
_CONNECT = "org.apache.kafka.connect.errors."
_COLUMNS = "spark_kafka_sink.records.record_columns"


class Reason(Enum):
    """Why a row can't be sent: in words, its code, the exception class and the stage by which
    Connect's dashboards group, and the module that finds it.
    """

    NULL_KEY = ("null key", Kind.NULL_KEY, "InvalidRecordException", "KEY_CONVERTER")
    NULL_VALUE = ("null value", Kind.NULL_VALUE, "InvalidRecordException", "VALUE_CONVERTER")
    NULL_TOPIC = ("null topic", Kind.NULL_TOPIC, "InvalidTopicException", "KAFKA_PRODUCE")
    TOPIC_NAME = (
        "invalid topic name", Kind.INVALID_TOPIC_NAME, "InvalidTopicException", "KAFKA_PRODUCE",
    )  # fmt: skip
    NO_TOPIC = (
        "topic does not exist", Kind.TOPIC_NOT_PRESENT, "UnknownTopicOrPartitionException",
        "KAFKA_PRODUCE", "spark_kafka_sink.network.client.metadata",
    )  # fmt: skip
    FORBIDDEN_TOPIC = (
        "no right to write to the topic", ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "TopicAuthorizationException", "KAFKA_PRODUCE", "spark_kafka_sink.network.client.metadata",
    )  # fmt: skip
    PARTITION = (
        "partition does not exist", Kind.PARTITION_NOT_THERE, "UnknownTopicOrPartitionException",
        "KAFKA_PRODUCE", "spark_kafka_sink.records.partitioning.partitioners",
    )  # fmt: skip
    HEADERS = (
        "invalid headers", Kind.INVALID_HEADERS, "InvalidRecordException", "HEADER_CONVERTER",
        "spark_kafka_sink.records.record_headers",
    )  # fmt: skip
    TIMESTAMP = (
        "invalid timestamp", Kind.INVALID_TIMESTAMP, "InvalidTimestampException", "KAFKA_PRODUCE",
    )  # fmt: skip
    TOO_LARGE = (
        "too large", Kind.RECORD_TOO_LARGE, "RecordTooLargeException", "KAFKA_PRODUCE",
        "spark_kafka_sink.records.record_encoder",
    )  # fmt: skip
    VALUE_REFUSED = (
        "refused by the schema", Kind.REFUSED_BY_SCHEMA, "DataException", "VALUE_CONVERTER",
        "spark_kafka_sink.records.formats.composed_columns", _CONNECT,
    )  # fmt: skip
    KEY_REFUSED = (
        "refused by the schema", Kind.REFUSED_BY_SCHEMA, "DataException", "KEY_CONVERTER",
        "spark_kafka_sink.records.formats.composed_columns", _CONNECT,
    )  # fmt: skip

    def __init__(
        self,
        text: str,
        kind: Kind | ErrorCode,
        exception: str,
        stage: str,
        module: str = _COLUMNS,
        package: str = _KAFKA,
    ) -> None:
        self.text = text
        self.code = kind.kp_code
        self.exception = package + exception
        self.stage = stage
        self.module = module


#: The reason of each code, for readers of letters.
TEXT_OF_CODE = {reason.code: reason.text for reason in Reason}


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason, and a sentence for all of its rows, without their content."""

    reason: Reason
    text: str


class BadRows:
    """The rows of a batch that can't be sent. ``which`` has for each row 0, or the number of its
    finding, counted from 1.
    """

    __slots__ = ("found", "which")

    def __init__(self, rows: int) -> None:
        self.which = np.zeros(rows, np.int64)
        self.found: list[Finding] = []

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Their numbers in the batch."""
        return (self.which > 0).nonzero()[0]

    def add(self, rows: Mask, reason: Reason, text: str) -> None:
        """Note the rows that have no finding yet."""
        new = rows & (self.which == 0)
        if new.any():
            self.found.append(Finding(reason, text))
            self.which[new] = len(self.found)


def refuse(
    bad: BadRows | None,
    rows: Mask,
    reason: Reason,
    text: str,
    error: Callable[[int], KafkaError],
) -> None:
    """Note ``rows``, of which there is one; or raise the ``error`` of the first of them."""
    if bad is None:
        raise error(int(np.argmax(rows)))
    bad.add(rows, reason, text)
