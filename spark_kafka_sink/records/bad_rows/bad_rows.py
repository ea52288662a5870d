"""Collects the rows of an Arrow batch that can't be sent, and the reason for each of these rows.

:class:`Reason` has all reasons. A check of rows calls :meth:`BadRows.refuse` with a mask: an array
that is true for each row that fails the check. The option errors.tolerance determines the effect of
this call:

* ``all``: the rows are collected. ``letters/letter_writer`` makes dead letters from them. If a row
  fails several checks, the first reason counts.
* ``none``: the call raises an error for the first row in the mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import DataError, ErrorCode

Mask = npt.NDArray[np.bool_]

#: Kafka Connect's exception classes and stages, and the modules of this package that find bad rows.
_RECORD, _TOPIC = "InvalidRecordException", "InvalidTopicException"
_UNKNOWN, _FORBIDDEN = "UnknownTopicOrPartitionException", "TopicAuthorizationException"
_KEY, _VALUE, _PRODUCE = "KEY_CONVERTER", "VALUE_CONVERTER", "KAFKA_PRODUCE"
_METADATA = "network.client.metadata"
_CHANGES = "records.changes.marks"
#: ``module`` and ``of`` of a reason that a schema gives.
_COMPOSED = "records.formats.composed_columns", "connect"


@dataclass(eq=False)
class _Facts:
    """The properties of a :class:`Reason`. A dead letter has them as headers, except for ``text``.

    * ``text``: the reason in a few words.
    * ``kind``: the kind of the error, which has the error code.
    * ``exception``, ``of``: Kafka Connect's exception class for this reason, which is
      ``org.apache.kafka.{of}.errors.{exception}``.
    * ``stage``: Kafka Connect's stage for this reason. Dashboards for Kafka Connect group dead
      letters by exception class and by stage.
    * ``module``: the module of this package that finds rows with this reason.
    """

    text: str
    kind: Kind | ErrorCode
    exception: str
    stage: str
    module: str = "records.record_columns"
    of: str = "common"


class Reason(_Facts, Enum):
    """The reason why a row can't be sent."""

    # fmt: off
    NULL_KEY = "null key", Kind.NULL_KEY, _RECORD, _KEY
    NULL_VALUE = "null value", Kind.NULL_VALUE, _RECORD, _VALUE
    NULL_TOPIC = "null topic", Kind.NULL_TOPIC, _TOPIC, _PRODUCE
    TOPIC_NAME = "invalid topic name", Kind.INVALID_TOPIC_NAME, _TOPIC, _PRODUCE
    COMMIT_LOG = "topic of the commit log", Kind.TOPIC_OF_COMMIT_LOG, _TOPIC, _PRODUCE
    NO_TOPIC = "topic does not exist", Kind.TOPIC_NOT_PRESENT, _UNKNOWN, _PRODUCE, _METADATA
    FORBIDDEN_TOPIC = ("no right to write to the topic", ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                       _FORBIDDEN, _PRODUCE, _METADATA)
    PARTITION = ("partition does not exist", Kind.PARTITION_NOT_THERE, _UNKNOWN, _PRODUCE,
                 "records.partitioning.partitioners")
    HEADERS = ("invalid headers", Kind.INVALID_HEADERS, _RECORD, "HEADER_CONVERTER",
               "records.record_headers")
    TIMESTAMP = "invalid timestamp", Kind.INVALID_TIMESTAMP, "InvalidTimestampException", _PRODUCE
    TOO_LARGE = ("too large", Kind.RECORD_TOO_LARGE, "RecordTooLargeException", _PRODUCE,
                 "records.record_encoder")
    VALUE_REFUSED = ("refused by the schema", Kind.REFUSED_BY_SCHEMA, "DataException", _VALUE,
                     *_COMPOSED)
    KEY_REFUSED = "refused by the schema", Kind.REFUSED_BY_SCHEMA, "DataException", _KEY, *_COMPOSED
    CHANGE_TYPE = ("unknown change type", Kind.CHANGE_TYPE, "DataException", _VALUE, _CHANGES,
                   "connect")
    CHANGE_PAIR = ("half of a change", Kind.CHANGE_PAIR, "DataException", _VALUE, _CHANGES,
                   "connect")
    CHANGE_ORDER = ("change out of order", Kind.CHANGE_ORDER, "DataException", _VALUE, _CHANGES,
                    "connect")
    # fmt: on


#: The reason of each code, for readers of letters.
TEXT_OF_CODE = {reason.kind.kp_code: reason.text for reason in Reason}


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason why rows can't be sent, with a sentence for the error message. The sentence contains
    no values of rows, so several rows can have the same finding.
    """

    reason: Reason
    text: str


class BadRows:
    """The rows of an Arrow batch that can't be sent.

    * ``found``: the reasons, each with the sentence for the error message.
    * ``which``: an int64 array with a number for each row of the batch. 0 means that the row is
      good. A higher number i means that the row can't be sent because of ``found[i - 1]``.
    * ``raises``: true if the object was created with None in place of the number of rows. Such an
      object collects no rows: :meth:`refuse` raises an error for the first bad row.
    * ``topic``: the topic that the error message of :meth:`refuse` names. If it is empty, the
      message names no topic.
    """

    __slots__ = ("found", "raises", "topic", "which")

    def __init__(self, rows: int | None) -> None:
        self.raises = rows is None
        self.which = np.zeros(rows or 0, np.int64)
        self.found: list[Finding] = []
        self.topic = ""

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The indexes of the bad rows, ascending."""
        return (self.which > 0).nonzero()[0]

    def refuse(
        self, rows: Mask, reason: Reason, text: str, column: str = "", hint: str | None = None
    ) -> None:
        """Adds the rows in the mask ``rows`` to the bad rows, with the reason ``reason``. A row
        that is already bad keeps its earlier reason.

        If ``raises`` is true, this method adds no rows. It raises DataError for the first row in
        the mask.

        * ``text``: the sentence for the error message, the same for all rows in the mask.
        * ``column``: the name of the column for the error message. Empty if ``text`` has the name.
        * ``hint``: the hint of the error.
        """
        if not rows.any():
            return
        if self.raises:
            where = f"column '{column}', " if column else ""
            topic = f" (topic {self.topic})" if self.topic else ""
            assert isinstance(reason.kind, Kind)
            message = f"{where}row {int(np.argmax(rows))} of the Arrow batch{topic}: {text}"
            raise DataError(message, hint=hint, kind=reason.kind)
        if (new := rows & (self.which == 0)).any():
            self.found.append(Finding(reason, text))
            self.which[new] = len(self.found)
